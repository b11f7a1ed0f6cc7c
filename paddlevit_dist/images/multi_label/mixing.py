"""Mixup and cutmix of images with several labels, drawn in the loader process, which counts the labels that stay known.

Each image of a batch is mixed with its partner, the image at its place in reverse order.
"""

from typing import Any

import numpy as np
import paddle

from ..transforms.on_device import BatchMixing, MixParameters, mix_images

TARGETS, KNOWN = "targets", "known"  # keys of a batch: shares of labels, and whether they count
WEIGHTS, BOXES = "mix_weights", "mix_boxes"  # of partners; only in batches that need them


def draw_mix(mixing: BatchMixing, seed: int, batch: dict[str, Any]) -> dict[str, np.ndarray]:
    """Draw the mix of a batch; return entries of the batch, none if it is not mixed.

    Args:
        mixing: what to draw.
        seed: of this batch.
        batch: "images" (batch, channels, height, width), and "labels", int8 (batch, classes).
    """
    mix = mixing.draw(np.random.default_rng(seed), batch["images"].shape)
    if mix is None:
        return {}
    entries = mix_labels(mix, batch["labels"])
    if (mix.weight < 1.0).any():
        entries[WEIGHTS] = (1.0 - mix.weight).astype(np.float32)
    if mix.boxes.any():
        entries[BOXES] = mix.boxes
    return entries


def mix_labels(mix: MixParameters, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Mix labels, int8 (batch, classes), -1 where not known: float32 shares, and float32 1 or 0 whether they count.

    A label of a mixed image counts only if both images' are known.
    """
    share = mix.share[:, None]
    known, positive = labels >= 0, labels == 1
    both = known & (known[::-1] | (share == 1.0))
    targets = positive * share + positive[::-1] * (1.0 - share)
    return {TARGETS: targets.astype(np.float32), KNOWN: both.astype(np.float32)}


def apply_mix(images: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
    """Mix normalized images (batch, channels, height, width) as drawn for the batch."""
    if WEIGHTS not in batch and BOXES not in batch:
        return images
    return mix_images(images, batch.get(WEIGHTS), batch.get(BOXES))
