"""Launches of the Triton functions on tensors of any framework, which are passed by address.

A ``TensorFactory`` creates tensors and names dtypes. Paddle's is in ``functions.py``, and a benchmark has torch's.
All tensors are contiguous, on the device in use, and in float32, float16 or bfloat16.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from . import kernels
from .prepared import PreparedLaunch

FLOAT32, SEEDS = "float32", "int32"
_MOST_SUMMED = 8192  # values that one program of ``sum_partials`` reads, for up to 2,048 rows of them
_CAST_AT_ONCE = 4096  # values that one program of ``cast_five`` copies
MOST_PREPARED = 256  # launches of each kind, as for batches of changing shapes


Create = Callable[[], Any]


class TensorFactory(Protocol):
    """How the tensors of a framework are created; they have ``shape`` and ``data_ptr()``. It is one for a process."""

    def prepare(self, shape: Sequence[int], dtype: str) -> Create:
        """Return what creates an uninitialized tensor where the kernels run; ``dtype`` as "float32"."""


class KernelTile(NamedTuple):
    """How a kernel is divided into programs.

    Attributes:
        rows: that one program computes at a time, a power of two.
        columns: at a time, a power of two; all columns of a layer norm.
        warps: of a program.
        programs: the most that share the rows of a gradient; their sums are added in a second step.
    """

    rows: int
    columns: int
    warps: int
    programs: int = 0


class DropRates(NamedTuple):
    """What is dropped at random of a branch, by two ``seeds`` for each site.

    Attributes:
        site: number of this place; that of whole items is the next.
        rate: share of the values.
        path_rate: share of the items.
    """

    site: int = 0
    rate: float = 0.0
    path_rate: float = 0.0

    @property
    def is_any(self) -> bool:
        """Return whether anything is dropped, so that kernels read seeds."""
        return self.rate > 0 or self.path_rate > 0


NO_DROPS = DropRates()


@functools.cache
def norm_tile(width: int) -> KernelTile:
    """Choose the tile of a layer norm; the sizes of all tiles were chosen on an H200."""
    columns = _power_of_two(width)
    return KernelTile(max(2, 512 // columns) if columns <= 1024 else 1, columns, _count_warps(columns))


@functools.cache
def norm_backward_tile(width: int) -> KernelTile:
    """Choose the tile of the gradient of a layer norm."""
    columns = _power_of_two(width)
    if columns <= 256:
        return KernelTile(256 // columns, columns, 2, 2048)
    return KernelTile(1, columns, max(2, _count_warps(columns) // 2), 1024)


@functools.cache
def gelu_tile(width: int) -> KernelTile:
    """Choose the tile of a GELU."""
    return KernelTile(8, min(256, _power_of_two(width)), 4)


@functools.cache
def gelu_backward_tile(width: int) -> KernelTile:
    """Choose the tile of the gradient of a GELU."""
    return KernelTile(16, min(128, _power_of_two(width)), 4, 256)


def _count_warps(columns: int) -> int:
    return 2 if columns <= 256 else 4 if columns <= 2048 else 8 if columns <= 4096 else 16


class SumTypes(NamedTuple):
    """Dtypes of a residual sum and its norm, as "float32"; None for what is missing."""

    x: str
    branch: str | None
    bias: str | None
    weight: str | None
    total: str
    normal: str | None


class AddedNorm(NamedTuple):
    """A residual sum and its layer norm, (..., width), and float32 (2, rows): each row's mean and 1 / deviation."""

    total: Any
    normal: Any | None
    statistics: Any | None


