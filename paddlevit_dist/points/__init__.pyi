"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .data.scene import Scene
from .data.scene_fields import make_scene
from .data.scenes import SceneDataset
from .data.voxels import sparse_collate, sparse_quantize
from .prepare.listing import SceneReader
from .prepare.tables import TableReader
from .scene_task import SceneTask
from .segmentation.task import SemanticSegmentation
from .shapes.data import SampledShape, ShapeDataset, make_shape
from .shapes.task import ShapeClassification
from .sparse import SparseTensor

__all__ = [
    "SampledShape",
    "Scene",
    "SceneDataset",
    "SceneReader",
    "SceneTask",
    "SemanticSegmentation",
    "ShapeClassification",
    "ShapeDataset",
    "SparseTensor",
    "TableReader",
    "make_scene",
    "make_shape",
    "sparse_collate",
    "sparse_quantize",
]
