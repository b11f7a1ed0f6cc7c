"""Transforms of whole batches on the device: pixels become what networks take, boxes are erased (drawn with the
sample in its loader process), and mixup and cutmix mix a batch with itself in reverse order, with the labels that
belong to it.

What is random in mixing is drawn on the host, as a few numbers per batch, so that a step never waits for the device.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import paddle
import paddle.nn.functional as F

from ...runtime import autocast
from ...runtime.transfers import constant, to_device

if TYPE_CHECKING:
    from ..classification.settings import ClassificationTrainSection


class PixelNormalizer:
    """uint8 pixels (batch, channels, height, width) -> float32 of the same shape.

    Args:
        mean, deviation: of each channel, of pixels from 0 to 1.
    """

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        self.mean = 255.0 * np.asarray(mean, dtype=np.float32)  # (channels,), of uint8 pixels
        self.deviation = 255.0 * np.asarray(deviation, dtype=np.float32)

    def __call__(self, images: paddle.Tensor) -> paddle.Tensor:
        # The inference formula of batch normalization is just this one, (x - mean) / sqrt(variance), in one kernel:
        # 9 ms for 32 images on a core, where broadcast subtraction and division take 73.
        mean, variance = (constant(np.array, tuple(row.tolist()), "float32") for row in (self.mean, self.deviation**2))
        # Not in half precision: that would round pixels, and a GPU's kernel then wants a scale and a shift as well.
        with autocast.off():
            return F.batch_norm(images.astype("float32"), mean, variance, training=False, epsilon=0.0)

    def pixels(self, images: paddle.Tensor) -> list[np.ndarray]:
        """The images that normalized ones show: uint8 (height, width[, channels]) each."""
        mean, deviation = self.mean.reshape(-1, 1, 1), self.deviation.reshape(-1, 1, 1)
        values = np.rint(images.numpy() * deviation + mean).clip(0, 255).astype(np.uint8)
        return [image[0] if len(image) == 1 else image.transpose(1, 2, 0) for image in values]


def box_masks(boxes: paddle.Tensor, height: int, width: int) -> paddle.Tensor:
    """True inside each box.

    Args:
        boxes: whole numbers (boxes, 4): top, left, bottom, right; the last two are outside. All zero: no pixel.
    Returns:
        bool (boxes, 1, height, width).
    """
    top, left, bottom, right = (boxes[:, side : side + 1].astype("int64") for side in range(4))  # each (boxes, 1)
    rows, columns = paddle.arange(height).unsqueeze(0), paddle.arange(width).unsqueeze(0)
    in_rows = (rows >= top) & (rows < bottom)  # (boxes, height)
    in_columns = (columns >= left) & (columns < right)  # (boxes, width)
    return (in_rows.unsqueeze(2) & in_columns.unsqueeze(1)).unsqueeze(1)


def replace(images: paddle.Tensor, masks: paddle.Tensor, by: paddle.Tensor) -> paddle.Tensor:
    """``images`` (images, channels, height, width) with the values of ``by``, which broadcasts to them, where
    ``masks`` (images, 1, height, width) is true."""
    # Broadcasting along an inner axis is slow in Paddle on the CPU; equal shapes are fast.
    return paddle.where(masks.expand(images.shape), by.expand(images.shape), images)


_ATTEMPTS = 10

ROWS, BOXES, COLORS = "erase_rows", "erase_boxes", "erase_colors"  # keys of a batch


@dataclass(frozen=True)
class RandomErasing:
    """Fills random boxes of a normalized image.

    The boxes, and the colors of "rand", come from the sample's generator. The noise of "pixel" is made on the device
    from the step's seed: a value for each pixel would double what a loader process hands over.

    Args:
        probability: of erasing anything in an image.
        mode: "const" fills with 0, the mean of the data; "rand" each box with one normal number per channel; "pixel"
            with one per pixel and channel.
        max_count: an image gets 1 to this many boxes, which share the area.
        area: fractions of the image, of all its boxes together.
        aspect: height to width, drawn log-uniformly.

    Source: Z. Zhong et al., "Random erasing data augmentation", arXiv 1708.04896, section 3; the modes are timm's.
    """

    probability: float
    mode: str = "pixel"
    max_count: int = 1
    area: tuple[float, float] = (0.02, 1 / 3)
    aspect: tuple[float, float] = (0.3, 1 / 0.3)

    def draw(self, shape: tuple[int, int, int], generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw what to erase from an image of ``shape`` (channels, height, width).

        Returns:
            boxes int32 (max_count, 4): top, left, bottom, right, zeros where there is none; with "rand" also colors
            float32 (max_count, channels).
        """
        channels, height, width = shape
        boxes = np.zeros((self.max_count, 4), dtype=np.int32)
        if generator.random() < self.probability:
            count = int(generator.integers(1, self.max_count, endpoint=True))
            for position in range(count):
                boxes[position] = self._draw_box(height, width, count, generator) or (0, 0, 0, 0)
        if self.mode != "rand":
            return {BOXES: boxes}
        return {BOXES: boxes, COLORS: generator.standard_normal((self.max_count, channels), dtype=np.float32)}

    def collate(self, drawn: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Batch entries: the draws of the images with erased boxes, and in ROWS, int64, the indices of these images.

        The device then processes only these, and their number is known without a sync. There is always one.
        """
        rows = [row for row, entry in enumerate(drawn) if entry[BOXES].any()] or [0]
        stacked = {name: np.stack([drawn[row][name] for row in rows]) for name in drawn[0]}
        return {ROWS: np.array(rows, dtype=np.int64), **stacked}

    def _draw_box(
        self, height: int, width: int, count: int, generator: np.random.Generator
    ) -> tuple[int, int, int, int] | None:
        """A box smaller than the image both ways; None if ten draws are larger."""
        for _ in range(_ATTEMPTS):
            area = generator.uniform(*self.area) * height * width / count
            aspect = math.exp(generator.uniform(*np.log(self.aspect)))
            box_height, box_width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if box_height < height and box_width < width:
                top = int(generator.integers(0, height - box_height, endpoint=True))
                left = int(generator.integers(0, width - box_width, endpoint=True))
                return top, left, top + box_height, left + box_width
        return None

    def fill(self, images: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> paddle.Tensor:
        """Normalized images (batch, channels, height, width) with the boxes of their batch filled."""
        rows, boxes = batch[ROWS], batch[BOXES]  # (erased,), (erased, max_count, 4)
        erased = paddle.index_select(images, rows, axis=0)  # (erased, channels, height, width)
        values = paddle.randn(erased.shape) if self.mode == "pixel" else paddle.zeros([1, 1, 1, 1])
        for position in range(self.max_count):
            if self.mode == "rand":
                values = batch[COLORS][:, position].unsqueeze([2, 3])  # (erased, channels, 1, 1)
            erased = replace(erased, box_masks(boxes[:, position], *images.shape[-2:]), values)
        return paddle.scatter(images, rows, erased)


@dataclass(frozen=True)
class MixParameters:
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
class BatchMixing:
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

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...]) -> MixParameters | None:
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
        mix = MixParameters(share, np.where(is_cutmix, 1.0, share), boxes)
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
        center = generator.integers(0, sides, size=(rows, 2))
        start, end = center - lengths // 2, center + (lengths + 1) // 2
        return np.concatenate([np.clip(start, 0, sides), np.clip(end, 0, sides)], axis=1)


def _mirror(mix: MixParameters, batch: int) -> MixParameters:
    """Rows of the first half of a batch, given to their partners in the second; an image in the middle is alone."""
    alone = batch % 2
    share, weight = (np.concatenate([rows, np.ones(alone), rows[::-1]]) for rows in (mix.share, mix.weight))
    nothing = np.zeros((alone, 4), dtype=mix.boxes.dtype)
    return MixParameters(share, weight, np.concatenate([mix.boxes, nothing, mix.boxes[::-1]]))


def build_mixing(train: "ClassificationTrainSection") -> BatchMixing | None:
    """The mixing that the keys of TRAIN describe; None if it is off."""
    minmax = None if train.CUTMIX_MINMAX is None else tuple(train.CUTMIX_MINMAX)
    if not train.MIXUP_PROB or not (train.MIXUP_ALPHA or train.CUTMIX_ALPHA or minmax):
        return None
    return BatchMixing(
        train.MIXUP_ALPHA, train.CUTMIX_ALPHA, minmax, train.MIXUP_PROB, train.MIXUP_SWITCH_PROB, train.MIXUP_MODE
    )


def smooth_targets(labels: paddle.Tensor, num_classes: int, smoothing: float) -> paddle.Tensor:
    """Label distributions float32 (batch, classes): ``smoothing`` of each is spread evenly over all classes."""
    return F.one_hot(labels, num_classes) * (1.0 - smoothing) + smoothing / num_classes


def soft_cross_entropy(logits: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
    """Cross-entropy with label distributions, both (batch, classes), summed over the batch."""
    return -(targets * F.log_softmax(logits, axis=-1)).sum()
