"""The training run. It knows tasks by their base class.

- ``trainer``: all that a run is made of; ``loop``: epochs, updates, evaluations, checkpoints, and when it ends early;
  ``reports``, ``gpu_memory``: callbacks of it
- ``steps``: one update; ``queued_step``: how a GPU ends it while the host goes on; ``evaluation``; ``nan_guard``: what
  is not finite changes nothing
- ``checkpointer``, ``resume``: what is saved, without waiting for it, and restored; ``compatibility``: whether the run
  fits a checkpoint and the other machines
- ``optimizer``, ``schedule``, ``precision``, ``model_ema``; ``settings``: rules of their keys
- ``fused_optimizers``, ``multi_tensor``: an update of all parameters at once
- ``startup_log``: the first lines of a run
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "Trainer": "trainer",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
