"""Image datasets, each ``Dataset(data_path, split, cache_folder)`` with ``read(index) -> (image, label)``.

- ``image_dataset``: their base class.
- ``small_sets``: ``digits`` bundled with the package, ``mnist`` and ``fashion_mnist``; ``cifar``: ``cifar10`` and
  ``cifar100``.
- ``imagenet``: lists of ``path label`` lines, class folders named by WordNet id, or the development kit's labels.
- ``class_folders``: custom images, one folder per class.
- ``tar``: images read from uncompressed tar files, which ``tar_files`` lists and reads; ``prepared`` describes the
  tar files that ``prepare images`` writes.
- ``held_out``: a subset of another dataset.
- ``listing`` and ``inputs``: images without labels, for predictions.
- ``formats``: which files are images, and how the others are reported.
- ``guessing``, ``box_layouts`` and ``map_layouts``: detect the dataset that a path contains.
- ``annotated_files``, ``yolo_files``, ``data_warnings``: common parts of datasets with annotation files.
- ``label_pixels``: images whose pixels are class numbers or colors; ``class_lists``: the classes of these numbers and
  colors; ``outline_files``: outlines of Labelme and YOLO.
- ``reading``: decoding; ``parts``: decoding the part that a crop needs; ``quarantine``: files that cannot be decoded.
- ``inspection``: checks before a run starts.

The datasets are plain objects that do not use Paddle. Only file names and scalars are pickled; pixels, paths and labels
are memory-mapped on first use, so any number of processes share one copy.

A dataset of image files also has ``encoded(index)``, the file's bytes, ``num_bytes(index)`` and a ``reading`` that can
be set (see ``reading``). ``skipped_files``, if not None, describes the files that are not read.
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "Cifar10": "cifar",
    "Cifar100": "cifar",
    "ClassFolders": "class_folders",
    "Digits": "small_sets",
    "FashionMnist": "small_sets",
    "ImageDataset": "image_dataset",
    "ImageNet2012": "imagenet",
    "Mnist": "small_sets",
    "TarImages": "tar",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
