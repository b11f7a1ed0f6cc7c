"""Image models: one file per family, plus shared modules.

- ``variants``: all names and their arguments, without Paddle; ``key_names``: third-party parameter names
- ``classifier``: what families have in common; ``layers``, ``attention``: parts; ``options``: keys of MODEL
- ``resampling``: weights for other sizes; ``counting``: costs

A new family is a ``tasks.model.Model`` in a file here, a table in ``variants`` and a line in the registry.
"""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "CaiT": "cait",
    "Classifier": "classifier",
    "ConvNeXt": "convnext",
    "DeiT": "deit",
    "DistilledDeiT": "deit",
    "FCN": "fcn",
    "HGNetV2": "hgnetv2",
    "LinearSegmenter": "fcn",
    "MixVisionTransformer": "mit",
    "MlpMixer": "mlp_mixer",
    "PyramidVisionTransformer": "pvt_v2",
    "ResNet": "resnet",
    "SegFormer": "segformer",
    "Segmenter": "segmenter",
    "SwinTransformer": "swin",
    "UPerNet": "upernet",
    "VisionTransformer": "vit",
}
__all__ = sorted(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
