"""Faster CPU training: compiled loops around Paddle's matrix product for layers, and for gradients and transforms.

- ``accelerate.py``: ``accelerate(model)`` replaces the classes of a model's layers, custom models included, with the
  fast classes of ``layers.py`` and ``blocks.py`` if they are exactly the listed classes. Trainer, ``Predictor`` and the
  library's ``create_model`` call it. The module also defines when fast functions apply, and the switch that disables
  them
- ``functions.py``, ``branches.py``, ``image_functions.py``, ``upsampling.py``, ``volume_functions.py``: differentiable
  functions of layers, residual branches, attention, channels-last images, upsampled maps, and a convolution of volumes
- ``sampling.py``: deformable attention's sums over points of maps, with its loops
- ``row_kernels.py``, ``exponential_kernels.py``, ``image_kernels.py``, ``depthwise_kernels.py``,
  ``upsampling_kernels.py``: their loops, with ``intrinsics.py``; ``memory.py``: addresses and the matrix product
- ``gradients.py``, ``gradient_kernels.py``: norm and clipping of all gradients in one pass
- ``transforms.py``, ``operations.py``: training images, with ``resize_kernels.py`` and ``warp_kernels.py``

The plain layers are the reference. They compute in all other cases (GPUs, other dtypes, automatic mixed precision,
static graphs, layers with hooks), and tests compare values and gradients with them. Gradients and transforms are tested
in the same way. Without this folder everything works, but more slowly.
"""

__all__: list[str] = []
