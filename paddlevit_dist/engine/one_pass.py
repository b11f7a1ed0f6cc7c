"""What an update does to all parameters, on a CPU in one compiled pass over their memory instead of several operations
for each of them: the optimizer, the norm of the gradients and their clipping, the averaged weights.

The tensors stay where they are; the loops (``memory_loops``) get their addresses anew in each update. So the state of
the optimizer and of the averages, their names and what checkpoints hold do not depend on how they were updated. The
optimizers here give the same bits as Paddle's, which is tried once with Paddle's own: where they do not, or a tensor is
not a plain one of float32 in the host's memory, Paddle's update is made. The averages have the same bits as well; the
norm is summed in another order.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import paddle

from .. import paddle_versions

WORTHWHILE = 1_000_000  # values: with fewer, loading numba takes longer than it saves in several hundred updates


class Pass(NamedTuple):
    """The arguments that every loop begins with."""

    rows: np.ndarray  # (tensors, columns) int64
    sizes: np.ndarray  # (tensors,) int64


def plan(columns: Sequence[Sequence[paddle.Tensor]]) -> Optional[Pass]:
    """The addresses of tensors by columns, the first of which gives the sizes; None if one of them is not a
    contiguous float32 tensor in the host's memory, or there are none."""
    if not columns or not columns[0]:
        return None
    for column in columns:
        if not all(is_plain(tensor) for tensor in column):
            return None
    addresses = [[tensor.data_ptr() for tensor in column] for column in columns]
    sizes = np.array([tensor.size for tensor in columns[0]], np.int64)
    return Pass(np.ascontiguousarray(np.array(addresses, np.int64).T), sizes)


def is_plain(tensor: paddle.Tensor) -> bool:
    """Whether a loop may read and write the tensor's memory."""
    return (
        tensor.dtype == paddle.float32
        and tensor.is_dense()
        and tensor.place.is_cpu_place()
        and tensor._is_initialized()
        and tensor.is_contiguous()
    )


def is_worthwhile(tensors: Sequence[paddle.Tensor]) -> bool:
    """Whether there are so many values on the host that compiled loops are worth loading."""
    return sum(t.size for t in tensors) >= WORTHWHILE and all(t.place.is_cpu_place() for t in tensors)


# ---- gradients -----------------------------------------------------------------------------------------------


class GradientNorm:
    """The global norm of the gradients; above ``largest`` they are scaled down to it, in place.

    Args:
        parameters: whose gradients count, where they have one.
        largest: None: nothing is scaled.
    """

    def __init__(self, parameters: Sequence[paddle.Tensor], largest: Optional[float]) -> None:
        self._parameters = list(parameters)
        self._largest = largest
        self._is_compiled = is_worthwhile(self._parameters)

    @paddle.no_grad()
    def __call__(self) -> paddle.Tensor:
        """The norm before scaling, float32 with one element; infinite where the sum of squares exceeds float32."""
        gradients = [p._grad_ivar() for p in self._parameters]
        gradients = [gradient for gradient in gradients if gradient is not None]
        table = plan([gradients]) if self._is_compiled and gradients else None
        if table is None:
            return self._by_operations(gradients)
        from . import memory_loops

        with np.errstate(over="ignore"):
            norm = np.sqrt(np.float32(memory_loops.sum_of_squares(*table)))
        factor = _factor(norm, self._largest)
        if factor < 1:
            memory_loops.scale(*table, factor)
        return paddle.to_tensor(norm.reshape(1))

    def _by_operations(self, gradients: List[paddle.Tensor]) -> paddle.Tensor:
        if not gradients:
            return paddle.zeros([1])
        norm = paddle.add_n([paddle_versions.squared_norm(gradient) for gradient in gradients]).sqrt()
        if self._largest and norm.place.is_cpu_place():
            factor = _factor(norm.numpy()[0], self._largest)
            if factor < 1:
                for gradient in gradients:
                    gradient.scale_(float(factor))
        elif self._largest:  # the host does not wait for the device
            factor = paddle.clip(self._largest / (norm + 1e-6), max=1.0)
            for gradient in gradients:
                gradient.multiply_(factor.astype(gradient.dtype))
        return norm


