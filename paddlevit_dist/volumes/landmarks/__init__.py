"""Landmarks in volumes, found as the peaks of heatmaps.

- ``task``; ``dataset``: volumes with files of landmarks; ``mirroring``: left and right
- ``heatmaps``: what is learned, and the positions of peaks; ``losses``; ``metrics``: scores
- ``predictions``: what is written; ``scored``: anybody's results; ``figures``: of a report
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "LandmarkDataset": "dataset",
    "LandmarkDetection": "task",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
