"""What an update does to all parameters, on a CPU in one compiled pass over their memory instead of several operations
for each of them: the optimizer, the norm of the gradients and their clipping, the averaged weights.

The tensors stay where they are; the loops (``memory_loops``) get their addresses anew in each update. So the state of
the optimizer and of the averages, their names and what checkpoints hold do not depend on how they were updated. The
optimizers here give the same bits as Paddle's, which is tried once with Paddle's own: where they do not, or a tensor is
not a plain one of float32 in the host's memory, Paddle's update is made. The averages have the same bits as well; the
norm is summed in another order.

On GPUs, and where a model is too small for loops to be compiled, a few operations for all parameters do the same
(``multi_tensor``).
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import paddle

from .. import paddle_versions
from . import multi_tensor

# Makes a step at a learning rate with the gradients, None for a parameter without one; False if it could not.
Step = Callable[[float, Sequence[Optional[paddle.Tensor]]], bool]
Maker = Callable[..., Step]  # of parameters, accumulators, factors of the rate and decays
Found = Tuple[Optional[Maker], str]  # None if Paddle's own is to be taken, and what about that is to be told

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


class Gradients:
    """All gradients of a model's parameters, as far as they have one."""

    def __init__(self, parameters: Sequence[paddle.Tensor]) -> None:
        self._parameters = list(parameters)
        self._is_compiled = is_worthwhile(self._parameters)
        self._sizes = np.array([p.size for p in self._parameters], np.int64)

    @paddle.no_grad()
    def norm(self) -> np.float32:
        """Their global norm; infinite where the sum of squares exceeds float32. The host waits for the device, once."""
        gradients, table = self._present()
        if not gradients:
            return np.float32(0)
        with np.errstate(over="ignore"):
            if table is None:
                return np.sqrt(multi_tensor.sum_of_squares(gradients))
            from . import memory_loops

            return np.sqrt(np.float32(memory_loops.sum_of_squares(*table)))

    @paddle.no_grad()
    def scale(self, factor: np.float32) -> None:
        """Multiply them, where they are finite, by a factor above 0, in place."""
        gradients, table = self._present()
        if table is not None:
            from . import memory_loops

            memory_loops.scale(*table, factor)
        elif gradients:
            multi_tensor.scale(gradients, float(factor))

    def _present(self) -> Tuple[List[paddle.Tensor], Optional[Tuple[np.ndarray, np.ndarray]]]:
        """The gradients that there are, and what a loop takes; None where none can."""
        gradients = [p._grad_ivar() for p in self._parameters]
        has_one = np.array([gradient is not None for gradient in gradients], bool)
        gradients = list(itertools.compress(gradients, has_one))
        if not (self._is_compiled and gradients and all(map(is_plain, gradients))):
            return gradients, None
        return gradients, (_rows(_addresses(gradients)), self._sizes[has_one])


def clipping_factor(norm: np.float32, largest: Optional[float]) -> np.float32:
    """What brings gradients of a finite norm down to the largest one; 1 if they are below it or there is none."""
    if not largest:
        return np.float32(1)
    return np.minimum(np.float32(largest) / (norm + np.float32(1e-6)), np.float32(1))


# ---- averages ------------------------------------------------------------------------------------------------


class Approach:
    """Moves averages towards values by a share of their distance.

    Args:
        averages: (values,) float32: those of all tensors in a row.
        sizes: of the tensors that are averaged; they are of float32 as well.
    """

    def __init__(self, averages: paddle.Tensor, sizes: Sequence[int]) -> None:
        self._is_compiled = is_worthwhile([averages])
        self._sizes = np.array(sizes, np.int64)
        self._begins = np.cumsum(self._sizes) - self._sizes  # (tensors,)
        self._places, self._flat = Places(), multi_tensor.FlatViews()

    def __call__(self, averages: paddle.Tensor, tensors: Sequence[paddle.Tensor], share: float) -> None:
        """Move averages like those of the beginning towards their tensors, in place."""
        values = self._places.addresses(tensors) if self._is_compiled else None
        if values is not None:
            from . import memory_loops

            begins = averages.data_ptr() + averages.element_size() * self._begins
            memory_loops.approach(_rows(begins, values), self._sizes, np.float32(share))
            return
        change = self._flat(tensors)
        change.subtract_(averages)  # as a + s (w - a): one product less than in (1 - s) a + s w
        averages.add_(change.scale_(share))


