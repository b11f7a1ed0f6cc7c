"""Landmark detection in volumes, from the peaks of heatmaps.

- ``task``: the task; ``dataset``: volumes with landmark files; ``mirroring``: left and right landmarks
- ``heatmaps``: targets, and the positions of peaks; ``losses``; ``metrics``: scores
- ``predictions``: output files; ``scored``: scores of existing results; ``figures``: figures of the report
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "LandmarkDataset": "dataset",
    "LandmarkDetection": "task",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
