"""MiT, the encoder of SegFormer: a PVTv2 of other dimensions, and the names that others give it.

Source: Xie et al., SegFormer: Simple and Efficient Design for Semantic Segmentation with Transformers, 2021 (arXiv
2105.15203, section 3.1, table 6). In the authors' code norms that follow a convolution add 1e-5 to the variance and all
others 1e-6, as PVTv2's do; mmsegmentation adds 1e-6 in all, transformers 1e-5.
"""

from . import segmentation_names
from .pvt_v2 import PyramidVisionTransformer
from .variants import MIT


class MixVisionTransformer(PyramidVisionTransformer):
    """MiT classifier; it takes the arguments of ``PyramidVisionTransformer``."""

    variants = MIT
    key_maps = segmentation_names.MIT