# ---- optimizers ----------------------------------------------------------------------------------------------


class CompiledStep:
    """An optimizer's step by a compiled loop.

    Args:
        loop: takes a row of addresses for each parameter, sizes, rates and decays.
        parameters: of float32, on the host.
        columns: the accumulators by name, in the order of the loop's columns after weight and gradient.
        factors: of the learning rate, for each parameter.
        decays: for each parameter.
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
        self._places = [Places() for _ in self._tensors]
        self._factors, self._decays = np.array(factors, np.float32), np.array(decays, np.float32)

    def __call__(self, rate: float, gradients: Sequence[Optional[paddle.Tensor]]) -> bool:
        """Make a step, or nothing if a tensor is not plain; returns whether it was made."""
        has_one = np.array([gradient is not None for gradient in gradients], bool)
        # Some kernels of Paddle 3 give a strided gradient; its copy lives until the loop has read it.
        present = [g if not g.is_dense() or g.is_contiguous() else g.contiguous() for g in gradients if g is not None]
        if not present:
            return True
        still = [places.addresses(tensors) for places, tensors in zip(self._places, self._tensors)]
        if not all(map(is_plain, present)) or any(column is None for column in still):
            return False
        weights, *moments = (column[has_one] for column in still if column is not None)
        table = _rows(weights, _addresses(present), *moments), self._places[0].sizes[has_one]
        self._loop(*table, np.float32(rate) * self._factors[has_one], self._decays[has_one])
        return True


class _OnePass:
    """Of an optimizer: a step for all parameters at once, where that gives what Paddle's own gives.

    Args:
        decays: L2 terms or decoupled weight decays by a parameter's automatic name, as they were given to Paddle by
            groups.
        say: takes a line for the log.
        options: Paddle's, with groups of parameters.
    """

    _columns: Tuple[str, ...]  # names of accumulators, in the order of the loop's columns after weight and gradient
    _at_once: Any = None  # what makes a step; False: Paddle does

    def __init__(
        self, decays: Dict[str, float], say: Callable[[str], None] = lambda text: None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._decays, self._say = decays, say

    def step(self) -> None:
        """Update the parameters that have a gradient."""
        if self._at_once is None:
            groups = self._param_groups  # type: ignore[attr-defined]
            self._trained = [p for group in groups for p in group["params"] if not p.stop_gradient]
            self._at_once = self._chosen() or False
        if not (self._at_once and self._at_once(self.get_lr(), [p._grad_ivar() for p in self._trained])):  # type: ignore
            super().step()  # type: ignore[misc]

    def _chosen(self) -> Optional[Step]:
        parameters = self._trained
        if any(p.dtype != paddle.float32 for p in parameters):
            return None
        maker, problem = self._maker(is_worthwhile(parameters))
        if problem:
            self._say(f"note: Paddle updates one parameter after the other; its operation for all of them {problem}")
        if maker is None:
            return None
        paddle_versions.create_accumulators(self)
        columns = [[self._accumulators[name][p.name] for p in parameters] for name in self._columns]  # type: ignore
        factors = [p.optimize_attr["learning_rate"] for p in parameters]
        return maker(parameters, columns, factors, [self._decays[p.name] for p in parameters])

    def _maker(self, compiles: bool) -> Found:
        raise NotImplementedError


class OnePassAdam(_OnePass, paddle.optimizer.Adam):
    """``paddle.optimizer.Adam``, see ``_OnePass``; on GPUs it is Paddle's own."""

    _columns = ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")

    def _maker(self, compiles: bool) -> Found:
        return _adam(compiles, False, self._beta1, self._beta2, self._epsilon)


class OnePassAdamW(_OnePass, paddle.optimizer.AdamW):
    """``paddle.optimizer.AdamW``, see ``_OnePass``."""

    _columns = OnePassAdam._columns

    def _maker(self, compiles: bool) -> Found:
        return _adam(compiles, True, self._beta1, self._beta2, self._epsilon)


