"""The training run. It knows tasks by their base class.

- ``trainer``: model, record and what is asked for; ``parts``: what a training computes with; ``training``: its loop;
  ``watchers``: who is told of it; ``reports``, ``gpu_memory``: some of them
- ``steps``: one update; ``evaluation``; ``nan_guard``: what is not finite changes nothing
- ``checkpointer``, ``resume``: what is saved, without waiting for it, and restored; ``compatibility``: whether the run
  fits a checkpoint and the other machines
- ``optimizer``, ``schedule``, ``precision``, ``model_ema``; ``settings``, ``settings_checks``: rules of their keys
- ``fused_optimizers``, ``multi_tensor``: an update of all parameters at once
- ``startup_log``: the first lines of a run
"""
