"""Speed on CPUs: compiled loops around Paddle's own matrix product in place of layers, updates and transforms.

- ``accelerate.py``: gives the layers of a model, a user's too, the fast classes of ``layers.py`` and ``blocks.py``
  where they are of exactly the classes that it lists; says when these compute, and has the switch that turns them off
- ``functions.py``, ``branches.py``, ``image_functions.py``, ``upsampling.py``,
  ``volume_functions.py``: differentiable functions of layers, of whole residual branches, of attention to or of few
  tokens, on images with channels last, of maps that are enlarged, and a convolution of volumes
- ``sampling.py``: deformable attention's sums over points of maps, with its loops
- ``row_kernels.py``, ``exponential_kernels.py``, ``image_kernels.py``, ``depthwise_kernels.py``,
  ``upsampling_kernels.py``: their loops, with ``intrinsics.py``; ``memory.py``: addresses and the matrix product
- ``updates.py``, ``update_kernels.py``: an update of all parameters in one pass
- ``transforms.py``, ``operations.py``: images of trainings, with ``resize_kernels.py`` and ``warp_kernels.py``

The plain layers are the reference: they compute everywhere else (GPUs, other types, automatic mixed precision, static
graphs, layers with hooks), and the tests compare values and gradients with them. The same holds for updates and
transforms. Without this folder everything works, more slowly.
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
        from .accelerate import accelerate

        accelerate(model)

    def gradients(self, parameters: Sequence[paddle.Tensor]) -> GradientList | None:
        from .updates import gradients

        return gradients(parameters)

    def averages(self, flat: paddle.Tensor, sizes: Sequence[int]) -> MovingAverages | None:
        from .updates import averages

        return averages(flat, sizes)

    def optimizer_step(self, rule: UpdateRule, parameters: Sequence[paddle.Tensor]) -> MakerOrProblem | None:
        from .updates import optimizer_step

        return optimizer_step(rule, parameters)

    def resized_cross_entropy(
        self, logits: paddle.Tensor, labels: paddle.Tensor, ignored: int, weights: tuple[float, ...] | None
    ) -> paddle.Tensor | None:
        from .layers import resized_cross_entropy

        return resized_cross_entropy(logits, labels, ignored, weights)

    def training_transform(self) -> type[TrainingTransform] | None:
        from .transforms import CompiledTrainingTransform

        return CompiledTrainingTransform


EXTENSION = CpuKernelsExtension()

__all__ = ["EXTENSION"]
