"""The training engine. It uses tasks through their base class only.

Importing this package does not import Paddle; each name of a step loads its module on first use.

- ``trainer``: epochs, steps, evaluations and checkpoints of a run; ``training_state``: what a checkpoint holds
- ``step``: one optimizer step; ``queued_step``: the asynchronous step on a GPU; ``captured_passes``: its passes as a
  graph; ``nan_guard``: skips steps that are not
  finite; ``evaluation``: evaluates a split; ``epoch_evaluation``: weights and their average after an epoch
- ``hooks``: base class ``Hook``, and the hooks that log progress and stop early; ``throughput``: their estimates
- ``checkpointing``: saves, with ``background_worker``; ``resume``: restores; ``compatibility``: compares a run with a
  checkpoint; ``rank_comparison``: compares the machines
- ``optimizer``, ``schedule``, ``precision``, ``model_ema``; ``settings``: checks of their keys
- ``fused_optimizers``, ``list_optimizers``, ``multi_tensor``: update all parameters at once; ``sharding``: each rank a
  share of them; ``low_rank_layers``: LoRA
- ``batch_size``: the largest batch that fits; ``startup_log``: the first log lines of a run; ``feature_cache``:
  features of frozen layers; ``gpu_memory``
"""

from ..runtime.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
