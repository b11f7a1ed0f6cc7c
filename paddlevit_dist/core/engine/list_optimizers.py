"""Optimizers that Paddle does not have, whose steps are operations on lists of all parameters: Lion and Muon."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle

from .fused_optimizers import FusedStep
from .multi_tensor import Columns, ForeachStep, MultiTensorStep, Optimizer, Scalar, Tensors, Update, flatten, subtract

# Coefficients of the iteration that makes singular values 1 (K. Jordan, "Muon", kellerjordan.github.io/posts/muon).
_NEWTON_SCHULZ = 3.4445, -4.7750, 2.0315
_NEWTON_SCHULZ_STEPS = 5
_SMALLEST_NORM = 1e-7  # of a matrix, so that one of zeros stays zero
_ROOT_MEAN_SQUARE = 0.2  # of AdamW's steps (J. Liu et al., "Muon is Scalable for LLM Training", arXiv 2502.16982)


def lion(beta1: float, beta2: float) -> Update:
    """Return Lion's update; ``beta1`` and ``beta2`` are the shares of its accumulator, the momentum, in steps and kept.

    Source: X. Chen et al., "Symbolic Discovery of Optimization Algorithms", arXiv 2302.06675, algorithm 2.
    """

    def apply(
        parameters: Tensors, gradients: Tensors, rate: Scalar, share: Scalar, decay: float, columns: Columns
    ) -> None:
        gradient = flatten(gradients)
        difference = flatten(columns[0]) - gradient
        direction = paddle.sign(gradient + beta1 * difference)  # of beta1 * momentum + (1 - beta1) * gradient
        if decay:
            direction = direction + decay * flatten(parameters)
        sizes = [parameter.size for parameter in parameters]
        subtract(parameters, paddle.split(direction, sizes), rate)
        subtract(columns[0], paddle.split(difference, sizes), share * (1.0 - beta2))

    return Update(apply, lambda decay: (1.0,))  # the share leaves the momentum unchanged


def muon(momentum: Callable[[], float]) -> Update:
    """Return the update of Muon with Nesterov momentum; its accumulator is the momentum.

    Matrices of the same shape are computed together. Steps have the size of AdamW's: learning rate and weight decay fit
    both.

    Source: K. Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, with the factor
    ``0.2*sqrt(longer side)`` of J. Liu et al., arXiv 2502.16982, equation 4.
    """

    def apply(
        parameters: Tensors, gradients: Tensors, rate: Scalar, share: Scalar, decay: float, columns: Columns
    ) -> None:
        kept = momentum()
        alike: dict[tuple[int, ...], list[int]] = {}
        for number, parameter in enumerate(parameters):
            alike.setdefault(tuple(parameter.shape), []).append(number)
        for numbers in alike.values():
            own, earlier = [parameters[n] for n in numbers], [columns[0][n] for n in numbers]
            gradient = paddle.stack([gradients[n] for n in numbers])  # (matrices, rows, columns)
            difference = paddle.stack(earlier) - gradient
            direction = orthogonalize(gradient + kept**2 * difference)
            change = direction * (_ROOT_MEAN_SQUARE * math.sqrt(max(direction.shape[1:])))
            if decay:
                change = change + decay * paddle.stack(own)
            subtract(own, paddle.unstack(change), rate)
            subtract(earlier, paddle.unstack(difference), share * (1.0 - kept))

    return Update(apply, lambda decay: (1.0,))  # the share leaves the momentum unchanged


def orthogonalize(matrices: paddle.Tensor) -> paddle.Tensor:
    """Return (n, rows, columns) float32 with the same singular vectors, and values of 0.7 to 1.2, by Newton-Schulz."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose([0, 2, 1]) if is_tall else matrices
    x = x / paddle.clip(paddle.sqrt((x * x).sum(axis=[1, 2], keepdim=True)), min=_SMALLEST_NORM)
    a, b, c = _NEWTON_SCHULZ
    for _ in range(_NEWTON_SCHULZ_STEPS):
        product = paddle.matmul(x, x, transpose_y=True)
        x = a * x + paddle.matmul(b * product + c * paddle.matmul(product, product), x)
    return x.transpose([0, 2, 1]) if is_tall else x


class ListOptimizer(FusedStep, paddle.optimizer.Optimizer):
    """Optimizer of float32 parameters that exists as an ``update`` of lists only.

    ``decays``: weight decay by a parameter's automatic name, equal to the groups' values.
    """

    COLUMNS = ("momentum",)

    def __init__(self, update: Update, decays: dict[str, float], **options: Any) -> None:
        super().__init__(decays, **options)
        self._update = update

    def _create_accumulators(self, block: object, parameters: dict[str, Any] | Sequence[paddle.Tensor]) -> None:
        for parameter in parameters["params"] if isinstance(parameters, dict) else parameters:
            for name in self.COLUMNS:
                self._add_accumulator(name, parameter)

    def _choose(self) -> None:
        self._lists = self._build(functools.partial(MultiTensorStep, self._update))

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        self._choose_once()
        assert self._lists is not None
        gradients = self._lists.gradients()
        if any(gradient is not None for gradient in gradients):
            self._lists.apply(self.get_lr(), gradients)


class JointStep:
    """The steps of several optimizers as one; a ``ForeachStep``."""

    def __init__(self, steps: Sequence[ForeachStep]) -> None:
        self._steps = steps

    def gradients(self) -> list[Any]:
        """Return the current gradients of each optimizer's parameters."""
        return [step.gradients() for step in self._steps]

    def accepts(self, gradients: list[Any]) -> bool:
        """Return whether each optimizer has a gradient and all gradients are dense float32."""
        return all(step.accepts(own) for step, own in zip(self._steps, gradients))

    def apply(self, rate: float, gradients: list[Any], share: paddle.Tensor | None = None) -> None:
        """Update the parameters of each optimizer."""
        for step, own in zip(self._steps, gradients):
            step.apply(rate, own, share)

    def prepare_undo(self, gradients: list[Any]) -> Callable[[], None]:
        """Return a function that undoes what a step with a share of 0 does to moments."""
        undos = [step.prepare_undo(own) for step, own in zip(self._steps, gradients)]

        def undo() -> None:
            for each in undos:
                each()

        return undo


class JointOptimizer:
    """Optimizers of disjoint parameters as one, with the methods and attributes of Paddle's that the engine uses."""

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self.optimizers = optimizers

    @property
    def _accumulators(self) -> dict[str, dict[str, paddle.Tensor]]:
        return {name: by_parameter for each in self.optimizers for name, by_parameter in each._accumulators.items()}

    def get_lr(self) -> float:
        """Return the learning rate of all optimizers."""
        return self.optimizers[0].get_lr()

    def set_lr(self, rate: float) -> None:
        """Set the learning rate of all optimizers."""
        for optimizer in self.optimizers:
            optimizer.set_lr(rate)

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Clear all gradients."""
        for optimizer in self.optimizers:
            optimizer.clear_grad(set_to_zero)

    def step(self) -> None:
        """Make a step of each optimizer."""
        for optimizer in self.optimizers:
            optimizer.step()

    def foreach_step(self) -> JointStep | None:
        """Return one step for all parameters, or None if one of the optimizers has no step by lists."""
        steps = [step for optimizer in self.optimizers if (step := optimizer.foreach_step()) is not None]
        return JointStep(steps) if len(steps) == len(self.optimizers) else None
