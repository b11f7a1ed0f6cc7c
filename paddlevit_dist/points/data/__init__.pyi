"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .rooms import SyntheticRooms
from .scene import Scene
from .scenes import PreparedScenes, ScanNet, SceneDataset
from .voxels import sparse_collate, sparse_quantize

__all__ = [
    "PreparedScenes",
    "ScanNet",
    "Scene",
    "SceneDataset",
    "SyntheticRooms",
    "sparse_collate",
    "sparse_quantize",
]
