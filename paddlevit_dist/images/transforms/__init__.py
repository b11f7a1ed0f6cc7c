"""Transforms from an image to a network's input array; all randomness comes from the sample's generator."""

from ...runtime.lazy_names import lazy_names

_NAMES = {
    "AutoAugment": "policies",
    "BatchMixing": "on_device",
    "ColorJitter": "policies",
    "EvaluationTransform": "crops",
    "PixelNormalizer": "on_device",
    "RandAugment": "policies",
    "RandomErasing": "on_device",
    "TrainingTransform": "crops",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
