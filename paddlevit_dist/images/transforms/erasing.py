"""Random erasing: boxes are drawn with the sample in its loader process and filled on the device."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import paddle

from .crops import box_masks, replace

_ATTEMPTS = 10

ROWS, BOXES, COLOURS = "erase_rows", "erase_boxes", "erase_colours"  # keys of a batch


@dataclass(frozen=True)
class RandomErasing:
    """Fills random boxes of a normalised image.

    The boxes, and the colours of "rand", come from the sample's generator. The noise of "pixel" is made on the device
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
        """What to erase from an image of ``shape`` (channels, height, width).

        Returns:
            boxes int32 (max_count, 4): top, left, bottom, right, zeros where there is none; with "rand" also colours
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
        return {BOXES: boxes, COLOURS: generator.standard_normal((self.max_count, channels), dtype=np.float32)}

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
        """Normalised images (batch, channels, height, width) with the boxes of their batch filled."""
        rows, boxes = batch[ROWS], batch[BOXES]  # (erased,), (erased, max_count, 4)
        erased = paddle.index_select(images, rows, axis=0)  # (erased, channels, height, width)
        values = paddle.randn(erased.shape) if self.mode == "pixel" else paddle.zeros([1, 1, 1, 1])
        for position in range(self.max_count):
            if self.mode == "rand":
                values = batch[COLOURS][:, position].unsqueeze([2, 3])  # (erased, channels, 1, 1)
            erased = replace(erased, box_masks(boxes[:, position], *images.shape[-2:]), values)
        return paddle.scatter(images, rows, erased)
