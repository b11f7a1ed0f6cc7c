"""Segmentation of volumes: a class for each voxel.

- ``task``, ``settings``: the task and its keys; ``prediction``: new volumes, and what is written of them
- ``dataset``: what a dataset is, and where labels are kept; ``nnunet``, ``phantoms``: datasets
- ``samples``: training crops and whole volumes; ``metrics``: scores; ``figures``: of a report
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "NnUNet": "nnunet",
    "SegmentedVolumes": "dataset",
    "VolumeSegmentation": "task",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
