"""Images of two to four handwritten digits, drawn from the digits that come with the package."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...core.tasks.dataset import require_split
from ..data.image_dataset import ImageDataset
from ..data.reading import SPLITS
from ..data.small_sets import Digits

SIDE_PX = 32
_SIZES = {"train": 4096, "val": 1024}
_FEWEST, _MOST = 2, 4  # digits of an image
_GLYPH_PX = 8
_SEED = 489


class MultiDigits(ImageDataset):
    """Gray images of 32 x 32 pixels, with the digits that are in them as labels.

    Each quarter of an image has a place for one digit, which is shifted by up to eight pixels and enlarged by 1 to
    1.75. Training images have the training digits, validation images the others. An image depends on its number only.
    """

    kind = "glyph"
    image_mode = "L"
    class_names = [str(digit) for digit in range(10)]
    num_classes = 10

    def __init__(self, data_path: str | None, split: str, cache_folder: Path | None) -> None:
        """Open ``split``, "train" or "val"; both paths are ignored."""
        self.split = require_split(split, SPLITS, "multi_digits")
        self._digits = Digits(None, split, None)
        self._drawn: tuple[np.ndarray, np.ndarray] | None = None  # rows of digits, -1: none; labels

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_drawn": None}

    def __len__(self) -> int:
        return _SIZES[self.split]

    def _draw(self) -> tuple[np.ndarray, np.ndarray]:
        """Draw the digits of each quarter, int (images, 4), and the labels of each image, int8 (images, 10)."""
        if self._drawn is None:
            generator = np.random.default_rng([_SEED, SPLITS.index(self.split)])
            count = len(self)
            rows = generator.integers(0, len(self._digits), (count, _MOST))
            is_empty = np.arange(_MOST) >= generator.integers(_FEWEST, _MOST + 1, count)[:, None]
            rows[generator.permuted(is_empty, axis=1)] = -1
            labels = np.zeros((count, self.num_classes), np.int8)
            images, places = np.nonzero(rows >= 0)
            labels[images, self._digits.labels[rows[images, places]]] = 1
            self._drawn = rows, labels
        return self._drawn

    @property
    def label_matrix(self) -> np.ndarray:  # type: ignore[override] # drawn
        """The digits in each image, int8 (images, 10), 1 or 0."""
        return self._draw()[1]

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """Return image ``index`` and its labels, int8 (10,)."""
        rows, labels = self._draw()
        generator = np.random.default_rng([_SEED, SPLITS.index(self.split), index])
        image = Image.new("L", (SIDE_PX, SIDE_PX))
        for place, row in enumerate(rows[index].tolist()):
            size = round(_GLYPH_PX * generator.uniform(1.0, 1.75))
            left, top = generator.integers(0, SIDE_PX // 2 - size + 1, 2).tolist()
            if row >= 0:
                glyph = self._digits.read(row)[0].resize((size, size), Image.Resampling.BICUBIC)
                image.paste(glyph, (left + place % 2 * SIDE_PX // 2, top + place // 2 * SIDE_PX // 2))
        return image, labels[index]

    def describe(self, index: int) -> str:
        """Return split and number of image ``index``."""
        return f"{self.split} {index} of multi_digits"

    def identity(self, index: int) -> str:
        """Return split and number, which identify an image."""
        return f"{self.split} {index}"
