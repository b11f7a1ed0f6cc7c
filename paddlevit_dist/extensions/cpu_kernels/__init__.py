"""Faster CPU training: compiled loops around Paddle's matrix product for layers, and for transforms.

- ``accelerate.py``: ``accelerate(model)``, which Trainer, ``Predictor`` and ``create_model`` call, replaces the classes
  of layers, if exactly the listed ones, with the fast classes of ``layers.py`` and ``blocks.py``; when they apply
- ``functions.py``, ``branches.py``, ``image_functions.py``, ``upsampling.py``, ``volume_functions.py``: differentiable
  functions of layers, residual branches, attention, channels-last images, upsampled maps, and a convolution of volumes
- ``decoders.py``, ``decoder_functions.py``: transposed convolutions with batch norm and ReLU, with the loops of
  ``transposed_kernels.py`` and ``batch_norm_kernels.py``
- ``heatmap_losses.py``: losses of heatmaps whose targets are never stored, with their loops
- ``map_points.py``: samples of masks at points, with their loop
- ``query_attention.py``: attention among a detector's queries or cells
- ``sampling.py``: deformable attention's sums over points of maps, with its loops
- ``row_kernels.py``, ``exponential_kernels.py``, ``image_kernels.py``, ``depthwise_kernels.py``,
  ``upsampling_kernels.py``: their loops, with ``intrinsics.py``; ``memory.py``: addresses and the matrix product
- ``transforms.py``, ``operations.py``: training images, with ``resize_kernels.py`` and ``warp_kernels.py``

The plain layers and transforms are the reference, with which tests compare. They compute in all other cases:
on GPUs, with other dtypes, automatic mixed precision, static graphs or hooks, and without this folder.
"""

__all__: list[str] = []
