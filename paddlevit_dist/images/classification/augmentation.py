"""Builds the augmentation and the mixing of images from the keys of TRAIN."""

from collections.abc import Sequence

from ..transforms.on_device import BatchMixing
from ..transforms.policies import (
    THREE_AUGMENT,
    Augmentation,
    ColorJitter,
    TransformChain,
    get_fill,
    parse_auto_augment,
    parse_rand_augment,
)
from ..transforms.policy_tables import AUTO_AUGMENT
from .settings import ClassificationTrainSection


def build_augmentation(train: ClassificationTrainSection, mean: Sequence[float]) -> Augmentation | None:
    """Build the augmentation from the keys of TRAIN; None if all are off, a ``UserError`` if one is not valid.

    The first of RAND_AUGMENT, AUTO_AUGMENT and COLOR_JITTER that is on is used, as in PaddleViT; color jitter also
    follows 3-Augment, as in DeiT III. The ``mean`` of each channel, in 0 to 1, fills pixels outside the image.
    """
    fill = get_fill(mean)
    steps: list[Augmentation] = []
    if train.RAND_AUGMENT:
        text = train.RAND_AUGMENT
        if text is True:
            # Magnitudes vary, and become stronger, in PaddleViT's RandAugment, too.
            text = f"rand-m{train.RAND_AUGMENT_MAGNITUDE}-n{train.RAND_AUGMENT_LAYERS}-mstd0.5-inc1"
        steps.append(parse_rand_augment(text, fill))
    elif train.AUTO_AUGMENT:
        steps.append(parse_auto_augment("original" if train.AUTO_AUGMENT is True else train.AUTO_AUGMENT, fill))
    if train.COLOR_JITTER and (not steps or getattr(steps[0], "policy", None) == AUTO_AUGMENT[THREE_AUGMENT]):
        steps.append(ColorJitter(train.COLOR_JITTER))
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else TransformChain(tuple(steps))


def build_mixing(train: ClassificationTrainSection) -> BatchMixing | None:
    """Build the mixing from the keys of TRAIN; None if it is off."""
    minmax: tuple[float, float] | None = None
    if train.CUTMIX_MINMAX is not None:
        smallest, largest = train.CUTMIX_MINMAX
        minmax = smallest, largest
    if not train.MIXUP_PROB or not (train.MIXUP_ALPHA or train.CUTMIX_ALPHA or minmax):
        return None
    return BatchMixing(
        train.MIXUP_ALPHA, train.CUTMIX_ALPHA, minmax, train.MIXUP_PROB, train.MIXUP_SWITCH_PROB, train.MIXUP_MODE
    )
