"""Faster float32 layers on CPUs: hand-written gradients around Paddle's own matrix product.

- ``layers.py``: ``Linear``, ``LayerNorm``, ``gelu`` and ``mlp``, which stand in for Paddle's wherever they apply
- ``pictures.py``: convolutions and residual branches on pictures with channels last, with ``picture_functions.py``,
  ``picture_loops.py`` and ``depthwise_loops.py``
- ``switch.py``: when they apply, and the switch that turns them off
- ``functions.py``: the differentiable functions; ``branches.py``: whole residual branches of a transformer
- ``row_loops.py``, ``exponential_loops.py``: the compiled loops, with ``intrinsics.py``; ``readers.py``: the last block
  of which few tokens are read; ``memory.py``: addresses and the matrix product

The plain layers of Paddle are the reference: they compute everywhere else (GPUs, other types, automatic mixed
precision, static graphs, layers with hooks), and the tests compare values and gradients with them.
"""
