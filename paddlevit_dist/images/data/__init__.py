"""Image datasets, each ``Dataset(data_path, split, cache_folder)`` with ``read(index) -> (image, label)``.

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
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
