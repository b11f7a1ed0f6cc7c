"""Image datasets, each ``Dataset(data_path, split, cache_folder)`` with ``read(index) -> (image, label)``.

- ``image_dataset``: their base class.
- ``small_sets``: ``digits`` bundled with the package, ``mnist`` and ``fashion_mnist``; ``cifar``: ``cifar10`` and
  ``cifar100``.
- ``imagenet``: lists of ``path label`` lines, class folders named by WordNet id, or the development kit's labels.
- ``class_folders``: custom images, one folder per class.
- ``tar``: images read in place from uncompressed tar files, which ``tar_files`` lists and reads; ``prepared``
  describes those written by us.
- ``held_out``: a subset of another dataset.
- ``listing`` and ``inputs``: images without labels, for predictions.
- ``formats``: which files are images, and how the others are reported.
- ``guessing``, ``box_layouts`` and ``map_layouts``: which dataset a path holds if none is named.
- ``annotated_files``, ``yolo_files``, ``odd_data``: what datasets with annotations beside their images share.
- ``label_pixels``: images whose pixels are numbers or colors of classes; ``class_lists``: what these
  stand for; ``outline_files``: outlines of Labelme and YOLO.
- ``reading``: decoding; ``parts``: decoding only what a crop needs; ``quarantine``: what cannot be decoded.
- ``inspection``: what is looked at before a run starts.

All are plain objects that do not use Paddle. Only file names and scalars are pickled; pixels, paths and labels are
memory-mapped on first use, so any number of processes share one copy.

A dataset of image files also provides ``encoded(index)``, the file's bytes, and ``num_bytes(index)``, and allows
``reading`` to be set (see ``reading``). ``left_out``, if not None, describes the files that are not read.
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
