"""Launches of the Triton functions on tensors of any framework, which are passed by address.

A ``TensorFactory`` creates tensors and names dtypes. Paddle's is in ``functions.py``, and a benchmark has torch's.
All tensors are contiguous, on the device in use, and in float32, float16 or bfloat16.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import triton
from triton.runtime import driver

from . import kernels

FLOAT32 = "float32"
_MOST_SUMMED = 8192  # values that one program of ``sum_partials`` reads, for up to 2,048 rows of them


class TensorFactory(Protocol):
    """How the tensors of a framework are created; they have ``shape`` and ``data_ptr()``."""

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """Create an uninitialized tensor where the kernels run; ``dtype`` as "float32"."""

    def name(self, tensor: Any) -> str:
        """Return the name of a tensor's dtype."""


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


class AddedNorm(NamedTuple):
    """A residual sum and its layer norm, (..., width), and float32 (2, rows): each row's mean and 1 / deviation."""

    total: Any
    normal: Any
    statistics: Any


def add_norm(
    framework: TensorFactory,
    x: Any,
    branch: Any | None,
    parameters: tuple[Any, Any],
    *,
    bias: Any | None = None,
    keep: Any | None = None,
    epsilon: float,
    dtype: str,
    total_dtype: str = FLOAT32,
    tile: KernelTile | None = None,
) -> AddedNorm:
    """Compute total = x + keep * (branch + bias) and its layer norm in ``dtype``.

    Args:
        framework: of the tensors.
        x: (..., width).
        branch: the same shape, or None: the total is x itself.
        parameters: weight and bias of the norm, (width,), of one dtype.
        bias: (width,), added to the branch.
        keep: (items, ...), the factor of each item's branch; all items have the same number of rows.
        epsilon: added to the variance.
        dtype: of the normalized tensor.
        total_dtype: of the sum.
        tile: how the work is divided; None for the usual way.
    """
    shape, name = list(x.shape), framework.name
    rows, width = math.prod(shape[:-1]), shape[-1]
    rows_in_tile, columns, warps, _ = tile or norm_tile(width)
    normal, statistics = framework.empty(shape, dtype), framework.empty([2, rows], FLOAT32)
    total = x if branch is None else framework.empty(shape, total_dtype)
    tensors = (
        *(x, x if branch is None else branch, x if bias is None else bias, x if keep is None else keep),
        *(*parameters, total, normal, statistics),
    )
    x_name, weight_name = name(x), name(parameters[0])
    names = (
        *(x_name, x_name if branch is None else name(branch)),
        *(x_name if bias is None else name(bias), x_name if keep is None else name(keep)),
        *(weight_name, weight_name, x_name if branch is None else total_dtype, dtype, FLOAT32),
    )
    numbers = rows, rows if keep is None else rows // keep.shape[0], epsilon
    constants = width, columns, rows_in_tile, branch is not None, bias is not None, keep is not None
    launch(kernels.add_norm, -(-rows // rows_in_tile), 1, tensors, names, numbers, constants, warps)
    return AddedNorm(total, normal, statistics)


class NormGradients(NamedTuple):
    """Gradients of ``add_norm``; ``branch`` and ``bias`` are None where there was none."""

    x: Any
    branch: Any | None
    weight: Any
    shift: Any
    bias: Any | None


def add_norm_backward(
    framework: TensorFactory,
    saved: AddedNorm,
    normal_gradient: Any,
    total_gradient: Any | None,
    weight: Any,
    *,
    keep: Any | None = None,
    branch_dtype: str | None,
    bias_dtype: str | None = None,
    x_dtype: str = FLOAT32,
    tile: KernelTile | None = None,
) -> NormGradients:
    """Compute the gradients of ``add_norm``.

    Args:
        framework: of the tensors.
        saved: its result; ``normal`` is not read.
        normal_gradient: of its ``normal``.
        total_gradient: of its ``total``; None for 0.
        weight: of the norm; the gradients of its weight and bias have the dtype of it.
        keep: as there.
        branch_dtype: None if there was none.
        bias_dtype: None if there was none.
        x_dtype: of x.
        tile: how the work is divided; None for the usual way.
    """
    shape, name = list(saved.total.shape), framework.name
    rows, width = math.prod(shape[:-1]), shape[-1]
    rows_in_tile, columns, warps, most_programs = tile or norm_backward_tile(width)
    programs = min(most_programs, -(-rows // rows_in_tile))
    weight_name = name(weight)
    x_gradient = framework.empty(shape, x_dtype)
    branch_gradient = x_gradient if branch_dtype is None else framework.empty(shape, branch_dtype)
    sums = [framework.empty([width], weight_name), framework.empty([width], weight_name)]
    if bias_dtype is not None:
        sums.append(framework.empty([width], bias_dtype))
    partials = framework.empty([len(sums), programs, width], FLOAT32)
    tensors = (
        *(normal_gradient, normal_gradient if total_gradient is None else total_gradient),
        *(saved.total, saved.statistics, weight, weight if keep is None else keep),
        *(x_gradient, branch_gradient, partials),
    )
    normal_name = name(normal_gradient)
    names = (
        *(normal_name, normal_name if total_gradient is None else name(total_gradient)),
        *(name(saved.total), FLOAT32, weight_name, weight_name if keep is None else name(keep)),
        *(x_dtype, branch_dtype or x_dtype, FLOAT32),
    )
    numbers = rows, rows if keep is None else rows // keep.shape[0]
    options = total_gradient is not None, branch_dtype is not None, bias_dtype is not None, keep is not None
    constants = width, columns, rows_in_tile, *options
    launch(kernels.add_norm_backward, programs, 1, tensors, names, numbers, constants, warps)
    _sum_partials(partials, sums, (weight_name, weight_name, bias_dtype or weight_name), programs, width)
    return NormGradients(
        x_gradient,
        None if branch_dtype is None else branch_gradient,
        sums[0],
        sums[1],
        None if bias_dtype is None else sums[2],
    )


def bias_gelu(framework: TensorFactory, x: Any, bias: Any, *, tile: KernelTile | None = None) -> Any:
    """Compute GELU(x + bias) in the dtype of x (..., width) for a bias (width,)."""
    shape, x_name = list(x.shape), framework.name(x)
    rows, width = math.prod(shape[:-1]), shape[-1]
    rows_in_tile, columns, warps, _ = tile or gelu_tile(width)
    out = framework.empty(shape, x_name)
    names = x_name, framework.name(bias), x_name
    blocks = -(-rows // rows_in_tile), -(-width // columns)
    launch(kernels.bias_gelu, *blocks, (x, bias, out), names, (rows,), (width, columns, rows_in_tile), warps)
    return out


def bias_gelu_backward(
    framework: TensorFactory, gradient: Any, x: Any, bias: Any, *, tile: KernelTile | None = None
) -> tuple[Any, Any]:
    """Compute the gradients of x and bias of ``bias_gelu``, in their dtypes, from that of its result."""
    shape, x_name, bias_name = list(x.shape), framework.name(x), framework.name(bias)
    rows, width = math.prod(shape[:-1]), shape[-1]
    rows_in_tile, columns, warps, most_programs = tile or gelu_backward_tile(width)
    programs = min(most_programs, -(-rows // rows_in_tile))
    x_gradient, bias_gradient = framework.empty(shape, x_name), framework.empty([width], bias_name)
    partials = framework.empty([1, programs, width], FLOAT32)
    tensors = gradient, x, bias, x_gradient, partials
    names = framework.name(gradient), x_name, bias_name, x_name, FLOAT32
    constants = width, columns, rows_in_tile
    launch(kernels.bias_gelu_backward, programs, -(-width // columns), tensors, names, (rows,), constants, warps)
    _sum_partials(partials, [bias_gradient], (bias_name, bias_name, bias_name), programs, width)
    return x_gradient, bias_gradient


def _sum_partials(partials: Any, sums: Sequence[Any], names: tuple[str, ...], programs: int, width: int) -> None:
    targets = *sums, *[sums[0]] * (3 - len(sums))
    rows = _power_of_two(programs)
    columns = max(4, min(_MOST_SUMMED // rows, 32))
    tensors, names, constants = (partials, *targets), (FLOAT32, *names), (width, columns, rows)
    launch(kernels.sum_partials, -(-width // columns), len(sums), tensors, names, (programs,), constants, 4)


class TypedAddress:
    """What Triton reads of a tensor: its address and the name of its dtype, such as "float32".

    The other methods are what Triton's interpreter calls to copy a tensor to the host and back. It computes on the
    memory itself, which is the host's wherever the interpreter is used.
    """

    __slots__ = ("address", "dtype")
    device = "cpu"

    def __init__(self, address: int, dtype: str):
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        """Return the address of the first value."""
        return self.address

    def untyped_storage(self) -> "TypedAddress":
        """Return the memory that the tensor is in."""
        return self

    def cpu(self) -> "TypedAddress":
        """Return the memory on the host."""
        return self

    def new_empty(self, size: int, device: str) -> "TypedAddress":
        """Return a tensor that ``set_`` places."""
        return TypedAddress(0, self.dtype)

    def set_(self, storage: "TypedAddress", offset: int, size: Any, stride: Any) -> None:
        """Place the tensor in memory."""
        self.address = storage.address

    def copy_(self, storage: "TypedAddress") -> None:
        """Copy nothing: both are one memory."""

    def storage_offset(self) -> int:
        """Return 0: an address is that of the tensor itself."""
        return 0

    def size(self) -> tuple[int, ...]:
        """Return no size: kernels know it by their arguments."""
        return ()

    def stride(self) -> tuple[int, ...]:
        """Return no strides: rows are adjacent."""
        return ()


_compiled: dict[tuple[Any, ...], Any] = {}  # kernel, constants, warps, device and dtypes -> what Triton compiled


def launch(
    kernel: Any,
    blocks: int,
    more_blocks: int,
    tensors: Sequence[Any],
    names: tuple[str, ...],
    numbers: Sequence[float],
    constants: tuple[int, ...],
    warps: int,
) -> None:
    """Start a kernel, whose arguments are tensors, numbers and constants in this order.

    Triton looks at all arguments of each call, to find what it has compiled; this takes the host longer than the
    launch. Here the dtypes say it, since the addresses of whole tensors are multiples of 16.

    Args:
        kernel: a function of ``kernels``.
        blocks: programs along its first axis.
        more_blocks: programs along its second axis.
        tensors: passed by address.
        names: of their dtypes.
        numbers: arguments that Triton does not compile for.
        constants: arguments that it does.
        warps: of a program.
    """
    grid, addresses, all_bits = (blocks, more_blocks, 1), [], 0
    for tensor in tensors:
        address = tensor.data_ptr()
        addresses.append(address)
        all_bits |= address
    is_aligned = not all_bits % 16
    if is_aligned and isinstance(kernel, triton.JITFunction):  # else Triton's interpreter
        device = driver.active.get_current_device()
        key = id(kernel), device, warps, constants, names
        compiled = _compiled.get(key)
        if compiled is not None:
            compiled[grid](*addresses, *numbers, *constants, stream=driver.active.get_current_stream(device))
            return
    pointers = [TypedAddress(address, name) for address, name in zip(addresses, names)]
    # Triton 3.9 asks for a choice of fused multiply-adds, and 3.10 will change what it does without one.
    compiled = kernel[grid](*pointers, *numbers, *constants, num_warps=warps, enable_fp_fusion=True)
    if is_aligned and compiled is not None:
        _compiled[key] = compiled


@functools.cache
def _power_of_two(value: int) -> int:
    """Return the least power of two that is not below ``value``."""
    return 1 << max(value - 1, 0).bit_length()
