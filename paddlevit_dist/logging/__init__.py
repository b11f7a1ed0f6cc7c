"""Reports of a run, on the terminal and in files.

- ``record``: the output folder, ``log.txt``, ``run.json``, ``metrics.jsonl``; what of it a resumed run repeats
- ``meters``: windowed sums over all ranks, memory, waiting for data
- ``progress``: the bar, and the values below it; ``heartbeat``: signs of life while nothing moves
- ``callbacks``: who is told of a run; ``event_logs``: TensorBoard and VisualDL; ``services``: those on the network
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "MlflowLog": "services",
    "TensorBoardLog": "event_logs",
    "VisualDlLog": "event_logs",
    "WandbLog": "services",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
