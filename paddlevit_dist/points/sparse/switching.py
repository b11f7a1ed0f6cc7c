"""Keyword arguments that layers of MinkowskiEngine, spconv and torchsparse have and layers here do not."""

from typing import Any

# How a layer computes or finds its maps, not what.
_WITHOUT_EFFECT = {"algo", "config", "convolution_mode", "fp32_accum", "indice_key", "inplace", "name", "process_group"}
_NO_OTHER = "there is no other here"
_CHANGES_NOTHING = {  # the value that does, and what to write for another
    "affine": (True, _NO_OTHER),
    "expand_coordinates": (False, "call it with the voxels of GenerativeConvolution(..., kernel_size, 1)(x)"),
    "generative": (False, "use GenerativeConvolution"),
    "groups": (1, "DepthwiseConvolution has a group for each channel, and there is no other here"),
    "has_bias": (False, "write bias="),
    "kernel_generator": (None, "kernels here are boxes: give kernel_size, stride and dilation"),
    "padding": (0, "use PaddedConvolution, PaddedInverseConvolution or PaddedMaxPooling, which have spconv's rule"),
    "stride": (1, "use StridedConv3D or PaddedConvolution"),
    "subm": (False, "use SubmanifoldConv3D"),
    "track_running_stats": (True, _NO_OTHER),
    "transposed": (False, "use TransposedConvolution"),
}


def take_arguments(layer: Any, others: dict[str, Any], **renamed: Any) -> list[Any]:
    """The values of arguments that have another name here, each given or else what ``renamed`` has.

    Args:
        others: keyword arguments that the layer does not know itself.

    Raises:
        ValueError: one of them asks for something that this layer does not do; says what does.
        TypeError: one is of no library.
    """
    name = type(layer).__name__
    for key, value in others.items():
        if key in renamed or key in _WITHOUT_EFFECT:
            continue
        if key not in _CHANGES_NOTHING:
            raise TypeError(f"{name} got an unexpected keyword argument '{key}'")
        nothing, instead = _CHANGES_NOTHING[key]
        if value not in (nothing, (nothing,) * 3, [nothing] * 3):
            raise ValueError(f"{name} does not take {key}={value!r}: {instead}")
    return [others.get(key, value) for key, value in renamed.items()]


def kept_share(momentum: float) -> float:
    """A batch norm's momentum: of the running statistics the share that a step keeps, as in Paddle.

    Raises:
        ValueError: it is PyTorch's, the share of the new ones.
    """
    if momentum < 0.5:
        raise ValueError(
            f"momentum={momentum:g} is the share of new statistics, as in PyTorch; here, as in Paddle, it is that of "
            f"the running ones: write {1 - momentum:g}"
        )
    return momentum