class AddNorm:
    """Prepared launch of total = x + path * dropout(branch + bias) and of its layer norm.

    Args:
        framework: of the tensors.
        shape: of x, (items, ..., width).
        types: of the tensors; the norm's weight and bias have one dtype.
        epsilon: added to the variance.
        drops: what is dropped of the branch.
        is_flat: whether the normalized tensor is (rows, width), not of the shape of x.
        tile: how the work is divided; None for the usual way.
    """

    def __init__(
        self,
        framework: TensorFactory,
        shape: Sequence[int],
        types: SumTypes,
        epsilon: float = 0.0,
        drops: DropRates = NO_DROPS,
        is_flat: bool = False,
        tile: KernelTile | None = None,
    ) -> None:
        rows, width = math.prod(shape[:-1]), shape[-1]
        rows_in_tile, columns, warps, _ = tile or norm_tile(width)
        x, branch, bias, weight, total, normal = types
        self._create_total = framework.prepare(shape, total)
        self._create_normal = None if normal is None else framework.prepare([rows, width] if is_flat else shape, normal)
        self._create_statistics = framework.prepare([2, rows], FLOAT32)
        has_path, has_norm = drops.path_rate > 0, normal is not None
        names = (
            *(x, branch or x, bias or x, SEEDS if drops.is_any else x),
            *(weight or x, weight or x, x if branch is None else total, normal or x, FLOAT32 if has_norm else x),
        )
        numbers = rows, rows // shape[0], *drops, epsilon
        has = branch is not None, bias is not None, drops.rate > 0, has_path, has_norm
        blocks = -(-rows // rows_in_tile), 1
        self._start = PreparedLaunch(
            kernels.add_norm, blocks, names, numbers, (width, columns, rows_in_tile, *has), warps
        )

    def __call__(
        self,
        x: Any,
        branch: Any | None = None,
        bias: Any | None = None,
        weight: Any | None = None,
        shift: Any | None = None,
        seeds: Any | None = None,
    ) -> AddedNorm:
        """Compute total and norm of tensors; without a branch the total is x itself.

        Args:
            x: (items, ..., width).
            branch: the same number of values.
            bias: (width,), added to the branch.
            weight, shift: of the norm, (width,).
            seeds: int32, two numbers for each site, which decide what is dropped.
        """
        total = x if branch is None else self._create_total()
        normal, statistics = x, x
        if self._create_normal is not None:
            normal, statistics = self._create_normal(), self._create_statistics()
        self._start(
            x,
            x if branch is None else branch,
            x if bias is None else bias,
            x if seeds is None else seeds,
            x if weight is None else weight,
            x if shift is None else shift,
            total,
            normal,
            statistics,
        )
        return AddedNorm(total, normal, statistics)


class NormGradients(NamedTuple):
    """Gradients of a sum and its norm; None where there was no branch, norm or bias."""

    x: Any
    branch: Any | None
    weight: Any | None
    shift: Any | None
    bias: Any | None


class AddNormBackward:
    """Prepared launch of the gradients of ``AddNorm``, of the same arguments, in the dtypes of its tensors.

    Additional arguments:
        is_flat: whether the gradient of the branch is (rows, width).
        has_total_gradient: whether the total has one; otherwise it is 0. Without a norm the total's is also that of x.
        place: of its memory for sums, which ``AddUpBlock`` adds up; None: a launch of this object does.
    """

    def __init__(
        self,
        framework: TensorFactory,
        shape: Sequence[int],
        types: SumTypes,
        drops: DropRates = NO_DROPS,
        is_flat: bool = False,
        has_total_gradient: bool = True,
        place: int | None = None,
        tile: KernelTile | None = None,
    ) -> None:
        rows, width = math.prod(shape[:-1]), shape[-1]
        rows_in_tile, columns, warps, most_programs = tile or norm_backward_tile(width)
        programs = min(most_programs, -(-rows // rows_in_tile))
        x, branch, bias, weight, total, normal = types
        has_norm = normal is not None
        self.sums = [name for name in (weight, weight, bias) if name is not None]
        self.width, self.programs, self._has_bias = width, programs, bias is not None
        self._create_x = framework.prepare(shape, x) if has_norm else None
        branch_shape = [rows, width] if is_flat else shape
        self._create_branch = None if branch is None else framework.prepare(branch_shape, branch)
        self._create_sums = [framework.prepare([width], name) for name in self.sums]
        other = FLOAT32 if has_norm else total
        names = (
            *(normal or total, total, total, other, weight or total, SEEDS if drops.is_any else total),
            *(x, branch or x, FLOAT32),
        )
        numbers = rows, rows // shape[0], *drops
        has = has_total_gradient, branch is not None, bias is not None, drops.rate > 0, drops.path_rate > 0
        constants = width, columns, rows_in_tile, *has, has_norm
        self._start = PreparedLaunch(kernels.add_norm_backward, (programs, 1), names, numbers, constants, warps)
        self.partials = _scratch(framework.prepare, max(1, len(self.sums)) * programs * width, place or 0)
        self._add_up = _prepare_sum(self.sums, programs, width) if self.sums and place is None else None

    def __call__(
        self,
        total: Any,
        statistics: Any | None,
        normal_gradient: Any | None,
        total_gradient: Any | None,
        weight: Any | None = None,
        seeds: Any | None = None,
    ) -> NormGradients:
        """Compute the gradients from the gradients of total and norm."""
        x_gradient = total_gradient if self._create_x is None else self._create_x()
        branch_gradient = None if self._create_branch is None else self._create_branch()
        sums = [create() for create in self._create_sums]
        self._start(
            total if normal_gradient is None else normal_gradient,
            total if total_gradient is None else total_gradient,
            total,
            total if statistics is None else statistics,
            total if weight is None else weight,
            total if seeds is None else seeds,
            x_gradient,
            x_gradient if branch_gradient is None else branch_gradient,
            self.partials,
        )
        if self._add_up is not None:
            self._add_up(self.partials, *sums, *[sums[0]] * (3 - len(sums)))
        bias = sums.pop() if self._has_bias else None
        weight_sum, shift_sum = sums or (None, None)
        return NormGradients(x_gradient, branch_gradient, weight_sum, shift_sum, bias)


class BiasGelu:
    """Prepared launch of dropout(GELU(x + bias)) for rows of x, (rows, width), and a bias (width,).

    Args:
        framework: of the tensors.
        shape: of x and the result, (..., width).
        x, bias: their dtypes; the result has that of x.
        drops: what is dropped, in the first of its sites.
        tile: how the work is divided; None for the usual way.
    """

    def __init__(
        self,
        framework: TensorFactory,
        shape: Sequence[int],
        x: str,
        bias: str,
        drops: DropRates = NO_DROPS,
        tile: KernelTile | None = None,
    ) -> None:
        rows, width = math.prod(shape[:-1]), shape[-1]
        rows_in_tile, columns, warps, _ = tile or gelu_tile(width)
        self._create = framework.prepare(shape, x)
        names, numbers = (x, bias, SEEDS if drops.rate > 0 else x, x), (rows, drops.site, drops.rate)
        blocks, constants = (-(-rows // rows_in_tile), -(-width // columns)), (width, columns, rows_in_tile)
        self._start = PreparedLaunch(kernels.bias_gelu, blocks, names, numbers, (*constants, drops.rate > 0), warps)

    def __call__(self, x: Any, bias: Any, seeds: Any | None = None) -> Any:
        """Compute the result."""
        out = self._create()
        self._start(x, bias, x if seeds is None else seeds, out)
        return out


class BiasGeluBackward:
    """Prepared launch of the gradients of ``BiasGelu``, of the same arguments and the dtype of its gradient.

    Additional arguments:
        is_added_up: by a separate launch; otherwise by ``AddUpBlock``.
    """

    def __init__(
        self,
        framework: TensorFactory,
        shape: Sequence[int],
        gradient: str,
        x: str,
        bias: str,
        drops: DropRates = NO_DROPS,
        is_added_up: bool = True,
        tile: KernelTile | None = None,
    ) -> None:
        rows, width = math.prod(shape[:-1]), shape[-1]
        rows_in_tile, columns, warps, most_programs = tile or gelu_backward_tile(width)
        programs = min(most_programs, -(-rows // rows_in_tile))
        self._create_x, self._create_bias = framework.prepare(shape, x), framework.prepare([width], bias)
        self.width, self.programs = width, programs
        names = gradient, x, bias, SEEDS if drops.rate > 0 else x, x, FLOAT32
        numbers, blocks = (rows, drops.site, drops.rate), (programs, -(-width // columns))
        constants = width, columns, rows_in_tile, drops.rate > 0
        self._start = PreparedLaunch(kernels.bias_gelu_backward, blocks, names, numbers, constants, warps)
        self.partials = _scratch(framework.prepare, programs * width, 0 if is_added_up else 2)
        self._add_up = _prepare_sum([bias], programs, width) if is_added_up else None

    def __call__(self, gradient: Any, x: Any, bias: Any, seeds: Any | None = None) -> tuple[Any, Any]:
        """Compute the gradients of x and bias, in their dtypes."""
        x_gradient, bias_gradient = self._create_x(), self._create_bias()
        self._start(gradient, x, bias, x if seeds is None else seeds, x_gradient, self.partials)
        if self._add_up is not None:
            self._add_up(self.partials, bias_gradient, bias_gradient, bias_gradient)
        return x_gradient, bias_gradient


class AddUpBlock:
    """Prepared launch that adds up what the gradients of a block's two sums and of its GELU have left in memory.

    Args:
        second: of the sum behind the MLP, with a norm and bias, or only a bias.
        gelu: of the GELU.
        first: of the sum behind the attention, with a norm and bias.
        hidden: dtype of the GELU's bias.
    """

    def __init__(self, second: AddNormBackward, gelu: BiasGeluBackward, first: AddNormBackward, hidden: str) -> None:
        constants, blocks = [], []
        for one in (first, gelu):
            rows, columns = _divide_sum(one.programs)
            constants += [one.width, columns, rows]
            blocks.append(-(-one.width // columns))
        sums = _fill(second.sums, 3)
        names = *[FLOAT32] * 3, *sums, hidden, *first.sums
        grid = max(blocks), 4 + len(second.sums)
        self._partials = second.partials, gelu.partials, first.partials
        numbers = first.programs, gelu.programs
        self._start = PreparedLaunch(kernels.sum_partials_of_block, grid, names, numbers, constants, 4)

    def __call__(self, second: NormGradients, hidden: Any, first: NormGradients) -> None:
        """Fill the gradients of norms and biases."""
        sums = (second.bias,) * 3 if second.weight is None else (second.weight, second.shift, second.bias)
        self._start(*self._partials, *sums, hidden, first.weight, first.shift, first.bias)


class CastFive:
    """Prepared launch of copies of up to five tensors to one other dtype.

    Args:
        sizes: numbers of values; that of one tensor is below 2^31.
        sources: dtypes of the tensors.
        copies: dtype of the copies.
    """

    def __init__(self, sizes: Sequence[int], sources: Sequence[str], copies: str) -> None:
        names = *_fill(sources, 5), *([copies] * 5)
        numbers = [*sizes, *[0] * (5 - len(sizes))]
        blocks = -(-max(sizes) // _CAST_AT_ONCE), len(sizes)
        self._start = PreparedLaunch(kernels.cast_five, blocks, names, numbers, (_CAST_AT_ONCE,), 4)

    def __call__(self, sources: Sequence[Any], copies: Sequence[Any]) -> None:
        """Copy tensors to the others."""
        self._start(*_fill(sources, 5), *_fill(copies, 5))


def _fill(values: Sequence[Any], number: int) -> list[Any]:
    """Return a number of values: these, and the last one again."""
    return [*values, *[values[-1]] * (number - len(values))]


@functools.cache
def _scratch(prepare: Callable[[Sequence[int], str], Create], size: int, place: int) -> Any:
    """Return memory for the sums of programs, which all launches of a size and place share: they run in turn."""
    return prepare([size], FLOAT32)()


def _prepare_sum(names: Sequence[str], programs: int, width: int) -> PreparedLaunch:
    """Prepare the sum over programs for results of these dtypes."""
    rows, columns = _divide_sum(programs)
    all_names = FLOAT32, *names, *[names[0]] * (3 - len(names))
    blocks = -(-width // columns), len(names)
    return PreparedLaunch(kernels.sum_partials, blocks, all_names, (programs,), (width, columns, rows), 4)


def _divide_sum(programs: int) -> tuple[int, int]:
    """Return the rows and columns that one program adds up."""
    rows = _power_of_two(programs)
    return rows, max(4, min(_MOST_SUMMED // rows, 32))


@functools.cache
def _power_of_two(value: int) -> int:
    """Return the least power of two that is not below ``value``."""
    return 1 << max(value - 1, 0).bit_length()
