"""Losses over elements with or without a class label: points of a scene, pixels of images.

Sums and their divisors are returned separately, as the engine divides by counts over all ranks and micro-batches.
Only ``choose_cross_entropy`` makes the host wait for the device.
"""

from ..runtime.lazy_names import lazy_names

_NAMES = {
    "adjusted_losses": "cross_entropy",
    "choose_cross_entropy": "device_check",
    "cross_entropies": "cross_entropy",
    "dice_losses": "overlap",
    "look_up_weights": "cross_entropy",
    "lovasz_softmax": "overlap",
    "mark_hardest": "cross_entropy",
    "resized_cross_entropy": "cross_entropy",
    "row_lovasz_softmax": "overlap",
    "scene_dice_losses": "overlap",
    "summed_cross_entropy": "cross_entropy",
}
__all__ = list(_NAMES)
__getattr__, __dir__ = lazy_names(__name__, _NAMES)
