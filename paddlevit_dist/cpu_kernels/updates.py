"""Optimizer step, gradient norm and clipping, and weight averages in one compiled pass over all parameters.

Tensors stay in place; the loops (``update_kernels``) get their addresses anew in each step. The state of the optimizer
and of the averages, their names and the contents of checkpoints therefore do not depend on the implementation. Averages
are also bit-identical to Paddle's operations; the norm is summed in another order. If a tensor is not a plain float32
tensor in host memory, the engine's own operations compute (``engine/multi_tensor``).
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import paddle

from ..engine import multi_tensor
from ..engine.fused_optimizers import MakerOrProblem, UpdateRule, agrees

WORTHWHILE = 1_000_000  # values: with fewer, loading numba costs more than several hundred updates save


class ParameterAddresses:
    """Cached addresses of tensors that rarely move, such as weights and moments."""

    def __init__(self) -> None:
        self.sizes = np.empty(0, np.int64)
        self._addresses: np.ndarray | None = None

    def addresses(self, tensors: Sequence[paddle.Tensor]) -> np.ndarray | None:
        """Return the addresses, int64 (tensors,), and set ``sizes``; None without tensors or if one is not plain."""
        if not tensors:
            return None
        if self._addresses is not None:
            if np.array_equal(_addresses(tensors), self._addresses):
                return self._addresses
            self._addresses = None
        if not all(is_plain(tensor) for tensor in tensors):
            return None
        self._addresses = _addresses(tensors)
        self.sizes = np.array([tensor.size for tensor in tensors], np.int64)
        return self._addresses


def _addresses(tensors: Sequence[paddle.Tensor]) -> np.ndarray:
    return np.array([tensor.data_ptr() for tensor in tensors], np.int64)


def _rows(*columns: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.stack(columns, 1))


def is_plain(tensor: paddle.Tensor) -> bool:
    """Return whether a loop can access the tensor's memory: contiguous float32 values on the host."""
    return (
        tensor.dtype == paddle.float32
        and tensor.is_dense()
        and tensor.place.is_cpu_place()
        and tensor._is_initialized()
        and tensor.is_contiguous()
    )


def is_worthwhile(tensors: Sequence[paddle.Tensor]) -> bool:
    """Return whether the host has enough values that loading compiled loops is worthwhile."""
    return sum(t.size for t in tensors) >= WORTHWHILE and all(t.place.is_cpu_place() for t in tensors)


# ---- gradients -----------------------------------------------------------------------------------------------


class FastGradients(multi_tensor.GradientList):
    """Gradients that loops read and scale if they are plain."""

    def sum_of_squares(self, gradients: Sequence[paddle.Tensor]) -> np.float32:
        """Sum the squares of all gradients, in float64."""
        if not all(map(is_plain, gradients)):
            return super().sum_of_squares(gradients)
        from .update_kernels import sum_of_squares

        return np.float32(sum_of_squares(*_table(gradients)))

    def multiply(self, gradients: Sequence[paddle.Tensor], factor: np.float32) -> None:
        """Multiply all gradients by ``factor``."""
        if not all(map(is_plain, gradients)):
            return super().multiply(gradients, factor)
        from .update_kernels import scale

        return scale(*_table(gradients), factor)


def _table(tensors: Sequence[paddle.Tensor]) -> tuple[np.ndarray, np.ndarray]:
    return _rows(_addresses(tensors)), np.array([tensor.size for tensor in tensors], np.int64)


def gradients(parameters: Sequence[paddle.Tensor]) -> FastGradients | None:
    """Return all gradients of the parameters; None if loops are not worthwhile."""
    return FastGradients(parameters) if is_worthwhile(parameters) else None


# ---- averages ------------------------------------------------------------------------------------------------


