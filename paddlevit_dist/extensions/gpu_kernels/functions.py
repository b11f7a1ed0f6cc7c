"""The fused kernels as differentiable functions of Paddle's tensors.

Tensors for the backward pass are saved through Paddle, so that recomputation works. The caller has checked that all
tensors are where Triton's kernels run, in float32, float16 or bfloat16, and not empty.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import paddle
from paddle.autograd import PyLayer

from ...core.runtime import autocast
from ...core.runtime.device_graph import enter_value
from .attention import PackedAttention
from .launches import (
    MOST_PREPARED,
    AddNorm,
    AddNormBackward,
    BiasGelu,
    BiasGeluBackward,
    Create,
    DropRates,
    SumTypes,
)

DTYPES = {name: getattr(paddle, name) for name in ("float32", "float16", "bfloat16", "int32")}
_NAMES = {dtype.value: name for name, dtype in DTYPES.items()}  # by number: to hash a dtype takes 1 us
FLOATS = frozenset(number for number, name in _NAMES.items() if name != "int32")  # of the dtypes that kernels take
_SITES = 5  # of a block: after the GELU, after the attention, its items, after the MLP, its items


def name_dtype(tensor: paddle.Tensor) -> str:
    """Return the name of a tensor's dtype, such as "float32"."""
    return "float32" if tensor.element_size() == 4 else _NAMES[tensor.dtype.value]


@functools.cache
def _find_device() -> Any:
    """Return the device of this process."""
    return paddle.framework._current_expected_place()


class _PaddleTensors:
    """Creates Paddle's tensors for kernels, on the device in use."""

    def prepare(self, shape: Sequence[int], dtype: str) -> Create:
        """Return what creates an uninitialized tensor."""
        return functools.partial(paddle._C_ops.empty, list(shape), DTYPES[dtype], _find_device())


TENSORS = _PaddleTensors()


def contiguous(tensor: paddle.Tensor) -> paddle.Tensor:
    """Return a tensor whose values are adjacent."""
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def require_first_order() -> None:
    """Raise if a backward pass is to have a gradient itself."""
    if paddle.is_grad_enabled():
        raise NotImplementedError(
            "fused kernels have no gradient of their gradient (create_graph): set GPU_KERNELS False"
        )


def draw_seeds() -> paddle.Tensor:
    """Draw what decides the dropout of a block, on the device: int32, two for each site.

    Paddle's generator draws them, as it draws dropout elsewhere: a step seeds it, and recomputation restores it.
    """
    # Not below 0: on a GPU Paddle computes the range of the numbers in int32.
    return enter_value(lambda _: paddle._C_ops.randint(0, 2**31 - 1, [2 * _SITES], paddle.int32, _find_device()))


def select(
    gradients: Iterable[paddle.Tensor | None], needs_gradient: Sequence[bool]
) -> tuple[paddle.Tensor | None, ...]:
    """Return the gradients, with None for inputs that need none, which Paddle requires."""
    return tuple(gradient if is_needed else None for gradient, is_needed in zip(gradients, needs_gradient))


@functools.lru_cache(maxsize=MOST_PREPARED)
def _prepare_norm(
    shape: tuple[int, ...], x: str, weight: str, epsilon: float, dtype: str
) -> tuple[AddNorm, AddNormBackward]:
    types = SumTypes(x=x, branch=None, bias=None, weight=weight, total=x, normal=dtype)
    return AddNorm(TENSORS, shape, types, epsilon), AddNormBackward(TENSORS, shape, types, has_total_gradient=False)


