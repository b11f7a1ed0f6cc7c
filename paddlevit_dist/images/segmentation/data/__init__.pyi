"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .label_maps import LabelMaps
from .segmentation_dataset import SegmentationDataset, SegmentationShapes

__all__ = [
    "LabelMaps",
    "SegmentationDataset",
    "SegmentationShapes",
]
