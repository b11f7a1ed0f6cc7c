"""Fast versions of the layers in ``core/runtime`` and ``images/models``, and of Paddle's 3D convolution."""

import math
from collections.abc import Sequence
from typing import Any

import paddle
from paddle import nn

from ...images.models import layers as plain
from .accelerate import can_use_fast_path

# Limit for 3D convolutions: with more channels, the product takes longer than copying its input, so Paddle is faster.
_MOST_CHANNELS = 64


class FastLinear(plain.Linear):
    """Linear layer, fast for any input."""

    def forward(self, x):
        """Run the layer, by a fast function if it applies."""
        if can_use_fast_path(x, self) and x.shape[-1] == self.weight.shape[0]:
            return functions().linear(x, self.weight, self.bias)
        return plain.Linear.forward(self, x)


class FastLayerNorm(plain.LayerNorm):
    """Layer norm, fast over the last axis with weight and bias."""

    def forward(self, x):
        """Run the layer, by a fast function if it applies."""
        if can_use_fast_path(x, self) and self.has_usual_parameters() and x.shape[-1] == self.weight.shape[0]:
            return functions().layer_norm(x, self.weight, self.bias, self._epsilon)
        return plain.LayerNorm.forward(self, x)

    def has_usual_parameters(self) -> bool:
        """Return whether the layer has weight and bias, over one axis."""
        return self.weight is not None and self.bias is not None and len(self.weight.shape) == 1


class FastGELU(plain.GELU):
    """GELU, fast for any input."""

    def forward(self, x):
        """Run the layer, by a fast function if it applies."""
        if can_use_fast_path(x, self):
            return functions().gelu(x)
        return plain.GELU.forward(self, x)


class FastMlp(plain.Mlp):
    """MLP with both layers and the GELU as one function, if there is no dropout."""

    def forward(self, x):
        """Run the layer, by a fast function if it applies."""
        if self._fits(x):
            return functions().mlp(x, self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias)
        return plain.Mlp.forward(self, x)

    @paddle.jit.not_to_static
    def _fits(self, x) -> bool:
        linears = self.fc1, self.fc2
        is_usual = type(self.act) is FastGELU and all(
            type(layer) is FastLinear and layer.bias is not None for layer in linears
        )
        drops = self.training and self.dropout.p
        return is_usual and not drops and can_use_fast_path(x, *linears, self.act, self.dropout)


class FastPatchEmbedding(plain.PatchEmbedding):
    """Patch embedding that extracts the patches for one product."""

    def embed(self, x):
        """Embed the patches, by one product if it applies."""
        if fits_patches(x, self.proj):
            return functions().patches(x, self.proj.weight, self.proj.bias)
        return plain.PatchEmbedding.embed(self, x)


@paddle.jit.not_to_static
def fits_patches(x: paddle.Tensor, convolution: nn.Layer) -> bool:
    """Return whether ``functions.patches`` can compute a convolution of adjacent patches."""
    return type(convolution) is nn.Conv2D and convolution.bias is not None and can_use_fast_path(x, convolution)


class FastDepthwiseConv(plain.ChannelsLastDepthwiseConv):
    """Depth-wise convolution, fast for a multiple of ``depthwise_kernels.LANES`` channels."""

    def forward(self, x):
        """Run the layer, by a fast function if it applies."""
        if can_use_fast_path(x, self) and image_functions().fits_depthwise(x.shape, self.weight.shape):
            return image_functions().depthwise(x, self.weight, self.bias)
        return plain.ChannelsLastConv.forward(self, x)


class FastConv(plain.ChannelsLastConv):
    """Convolution that extracts its windows for one product."""

    def forward(self, x):
        """Run the layer, by a fast function if it applies."""
        if can_use_fast_path(x, self) and self._fits(x):
            x = x if self.is_channels_last else x.transpose([0, 2, 3, 1])
            return image_functions().convolution(x, self.weight, self.bias, self._stride[0], self._padding)
        return plain.ChannelsLastConv.forward(self, x)

    @paddle.jit.not_to_static
    def _fits(self, x: paddle.Tensor) -> bool:
        _, channels, side, _ = self.weight.shape
        in_channels, sizes = (x.shape[3], x.shape[1:3]) if self.is_channels_last else (x.shape[1], x.shape[2:])
        return in_channels == channels and self._padding < side and min(sizes) + 2 * self._padding >= side


