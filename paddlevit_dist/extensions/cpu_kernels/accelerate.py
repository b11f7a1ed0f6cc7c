"""Replacement of a model's layers with fast classes; parameters, names and hooks are unchanged."""

import functools
import os

import paddle
from paddle import nn

from ...core.runtime.autocast import product_dtype
from ...core.runtime.layers import is_changed
from ...core.runtime.lazy_names import import_object
from ...core.runtime.transfers import is_on_gpu

_MODELS = "paddlevit_dist.images.models"
# Exact class (not a subclass) -> its fast subclass.
_FAST = {
    "paddlevit_dist.core.runtime.layers.GELU": "layers:FastGELU",
    "paddlevit_dist.core.runtime.layers.LayerNorm": "layers:FastLayerNorm",
    "paddlevit_dist.core.runtime.layers.Linear": "layers:FastLinear",
    f"{_MODELS}.layers.Mlp": "layers:FastMlp",
    f"{_MODELS}.layers.PatchEmbedding": "layers:FastPatchEmbedding",
    f"{_MODELS}.layers.ChannelsLastConv": "layers:FastConv",
    f"{_MODELS}.layers.ChannelsLastDepthwiseConv": "layers:FastDepthwiseConv",
    "paddle.nn.layer.conv.Conv3D": "layers:FastConv3D",
    f"{_MODELS}.vit.ViTBlock": "blocks:FastViTBlock",
    f"{_MODELS}.vit_blocks.ConfigurableAttention": "blocks:FastConfigurableAttention",
    f"{_MODELS}.vit_blocks.ConfigurableBlock": "blocks:FastConfigurableBlock",
    f"{_MODELS}.swin.SwinBlock": "blocks:FastSwinBlock",
    f"{_MODELS}.swin.NormalizedPatches": "blocks:FastNormalizedPatches",
    f"{_MODELS}.convnext.ConvNeXtBlock": "blocks:FastConvNeXtBlock",
    f"{_MODELS}.segformer.SegFormerHead": "blocks:FastSegFormerHead",
    f"{_MODELS}.pvt_v2.SpatialReductionAttention": "blocks:FastSpatialReductionAttention",
    "paddlevit_dist.images.detection.rtdetr.encoder.PositionAttention": "query_attention:FastPositionAttention",
    "paddlevit_dist.images.detection.rtdetr.deformable.PointSampling": "sampling:FastPointSampling",
    "paddlevit_dist.images.keypoints.heatmaps.network.ClassicDecoder": "decoders:FastClassicDecoder",
}


def accelerate(model: object) -> None:
    """Replace the classes of a model's layers with their fast subclasses, unless this process cannot use them."""
    if not isinstance(model, nn.Layer) or is_on_gpu() or not is_available():
        return
    for layer in model.sublayers(include_self=True):
        kind = type(layer)
        location = _FAST.get(f"{kind.__module__}.{kind.__qualname__}")
        if location is not None:
            layer.__class__ = import_object(f".extensions.cpu_kernels.{location}")


# Set to 1 for a run with CPU_TUNING False (core/launch/tuning.py), or by the user.
PLAIN_LAYERS = "PADDLEVIT_DIST_PLAIN_LAYERS"


@functools.cache
def is_available() -> bool:
    """Return whether this process can use the fast layers: they are not disabled, and Paddle has MKL's product."""
    if os.environ.get(PLAIN_LAYERS, "0") not in ("", "0"):
        return False
    from .memory import product

    return product() is not None


@paddle.jit.not_to_static
def can_use_fast_path(x: paddle.Tensor, *layers: nn.Layer) -> bool:
    """Return whether fast functions accept the tensor ``x`` with the parameters of ``layers``.

    They require float32 in host memory, no static graph or automatic mixed precision, and layers without hooks.
    """
    if not paddle.in_dynamic_mode() or not is_available():
        return False
    if not _is_plain_float(x) or 0 in x.shape or product_dtype() is not None:  # ``x.size`` takes ten times as long
        return False
    return all(_is_plain_layer(layer) for layer in layers)


def _is_plain_float(tensor: paddle.Tensor) -> bool:
    return tensor.dtype == paddle.float32 and tensor.place.is_cpu_place()


def _is_plain_layer(layer: nn.Layer) -> bool:
    if is_changed(layer):
        return False
    return all(
        _is_plain_float(parameter) and parameter.is_contiguous()
        for parameter in layer._parameters.values()
        if parameter is not None
    )
