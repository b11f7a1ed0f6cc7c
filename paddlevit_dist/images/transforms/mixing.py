"""Mixup and cutmix of a batch with itself in reverse order, on the device, with the labels that belong to it.

What is random is drawn on the host, as a few numbers per batch, so that a step never waits for the device.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ...runtime.transfers import to_device
from .crops import box_masks, replace


@dataclass(frozen=True)
class Mix:
    """How each image is mixed with its partner; one row for all images, or one for each.

    Attributes:
        share: float64 (rows,), the image's own share in its label: exactly that of its pixels.
        weight: float64 (rows,), of the image's own pixels outside its box.
        boxes: int64 (rows, 4): top, left, bottom, right of the pixels that are the partner's; zeros: none.
    """

    share: np.ndarray
    weight: np.ndarray
    boxes: np.ndarray

    def images(self, images: paddle.Tensor) -> paddle.Tensor:
        """Mixed images of the same shape, (batch, channels, height, width) float."""
        # A selection, because Paddle's flip takes four times as long on the CPU.
        partners = paddle.index_select(images, paddle.arange(images.shape[0] - 1, -1, -1), axis=0)
        if (self.weight < 1.0).any():
            others = self._on_device[:, 1].reshape([-1, 1, 1, 1])
            images = paddle.lerp(images, partners, others)  # exactly itself where the partner's weight is 0
        if self.boxes.any():
            images = replace(images, box_masks(self._on_device[:, 2:], *images.shape[-2:]), partners)
        return images

    def targets(self, targets: paddle.Tensor) -> paddle.Tensor:
        """Mixed label distributions (batch, classes)."""
        share = self._on_device[:, :1]
        return targets * share + targets.flip(axis=[0]) * (1.0 - share)

    def dominant(self, labels: paddle.Tensor) -> paddle.Tensor:
        """The label with the larger share in each image, int64 (batch,)."""
        own = (self._on_device[:, 0] >= 0.5).astype("int64")
        return labels * own + labels.flip(axis=[0]) * (1 - own)

    @functools.cached_property
    def _on_device(self) -> paddle.Tensor:
        """float32 (rows, 6), in one transfer: the own share, the partner's weight and the box, whose numbers are
        exact."""
        return to_device(np.column_stack([self.share, 1.0 - self.weight, self.boxes]).astype(np.float32))


@dataclass(frozen=True)
class Mixing:
    """Mixup (H. Zhang et al., arXiv 1710.09412, section 2) and cutmix (S. Yun et al., arXiv 1905.04899, section 3.1).

    Image ``i`` of ``n`` is mixed with ``n - 1 - i``; the middle one of an odd batch with itself.

    Args:
        mixup_alpha, cutmix_alpha: of the Beta(alpha, alpha) distribution of the own share; 0: not done.
        cutmix_minmax: sides of the box as fractions of the image's, instead of a square from the share; switches
            cutmix on.
        probability: of mixing a batch, pair or image at all.
        switch_probability: of cutmix where both are on.
        mode: "batch" draws once for all images, "pair" once for two partners, "elem" for each image.
    """

    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    cutmix_minmax: tuple[float, float] | None = None
    probability: float = 1.0
    switch_probability: float = 0.5
    mode: str = "batch"

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...]) -> Mix | None:
        """The mix of a batch of ``shape`` (batch, channels, height, width); None if it stays as it is."""
        batch, (height, width) = shape[0], shape[-2:]
        rows = {"batch": 1, "pair": batch // 2, "elem": batch}[self.mode]
        mixed = generator.random(rows) < self.probability
        is_cutmix = self._choose_cutmix(generator, rows)
        alphas = np.where(is_cutmix, self.cutmix_alpha or 1.0, self.mixup_alpha or 1.0)
        share = generator.beta(alphas, alphas)
        boxes = self._draw_boxes(generator, share, height, width)
        boxes[~(mixed & is_cutmix)] = 0
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        # A box is cut off at the border, so the share follows from its pixels and not the other way round.
        share = np.where(is_cutmix, 1.0 - areas / (height * width), np.where(mixed, share, 1.0))
        mix = Mix(share, np.where(is_cutmix, 1.0, share), boxes)
        if self.mode == "pair":
            mix = _mirror(mix, batch)
        return mix if (mix.share < 1.0).any() else None

    def _choose_cutmix(self, generator: np.random.Generator, rows: int) -> np.ndarray:
        has_cutmix = self.cutmix_alpha > 0 or self.cutmix_minmax is not None
        if has_cutmix and self.mixup_alpha > 0:
            return generator.random(rows) < self.switch_probability
        return np.full(rows, has_cutmix)

    def _draw_boxes(self, generator: np.random.Generator, share: np.ndarray, height: int, width: int) -> np.ndarray:
        """One box per row, int64 (rows, 4), of the partner's share before it is cut off at the border."""
        rows = len(share)
        sides = np.array([height, width])
        if self.cutmix_minmax is not None:
            low, high = ((fraction * sides).astype(int) for fraction in self.cutmix_minmax)
            lengths = generator.integers(low, np.maximum(high, low + 1), size=(rows, 2))
            start = generator.integers(0, sides - lengths + 1)  # (rows, 2)
            return np.concatenate([start, start + lengths], axis=1)
        lengths = (np.sqrt(1.0 - share)[:, None] * sides).astype(int)  # (rows, 2)
        centre = generator.integers(0, sides, size=(rows, 2))
        start, end = centre - lengths // 2, centre + (lengths + 1) // 2
        return np.concatenate([np.clip(start, 0, sides), np.clip(end, 0, sides)], axis=1)


def _mirror(mix: Mix, batch: int) -> Mix:
    """Rows of the first half of a batch, given to their partners in the second; an image in the middle is alone."""
    alone = batch % 2
    share, weight = (np.concatenate([rows, np.ones(alone), rows[::-1]]) for rows in (mix.share, mix.weight))
    nothing = np.zeros((alone, 4), dtype=mix.boxes.dtype)
    return Mix(share, weight, np.concatenate([mix.boxes, nothing, mix.boxes[::-1]]))


def build_mixing(train: Any) -> Mixing | None:
    """The mixing that the keys of TRAIN describe; None if it is off."""
    minmax = None if train.CUTMIX_MINMAX is None else tuple(train.CUTMIX_MINMAX)
    if not train.MIXUP_PROB or not (train.MIXUP_ALPHA or train.CUTMIX_ALPHA or minmax):
        return None
    return Mixing(
        train.MIXUP_ALPHA, train.CUTMIX_ALPHA, minmax, train.MIXUP_PROB, train.MIXUP_SWITCH_PROB, train.MIXUP_MODE
    )


def smooth_targets(labels: paddle.Tensor, num_classes: int, smoothing: float) -> paddle.Tensor:
    """Label distributions float32 (batch, classes): ``smoothing`` of each is spread evenly over all classes."""
    return F.one_hot(labels, num_classes) * (1.0 - smoothing) + smoothing / num_classes


def soft_cross_entropy(logits: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
    """Cross-entropy with label distributions, both (batch, classes), summed over the batch."""
    return -(targets * F.log_softmax(logits, axis=-1)).sum()
