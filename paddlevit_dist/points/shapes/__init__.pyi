"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .data import ModelNet10, ModelNet40, ShapeDataset
from .task import ShapeClassification

__all__ = [
    "ModelNet10",
    "ModelNet40",
    "ShapeClassification",
    "ShapeDataset",
]
