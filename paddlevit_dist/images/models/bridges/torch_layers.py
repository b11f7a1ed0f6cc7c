"""Layers of Paddle that begin with PyTorch's values, and have its attributes and the arguments that Paddle's lack.

The files of timm build their networks from these. Weights have PyTorch's names and layout, apart from the running
statistics of a batch norm, which keep Paddle's names. Source of arguments and initial values: PyTorch 2's
documentation of each layer.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn

from ....core.distributed.batch_norm import DistributedBatchNorm
from ....core.runtime.autocast import add_bias, like_products

Sizes = int | Sequence[int]


def draw_uniform(parameter: paddle.Tensor | None, bound: float) -> None:
    """Fill a parameter with numbers from -bound to bound."""
    if parameter is not None:
        with paddle.no_grad():
            parameter.uniform_(-bound, bound)


def linear(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None = None) -> paddle.Tensor:
    """Multiply (..., in) by weights (out, in), and add a bias in the precision of the product."""
    product = paddle.matmul(x, weight, transpose_y=True)
    return product if bias is None else add_bias(product, bias)


def conv2d(
    x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor | None = None, *args: object, **options: object
) -> Any:
    """Convolve (batch, channels, height, width), and add a bias in the precision of the product."""
    return F.conv2d(x, weight, like_products(bias), *args, **options)


def max_pool2d(
    x: paddle.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> paddle.Tensor:
    """Take the largest of each window of (batch, channels, height, width)."""
    _refuse_dilation(dilation, return_indices)
    return F.max_pool2d(x, kernel_size, kernel_size if stride is None else stride, padding, ceil_mode=ceil_mode)


def _refuse_dilation(dilation: Sizes, return_indices: bool) -> None:
    if any(one != 1 for one in ([dilation] if isinstance(dilation, int) else dilation)) or return_indices:
        raise NotImplementedError("max pooling with dilation or indices")


def avg_pool2d(
    x: paddle.Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
) -> paddle.Tensor:
    """Take the mean of each window of (batch, channels, height, width)."""
    options = {"exclusive": not count_include_pad, "divisor_override": divisor_override}
    return F.avg_pool2d(x, kernel_size, kernel_size if stride is None else stride, padding, ceil_mode, **options)


class _Drawn:
    """Begin with weights (out, in, ...) and biases from U(-1, 1) / sqrt(numbers of each output)."""

    weight: paddle.Tensor
    bias: paddle.Tensor | None

    def reset_parameters(self) -> None:
        """Draw new weights and biases."""
        bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
        draw_uniform(self.weight, bound)
        draw_uniform(self.bias, bound)


class Linear(_Drawn, nn.Layer):
    """A linear layer with weights (out, in)."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: object = None, dtype: object = None
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = self.create_parameter([out_features, in_features])
        self.bias = self.create_parameter([out_features], is_bias=True) if bias else None
        self.reset_parameters()

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Multiply (..., in) to (..., out)."""
        return linear(x, self.weight, self.bias)

    def count_products(self, x: paddle.Tensor) -> int:
        """Return the number of products in each number of the output."""
        return self.in_features


class _DrawnConvolution(_Drawn):
    """Have the attributes of PyTorch's convolutions."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        **options: object,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        super().__init__(*sizes, bias=bias, padding_mode=padding_mode, **options)  # type: ignore[call-arg]
        for name in ("in_channels", "out_channels", "kernel_size", "stride", "dilation", "groups", "padding"):
            value = getattr(self, f"_{name}")
            setattr(self, name, tuple(value) if isinstance(value, list) else value)
        self.reset_parameters()


class Conv1d(_DrawnConvolution, nn.Conv1D):
    """A convolution over (batch, channels, length)."""


