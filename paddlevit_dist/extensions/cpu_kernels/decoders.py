"""Fast versions of decoders of heatmaps."""

import paddle

from ...images.keypoints.heatmaps import network as plain
from ...images.models.layers import Conv2D, Conv2DTranspose
from .accelerate import can_use_fast_path


class FastClassicDecoder(plain.ClassicDecoder):
    """The decoder channels last: products of tiles, and batch norm and ReLU in one pass."""

    def forward(self, x):
        """Run the decoder, by fast functions if they apply."""
        if _fits(self, x):
            return _decode(self, x)
        return plain.ClassicDecoder.forward(self, x)


FastClassicDecoder.__name__ = plain.ClassicDecoder.__name__  # tables of layers and messages show the plain name


@paddle.jit.not_to_static
def _fits(decoder: plain.ClassicDecoder, x: paddle.Tensor) -> bool:
    from .decoder_functions import fits_norm

    transposed, norms = decoder.stages()
    if not norms or any(type(layer) is not Conv2DTranspose for layer in transposed) or type(decoder.conv) is not Conv2D:
        return False
    if not all(norm.training or not paddle.is_grad_enabled() for norm in norms) or not all(map(fits_norm, norms)):
        return False
    if decoder.conv.bias is None or x.shape[1] != transposed[0].weight.shape[0]:
        return False
    return can_use_fast_path(x, *transposed, *norms, decoder.conv)


@paddle.jit.not_to_static
def _decode(decoder: plain.ClassicDecoder, x: paddle.Tensor) -> paddle.Tensor:
    from . import decoder_functions as functions

    x = x.transpose([0, 2, 3, 1])
    for transposed, norm in zip(*decoder.stages()):
        x = functions.normalized(functions.transposed(x, transposed.weight), norm)
    return functions.pixels(x, decoder.conv.weight, decoder.conv.bias)
