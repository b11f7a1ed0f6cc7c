"""Faster CPU training: compiled loops around Paddle's matrix product for layers, optimizer steps and transforms.

- ``accelerate.py``: replaces the classes of a model's layers, custom models included, with the fast classes of
  ``layers.py`` and ``blocks.py`` if they are exactly the listed classes; defines when fast functions apply, and the
  switch that disables them
- ``functions.py``, ``branches.py``, ``image_functions.py``, ``upsampling.py``, ``volume_functions.py``: differentiable
  functions of layers, residual branches, attention, channels-last images, upsampled maps, and a convolution of volumes
- ``sampling.py``: deformable attention's sums over points of maps, with its loops
- ``row_kernels.py``, ``exponential_kernels.py``, ``image_kernels.py``, ``depthwise_kernels.py``,
  ``upsampling_kernels.py``: their loops, with ``intrinsics.py``; ``memory.py``: addresses and the matrix product
- ``updates.py``, ``update_kernels.py``: optimizer step of all parameters in one pass
- ``transforms.py``, ``operations.py``: training images, with ``resize_kernels.py`` and ``warp_kernels.py``

The plain layers are the reference. They compute in all other cases (GPUs, other dtypes, automatic mixed precision,
static graphs, layers with hooks), and tests compare values and gradients with them. Updates and transforms are tested
in the same way. Without this folder everything works, but more slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..extension import Extension

if TYPE_CHECKING:
    import paddle

    from ..engine.fused_optimizers import MakerOrProblem, UpdateRule
    from ..engine.multi_tensor import GradientList, MovingAverages
    from ..images.transforms.crops import TrainingTransform


class CpuKernelsExtension(Extension):
    """Faster models, updates, losses and transforms."""

    needs = ("numba",)

    def prepare_model(self, model: Any) -> None:
        """Replace the layers of a model that have a fast class."""
        from .accelerate import accelerate

        accelerate(model)

    def gradients(self, parameters: Sequence[paddle.Tensor]) -> GradientList | None:
        """Return fast operations on the gradients of parameters; None if they are not worthwhile."""
        from .updates import gradients

        return gradients(parameters)

    def averages(self, flat: paddle.Tensor, sizes: Sequence[int]) -> MovingAverages | None:
        """Return fast moving averages; None if they are not worthwhile."""
        from .updates import averages

        return averages(flat, sizes)

    def optimizer_step(self, rule: UpdateRule, parameters: Sequence[paddle.Tensor]) -> MakerOrProblem | None:
        """Return a compiled optimizer step; None if it is not worthwhile."""
        from .updates import optimizer_step

        return optimizer_step(rule, parameters)

    def resized_cross_entropy(
        self, logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, weights: tuple[float, ...] | None
    ) -> paddle.Tensor | None:
        """Compute the cross-entropy of logits resized to the labels; None if fast functions do not apply."""
        from .layers import resized_cross_entropy

        return resized_cross_entropy(logits, labels, ignored, weights)

    def training_transform(self) -> type[TrainingTransform] | None:
        """Return the compiled training transform."""
        from .transforms import CompiledTrainingTransform

        return CompiledTrainingTransform


EXTENSION = CpuKernelsExtension()

__all__ = ["EXTENSION"]
