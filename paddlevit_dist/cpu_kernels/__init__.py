"""What makes CPUs fast: compiled loops around Paddle's own matrix product in place of layers, updates and transforms.

- ``accelerate.py``: gives the layers of a model, a user's too, the fast classes of ``layers.py`` and ``blocks.py``
  where they are of exactly the classes that it lists; says when these compute, and has the switch that turns them off
- ``functions.py``, ``branches.py``, ``cross_attention.py``, ``image_functions.py``, ``upsampling.py``,
  ``volume_functions.py``: differentiable functions of layers, of whole residual branches, of attention to or of few
  tokens, on images with channels last, of maps that are enlarged, and a convolution of volumes
- ``row_kernels.py``, ``exponential_kernels.py``, ``image_kernels.py``, ``depthwise_kernels.py``,
  ``upsampling_kernels.py``: their loops, with ``intrinsics.py``; ``memory.py``: addresses and the matrix product
- ``updates.py``, ``update_kernels.py``: an update of all parameters in one pass
- ``transforms.py``, ``operations.py``: images of trainings, with ``resize_kernels.py`` and ``warp_kernels.py``

The plain layers are the reference: they compute everywhere else (GPUs, other types, automatic mixed precision, static
graphs, layers with hooks), and the tests compare values and gradients with them. The same holds for updates and
transforms. Without this folder everything works, more slowly.
"""

HOOKS = {
    "model_built": ".cpu_kernels.accelerate:accelerate",
    "gradients": ".cpu_kernels.updates:gradients",
    "averages": ".cpu_kernels.updates:averages",
    "optimizer_step": ".cpu_kernels.updates:optimizer_step",
    "resized_cross_entropy": ".cpu_kernels.layers:resized_cross_entropy",
    "training_transform": ".cpu_kernels.transforms:CompiledTrainingTransform",
}
