"""The training engine. It uses tasks through their base class only.

- ``trainer``: the parts of a run; ``loop``: epochs, steps, evaluations, checkpoints, early stopping; ``reports``,
  ``gpu_memory``: its callbacks
- ``steps``: one optimizer step; ``queued_step``: the asynchronous step on a GPU; ``evaluation``; ``nan_guard``: skips
  steps that are not finite
- ``checkpointer``: saves in the background; ``resume``: restores; ``compatibility``: compares a run with a checkpoint;
  ``rank_comparison``: compares the machines
- ``optimizer``, ``schedule``, ``precision``, ``model_ema``; ``settings``: checks of their keys
- ``fused_optimizers``, ``multi_tensor``: update all parameters at once
- ``startup_log``: the first log lines of a run
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "Trainer": "trainer",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
