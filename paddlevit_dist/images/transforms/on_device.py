"""Transforms of whole batches on the device: normalization, random erasing, mixup and cutmix.

Boxes to erase are drawn with the sample in its loader process. Mixup and cutmix mix a batch and its labels with the
batch in reverse order; their random numbers are a few per batch, drawn on the host, so a step never waits for the
device.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.losses import log_softmax
from ...core.runtime import autocast, device_graph
from ...core.runtime.transfers import constant, to_device


class PixelNormalizer:
    """Normalizes uint8 pixels (batch, channels, height, width) to float32 of the same shape.

    ``mean`` and standard ``deviation`` are of each channel, for pixels from 0 to 1.
    """

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        self.mean = 255.0 * np.asarray(mean, dtype=np.float32)  # (channels,), of uint8 pixels
        self.deviation = 255.0 * np.asarray(deviation, dtype=np.float32)

    def after(self, first: "PixelNormalizer") -> "PixelNormalizer":
        """Return a normalizer of images that ``first`` normalized: both together do what this one does."""
        mean, deviation = (self.mean - first.mean) / first.deviation, self.deviation / first.deviation
        return PixelNormalizer(mean / 255.0, deviation / 255.0)

    def __call__(self, images: paddle.Tensor) -> paddle.Tensor:
        """Normalize a batch."""
        # The inference formula of batch normalization is the same, (x - mean) / sqrt(variance), in one kernel: 9 ms for
        # 32 images on a core, where broadcast subtraction and division take 73.
        mean, variance = (constant(np.array, tuple(row.tolist()), "float32") for row in (self.mean, self.deviation**2))
        # Not in half precision: that would round pixels, and a GPU's kernel would also require a scale and a shift.
        with autocast.off():
            return F.batch_norm(images.astype("float32"), mean, variance, training=False, epsilon=0.0)

    def pixels(self, images: paddle.Tensor) -> list[np.ndarray]:
        """Convert normalized images back to pixels: uint8 (height, width[, channels]) each."""
        mean, deviation = self.mean.reshape(-1, 1, 1), self.deviation.reshape(-1, 1, 1)
        values = np.rint(images.numpy() * deviation + mean).clip(0, 255).astype(np.uint8)
        return [image[0] if len(image) == 1 else image.transpose(1, 2, 0) for image in values]


def box_masks(boxes: paddle.Tensor, height: int, width: int) -> paddle.Tensor:
    """Return masks, bool (boxes, 1, height, width), that are true inside each box.

    Boxes are whole numbers (boxes, 4): top, left, bottom, right; the last two are exclusive. All zero: no pixel.
    """
    top, left, bottom, right = (boxes[:, side : side + 1].astype("int64") for side in range(4))  # each (boxes, 1)
    rows, columns = paddle.arange(height).unsqueeze(0), paddle.arange(width).unsqueeze(0)
    in_rows = (rows >= top) & (rows < bottom)  # (boxes, height)
    in_columns = (columns >= left) & (columns < right)  # (boxes, width)
    return (in_rows.unsqueeze(2) & in_columns.unsqueeze(1)).unsqueeze(1)


def replace(images: paddle.Tensor, masks: paddle.Tensor, by: paddle.Tensor) -> paddle.Tensor:
    """Replace ``images`` (images, channels, height, width) where ``masks`` (images, 1, height, width) are true.

    ``by`` has the new values and broadcasts to the images.
    """
    # Broadcasting along an inner axis is slow in Paddle on the CPU; equal shapes are fast.
    return paddle.where(masks.expand(images.shape), by.expand(images.shape), images)


_ATTEMPTS = 10

ROWS, BOXES, COLORS = "erase_rows", "erase_boxes", "erase_colors"  # keys of a batch


@dataclass(frozen=True)
class RandomErasing:
    """Fills random boxes of a normalized image.

    The noise of "pixel" is drawn on the device from the step's seed: one value per pixel would double what a loader
    process transfers. Source: Z. Zhong et al., "Random erasing data augmentation", arXiv 1708.04896, section 3; the
    modes are timm's.

    Args:
        probability: of erasing anything in an image.
        mode: "const" fills with 0, the mean of the data; "rand" fills each box with one normal number per channel;
            "pixel" with one per pixel and channel.
        max_count: an image gets 1 to this many boxes, which share the area.
        area: range of the boxes' total share of the image.
        aspect: range of height to width, drawn log-uniformly.
        takes_all: images without boxes are processed, too, so that all batches have one shape.
    """

    probability: float
    mode: str = "pixel"
    max_count: int = 1
    area: tuple[float, float] = (0.02, 1 / 3)
    aspect: tuple[float, float] = (0.3, 1 / 0.3)
    takes_all: bool = False

    def draw(self, shape: tuple[int, int, int], generator: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw what to erase from an image of ``shape`` (channels, height, width).

        Boxes are int32 (max_count, 4): top, left, bottom, right, zeros for no box; with "rand" also colors float32
        (max_count, channels).
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
        """Collate the boxes of the images that have any, and in ROWS, int64, the indices of these images.

        The device then processes only these images, and knows their number without a sync. There is always one.
        """
        rows = [row for row, entry in enumerate(drawn) if self.takes_all or entry[BOXES].any()] or [0]
        stacked = {name: np.stack([drawn[row][name] for row in rows]) for name in drawn[0]}
        return {ROWS: np.array(rows, dtype=np.int64), **stacked}

    def _draw_box(
        self, height: int, width: int, count: int, generator: np.random.Generator
    ) -> tuple[int, int, int, int] | None:
        """Draw a box smaller than the image in both dimensions; None if ten draws are larger."""
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
        """Fill the boxes of a batch in normalized images (batch, channels, height, width)."""
        rows, boxes = batch[ROWS], batch[BOXES]  # (erased,), (erased, max_count, 4)
        erased = paddle.index_select(images, rows, axis=0)  # (erased, channels, height, width)
        shape = erased.shape
        values = paddle.zeros([1, 1, 1, 1])
        if self.mode == "pixel":
            values = device_graph.enter_value(lambda _: paddle.randn(shape))
        for position in range(self.max_count):
            if self.mode == "rand":
                values = batch[COLORS][:, position].unsqueeze([2, 3])  # (erased, channels, 1, 1)
            erased = replace(erased, box_masks(boxes[:, position], *images.shape[-2:]), values)
        return paddle.scatter(images, rows, erased)


@dataclass(frozen=True)
class MixParameters:
    """How each image is mixed with its partner; one row for all images, or one for each.

    Attributes:
        share: float64 (rows,), the image's own share in its label: exactly the share of its pixels.
        weight: float64 (rows,), of the image's own pixels outside its box.
        boxes: int64 (rows, 4): top, left, bottom, right of the partner's pixels; zeros: none.
        entered: a tensor with ``to_tensor`` of another mix each time that it is read; None: there is only this mix.
    """

    share: np.ndarray
    weight: np.ndarray
    boxes: np.ndarray
    entered: paddle.Tensor | None = None

    @classmethod
    def nothing(cls, rows: int) -> "MixParameters":
        """Return what mixes no image."""
        return cls(np.ones(rows), np.ones(rows), np.zeros((rows, 4), dtype=np.int64))

    def images(self, images: paddle.Tensor) -> paddle.Tensor:
        """Mix images (batch, channels, height, width) float; the shape does not change."""
        is_any = self.entered is not None
        others = self._on_device[:, 1] if is_any or (self.weight < 1.0).any() else None
        return mix_images(images, others, self._on_device[:, 2:] if is_any or self.boxes.any() else None)

    def targets(self, targets: paddle.Tensor) -> paddle.Tensor:
        """Mix label distributions (batch, classes)."""
        share = self._on_device[:, :1]
        return targets * share + targets.flip(axis=[0]) * (1.0 - share)

    def losses(self, own: paddle.Tensor, partners: paddle.Tensor) -> paddle.Tensor:
        """Return the losses of mixed images, (batch,), from those with their own label and with their partner's."""
        share = self._on_device[:, 0]
        return own * share + partners * (1.0 - share)

    def dominant(self, labels: paddle.Tensor) -> paddle.Tensor:
        """Return the label with the larger share in each image, int64 (batch,)."""
        is_own = (self._on_device[:, 0] >= 0.5).astype("int64")
        return labels * is_own + labels.flip(axis=[0]) * (1 - is_own)

    @functools.cached_property
    def _on_device(self) -> paddle.Tensor:
        return self.to_tensor() if self.entered is None else self.entered

    def to_tensor(self) -> paddle.Tensor:
        """Return own share, partner's weight and box, float32 (rows, 6), in one transfer; the box is exact."""
        return to_device(np.column_stack([self.share, 1.0 - self.weight, self.boxes]).astype(np.float32))


