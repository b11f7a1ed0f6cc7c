"""Built-in pictures of drawn shapes, so that a first training of a detector needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Tuple

import numpy as np
from PIL import Image

from ....contracts.dataset import require_split
from ..run_lengths import runs_of_mask
from .detection_dataset import Annotations, DetectionDataset
from .drawn_shapes import VERSION, Drawn, draw_shapes, drawn_size, paint
from .shape_names import CATEGORIES

_SPLITS = {"train": 0, "val": 1}  # part of each picture's seed: the splits share no pictures


class SyntheticShapes(DetectionDataset):
    """Shapes of random colours, sizes and places in front of a noisy background, drawn when they are read.

    A picture depends on ``seed``, split, index, ``sides``, ``per_picture`` and ``categories`` alone; more pictures are
    appended at the end. Masks are a shape's visible pixels, of which others cover a quarter at most, and boxes are the
    smallest ones around these. There are no crowds.
    """

    has_masks = True

    def __init__(
        self,
        data_path: Optional[str],
        split: str,
        cache_folder: Optional[Path],
        num_train: int = 2000,
        num_val: int = 200,
        sides: Tuple[int, int] = (64, 64),
        per_picture: Tuple[int, int] = (1, 4),
        categories: Sequence[str] = CATEGORIES[:3],
        seed: int = 0,
    ) -> None:
        """Serve ``split``, "train" or "val"; both paths are ignored.

        Args:
            num_train, num_val: pictures of each split.
            sides: smallest and largest height and width of a picture in pixels.
            per_picture: fewest and most shapes of a picture.
            categories: of ``shape_names.CATEGORIES``.
            seed: of all pictures.
        """
        self.split = require_split(split, tuple(_SPLITS), "synthetic_shapes")
        self.class_names = list(categories)
        self.num_classes = len(categories)
        self.category_ids = tuple(range(1, len(categories) + 1))
        self._number = num_train if split == "train" else num_val
        self._sides, self._per_picture, self._seed = tuple(sides), tuple(per_picture), seed

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> SyntheticShapes:
        keys = config.DATA.SHAPES
        return cls(
            None, split, cache_folder, keys.TRAIN, keys.VAL, keys.SIDES, keys.PER_PICTURE, tuple(keys.CATEGORIES)
        )

    def __len__(self) -> int:
        return self._number

    def read(self, index: int) -> Tuple[Image.Image, Annotations]:  # type: ignore[override]
        drawn = self._draw(index)
        return Image.fromarray(paint(drawn)), self._annotations(index, drawn)

    def annotations(self, index: int) -> Annotations:
        return self._annotations(index, self._draw(index))

    def size(self, index: int) -> Tuple[int, int]:
        return drawn_size(self._seed_of(index), self._sides)

    def describe(self, index: int) -> str:
        """The picture's number and what it was drawn from."""
        return f"synthetic picture {self.split}_{index:05d} (seed {self._seed}, drawing {VERSION})"

    @property
    def image_ids(self) -> np.ndarray:
        return np.arange(1, self._number + 1)

    def image_id(self, index: int) -> int:
        return index + 1

    def summary(self, chosen: Optional[np.ndarray] = None) -> str:
        """How many pictures, and of what: counting the shapes would take drawing all of them."""
        fewest, most = self._per_picture
        shapes = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        number = self._number if chosen is None else len(chosen)
        return f"{number:,} drawn pictures of {shapes} shapes each: {', '.join(self.class_names)}"

    def _draw(self, index: int) -> Drawn:
        return draw_shapes(self._seed_of(index), self._sides, self._per_picture, self.class_names)

    def _seed_of(self, index: int) -> Tuple[int, int, int]:
        if not 0 <= index < self._number:
            raise IndexError(f"picture {index} is outside 0..{self._number - 1}")
        return self._seed, _SPLITS[self.split], index

    def _annotations(self, index: int, drawn: Drawn) -> Annotations:
        number = len(drawn.masks)
        boxes = np.array([_box(mask) for mask in drawn.masks], dtype=np.float64).reshape(number, 4)
        return Annotations(
            boxes=boxes,
            labels=np.array(drawn.labels, dtype=np.int64),
            areas=np.array([mask.sum() for mask in drawn.masks], dtype=np.float64),
            is_crowd=np.zeros(number, bool),
            ids=100 * (index + 1) + np.arange(number, dtype=np.int64),
            masks=[run_lengths(mask) for mask in drawn.masks],
        )


def _box(mask: np.ndarray) -> Tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return columns[0], rows[0], columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0]


def run_lengths(mask: np.ndarray) -> Dict[str, Any]:
    """A mask, bool (height, width), as COCO's JSON has it where it is not compressed."""
    return {"size": [*map(int, mask.shape)], "counts": runs_of_mask(mask).counts().tolist()}
