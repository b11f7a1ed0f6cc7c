"""Point clouds: ``data``, ``sparse`` (tensors, convolution, MinkUNet), and the tasks.

The tasks ``segmentation`` and ``instances`` share ``scene_task``, ``settings``, ``inputs``, ``outputs`` and
``scene_prediction`` (prediction), ``scene_checks`` and ``scene_figures``. ``shapes`` classifies whole shapes.
``prepare`` converts raw scenes to stores; ``submission`` reads predictions in ScanNet's format,
``nuscenes_submission`` writes them in nuScenes's.
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "Scene": "data.scene",
    "SceneDataset": "data.scenes",
    "SceneReader": "prepare.listing",
    "SceneTask": "scene_task",
    "ShapeDataset": "shapes.data",
    "SparseTensor": "sparse",
    "TableReader": "prepare.tables",
    "sparse_collate": "data.voxels",
    "sparse_quantize": "data.voxels",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
