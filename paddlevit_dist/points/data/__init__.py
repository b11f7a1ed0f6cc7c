"""Scenes on disk and in memory, and conversion of a scene to a sample.

- ``scene``, ``scene_store``, ``scenes``: a scene, its file, datasets of prepared scenes; ``rooms``: synthetic scenes
- ``augment``: training augmentation; ``voxels``: quantization; ``samples``: the whole pipeline
- ``ply``, ``images``, ``scannet_classes``: files and colors for showing predictions
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "PreparedScenes": "scenes",
    "ScanNet": "scenes",
    "Scene": "scene",
    "SceneDataset": "scenes",
    "SyntheticRooms": "rooms",
    "sparse_collate": "voxels",
    "sparse_quantize": "voxels",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
