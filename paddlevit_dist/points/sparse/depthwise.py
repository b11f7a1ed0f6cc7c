"""Depthwise convolution: each channel is convolved separately."""

from typing import Any

import paddle
from paddle.autograd import PyLayerContext

from ...core.runtime import autocast
from ...core.runtime.autocast import as_dtype
from .coordinate_keys import Steps
from .device_plan import KernelMap
from .layers import Convolution
from .pooling import sum_pairs
from .switching import resolve_arguments


class DepthwiseConvolution(Convolution):
    """Depthwise convolution, ``out[u] = sum over k of in[u + offset_k] * kernel[k]``, with ``kernel`` (K, C).

    MinkowskiEngine calls it ``MinkowskiChannelwiseConvolution``. ``channels`` is also accepted as ``in_channels``; the
    other arguments are as for ``Convolution``.
    """

    _fan_channels = ""

    def __init__(
        self,
        channels: int = 0,
        kernel_size: Steps = 3,
        stride: Steps = 1,
        dilation: Steps = 1,
        bias: bool = False,
        dimension: int = 3,
        **kwargs: Any,
    ) -> None:
        (channels,) = resolve_arguments(self, kwargs, in_channels=channels)
        super().__init__(channels, channels, kernel_size, stride, dilation, bias, dimension)

    def _create_parameters(self, bias: bool) -> None:
        self.is_pointwise = False
        self.kernel = self._uniform([self.kernel_volume, self.in_channels])
        self.bias = self._uniform([1, self.in_channels]) if bias else None

    def _convolve(self, features: paddle.Tensor, kernel_map: KernelMap, rows: int) -> paddle.Tensor:
        return _SparseDepthwiseFunction.apply(as_dtype(features, self.kernel.dtype), self.kernel, kernel_map, rows)


class _SparseDepthwiseFunction(paddle.autograd.PyLayer):
    @staticmethod
    def forward(
        ctx: PyLayerContext, features: paddle.Tensor, kernel: paddle.Tensor, kernel_map: KernelMap, rows: int
    ) -> paddle.Tensor:
        ctx.save_for_backward(features, kernel)
        ctx.kernel_map = kernel_map
        with paddle.no_grad(), autocast.off():
            scales = paddle.unbind(kernel, 0)
            return sum_pairs(features, kernel_map.to_coarse, rows, kernel_map.is_symmetric, scales)

    @staticmethod
    def backward(ctx: PyLayerContext, gradient: paddle.Tensor) -> tuple[paddle.Tensor | None, paddle.Tensor | None]:
        features, kernel = ctx.saved_tensor()
        kernel_map = ctx.kernel_map
        scales = paddle.unbind(kernel, 0)
        features_gradient = kernel_gradient = None
        with paddle.no_grad(), autocast.off():
            if not features.stop_gradient:
                # In a symmetric map, a list that is read backwards belongs to the opposite offset.
                mirrored_scales = scales[::-1] if kernel_map.is_symmetric else scales
                features_gradient = sum_pairs(
                    gradient, kernel_map.to_fine, features.shape[0], kernel_map.is_symmetric, mirrored_scales
                )
            if not kernel.stop_gradient:
                sums = {k: paddle.zeros_like(scale) for k, scale in enumerate(scales)}
                if kernel_map.is_symmetric and features.shape[0]:
                    sums[len(sums) // 2] = _sum_rows(features * gradient)
                for offset, out_rows, in_rows in kernel_map.to_coarse.lists():
                    products = paddle.gather(features, in_rows) * paddle.gather(gradient, out_rows)  # (P, C)
                    sums[offset] = sums[offset] + _sum_rows(products)
                kernel_gradient = paddle.stack(list(sums.values()))
        return features_gradient, kernel_gradient


def _sum_rows(rows: paddle.Tensor) -> paddle.Tensor:
    return rows.transpose([1, 0]).sum(axis=1)  # Paddle's CPU kernels take ten times as long along the first axis
