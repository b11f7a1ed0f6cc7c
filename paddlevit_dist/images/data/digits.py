"""Handwritten digits bundled with the package, so that a first training run needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Optional, Tuple

import numpy as np
from PIL import Image

from ...contracts.dataset import require_split
from .image_dataset import ImageDataset
from .reading import SPLITS

FILE = Path(__file__).with_name("digits.npz")
HELD_OUT_EVERY = 5
LARGEST_VALUE = 16  # each pixel is the number of set pixels in a 4 x 4 block


class _Samples(NamedTuple):
    images: np.ndarray  # (samples, 8, 8) uint8, 0..255
    labels: np.ndarray  # (samples,) uint8
    rows: np.ndarray  # (samples,) int64, position among the 1,797 published samples


class Digits(ImageDataset):
    """1,797 gray 8 x 8 images; every fifth (360) is held out as "val", the other 1,437 are "train".

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository,
    1998, doi 10.24432/C50P49, CC BY 4.0: its test set of 13 writers.
    """

    kind = "glyph"
    image_mode = "L"
    num_classes = 10
    class_names = [str(digit) for digit in range(10)]

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Optional[Path]) -> None:
        """Load ``split``, "train" or "val"; the samples are in the package, so both paths are ignored."""
        self.split = require_split(split, SPLITS, "digits")
        self._samples: Optional[_Samples] = None

    def __getstate__(self) -> Any:
        return {"split": self.split, "_samples": None}

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> Tuple[Image.Image, int]:
        """Image ``index`` in mode "L", and its label."""
        samples = self._loaded()
        return Image.fromarray(samples.images[index]), int(samples.labels[index])

    def describe(self, index: int) -> str:
        """Position of image ``index`` among the published samples, and the file."""
        return f"sample {self._loaded().rows[index]} of {FILE}"

    def identity(self, index: int) -> str:
        return f"{self.split} {index}"

    @property
    def labels(self) -> np.ndarray:
        """All labels, (samples,) uint8."""
        return self._loaded().labels

    def _loaded(self) -> _Samples:
        if self._samples is None:
            with np.load(FILE, allow_pickle=False) as stored:
                images, labels = stored["images"], stored["labels"]
            held_out = np.arange(len(labels)) % HELD_OUT_EVERY == 0
            rows = np.flatnonzero(held_out if self.split == "val" else ~held_out)
            scaled = np.round(images[rows] * (255 / LARGEST_VALUE)).astype(np.uint8)
            self._samples = _Samples(scaled, labels[rows], rows)
        return self._samples