class OnePassMomentum(_OnePass, paddle.optimizer.Momentum):
    """``paddle.optimizer.Momentum``, see ``_OnePass``."""

    _columns = ("velocity",)

    def _maker(self, compiles: bool) -> Found:
        return _momentum(compiles, self._momentum)


@functools.lru_cache(maxsize=None)
def _adam(compiles: bool, is_decoupled: bool, beta1: float, beta2: float, epsilon: float) -> Found:
    kind = paddle.optimizer.AdamW if is_decoupled else paddle.optimizer.Adam
    trial = functools.partial(_agrees, kind, {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}, OnePassAdam._columns)
    if not compiles:
        return _by_lists(multi_tensor.adamw(beta1, beta2, epsilon), trial) if is_decoupled else (None, "")
    from . import memory_loops

    def loop(rounds_once: bool) -> Callable[..., None]:
        def run(rows: np.ndarray, sizes: np.ndarray, rates: np.ndarray, decays: np.ndarray) -> None:
            betas = np.array([beta1, beta2], np.float32)
            memory_loops.adam(rows, sizes, rates, decays, betas, np.float32(epsilon), is_decoupled, rounds_once)

        return run

    makers = (functools.partial(CompiledStep, loop(once)) for once in (True, False))
    return next(filter(trial, makers), None), ""


@functools.lru_cache(maxsize=None)
def _momentum(compiles: bool, kept: float) -> Found:
    trial = functools.partial(_agrees, paddle.optimizer.Momentum, {"momentum": kept}, OnePassMomentum._columns)
    if not compiles:
        return _by_lists(multi_tensor.momentum(kept), trial)
    from . import memory_loops

    def run(rows: np.ndarray, sizes: np.ndarray, rates: np.ndarray, decays: np.ndarray) -> None:
        memory_loops.momentum(rows, sizes, rates, decays, np.float32(kept))

    maker = functools.partial(CompiledStep, run)
    return (maker if trial(maker) else None), ""


def _by_lists(update: multi_tensor.Update, trial: Callable[[Maker], bool]) -> Found:
    maker = functools.partial(multi_tensor.ListStep, update)
    try:
        return (maker, "") if trial(maker) else (None, "gives other results here")
    except Exception as error:  # whatever Paddle raises for a kernel that is missing or takes something else
        lines = str(error).strip().splitlines() or [""]
        return None, f"fails here: {type(error).__name__}: {lines[-1]}"


def _agrees(kind: Any, options: Dict[str, Any], columns: Sequence[str], make: Maker) -> bool:
    """Whether three steps of a few hundred values are those of Paddle's optimizer ``kind``: to the bit on a CPU, on a
    GPU to a millionth of the largest, since its compiler chooses which products and sums are rounded together."""
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
    state = [
        [[o._accumulators[name][p.name] for p in ps] for name in columns] for o, ps in zip(optimizers, (theirs, ours))
    ]
    step = make(ours, state[1], [factor] * len(shapes), decays)
    for rate in (1e-3, 0.9e-3, 0.8e-3):
        gradients = [(generator.standard_normal(s) * 10.0 ** generator.integers(-6, 3, s)).astype("f4") for s in shapes]
        for parameter, gradient in zip(theirs, gradients):
            parameter.grad = paddle.to_tensor(gradient)
        optimizers[0].set_lr(rate)
        optimizers[0].step()
        if not step(rate, [paddle.to_tensor(gradient) for gradient in gradients]):
            return False
    pairs = zip([*theirs, *itertools.chain(*state[0])], [*ours, *itertools.chain(*state[1])])
    return all(_is_same(one.numpy(), other.numpy(), ours[0].place.is_cpu_place()) for one, other in pairs)


def _is_same(one: np.ndarray, other: np.ndarray, has_its_bits: bool) -> bool:
    if has_its_bits:
        return np.array_equal(one.view(np.int32), other.view(np.int32))
    return bool(np.abs(one - other).max() <= 1e-6 * np.abs(one).max())