def mix_images(images: paddle.Tensor, others: paddle.Tensor | None, boxes: paddle.Tensor | None) -> paddle.Tensor:
    """Mix images (batch, channels, height, width) float with the batch in reverse order.

    ``others``, float (rows,), are the weights of the partners, ``boxes``, (rows, 4), what is theirs alone, as in
    ``MixParameters``; None: nothing is.
    """
    # A selection, because Paddle's flip takes four times as long on the CPU.
    partners = paddle.index_select(images, paddle.arange(images.shape[0] - 1, -1, -1), axis=0)
    if others is not None:  # exactly the image where the partner's weight is 0
        images = paddle.lerp(images, partners, others.reshape([-1, 1, 1, 1]))
    return images if boxes is None else replace(images, box_masks(boxes, *images.shape[-2:]), partners)


@dataclass(frozen=True)
class BatchMixing:
    """Mixup (H. Zhang et al., arXiv 1710.09412, section 2) and cutmix (S. Yun et al., arXiv 1905.04899, section 3.1).

    Image ``i`` of ``n`` is mixed with ``n - 1 - i``; the middle one of an odd batch with itself.

    Args:
        mixup_alpha, cutmix_alpha: of the Beta(alpha, alpha) distribution of the own share; 0: off.
        cutmix_minmax: sides of the box as fractions of the image's, instead of a square from the share; cutmix is on.
        probability: of mixing a batch, pair or image at all.
        switch_probability: of cutmix if both are on.
        mode: "batch" draws once for all images, "pair" once for two partners, "elem" for each image.
    """

    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    cutmix_minmax: tuple[float, float] | None = None
    probability: float = 1.0
    switch_probability: float = 0.5
    mode: str = "batch"

    def draw(self, generator: np.random.Generator, shape: tuple[int, ...]) -> MixParameters | None:
        """Draw the mix of a batch of ``shape`` (batch, channels, height, width); None if it is not mixed."""
        batch, (height, width) = shape[0], shape[-2:]
        rows = {"batch": 1, "pair": batch // 2, "elem": batch}[self.mode]
        mixed = generator.random(rows) < self.probability
        is_cutmix = self._choose_cutmix(generator, rows)
        alphas = np.where(is_cutmix, self.cutmix_alpha or 1.0, self.mixup_alpha or 1.0)
        share = generator.beta(alphas, alphas)
        boxes = self._draw_boxes(generator, share, height, width)
        boxes[~(mixed & is_cutmix)] = 0
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        # A box is clipped at the border, so the share is computed from its pixels.
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
        """Draw one box per row, int64 (rows, 4), with the partner's share before it is clipped at the border."""
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
    """Copy the rows of a batch's first half to the partners in the second; a middle image is not mixed."""
    alone = batch % 2
    share, weight = (np.concatenate([rows, np.ones(alone), rows[::-1]]) for rows in (mix.share, mix.weight))
    nothing = np.zeros((alone, 4), dtype=mix.boxes.dtype)
    return MixParameters(share, weight, np.concatenate([mix.boxes, nothing, mix.boxes[::-1]]))


def smooth_targets(labels: paddle.Tensor, num_classes: int, smoothing: float) -> paddle.Tensor:
    """Return label distributions float32 (batch, classes): ``smoothing`` is spread evenly over all classes."""
    return F.one_hot(labels, num_classes) * (1.0 - smoothing) + smoothing / num_classes


def soft_cross_entropy(logits: paddle.Tensor, targets: paddle.Tensor) -> paddle.Tensor:
    """Compute the cross-entropy with label distributions, both (batch, classes), summed over the batch."""
    return -(targets * log_softmax(logits)).sum()
