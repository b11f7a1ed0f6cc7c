"""Debugging tools for training runs.

This is an extension: the folder can be deleted (see ``registry.features``).

- ``doctor``: checks of machine, data and first steps, with ``doctor_checks``, ``doctor_updates`` and
  ``paddle_builds``
- ``selftest``: compares updates with different numbers of processes
- ``first_layer``: finds the layer whose values are not finite after a run has diverged, with ``layer_watch``
- ``profile``: records some updates with Paddle's profiler; ``settings``: keys
"""