class Conv2d(_DrawnConvolution, nn.Conv2D):
    """A convolution over (batch, channels, height, width)."""

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Convolve (batch, channels, height, width)."""
        if self._padding_mode != "zeros":
            return super().forward(x)
        return conv2d(x, self.weight, self.bias, self._stride, self._padding, self._dilation, self._groups)


class Conv3d(_DrawnConvolution, nn.Conv3D):
    """A convolution over (batch, channels, depth, height, width)."""


class ConvTranspose2d(_Drawn, nn.Conv2DTranspose):
    """A transposed convolution over (batch, channels, height, width), weights (in, out / groups, height, width)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        device: object = None,
        dtype: object = None,
    ) -> None:
        sizes = (in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation, groups)
        super().__init__(*sizes, bias_attr=None if bias else False)
        self.reset_parameters()


class _Scaled:
    """Have the method that PyTorch's norms begin with."""

    weight: paddle.Tensor | None
    bias: paddle.Tensor | None

    def reset_parameters(self) -> None:
        """Set weights to 1 and biases to 0."""
        with paddle.no_grad():
            for tensor, value in ((self.weight, 1.0), (self.bias, 0.0)):
                if tensor is not None:
                    tensor.fill_(value)


class _TorchBatchNorm(_Scaled, DistributedBatchNorm):
    """Take PyTorch's arguments for a batch norm, which ``convert_batch_norm`` shares between processes."""

    num_batches_tracked = None
    track_running_stats = True

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: object = None,
        dtype: object = None,
    ) -> None:
        if momentum is None or not track_running_stats:
            raise NotImplementedError("a batch norm without a moving average of its statistics")
        super().__init__(num_features, 1 - momentum, eps)
        self.num_features, self.affine = num_features, affine
        if not affine:
            self.weight = self.bias = None

    running_mean = property(lambda layer: layer._mean)
    running_var = property(lambda layer: layer._variance)
    eps = property(lambda layer: layer._epsilon)
    momentum = property(lambda layer: 1 - layer._momentum)


class BatchNorm1d(_TorchBatchNorm):
    """A batch norm over (batch, channels) or (batch, channels, length)."""


class BatchNorm2d(_TorchBatchNorm):
    """A batch norm over (batch, channels, height, width)."""


class LayerNorm(_Scaled, nn.LayerNorm):
    """A layer norm over the last axes."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)
        self.normalized_shape, self.eps = tuple(self._normalized_shape), self._epsilon
        self.elementwise_affine = self.weight is not None


class GroupNorm(_Scaled, nn.GroupNorm):
    """A group norm over (batch, channels, ...)."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, **options: object
    ) -> None:
        super().__init__(num_groups, num_channels, eps, affine=affine, **options)
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalize groups of channels."""
        from .torch_functions import group_norm  # Paddle 2.6, whose layers are counted, lacks what that module needs

        return group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class MaxPool2d(nn.Layer):
    """The largest of each window of (batch, channels, height, width)."""

    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        _refuse_dilation(dilation, return_indices)
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Pool (batch, channels, height, width)."""
        return max_pool2d(x, self.kernel_size, self.stride, self.padding, ceil_mode=self.ceil_mode)


class LSTM(nn.LSTM):
    """A long short-term memory over (batch, length, features) or (length, batch, features)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: object = None,
        dtype: object = None,
    ) -> None:
        if not bias:
            raise NotImplementedError("an LSTM without biases")
        direction = "bidirectional" if bidirectional else "forward"
        super().__init__(input_size, hidden_size, num_layers, direction, not batch_first, dropout)
        self._sub_layers.clear()  # cells, which hold the same weights by other names and are for step by step use
        for parameter in self.parameters():
            draw_uniform(parameter, 1 / math.sqrt(hidden_size))


def without_inplace(base: type[nn.Layer]) -> Callable[..., nn.Layer]:
    """Make a class of an activation that takes PyTorch's argument ``inplace``, which changes no number."""

    class Activation(base):
        def __init__(self, *args: object, inplace: bool = False, **options: object) -> None:
            super().__init__(*args, **options)
            self.inplace = inplace

    Activation.__name__ = Activation.__qualname__ = base.__name__
    return Activation
