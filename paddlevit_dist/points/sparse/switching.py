"""Keyword arguments of layers in MinkowskiEngine, spconv and torchsparse that the layers here do not have."""

from typing import Any

# These change how a layer computes its result, not the result.
_IGNORED_ARGUMENTS = {
    "algo",
    "config",
    "convolution_mode",
    "fp32_accum",
    "indice_key",
    "inplace",
    "name",
    "process_group",
}
_NO_ALTERNATIVE = "no other value is supported"
_NEUTRAL_VALUES = {  # the value without effect, and what to write if another is needed
    "affine": (True, _NO_ALTERNATIVE),
    "expand_coordinates": (False, "call it with the voxels of GenerativeConvolution(..., kernel_size, 1)(x)"),
    "generative": (False, "use GenerativeConvolution"),
    "groups": (1, "use DepthwiseConvolution for one group for each channel; other groups are not supported"),
    "has_bias": (False, "write bias="),
    "kernel_generator": (None, "kernels here are boxes: give kernel_size, stride and dilation"),
    "padding": (0, "use PaddedConvolution, PaddedInverseConvolution or PaddedMaxPooling, which have spconv's rule"),
    "stride": (1, "use StridedConv3D or PaddedConvolution"),
    "subm": (False, "use SubmanifoldConv3D"),
    "track_running_stats": (True, _NO_ALTERNATIVE),
    "transposed": (False, "use TransposedConvolution"),
}


def resolve_arguments(layer: object, kwargs: dict[str, Any], **aliases: Any) -> list[Any]:
    """Return the values of arguments ``kwargs`` that have other names, ``aliases`` with defaults, in other libraries.

    ValueError if one requests something that this layer does not do; the message names the alternative. TypeError if
    one is not known from any library.
    """
    name = type(layer).__name__
    for key, value in kwargs.items():
        if key in aliases or key in _IGNORED_ARGUMENTS:
            continue
        if key not in _NEUTRAL_VALUES:
            raise TypeError(f"{name} got an unexpected keyword argument '{key}'")
        neutral, advice = _NEUTRAL_VALUES[key]
        if value not in (neutral, (neutral,) * 3, [neutral] * 3):
            raise ValueError(f"{name} does not take {key}={value!r}: {advice}")
    return [kwargs.get(alias, given) for alias, given in aliases.items()]


def check_momentum(momentum: float) -> float:
    """Return a batch norm's momentum, the kept fraction as in Paddle; ValueError if it looks like PyTorch's."""
    if momentum < 0.5:
        raise ValueError(
            f"momentum={momentum:g} is the share of new statistics, as in PyTorch; here, as in Paddle, momentum is the "
            f"share of the running ones: write {1 - momentum:g}"
        )
    return momentum
