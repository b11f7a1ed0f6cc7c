"""Image datasets, each ``Dataset(data_path, split, cache_folder)`` with ``read(index) -> (image, label)``.

- ``digits``: 1,797 handwritten digits bundled with the package.
- ``idx``: ``mnist`` and ``fashion_mnist`` from their published files.
- ``cifar``: ``cifar10`` and ``cifar100`` from their published archives.
- ``imagenet``: lists of ``path label`` lines, class folders named by WordNet id, or the development kit's labels.
- ``folder``: custom images, one folder per class.
- ``tar_images``: images read in place from uncompressed tar files; ``prepared`` describes those written by us.
- ``held_out``: a subset of another dataset.
- ``inputs``: pictures without labels, for predictions.
- ``formats`` and ``left_out``: which files are images, and how the others are reported.
- ``guessing`` and ``box_layouts``: which dataset a path holds if none is named.

All are plain objects that do not use Paddle. Only file names and scalars are pickled; pixels, paths and labels are
memory-mapped on first use, so any number of processes share one copy.

A dataset of image files also provides ``encoded(index)``, the file's bytes, and ``num_bytes(index)``, and allows
``reading`` to be set (see ``reading``). ``left_out``, if not None, describes the files that are not read; ``notes``,
if any, are lines for the record of a run.
"""
