"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .dataset import SegmentedVolumes
from .nnunet import NnUNet
from .task import VolumeSegmentation

__all__ = [
    "NnUNet",
    "SegmentedVolumes",
    "VolumeSegmentation",
]
