"""The public names for type checkers, which do not see what is imported on first use. A test compares both lists."""

from .cross_entropy import (
    adjusted_losses,
    cross_entropies,
    log_softmax,
    look_up_weights,
    mark_hardest,
    resized_cross_entropy,
    summed_cross_entropy,
)
from .device_check import choose_cross_entropy
from .overlap import dice_losses, lovasz_softmax, row_lovasz_softmax, scene_dice_losses

__all__ = [
    "adjusted_losses",
    "choose_cross_entropy",
    "cross_entropies",
    "dice_losses",
    "log_softmax",
    "look_up_weights",
    "lovasz_softmax",
    "mark_hardest",
    "resized_cross_entropy",
    "row_lovasz_softmax",
    "scene_dice_losses",
    "summed_cross_entropy",
]