class FastConv3D(nn.Conv3D):
    """3D convolution, fast with a stride of 1 and few channels, for which Paddle copies each voxel's neighborhood."""

    def forward(self, x):
        """Run the layer, by a fast function if it applies."""
        if can_use_fast_path(x, self) and self._fits(x):
            return volume_functions().convolution(x, self.weight, self.bias, self._updated_padding)
        return nn.Conv3D.forward(self, x)

    @paddle.jit.not_to_static
    def _fits(self, x: paddle.Tensor) -> bool:
        outputs, channels, *kernel = self.weight.shape
        if self._padding_mode != "zeros" or self._padding_algorithm != "EXPLICIT" or len(self._updated_padding) != 3:
            return False
        if {*self._stride, *self._dilation, self._groups} != {1} or self._data_format != "NCDHW":
            return False
        if max(kernel) == 1 or max(outputs, channels) > _MOST_CHANNELS:
            return False
        sizes = zip(x.shape[2:], kernel, self._updated_padding)
        return x.ndim == 5 and x.shape[1] == channels and all(p < side <= size + 2 * p for size, side, p in sizes)


def resized_cross_entropy(logits: paddle.Tensor, *others: Any) -> paddle.Tensor | None:
    """Compute ``upsampling.resized_cross_entropy``; return None if fast functions do not apply."""
    if not can_use_fast_path(logits):
        return None
    from . import upsampling

    return upsampling.resized_cross_entropy(logits, *others)


def normalized_linear(x: paddle.Tensor, weight: paddle.Tensor, norms: paddle.Tensor) -> paddle.Tensor | None:
    """Compute ``functions.normalized_linear``; return None if fast functions do not apply."""
    if not all(can_use_fast_path(each) and each.is_contiguous() for each in (x, weight, norms)):
        return None
    return functions().normalized_linear(x, weight, norms)


def gaussian_losses(maps: paddle.Tensor, *others: Any) -> paddle.Tensor | None:
    """Compute ``heatmap_losses.gaussian_losses``; return None if fast functions do not apply."""
    if not all(can_use_fast_path(each) for each in (maps, *others[:2])):
        return None
    from . import heatmap_losses

    return heatmap_losses.gaussian_losses(maps, *others)


def sample_maps(maps: paddle.Tensor, points: paddle.Tensor, repeats_border: bool) -> paddle.Tensor | None:
    """Compute ``map_points.sample_maps``; return None if fast functions do not apply."""
    if not all(can_use_fast_path(each) for each in (maps, points)):
        return None
    from . import map_points

    return map_points.sample_maps(maps, points, repeats_border)


def move_toward(tensors: Sequence[paddle.Tensor], goals: Sequence[paddle.Tensor], share: float) -> bool:
    """Move tensors by ``share`` toward others, in place; return False if fast functions do not apply."""
    if not all(each.is_contiguous() and can_use_fast_path(each) for each in (*tensors, *goals)):
        return False
    from . import row_kernels

    for tensor, goal in zip(tensors, goals):
        row_kernels.move_toward(tensor.data_ptr(), goal.data_ptr(), share, math.prod(tensor.shape))
    return True


# Importing numba takes half a second, which static graphs and GPUs do not need.


@paddle.jit.not_to_static
def functions() -> Any:
    """Import the module ``functions``, only when it is used."""
    from . import functions as module

    return module


@paddle.jit.not_to_static
def image_functions() -> Any:
    """Import the module ``image_functions``, only when it is used."""
    from . import image_functions as module

    return module


@paddle.jit.not_to_static
def volume_functions() -> Any:
    """Import the module ``volume_functions``, only when it is used."""
    from . import volume_functions as module

    return module


# Tables of layers and messages show the names of the plain classes, from which the fast ones are derived first.
for _fast in (
    FastLinear,
    FastLayerNorm,
    FastGELU,
    FastMlp,
    FastPatchEmbedding,
    FastDepthwiseConv,
    FastConv,
    FastConv3D,
):
    _plain, *_ = _fast.__bases__
    _fast.__name__ = _plain.__name__