class _LayerNorm(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, shift, epsilon, dtype):
        names = name_dtype(x), name_dtype(weight)
        compute, ctx.compute_backward = _prepare_norm(tuple(x.shape), *names, epsilon, dtype)
        found = compute(x, weight=weight, shift=shift)
        ctx.needs_gradient = [not tensor.stop_gradient for tensor in (x, weight, shift)]
        ctx.save_for_backward(x, found.statistics, weight)
        return found.normal

    @staticmethod
    def backward(ctx, gradient):
        require_first_order()
        x, statistics, weight = ctx.saved_tensor()
        found = ctx.compute_backward(x, statistics, contiguous(gradient), None, weight)
        return select([found.x, found.weight, found.shift], ctx.needs_gradient)


def normalize(x: paddle.Tensor, weight: paddle.Tensor, shift: paddle.Tensor, epsilon: float) -> paddle.Tensor:
    """Compute the layer norm of x (..., width), in the dtype of products here.

    Args:
        x: float32, float16 or bfloat16.
        weight: (width,), of the norm.
        shift: (width,), the bias of the norm.
        epsilon: added to the variance.
    """
    return _LayerNorm.apply(contiguous(x), weight, shift, epsilon, dtype_of_products(x))


def dtype_of_products(x: paddle.Tensor) -> str:
    """Return the name of the dtype that products with x have here."""
    dtype = autocast.product_dtype()
    return name_dtype(x) if dtype is None else _NAMES[dtype.value]


class HiddenTensor:
    """A tensor without gradient, hidden from ``PyLayer.apply``, which would want a gradient for it."""

    def __init__(self, tensor: paddle.Tensor | None):
        self.tensor = tensor


@functools.lru_cache(maxsize=MOST_PREPARED)
def _prepare_gelu(shape: tuple[int, ...], x: str, bias: str, rate: float) -> tuple[BiasGelu, BiasGeluBackward]:
    drops = DropRates(rate=rate)
    return BiasGelu(TENSORS, shape, x, bias, drops), BiasGeluBackward(TENSORS, shape, x, x, bias, drops)


class _BiasGelu(PyLayer):
    @staticmethod
    def forward(ctx, x, bias, rate, hidden):
        ctx.needs_gradient = [not x.stop_gradient, not bias.stop_gradient]
        compute, ctx.compute_backward = _prepare_gelu(tuple(x.shape), name_dtype(x), name_dtype(bias), rate)
        seeds = hidden.tensor
        ctx.save_for_backward(x, bias, *([] if seeds is None else [seeds]))
        return compute(x, bias, seeds)

    @staticmethod
    def backward(ctx, gradient):
        require_first_order()
        return select(ctx.compute_backward(contiguous(gradient), *ctx.saved_tensor()), ctx.needs_gradient)


def add_bias_and_gelu(x: paddle.Tensor, bias: paddle.Tensor, rate: float = 0.0) -> paddle.Tensor:
    """Compute the exact GELU of x (..., width) + bias (width,), in the dtype of x, with dropout of this rate."""
    return _BiasGelu.apply(contiguous(x), bias, rate, HiddenTensor(draw_seeds() if rate else None))


_prepare_attention = functools.lru_cache(maxsize=MOST_PREPARED)(functools.partial(PackedAttention, TENSORS))


class _Attention(PyLayer):
    @staticmethod
    def forward(ctx, packed, scale):
        ctx.compute = _prepare_attention(tuple(packed.shape), name_dtype(packed), scale)
        out, log_sums = ctx.compute(packed)
        ctx.save_for_backward(packed, out.detach(), log_sums)  # not the result itself: it would keep its graph alive
        return out

    @staticmethod
    def backward(ctx, gradient):
        require_first_order()
        return ctx.compute.compute_gradient(*ctx.saved_tensor(), contiguous(gradient))


def attend_packed(packed: paddle.Tensor, scale: float) -> paddle.Tensor:
    """Compute softmax(scale q k^T) v of each head.

    Args:
        packed: q, k and v, (batch, tokens, 3 * heads, head_dim): first all heads of q.
        scale: of q k^T.

    Returns:
        (batch, tokens, heads * head_dim), of the same dtype.
    """
    return _Attention.apply(contiguous(packed), scale)
