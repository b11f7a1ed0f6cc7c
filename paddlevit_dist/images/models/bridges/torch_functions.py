"""Functions and methods of PyTorch that mean something else in Paddle, take other arguments, or are not there.

Source of their meaning: PyTorch 2's documentation. Each is here because a file of timm calls it.
"""

import functools
import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ....core.runtime.autocast import as_dtype, widen_for_sum
from ..resampling import bicubic_matrix, bilinear_matrix

Axes = int | Sequence[int] | None
_READERS = "timm"  # the package whose files get PyTorch's meaning of methods of a tensor


def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Drop values as ``torch.nn.functional.dropout`` does; Paddle's third argument is another one."""
    return F.dropout(x, p, training=training)


def relu6(x: Tensor, inplace: bool = False) -> Any:
    """Clip to [0, 6]. The gradient is that of the input: the output may change in place, unlike Paddle's own."""
    return paddle.clip(x, 0.0, 6.0)


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Any:
    """Normalize groups of channels of (batch, channels, ...)."""
    wide = widen_for_sum(x, math.prod(x.shape[1:]) // num_groups)
    weight, bias = (value if value is None else as_dtype(value, wide.dtype) for value in (weight, bias))
    return as_dtype(F.group_norm(wide, num_groups, eps, weight, bias), x.dtype)


def rms_norm(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Any:
    """Divide the last axes by their root mean square."""
    eps = paddle.finfo(x.dtype).eps if eps is None else eps
    axes = list(range(-len(normalized_shape), 0))
    normal = x * paddle.rsqrt(x.square().mean(axes, keepdim=True) + eps)
    return normal if weight is None else normal * weight


def batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """Normalize (batch, channels, ...) by running or batch statistics."""
    if running_mean is None:  # standardized weights
        axes = [axis for axis in range(x.ndim) if axis != 1]
        mean, variance = x.mean(axes, keepdim=True), x.var(axes, unbiased=False, keepdim=True)
        shape = [1, -1, *[1] * (x.ndim - 2)]
        scale = paddle.rsqrt(variance + eps) if weight is None else weight.reshape(shape) * paddle.rsqrt(variance + eps)
        return (x - mean) * scale if bias is None else (x - mean) * scale + bias.reshape(shape)
    return F.batch_norm(x, running_mean, running_var, weight, bias, training, 1 - momentum, eps)


def interpolate(
    x: Tensor,
    size: Any = None,
    scale_factor: float | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Resize (batch, channels, height, width)."""
    if size is None:
        size = [int(side * scale_factor) for side in x.shape[2:]] if antialias else None
    elif isinstance(size, int):
        size = [size] * (x.ndim - 2)
    if not antialias:
        return F.interpolate(x, size, scale_factor, mode, bool(align_corners))
    matrix = {"bicubic": bicubic_matrix, "bilinear": bilinear_matrix}[mode]
    down, across = (paddle.to_tensor(matrix(old, new), x.dtype) for old, new in zip(x.shape[2:], size, strict=True))
    return down @ x @ across.t()


def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Sample (batch, channels, height, width) at the positions of a grid."""
    return F.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Any:
    """Make a grid of positions (batch, height, width, 2)."""
    return F.affine_grid(theta, size, bool(align_corners))


def one_hot(x: Tensor, num_classes: int = -1) -> Any:
    """Encode classes as int64."""
    return F.one_hot(x, num_classes).astype("int64")


def attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Any:
    """Attention over (..., heads, positions, channels): Paddle's takes four axes.

    A mask never reaches Paddle's choice among its kernels: on a GPU it takes flash attention in half precision, which
    has no gradient for a mask and takes the heads of a mask of three axes for images.
    """
    attend = paddle.compat.nn.functional.scaled_dot_product_attention
    if key.shape[-3] == 1 < query.shape[-3]:  # heads that share a key
        shape = [*query.shape[:-2], -1, -1]
        key, value = key.expand(shape), value.expand(shape)
    if attn_mask is not None and not options.get("is_causal"):  # Paddle refuses both
        return _attend_with_mask(query, key, value, attn_mask, options)
    options["attn_mask"] = attn_mask
    if query.ndim <= 4:
        return attend(query, key, value, **options)
    flat = [tensor.flatten(0, tensor.ndim - 4) for tensor in (query, key, value)]
    outputs = attend(*flat, **options)
    return _view(outputs, *sizes_of(query)[:-3], *outputs.shape[1:])


def _attend_with_mask(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, options: dict[str, Any]) -> Any:
    if mask.dtype == paddle.bool:
        mask = paddle.where(mask, paddle.zeros([], query.dtype), paddle.full([], -math.inf, query.dtype))
    products = paddle.matmul(query * (options.get("scale") or query.shape[-1] ** -0.5), key, transpose_y=True)
    weights = F.dropout(F.softmax(products + mask, axis=-1), options.get("dropout_p", 0.0))
    return paddle.matmul(weights, value)


def add(x: Tensor, other: Tensor | float, *, alpha: float = 1) -> Any:
    """Add tensors or numbers."""
    return x + other * alpha if alpha != 1 else x + other


def sub(x: Tensor, other: Tensor | float, *, alpha: float = 1) -> Any:
    """Subtract tensors or numbers."""
    return x - other * alpha if alpha != 1 else x - other


def div(x: Tensor, other: Tensor | float, *, rounding_mode: str | None = None) -> Any:
    """Divide tensors or numbers."""
    if rounding_mode is None:
        return x / other
    return x // other if rounding_mode == "floor" else paddle.trunc(x / other)


def addcmul(x: Tensor, first: Tensor, second: Tensor, *, value: float = 1) -> Any:
    """Compute x + value * first * second."""
    return x + value * first * second


def var_mean(x: Tensor, dim: Axes = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    """Compute variance and mean."""
    return paddle.var(x, dim, unbiased, keepdim), paddle.mean(x, dim, keepdim)


def chunk(x: Tensor, chunks: int, dim: int = 0) -> Any:
    """Split into parts; the last may be smaller."""
    return paddle.compat.split(x, math.ceil(x.shape[dim] / chunks), dim)


def norm(x: Tensor, p: float = 2, dim: Axes = None, keepdim: bool = False) -> Any:
    """Compute a norm; over two axes it is Frobenius's."""
    return paddle.linalg.vector_norm(x, p, dim, keepdim)


def sizes_of(x: Tensor) -> tuple[Any, ...]:
    """Return the sizes of a tensor; of a recorded one, a tensor in place of each size that is known when it runs."""
    sizes = _RECORDED_SHAPE.__get__(x) if isinstance(x, paddle.pir.Value) else x.shape
    if all(size >= 0 for size in sizes):
        return tuple(sizes)
    running = paddle.shape(x)
    return tuple(running[axis] if size < 0 else size for axis, size in enumerate(sizes))


def _as_list(numbers: tuple[Any, ...]) -> list[Any]:
    return list(numbers[0]) if isinstance(numbers[0], (list, tuple)) else list(numbers)


def _view(x: Tensor, *shape: Any) -> Any:
    """Reshape a tensor. Where Paddle has no views, as on CPUs, its own method returns the tensor unchanged."""
    sizes = _as_list(shape)
    unknown = [place for place, size in enumerate(sizes) if isinstance(size, paddle.pir.Value)]
    if len(unknown) == 1:
        _infer(sizes, unknown[0], x)
    return x.reshape(sizes)


def _infer(sizes: list[Any], unknown: int, x: Tensor) -> None:
    """Let Paddle infer the only size that is known when it runs, so that it knows all others while it records.

    ``sizes`` are asked for ``x``, -1 means the rest; that at ``unknown`` becomes -1.
    """
    rest = [place for place, size in enumerate(sizes) if isinstance(size, int) and size == -1]
    if rest:
        known, asked = _known(x), math.prod(size for size in sizes if isinstance(size, int) and size > 0)
        if known is None or known % asked or not _has_size(x, sizes[unknown]):
            return
        sizes[rest[0]] = known // asked
    sizes[unknown] = -1


def _known(x: Tensor) -> int | None:
    """Return the product of the known sizes of a recorded tensor; None if more or less than one is not known."""
    shape = list(_RECORDED_SHAPE.__get__(x))
    return math.prod(size for size in shape if size > 0) if shape.count(-1) == 1 else None


# Operations whose result may have another number of images than their first input.
_OTHER_BATCH = {
    f"pd_op.{name}" for name in ("tile", "expand", "concat", "split", "slice", "gather", "index_select", "unbind")
}


def _has_size(x: Tensor, size: Any) -> bool:
    """Return whether the unknown size of a recorded tensor surely is ``size``: that of one that it is computed from."""
    operation = size.get_defining_op()
    if operation.name() != "pd_op.slice":  # a multiple
        return False
    source = operation.operand_source(0).get_defining_op().operand_source(0)
    while not x.is_same(source):
        operation = x.get_defining_op()
        if operation is None or operation.num_operands() == 0 or operation.name() in _OTHER_BATCH:
            return False
        first = operation.operand_source(0)
        if operation.name() in ("pd_op.reshape", "pd_op.flatten") and _known(first) != _known(x):
            return False
        x = first
    return True


def _unfold(x: Tensor, dimension: int, size: int, step: int) -> Any:
    """Return windows of an axis; their elements are the last axis."""
    first = paddle.arange(0, x.shape[dimension] - size + 1, step)
    places = first.unsqueeze(1) + paddle.arange(size)
    windows = x.index_select(dimension, places.flatten()).unflatten(dimension, list(places.shape))
    return windows.moveaxis(dimension % x.ndim + 1, -1)


def _size(x: Tensor, axis: int | None = None) -> Any:
    return sizes_of(x) if axis is None else sizes_of(x)[axis]


def _repeat_interleave(x: Tensor, repeats: Any, dim: int | None = None) -> Any:
    if dim is None or not isinstance(repeats, paddle.pir.Value):
        return paddle.repeat_interleave(x, repeats, dim)
    dim %= x.ndim
    counts = [1] * (x.ndim + 1)
    counts[dim + 1] = repeats
    sizes = sizes_of(x)
    return _view(paddle.tile(x.unsqueeze(dim + 1), counts), *sizes[:dim], -1, *sizes[dim + 1 :])


def checkpoint(function: Callable[..., Any], *args: Any, use_reentrant: bool = False, **options: Any) -> Any:
    """Call a function, and again for its gradient, rather than keep its activations; timm does so only if told to."""
    from paddle.distributed.fleet.utils import recompute

    return recompute(function, *args, **options)


def fans(tensor: Tensor) -> tuple[int, int]:
    """Return the inputs and outputs of each element of weights (out, in, ...)."""
    if tensor.ndim < 2:
        raise ValueError("fans of a tensor with fewer than two axes")
    area = math.prod(tensor.shape[2:])
    return tensor.shape[1] * area, tensor.shape[0] * area


def kaiming(is_uniform: bool) -> Callable[..., Any]:
    """He et al. (2015), arXiv 1502.01852: a deviation of gain / sqrt(fan)."""

    def fill(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Any:
        std = nn.initializer.calculate_gain(nonlinearity, a) / math.sqrt(fans(tensor)[mode == "fan_out"])
        with paddle.no_grad():
            return tensor.uniform_(-math.sqrt(3) * std, math.sqrt(3) * std) if is_uniform else tensor.normal_(0.0, std)

    return fill


def _in_place_arithmetic(name: str) -> Callable[..., Any]:
    original = getattr(paddle.Tensor, name)
    return lambda x, y, *args: original(x, paddle.to_tensor(y, x.dtype) if isinstance(y, (int, float)) else y, *args)


_METHODS: dict[str, Callable[..., Any]] = {
    **{name: getattr(paddle.compat, name) for name in ("split", "max", "min", "sort", "unique", "median", "equal")},
    **{name: _in_place_arithmetic(name) for name in ("add_", "sub_", "mul_", "div_") if hasattr(paddle.Tensor, name)},
    "add": add,
    "sub": sub,
    "mul": operator.mul,
    "div": div,
    "chunk": chunk,
    "numel": lambda x: math.prod(sizes_of(x)),
    "norm": norm,
    "view": _view,
    "unfold": _unfold,
    **dict.fromkeys(("view_as", "reshape_as"), lambda x, other: _view(x, sizes_of(other))),
}
_RECORDED_SHAPE = paddle.pir.Value.shape


_CHANGED: list[tuple[Any, Any]] = []  # recorded tensors that were changed in place, and their new values


def _change(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of recorded tensors, which cannot change in place, from a function that returns the new value."""

    def change(x: Tensor, *args: object, **options: object) -> Any:
        changed = as_dtype(function(x, *args, **options), x.dtype)
        _CHANGED.append((x, changed))
        return changed

    return change


def forget_changes() -> None:
    """Forget changes in place that were not applied, because recording ended with an error."""
    _CHANGED.clear()


def apply_changes(outputs: Any) -> Any:
    """Let recorded operations that follow a change in place take the changed tensor; return the changed outputs.

    Call ``forget_changes`` before a network is called, and this with what it returns, a tensor or a sequence of
    tensors.
    """
    tensors = _group_changes()
    if not isinstance(outputs, paddle.pir.Value) and not (tensors and isinstance(outputs, (list, tuple))):
        return outputs
    found = [outputs] if isinstance(outputs, paddle.pir.Value) else list(outputs)
    for values in tensors:
        found = [values[-1] if any(map(output.is_same, values)) else output for output in found]
        changes = {value.get_defining_op().id(): value for value in values[1:]}
        current = values[0]
        for operation in values[1].get_defining_op().get_parent_block().ops:
            for number in range(operation.num_operands()):
                if any(map(operation.operand_source(number).is_same, values)):
                    operation.operand(number).set_source(current)
            current = changes.get(operation.id(), current)
    return found[0] if isinstance(outputs, paddle.pir.Value) else type(outputs)(found)


def _group_changes() -> list[list[Any]]:
    """Return the values that each changed tensor had, in their order; forget the changes."""
    tensors: list[list[Any]] = []
    for old, new in _CHANGED:
        values = next((group for group in tensors if any(map(old.is_same, group))), None)
        if values is None:
            values = [old]
            tensors.append(values)
        values.append(new)
    _CHANGED.clear()
    return tensors


# Where a program is recorded nothing changes in place, see ``apply_changes``. Sizes may be tensors.
_RECORDED: dict[str, Callable[..., Any]] = {
    "add_": _change(add),
    "sub_": _change(sub),
    "mul_": _change(operator.mul),
    "div_": _change(div),
    "clamp_": _change(paddle.clip),
    "masked_fill_": _change(paddle.masked_fill),
    "bernoulli_": _change(lambda x, p=0.5: paddle.bernoulli(paddle.full_like(x, p, "float32"))),
    "normal_": _change(lambda x, mean=0.0, std=1.0: mean + std * paddle.standard_normal(sizes_of(x))),
    "uniform_": _change(lambda x, low=0.0, high=1.0: paddle.uniform(sizes_of(x), min=low, max=high)),
    "reshape": _view,
    "repeat": lambda x, *counts: paddle.tile(x, _as_list(counts)),
    "repeat_interleave": _repeat_interleave,
}


def _dispatch(kind: type, name: str, function: Callable[..., Any]) -> None:
    """Let a method of tensors mean PyTorch's in the files of timm, and Paddle's everywhere else."""
    original = getattr(kind, name, None)

    def method(tensor: Tensor, *args: object, **options: object) -> Any:
        reader = sys._getframe(1).f_globals.get("__name__", "")
        chosen = function if original is None or reader.partition(".")[0] == _READERS else original
        return chosen(tensor, *args, **options)

    setattr(kind, name, functools.wraps(original)(method) if original is not None else method)


def _dispatch_property(kind: type, name: str, function: Callable[..., Any]) -> None:
    """Let a property of tensors or types be PyTorch's in the files of timm, and Paddle's or none everywhere else."""
    original = getattr(kind, name, None)

    def get(value: Any) -> Any:
        reader = sys._getframe(1).f_globals.get("__name__", "")
        if reader.partition(".")[0] == _READERS:
            return function(value)
        if original is None:
            raise AttributeError(f"{value} has no attribute {name}")
        return original.__get__(value)

    setattr(kind, name, property(get))


def _iterate(method: Callable[..., Any], *args: object, **options: object) -> Any:
    return iter(method(*args, **options))


@functools.cache
def install_methods() -> None:
    """Install the methods of tensors and layers once."""
    for name, function in _METHODS.items():
        _dispatch(paddle.Tensor, name, function)
    for name, function in (_METHODS | _RECORDED).items():
        _dispatch(paddle.pir.Value, name, function)
    _dispatch_property(paddle.pir.Value, "shape", sizes_of)
    _dispatch_property(paddle.pir.Value, "size", lambda x: functools.partial(_size, x))
    for name in ("parameters", "buffers"):
        _dispatch(nn.Layer, name, functools.partial(_iterate, getattr(nn.Layer, name)))
    _dispatch_property(paddle.dtype, "is_floating_point", lambda kind: "float" in str(kind))
