"""From samples to batches on the device, the same for any number of processes.

- ``sampler``: which samples each rank reads; ``loader``: loader processes, the real reason when one fails, and
  the limit of time for a batch
- ``checked_files``: cached files that notice damage
- ``path_index``, ``shared_arrays``: lists and batches that processes share without copies
- ``prepare_workers``: processes for work that is done once to data
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "EvaluationSampler": "sampler",
    "SampleKey": "sampler",
    "TrainingSampler": "sampler",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
