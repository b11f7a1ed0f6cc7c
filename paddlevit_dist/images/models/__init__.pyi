"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .cait import CaiT
from .classifier import Classifier
from .convnext import ConvNeXt
from .deit import DeiT, DistilledDeiT
from .fcn import FCN, LinearSegmenter
from .hgnetv2 import HGNetV2
from .mit import MixVisionTransformer
from .mlp_mixer import MlpMixer
from .pvt_v2 import PyramidVisionTransformer
from .resnet import ResNet
from .segformer import SegFormer
from .segmenter import Segmenter
from .swin import SwinTransformer
from .upernet import UPerNet
from .vit import VisionTransformer

__all__ = [
    "CaiT",
    "Classifier",
    "ConvNeXt",
    "DeiT",
    "DistilledDeiT",
    "FCN",
    "HGNetV2",
    "LinearSegmenter",
    "MixVisionTransformer",
    "MlpMixer",
    "PyramidVisionTransformer",
    "ResNet",
    "SegFormer",
    "Segmenter",
    "SwinTransformer",
    "UPerNet",
    "VisionTransformer",
]