def _factor(norm: np.float32, largest: Optional[float]) -> np.float32:
    """What brings gradients down to the largest norm; 1 if they are below it or not finite."""
    if not largest or not np.isfinite(norm):
        return np.float32(1)
    return np.minimum(np.float32(largest) / (norm + np.float32(1e-6)), np.float32(1))


# ---- averages ------------------------------------------------------------------------------------------------


def approach(
    pairs: Sequence[Tuple[paddle.Tensor, paddle.Tensor]], share: float
) -> List[Tuple[paddle.Tensor, paddle.Tensor]]:
    """Move averages towards values, given as pairs, by ``share`` of their distance.

    Returns:
        The pairs to which nothing was done, since they are not plain.
    """
    plain = [is_plain(average) and is_plain(value) for average, value in pairs]
    table = plan([*zip(*itertools.compress(pairs, plain))])
    if table is None:
        return list(pairs)
    from . import memory_loops

    memory_loops.approach(*table, np.float32(share))
    return [pair for pair, done in zip(pairs, plain) if not done]


# ---- optimizers ----------------------------------------------------------------------------------------------


class _OnePass:
    """Of an optimizer: a step in one pass where that gives Paddle's own bits. ``decays`` are L2 terms or decoupled
    weight decays by a parameter's automatic name, as they were given to Paddle by groups."""

    _columns: Tuple[str, ...]  # accumulators, in the order of the loop's columns after weight and gradient
    _decays: Dict[str, float]
    _is_worthwhile: Optional[bool] = None
    _has_accumulators = False

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        if not self._step_in_one_pass():
            super().step()  # type: ignore[misc]

    @paddle.no_grad()
    def _step_in_one_pass(self) -> bool:
        parameters = [p for p in self._all_parameters() if not p.stop_gradient]
        if self._is_worthwhile is None:
            self._is_worthwhile = is_worthwhile(parameters)
        if not self._is_worthwhile:
            return False
        loop = self._loop()
        if loop is None:
            return False
        if not self._has_accumulators:
            paddle_versions.create_accumulators(self)
            self._has_accumulators = True
        pairs = [(p, gradient) for p in parameters for gradient in [p._grad_ivar()] if gradient is not None]
        if not pairs:
            return True
        weights = [p for p, _ in pairs]
        # Some kernels of Paddle 3 give a strided gradient; its copy lives until the loop has read it.
        gradients = [g if not g.is_dense() or g.is_contiguous() else g.contiguous() for _, g in pairs]
        moments = [[self._accumulators[name][p.name] for p in weights] for name in self._columns]  # type: ignore
        table = plan([weights, gradients, *moments])
        if table is None:
            return False
        rate = np.float32(self.get_lr())  # type: ignore[attr-defined]
        factors = np.array([p.optimize_attr["learning_rate"] for p in weights], np.float32)
        loop(*table, rate * factors, np.array([self._decays[p.name] for p in weights], np.float32))
        return True

    def _all_parameters(self) -> List[paddle.Tensor]:
        return [p for group in self._param_groups for p in group["params"]]  # type: ignore[attr-defined]

    def _loop(self) -> Optional[Callable[..., None]]:
        raise NotImplementedError


class OnePassAdam(_OnePass, paddle.optimizer.Adam):
    """``paddle.optimizer.Adam`` with groups of parameters, see ``_OnePass``."""

    _columns = ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
    _is_decoupled = False

    def __init__(self, decays: Dict[str, float], **options: Any) -> None:
        super().__init__(**options)
        self._decays = decays

    def _loop(self) -> Optional[Callable[..., None]]:
        return _adam_loop(self._is_decoupled, self._beta1, self._beta2, self._epsilon)


class OnePassAdamW(_OnePass, paddle.optimizer.AdamW):
    """``paddle.optimizer.AdamW`` with groups of parameters, see ``_OnePass``."""

    _columns = OnePassAdam._columns

    def __init__(self, decays: Dict[str, float], **options: Any) -> None:
        super().__init__(**options)
        self._decays = decays

    def _loop(self) -> Optional[Callable[..., None]]:
        return _adam_loop(True, self._beta1, self._beta2, self._epsilon)


