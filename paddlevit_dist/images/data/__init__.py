"""Image datasets, each ``Dataset(data_path, split, cache_folder)`` with ``read(index) -> (image, label)``.

- ``digits``: 1,797 handwritten digits inside the package.
- ``idx``: ``mnist`` and ``fashion_mnist`` from their published files.
- ``cifar``: ``cifar10`` and ``cifar100`` from their published archives.
- ``imagenet``: lists of ``path label`` lines, class folders named by WordNet id, or the development kit's labels.
- ``folder``: own images in one folder per class.
- ``tar_images``: images read in place from uncompressed tar files; ``prepared`` is their record if we wrote them.
- ``held_out``: a part of another dataset.
- ``formats`` and ``left_out``: which files are images, and what is said of the others.
- ``guessing``: which dataset a path holds, where none is named.

All are plain objects without Paddle. Their pickle holds file names and scalars only; pixels, paths and labels are
memory mapped on first use, so any number of processes shares one copy.

A dataset of image files also offers ``encoded(index)``, the file's bytes, and ``num_bytes(index)``, and lets
``reading`` be set (see ``reading``). ``left_out``, where it is not None, is what lies beside its images; ``notes``,
where there are any, are lines for the record of a run.
"""
