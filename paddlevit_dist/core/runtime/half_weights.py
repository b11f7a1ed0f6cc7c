"""Weights in half precision for all layers of a forward pass, by a few operations instead of one cast for each.

With autocast Paddle casts each weight and bias where it is used, and their gradients back: 200 operations of an update
of ViT-Ti/16, which take a GPU less time than the host needs to launch them. Here tensors of one width are joined, cast
and split again, forward and backward: the same values bit for bit. That copies the weights once more, which costs more
than it saves for large networks. So the GPU itself is asked, before the first step, which of the two takes less time.
While a group is joined, it takes up to 6 bytes for each of its values besides the results, so groups are limited.

Each part of the joined tensor starts at a multiple of 256 bytes, as a separate tensor does: products assume it.
"""

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import paddle

from . import device_graph
from .transfers import read

_ALIGNED_VALUES = 128  # of two bytes each
_MOST_JOINED = 1 << 24  # values of a group: 100 MB; a single larger tensor is a group
_TRIALS = 5

_in_use: dict[int, paddle.Tensor] = {}  # by the id of the float32 parameter, inside ``HalfWeights.in_use``

Shapes = tuple[tuple[int, ...] | None, ...]


def find(parameter: paddle.Tensor) -> paddle.Tensor:
    """Return the parameter in half precision if it has been cast for this forward pass; otherwise itself."""
    return _in_use.get(id(parameter), parameter) if _in_use else parameter


def find_all(parameters: list[paddle.Tensor]) -> list[paddle.Tensor]:
    """Return what ``find`` returns for each parameter."""
    return [_in_use.get(id(one), one) for one in parameters] if _in_use else parameters


