"""Layers on pictures (batch, height, width, channels), computed by the fast functions where these apply.

Elsewhere Paddle's own convolution computes, on transposed pictures. Parameters and initial values are Paddle's own.
"""

from __future__ import annotations

from typing import Any, Optional

import paddle

from .layers import Conv2D
from .switch import applies


class DepthwiseConvolution(Conv2D):
    """A kernel for each channel, stride 1, zeros around: as large as before.

    Args:
        channels: of (batch, height, width, channels).
        kernel_size: of each side, odd.
    """

    def __init__(self, channels: int, kernel_size: int, **attributes: Any):
        super().__init__(
            channels,
            channels,
            kernel_size,
            padding=kernel_size // 2,
            groups=channels,
            **attributes,
        )

    def forward(self, x):
        if applies(x, self) and _functions().fits_depthwise(x.shape, self.weight.shape):
            return _functions().depthwise(x, self.weight, self.bias)
        # Not super().forward(): Paddle 2.6 cannot export it.
        return Conv2D.forward(self, x.transpose([0, 3, 1, 2])).transpose([0, 2, 3, 1])


class Convolution(Conv2D):
    """A convolution to (batch, rows, columns, out_channels).

    Args:
        stride, padding: the same along both sides.
        is_channels_last: of its input; False for (batch, channels, height, width).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        is_channels_last: bool = True,
        **attributes: Any,
    ):
        super().__init__(in_channels, out_channels, kernel_size, stride=stride, padding=padding, **attributes)
        self.is_channels_last = is_channels_last
        self.geometry = (stride, padding)

    def forward(self, x):
        if applies(x, self) and self._fits(x):
            x = x if self.is_channels_last else x.transpose([0, 2, 3, 1])
            return _functions().convolution(x, self.weight, self.bias, *self.geometry)
        x = x.transpose([0, 3, 1, 2]) if self.is_channels_last else x
        return Conv2D.forward(self, x).transpose([0, 2, 3, 1])

    def _fits(self, x: paddle.Tensor) -> bool:
        (_, channels, side, _), (_, padding) = self.weight.shape, self.geometry
        if self.is_channels_last:
            found, sizes = x.shape[3], x.shape[1:3]
        else:
            found, sizes = x.shape[1], x.shape[2:]
        return found == channels and padding < side and min(sizes) + 2 * padding >= side


def add_scaled(
    x: paddle.Tensor, branch: paddle.Tensor, scale: paddle.Tensor, keep: Optional[paddle.Tensor]
) -> paddle.Tensor:
    """x + branch * scale * keep.

    Args:
        x, branch: (batch, ..., channels).
        scale: (channels).
        keep: a factor for each item, (batch, 1, ...), without a gradient; None for 1.
    """
    if all(applies(tensor) for tensor in (x, branch, scale)) and x.shape == branch.shape:
        return _functions().add_scaled(x, branch, scale, keep)
    branch = scale * branch
    return x + (branch if keep is None else branch * keep)


@paddle.jit.not_to_static
def _functions() -> Any:
    from . import picture_functions  # loads numba, see layers.py

    return picture_functions
