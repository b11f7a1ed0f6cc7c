"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .data.scene import Scene
from .data.scenes import SceneDataset
from .data.voxels import sparse_collate, sparse_quantize
from .prepare.listing import SceneReader
from .prepare.tables import TableReader
from .scene_task import SceneTask
from .shapes.data import ShapeDataset
from .sparse import SparseTensor

__all__ = [
    "Scene",
    "SceneDataset",
    "SceneReader",
    "SceneTask",
    "ShapeDataset",
    "SparseTensor",
    "TableReader",
    "sparse_collate",
    "sparse_quantize",
]
