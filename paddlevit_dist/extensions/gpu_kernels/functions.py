"""The fused kernels as differentiable functions of Paddle's tensors.

Tensors for the backward pass are saved through Paddle, so that recomputation works. The caller has checked that all
tensors are where Triton's kernels run, in float32, float16 or bfloat16, and not empty.
"""

from collections.abc import Iterable, Sequence

import paddle
from paddle.autograd import PyLayer

from ...core.runtime.autocast import product_dtype
from . import launches

_DTYPES = {name: getattr(paddle, name) for name in ("float32", "float16", "bfloat16")}
_NAMES = {dtype.value: name for name, dtype in _DTYPES.items()}  # by number: to hash a dtype takes 1 us
FLOATS = frozenset(_NAMES)  # numbers of the dtypes that kernels take


def _name(tensor: paddle.Tensor) -> str:
    return "float32" if tensor.element_size() == 4 else _NAMES[tensor.dtype.value]


class _PaddleTensors:
    """Creates Paddle's tensors for kernels, on the device in use."""

    name = staticmethod(_name)

    def empty(self, shape: Sequence[int], dtype: str) -> paddle.Tensor:
        """Create an uninitialized tensor."""
        return paddle._C_ops.empty(shape, _DTYPES[dtype], paddle.framework._current_expected_place())


_TENSORS = _PaddleTensors()


class HiddenTensor:
    """A tensor without gradient, hidden from ``PyLayer.apply``, which would want a gradient for it."""

    def __init__(self, tensor: paddle.Tensor | None):
        self.tensor = None if tensor is None else _contiguous(tensor)


def _contiguous(tensor: paddle.Tensor) -> paddle.Tensor:
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def _require_first_order() -> None:
    if paddle.is_grad_enabled():
        raise NotImplementedError(
            "fused kernels have no gradient of their gradient (create_graph): set GPU_KERNELS False"
        )


class _AddNorm(PyLayer):
    """x + keep * (branch + bias) and its layer norm; without a branch the layer norm of x."""

    @staticmethod
    def forward(ctx, x, branch, weight, shift, bias, keep, epsilon, dtype):
        ctx.set_materialize_grads(False)  # weight and shift have none if the norm is of a block that was skipped
        x_dtype, branch_dtype = _name(x), None if branch is None else _name(branch)
        total, normal, statistics = launches.add_norm(
            _TENSORS,
            x,
            branch,
            (weight, shift),
            bias=bias,
            keep=keep.tensor,
            epsilon=epsilon,
            dtype=dtype,
            total_dtype=x_dtype if x_dtype == branch_dtype else "float32",
        )
        ctx.dtypes, ctx.dtype = (x_dtype, branch_dtype, None if bias is None else _name(bias)), dtype
        ctx.needs_gradient = [
            not tensor.stop_gradient for tensor in (x, branch, weight, shift, bias) if tensor is not None
        ]
        keeps = [] if keep.tensor is None else [keep.tensor]
        if branch is None:
            ctx.save_for_backward(x, statistics, weight, *keeps)
            return normal
        # Not the result itself, which would keep its own graph alive.
        ctx.save_for_backward(total.detach(), statistics, weight, *keeps)
        return total, normal

    @staticmethod
    def backward(ctx, *gradients):
        _require_first_order()
        total, statistics, weight, *keep = ctx.saved_tensor()
        *total_gradient, normal_gradient = (one if one is None else _contiguous(one) for one in gradients)
        is_normal_read = normal_gradient is not None
        if not is_normal_read:
            normal_gradient = paddle.zeros(total.shape, ctx.dtype)
        x_dtype, branch_dtype, bias_dtype = ctx.dtypes
        found = launches.add_norm_backward(
            _TENSORS,
            launches.AddedNorm(total, None, statistics),
            normal_gradient,
            total_gradient[0] if total_gradient else None,
            weight,
            keep=keep[0] if keep else None,
            branch_dtype=branch_dtype,
            bias_dtype=bias_dtype,
            x_dtype=x_dtype,
        )
        given = [found.x, *([] if found.branch is None else [found.branch])]
        given += [found.weight, found.shift] if is_normal_read else [None, None]
        return _select([*given, *([] if found.bias is None else [found.bias])], ctx.needs_gradient)


def _select(
    gradients: Iterable[paddle.Tensor | None], needs_gradient: Sequence[bool]
) -> tuple[paddle.Tensor | None, ...]:
    """Return the gradients, with None for inputs that need none, which Paddle requires."""
    return tuple(gradient if is_needed else None for gradient, is_needed in zip(gradients, needs_gradient))


def normalize(x: paddle.Tensor, weight: paddle.Tensor, shift: paddle.Tensor, epsilon: float) -> paddle.Tensor:
    """Compute the layer norm of x (..., width), in the dtype of products here.

    Args:
        x: float32, float16 or bfloat16.
        weight: (width,), of the norm.
        shift: (width,), the bias of the norm.
        epsilon: added to the variance.
    """
    return _AddNorm.apply(_contiguous(x), None, weight, shift, None, HiddenTensor(None), epsilon, _dtype_of_products(x))


def add_and_normalize(
    x: paddle.Tensor,
    branch: paddle.Tensor,
    weight: paddle.Tensor,
    shift: paddle.Tensor,
    epsilon: float,
    bias: paddle.Tensor | None = None,
    keep: paddle.Tensor | None = None,
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Compute total = x + keep * (branch + bias), and its layer norm in the dtype of products here.

    Args:
        x: (items, ..., width).
        branch: the same shape; the total is float32 if its dtype differs from that of x.
        weight: (width,), of the norm.
        shift: (width,), the bias of the norm.
        epsilon: added to the variance.
        bias: (width,).
        keep: (items, 1, ...), without gradient; None for 1.
    """
    arguments = _contiguous(x), _contiguous(branch), weight, shift, bias, HiddenTensor(keep), epsilon
    total, normal = _AddNorm.apply(*arguments, _dtype_of_products(x))
    return total, normal


def _dtype_of_products(x: paddle.Tensor) -> str:
    dtype = product_dtype()
    return _name(x) if dtype is None else _NAMES[dtype.value]


class _BiasGelu(PyLayer):
    @staticmethod
    def forward(ctx, x, bias):
        ctx.needs_gradient = [not x.stop_gradient, not bias.stop_gradient]
        ctx.save_for_backward(x, bias)
        return launches.bias_gelu(_TENSORS, x, bias)

    @staticmethod
    def backward(ctx, gradient):
        _require_first_order()
        x, bias = ctx.saved_tensor()
        gradients = launches.bias_gelu_backward(_TENSORS, _contiguous(gradient), x, bias)
        return _select(gradients, ctx.needs_gradient)


def add_bias_and_gelu(x: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    """Compute the exact GELU of x (..., width) + bias (width,), in the dtype of x."""
    return _BiasGelu.apply(_contiguous(x), bias)