class FastMovingAverages(multi_tensor.MovingAverages):
    """Averages that a loop updates if the tensors are plain."""

    def __init__(self, flat: paddle.Tensor, sizes: Sequence[int]) -> None:
        super().__init__(flat, sizes)
        self._sizes = np.array(sizes, np.int64)
        self._begins = np.cumsum(self._sizes) - self._sizes  # (tensors,)
        self._places = ParameterAddresses()

    def __call__(
        self,
        flat: paddle.Tensor,
        tensors: Sequence[paddle.Tensor],
        share: float,
        is_bad: paddle.Tensor | None = None,
    ) -> None:
        """Move the averages toward the tensors by ``share`` of their distance."""
        values = self._places.addresses(tensors) if is_bad is None else None
        if values is None:
            return super().__call__(flat, tensors, share, is_bad)
        from .update_kernels import approach

        begins = flat.data_ptr() + flat.element_size() * self._begins
        return approach(_rows(begins, values), self._sizes, np.float32(share))


def averages(flat: paddle.Tensor, sizes: Sequence[int]) -> FastMovingAverages | None:
    """Return the averages with a compiled update; None if a loop is not worthwhile."""
    return FastMovingAverages(flat, sizes) if is_worthwhile([flat]) else None


# ---- optimizers ----------------------------------------------------------------------------------------------


class CompiledStep:
    """Optimizer step by a compiled loop.

    Args:
        loop: accepts a row of addresses for each parameter, sizes, rates and decays.
        parameters: float32, on the host.
        columns: accumulators by name, in the order of the loop's columns after weight and gradient.
        factors: factor of the learning rate for each parameter.
        decays: weight decay of each parameter.
    """

    def __init__(
        self,
        loop: Callable[..., None],
        parameters: Sequence[paddle.Tensor],
        columns: multi_tensor.Columns,
        factors: Sequence[float],
        decays: Sequence[float],
    ) -> None:
        self._loop = loop
        self._tensors = [parameters, *columns]
        self._places = [ParameterAddresses() for _ in self._tensors]
        self._factors, self._decays = np.array(factors, np.float32), np.array(decays, np.float32)

    def __call__(self, rate: float, gradients: Sequence[paddle.Tensor | None]) -> bool:
        """Run a step and return True, or return False without changes if a tensor is not plain."""
        has_gradient = np.array([gradient is not None for gradient in gradients], bool)
        # Some kernels of Paddle 3 return a strided gradient; its copy must live until the loop has read it.
        present = [g if not g.is_dense() or g.is_contiguous() else g.contiguous() for g in gradients if g is not None]
        if not present:
            return True
        address_columns = [places.addresses(tensors) for places, tensors in zip(self._places, self._tensors)]
        if not all(map(is_plain, present)) or any(column is None for column in address_columns):
            return False
        weights, *moments = (column[has_gradient] for column in address_columns if column is not None)
        table = _rows(weights, _addresses(present), *moments), self._places[0].sizes[has_gradient]
        self._loop(*table, np.float32(rate) * self._factors[has_gradient], self._decays[has_gradient])
        return True


def optimizer_step(rule: UpdateRule, parameters: Sequence[paddle.Tensor]) -> MakerOrProblem | None:
    """Create a step by a loop; return None if that is not worthwhile or there is no such loop."""
    has_loop = not dict(rule.options).get("use_nesterov", False)
    return _compile(rule) if has_loop and is_worthwhile(parameters) else None


@functools.cache
def _compile(rule: UpdateRule) -> MakerOrProblem:
    from . import update_kernels

    values = dict(rule.options)
    if rule.kind is paddle.optimizer.Momentum:
        decay = np.float32(values["momentum"])
        loops = [lambda *table: update_kernels.momentum(*table, decay)]
    else:
        betas, epsilon = np.array([values["beta1"], values["beta2"]], np.float32), np.float32(values["epsilon"])
        is_decoupled = rule.kind is paddle.optimizer.AdamW
        loops = [
            functools.partial(_adam, betas=betas, epsilon=epsilon, is_decoupled=is_decoupled, rounds_once=rounds_once)
            for rounds_once in (True, False)
        ]
    factories = (functools.partial(CompiledStep, loop) for loop in loops)
    return next((factory for factory in factories if agrees(rule, factory)), None), ""


def _adam(*table: np.ndarray, betas: np.ndarray, epsilon: np.float32, is_decoupled: bool, rounds_once: bool) -> None:
    from . import update_kernels

    update_kernels.adam(*table, betas, epsilon, is_decoupled, rounds_once)
