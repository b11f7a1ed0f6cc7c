"""Fast layers for a model that is built: each layer keeps its parameters, names and hooks and gets another class, which
computes by fast functions where they apply."""

import functools
import os
from typing import Any

import paddle
from paddle import nn

from ..runtime.autocast import product_dtype
from ..runtime.lazy_names import import_object
from ..runtime.transfers import is_on_gpu

_MODELS = "paddlevit_dist.images.models"
# A class, which must be exactly this one -> its fast subclass.
_FAST = {
    f"{_MODELS}.layers.GELU": "layers:FastGELU",
    f"{_MODELS}.layers.Linear": "layers:FastLinear",
    f"{_MODELS}.layers.LayerNorm": "layers:FastLayerNorm",
    f"{_MODELS}.layers.Mlp": "layers:FastMlp",
    f"{_MODELS}.layers.PatchEmbedding": "layers:FastPatchEmbedding",
    f"{_MODELS}.layers.ChannelsLastConv": "layers:FastConv",
    f"{_MODELS}.layers.ChannelsLastDepthwiseConv": "layers:FastDepthwiseConv",
    "paddle.nn.layer.conv.Conv3D": "layers:FastConv3D",
    f"{_MODELS}.vit.ViTBlock": "blocks:FastViTBlock",
    f"{_MODELS}.swin.SwinBlock": "blocks:FastSwinBlock",
    f"{_MODELS}.swin.NormalizedPatches": "blocks:FastNormalizedPatches",
    f"{_MODELS}.convnext.ConvNeXtBlock": "blocks:FastConvNeXtBlock",
    f"{_MODELS}.segformer.SegFormerHead": "blocks:FastSegFormerHead",
    f"{_MODELS}.pvt_v2.SpatialReductionAttention": "blocks:FastSpatialReductionAttention",
    "paddlevit_dist.images.detection.rtdetr.deformable.PointSampling": "sampling:FastPointSampling",
}


def accelerate(model: Any) -> None:
    """Give the layers of a model that have a fast subclass here that class; called for each model that is built. On a
    GPU none is given: it would only ask in each call whether it applies."""
    for layer in model.sublayers(include_self=True) if isinstance(model, nn.Layer) and not is_on_gpu() else ():
        kind = type(layer)
        location = _FAST.get(f"{kind.__module__}.{kind.__qualname__}")
        if location is not None:
            layer.__class__ = import_object(f".cpu_kernels.{location}")


# Set to 1 for a run with CPU_TUNING False (parallel/tuning.py), or by the user.
PLAIN_LAYERS = "PADDLEVIT_DIST_PLAIN_LAYERS"


@functools.cache
def is_possible() -> bool:
    """Whether this process can compute with the fast layers: not switched off, and Paddle has MKL's product."""
    if os.environ.get(PLAIN_LAYERS, "0") not in ("", "0"):
        return False
    from .memory import product

    return product() is not None


@paddle.jit.not_to_static
def can_use_fast_path(x: Any, *layers: nn.Layer) -> bool:
    """Whether fast functions may take the tensor ``x`` with the parameters of ``layers``.

    They may for float32 in the host's memory outside of static graphs and automatic mixed precision, if no hook wants
    to see one of the layers at work.
    """
    if not paddle.in_dynamic_mode() or not is_possible():
        return False
    if not _is_plain_float(x) or 0 in x.shape or product_dtype() is not None:  # ``size`` takes ten times as long
        return False
    return all(_is_untouched(layer) for layer in layers)


def _is_plain_float(tensor: Any) -> bool:
    return tensor.dtype == paddle.float32 and tensor.place.is_cpu_place()


def _is_untouched(layer: nn.Layer) -> bool:
    if layer._forward_pre_hooks or layer._forward_post_hooks:
        return False
    return all(_is_plain_float(own) and own.is_contiguous() for own in layer._parameters.values() if own is not None)