class HalfWeights:
    """Casts parameters together, in several groups if ranks exchange gradients while the backward pass still runs.

    Args:
        parameters: trained float32 parameters, in the order of the forward pass.
        dtype: Paddle's half precision.
        groups: the least number of groups, of about the same size.
    """

    def __init__(self, parameters: Sequence[paddle.Tensor], dtype: paddle.dtype, groups: int = 1) -> None:
        self._dtype = dtype
        sizes = [parameter.size for parameter in parameters]
        groups = max(groups, -(-sum(sizes) // _MOST_JOINED))
        parted: list[list[paddle.Tensor]] = [[] for _ in range(groups)]
        for before, parameter in zip(itertools.accumulate(sizes, initial=0), parameters):
            parted[before * groups // sum(sizes)].append(parameter)
        self._groups = [(group, list_shapes(group)) for group in parted if group]

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Cast the parameters, and let ``find`` return the results inside the block."""
        try:
            for group, shapes in self._groups:
                halves = _JoinedCast.apply(self._dtype, shapes, *group)
                _in_use.update(zip(map(id, group), halves))
            yield
        finally:
            _in_use.clear()


class _JoinedCast(paddle.autograd.PyLayer):
    """Cast tensors of these shapes to a dtype, and the gradients back."""

    @staticmethod
    def forward(ctx: Any, dtype: paddle.dtype, shapes: Shapes, *tensors: paddle.Tensor) -> tuple[paddle.Tensor, ...]:
        ctx.set_materialize_grads(False)  # a parameter that a step does not use has no gradient
        ctx.dtype, ctx.shapes = tensors[0].dtype, shapes
        return tuple(cast_together(tensors, shapes, dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: paddle.Tensor | None) -> tuple[paddle.Tensor | None, ...]:
        shapes = tuple(None if gradient is None else shape for gradient, shape in zip(gradients, ctx.shapes))
        return tuple(cast_together(gradients, shapes, ctx.dtype))


def cast_together(
    tensors: Sequence[paddle.Tensor | None], shapes: Shapes, dtype: paddle.dtype
) -> list[paddle.Tensor | None]:
    """Cast tensors of these shapes and of one dtype to another; where a shape is None, the result is None.

    Vectors are joined with each other, and other tensors if their shapes differ in the first axis only. Tensors that
    cannot be joined are cast one by one.
    """
    results: list[paddle.Tensor | None] = [None] * len(tensors)
    for group in _plan(shapes):
        if len(group.numbers) == 1:
            results[group.numbers[0]] = paddle._C_ops.cast(tensors[group.numbers[0]], dtype)
            continue
        first = tensors[group.numbers[0]]
        fillings = {part: device_graph.keep(_zeros(-part, first.dtype)) for part in group.fillings}  # type: ignore[union-attr]
        parts = [fillings[part] if part < 0 else tensors[part] for part in group.parts]
        casts = paddle._C_ops.split(paddle._C_ops.cast(paddle._C_ops.concat(parts, 0), dtype), group.lengths, 0)
        for number, place in zip(group.numbers, group.places):
            results[number] = casts[place]
    return results


class _JoinedTensors(NamedTuple):
    """Tensors that are joined along the first axis.

    Attributes:
        numbers: positions of the tensors in the list of all.
        parts: what is joined: the position of a tensor, or below 0 minus the number of zeros that fill up a vector.
        lengths: of the parts, along the first axis.
        places: positions of the tensors in ``parts``.
        fillings: the numbers below 0 among ``parts``, each once.
    """

    numbers: list[int]
    parts: list[int]
    lengths: list[int]
    places: list[int]
    fillings: set[int]


@functools.lru_cache(maxsize=256)
def _plan(shapes: Shapes) -> list[_JoinedTensors]:
    groups: dict[tuple[int, ...], _JoinedTensors] = {}
    for number, shape in enumerate(shapes):
        if shape is None:
            continue
        missing = -math.prod(shape) % _ALIGNED_VALUES
        can_join = len(shape) == 1 or (shape and not missing)
        group = groups.setdefault(shape[1:] if can_join else (-1, number), _JoinedTensors([], [], [], [], set()))
        group.numbers.append(number)
        group.places.append(len(group.parts))
        group.parts.append(number)
        group.lengths.append(shape[0] if shape else 1)
        if can_join and missing:
            group.parts.append(-missing)
            group.fillings.add(-missing)
            group.lengths.append(missing)
    return list(groups.values())


@functools.lru_cache(maxsize=256)
def _zeros(number: int, dtype: paddle.dtype) -> paddle.Tensor:
    """Return zeros, (number,), which callers must not change."""
    return paddle.zeros([number], dtype=dtype)


def list_shapes(tensors: Sequence[paddle.Tensor]) -> Shapes:
    """Return the shapes of tensors."""
    return tuple(tuple(tensor.shape) for tensor in tensors)


def list_parameters(model: paddle.nn.Layer) -> list[paddle.Tensor]:
    """Return the parameters whose layers ask ``find`` for them, in order: of trained linear layers."""
    layers = [layer for layer in model.sublayers() if getattr(layer, "finds_half_weights", False)]
    # By name: with Paddle's weight_norm the weight is not a parameter, and another tensor in each forward pass.
    pairs = [[layer._parameters.get(name) for name in ("weight", "bias")] for layer in layers]
    pairs = [pair for pair in pairs if pair[0] is not None]
    trained = [pair for pair in pairs if not any(each is not None and each.stop_gradient for each in pair)]
    found = {id(each): each for pair in trained for each in pair if each is not None and each.dtype == paddle.float32}
    return list(found.values())


def time_casts(parameters: Sequence[paddle.Tensor], dtype: paddle.dtype) -> tuple[float, float]:
    """Return the seconds that casts to half precision and back take on this device, one by one and together.

    The latter is infinite if a value differs, or if the device cannot join tensors.
    """
    joined = HalfWeights(parameters, dtype)

    def one_by_one() -> Sequence[paddle.Tensor]:
        return [parameter.astype(dtype) for parameter in parameters]

    def together() -> Sequence[paddle.Tensor]:
        with joined.in_use():
            return [find(parameter) for parameter in parameters]

    seconds: list[list[float]] = [[], []]
    results: list[list[paddle.Tensor]] = [[], []]
    try:
        for _ in range(_TRIALS):
            for way, cast in enumerate((one_by_one, together)):
                started = time.perf_counter()
                halves = list(cast())
                gradients = paddle.grad(halves, parameters, [half.detach() for half in halves])
                read(min(gradients, key=lambda gradient: gradient.size))
                seconds[way].append(time.perf_counter() - started)
                results[way] = [*halves, *gradients]
        if _count_differences(*results):
            seconds[1] = [math.inf]
    except Exception:  # Paddle raises several types for a missing kernel; separate casts are what every run can do
        return min(seconds[0], default=0.0), math.inf
    return min(seconds[0]), min(seconds[1])


def _count_differences(expected: Sequence[paddle.Tensor], found: Sequence[paddle.Tensor]) -> int:
    """Return the number of values that differ; the host waits once."""
    pairs = zip(expected, found, strict=True)
    with paddle.no_grad():
        counts = [(one.astype("float32") != other.astype("float32")).astype("int64").sum() for one, other in pairs]
        return int(read(paddle.add_n(counts))[0].item())
