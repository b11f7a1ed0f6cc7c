"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .coco import Coco
from .detection_dataset import DetectionDataset, ImageAnnotations
from .synthetic_shapes import SyntheticShapes
from .voc import Voc
from .yolo import Yolo

__all__ = [
    "Coco",
    "DetectionDataset",
    "ImageAnnotations",
    "SyntheticShapes",
    "Voc",
    "Yolo",
]
