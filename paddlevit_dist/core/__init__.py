"""The trainer and all that it uses. It imports no modality and no extension: read it first.

Each line imports only from the lines below it:

- ``library``: the commands as functions, for Python
- ``commands``: train, evaluate, predict, inspect, convert
- ``inference``: prediction and evaluation
- ``engine``: the training loop, its steps and checkpoints
- ``checkpoint``, ``logging``, ``data``, ``metrics``: its tools
- ``losses``: losses of pixels and points
- ``tasks``: base classes of tasks, datasets, networks and metrics
- ``distributed``, ``settings``, ``intervals``: processes, configuration, confidence intervals
- ``launch``: processes and devices
- ``registry``: names and manifests
- ``runtime``: signals, errors, files, versions of Paddle
"""
