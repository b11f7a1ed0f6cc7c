"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .cifar import Cifar10, Cifar100
from .class_folders import ClassFolders
from .image_dataset import ImageDataset
from .imagenet import ImageNet2012
from .small_sets import Digits, FashionMnist, Mnist
from .tar import TarImages

__all__ = [
    "Cifar10",
    "Cifar100",
    "ClassFolders",
    "Digits",
    "FashionMnist",
    "ImageDataset",
    "ImageNet2012",
    "Mnist",
    "TarImages",
]