class OnePassMomentum(_OnePass, paddle.optimizer.Momentum):
    """``paddle.optimizer.Momentum`` with groups of parameters, see ``_OnePass``."""

    _columns = ("velocity",)

    def __init__(self, decays: Dict[str, float], **options: Any) -> None:
        super().__init__(**options)
        self._decays = decays

    def _loop(self) -> Optional[Callable[..., None]]:
        return _momentum_loop(self._momentum)


@functools.lru_cache(maxsize=None)
def _adam_loop(is_decoupled: bool, beta1: float, beta2: float, epsilon: float) -> Optional[Callable[..., None]]:
    from . import memory_loops

    def loop(rounds_once: bool) -> Callable[..., None]:
        def run(rows: np.ndarray, sizes: np.ndarray, rates: np.ndarray, decays: np.ndarray) -> None:
            betas = np.array([beta1, beta2], np.float32)
            memory_loops.adam(rows, sizes, rates, decays, betas, np.float32(epsilon), is_decoupled, rounds_once)

        return run

    kind = paddle.optimizer.AdamW if is_decoupled else paddle.optimizer.Adam
    options = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    return next(
        (loop(once) for once in (True, False) if _agrees(loop(once), kind, options, OnePassAdam._columns)), None
    )


@functools.lru_cache(maxsize=None)
def _momentum_loop(kept: float) -> Optional[Callable[..., None]]:
    from . import memory_loops

    def run(rows: np.ndarray, sizes: np.ndarray, rates: np.ndarray, decays: np.ndarray) -> None:
        memory_loops.momentum(rows, sizes, rates, decays, np.float32(kept))

    kind, options = paddle.optimizer.Momentum, {"momentum": kept}
    return run if _agrees(run, kind, options, OnePassMomentum._columns) else None


def _agrees(run: Callable[..., None], kind: Any, options: Dict[str, Any], columns: Sequence[str]) -> bool:
    """Whether a loop gives, in three steps of a few hundred values, the bits of Paddle's optimizer ``kind``."""
    generator = np.random.default_rng(0)
    shapes, decays, factor = ((700,), (3, 5)), (0.05, 0.0), 0.7
    with paddle.utils.unique_name.guard():  # other names stay as they are
        start = paddle.nn.initializer.Constant(0.0)  # draws no random number
        theirs, ours = (
            [paddle.create_parameter(shape, "float32", default_initializer=start) for shape in shapes] for _ in range(2)
        )
        optimizers = []
        for parameters in (theirs, ours):
            groups = [
                {"params": [p], "weight_decay": decay, "learning_rate": factor} for p, decay in zip(parameters, decays)
            ]
            optimizers.append(kind(learning_rate=0.0, parameters=groups, weight_decay=0.05, **options))
            paddle_versions.create_accumulators(optimizers[-1])
    for shape, *pair in zip(shapes, theirs, ours):
        values = generator.standard_normal(shape).astype(np.float32)
        for parameter in pair:
            parameter.set_value(values)
    for rate in (1e-3, 0.9e-3, 0.8e-3):
        gradients = [(generator.standard_normal(s) * 10.0 ** generator.integers(-6, 3, s)).astype("f4") for s in shapes]
        lent = [paddle.to_tensor(gradient) for gradient in gradients]
        for parameter, gradient in zip(theirs, gradients):
            parameter.grad = paddle.to_tensor(gradient)
        optimizers[0].set_lr(rate)
        optimizers[0].step()
        moments = [[optimizers[1]._accumulators[name][p.name] for p in ours] for name in columns]
        table = plan([ours, lent, *moments])
        if table is None:
            return False
        rates = np.full(len(shapes), np.float32(rate) * np.float32(factor))
        run(*table, rates, np.array(decays, np.float32))
    state = [
        [optimizer._accumulators[name][p.name] for name in columns for p in parameters]
        for optimizer, parameters in zip(optimizers, (theirs, ours))
    ]
    pairs = [*zip(theirs, ours), *zip(*state)]
    return all(np.array_equal(a.numpy().view(np.int32), b.numpy().view(np.int32)) for a, b in pairs)
