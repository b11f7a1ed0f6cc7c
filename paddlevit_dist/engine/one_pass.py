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
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import paddle

from .. import paddle_versions

WORTHWHILE = 1_000_000  # values: with fewer, loading numba takes longer than it saves in several hundred updates


class Places:
    """Where tensors are that seldom move, such as weights and moments: looked at again only when one has."""

    def __init__(self) -> None:
        self.sizes = np.empty(0, np.int64)
        self._addresses: Optional[np.ndarray] = None

    def addresses(self, tensors: Sequence[paddle.Tensor]) -> Optional[np.ndarray]:
        """(tensors,) int64; None if one of them is not plain, or there are none. ``sizes`` is then theirs."""
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
    """Whether a loop may read and write the tensor's memory: float32 values in a row on the host."""
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
        on_host: the host knows the norm at once; else it does not wait for the device that computes it.
    """

    def __init__(self, parameters: Sequence[paddle.Tensor], largest: Optional[float], on_host: bool = True) -> None:
        self._parameters = list(parameters)
        self._largest = largest
        self._on_host = on_host
        self._is_compiled = on_host and is_worthwhile(self._parameters)
        self._sizes = np.array([p.size for p in self._parameters], np.int64)

    @paddle.no_grad()
    def __call__(self) -> paddle.Tensor:
        """The norm before scaling, float32 with one element; infinite where the sum of squares exceeds float32."""
        gradients = [p._grad_ivar() for p in self._parameters]
        has_one = np.array([gradient is not None for gradient in gradients], bool)
        gradients = list(itertools.compress(gradients, has_one))
        if not (self._is_compiled and gradients and all(map(is_plain, gradients))):
            return self._by_operations(gradients)
        from . import memory_loops

        table = _rows(_addresses(gradients)), self._sizes[has_one]
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
        if self._largest and self._on_host:
            factor = _factor(norm.numpy()[0], self._largest)
            if factor < 1:
                for gradient in gradients:
                    gradient.scale_(float(factor))
        elif self._largest:
            factor = paddle.clip(self._largest / (norm + 1e-6), max=1.0)
            factor = paddle.where(paddle.isfinite(norm), factor, paddle.ones_like(factor))
            for gradient in gradients:
                gradient.multiply_(factor.astype(gradient.dtype))
        return norm


def _factor(norm: np.float32, largest: Optional[float]) -> np.float32:
    """What brings gradients down to the largest norm; 1 if they are below it or not finite."""
    if not largest or not np.isfinite(norm):
        return np.float32(1)
    return np.minimum(np.float32(largest) / (norm + np.float32(1e-6)), np.float32(1))


# ---- averages ------------------------------------------------------------------------------------------------


class Approach:
    """Moves averages towards values by a share of their distance."""

    def __init__(self) -> None:
        self._averages, self._values = Places(), Places()

    def __call__(
        self, pairs: Sequence[Tuple[paddle.Tensor, paddle.Tensor]], share: float
    ) -> List[Tuple[paddle.Tensor, paddle.Tensor]]:
        """Move each average, the first of a pair.

        Returns:
            The pairs to which nothing was done, since they are not plain.
        """
        is_done = [average.dtype == paddle.float32 for average, _ in pairs]
        plain = list(itertools.compress(pairs, is_done))
        averages = self._averages.addresses([average for average, _ in plain])
        values = self._values.addresses([value for _, value in plain])
        if averages is None or values is None:
            return list(pairs)
        from . import memory_loops

        memory_loops.approach(_rows(averages, values), self._averages.sizes, np.float32(share))
        return [pair for pair, done in zip(pairs, is_done) if not done]


# ---- optimizers ----------------------------------------------------------------------------------------------


class _OnePass:
    """Of an optimizer: a step in one pass where that gives Paddle's own bits. ``decays`` are L2 terms or decoupled
    weight decays by a parameter's automatic name, as they were given to Paddle by groups."""

    _columns: Tuple[str, ...]  # accumulators, in the order of the loop's columns after weight and gradient
    _decays: Dict[str, float]
    _run: Any = None  # the loop; False if there is none

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        if not self._step_in_one_pass():
            super().step()  # type: ignore[misc]

    @paddle.no_grad()
    def _step_in_one_pass(self) -> bool:
        if self._run is None:
            parameters = [p for p in self._all_parameters() if not p.stop_gradient]
            self._run = (self._loop() if is_worthwhile(parameters) else None) or False
            if self._run:
                self._prepare(parameters)
        if not self._run:
            return False
        gradients = [p._grad_ivar() for p in self._parameters]
        has_one = np.array([gradient is not None for gradient in gradients], bool)
        # Some kernels of Paddle 3 give a strided gradient; its copy lives until the loop has read it.
        gradients = [g if not g.is_dense() or g.is_contiguous() else g.contiguous() for g in gradients if g is not None]
        if not gradients:
            return True
        still = [places.addresses(tensors) for places, tensors in zip(self._places, self._tensors)]
        if not all(map(is_plain, gradients)) or any(column is None for column in still):
            return False
        weights, *moments = (column[has_one] for column in still if column is not None)
        rates = np.float32(self.get_lr()) * self._factors[has_one]  # type: ignore[attr-defined]
        table = _rows(weights, _addresses(gradients), *moments), self._places[0].sizes[has_one]
        self._run(*table, rates, self._decay_rates[has_one])
        return True

    def _prepare(self, parameters: List[paddle.Tensor]) -> None:
        paddle_versions.create_accumulators(self)
        self._parameters = parameters
        moments = [[self._accumulators[name][p.name] for p in parameters] for name in self._columns]  # type: ignore
        self._tensors = [parameters, *moments]
        self._places = [Places() for _ in self._tensors]
        self._factors = np.array([p.optimize_attr["learning_rate"] for p in parameters], np.float32)
        self._decay_rates = np.array([self._decays[p.name] for p in parameters], np.float32)

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
        still = [Places().addresses(tensors) for tensors in (ours, lent, *moments)]
        if any(column is None for column in still):
            return False
        rates = np.full(len(shapes), np.float32(rate) * np.float32(factor))
        sizes = np.array([p.size for p in ours], np.int64)
        run(_rows(*still), sizes, rates, np.array(decays, np.float32))
    state = [
        [optimizer._accumulators[name][p.name] for name in columns for p in parameters]
        for optimizer, parameters in zip(optimizers, (theirs, ours))
    ]
    pairs = [*zip(theirs, ours), *zip(*state)]
    return all(np.array_equal(a.numpy().view(np.int32), b.numpy().view(np.int32)) for a, b in pairs)
