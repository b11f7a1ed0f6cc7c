"""Built-in pictures of drawn shapes with boxes and masks, so that a first training of a detector needs no download."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ....contracts.dataset import require_split
from ...data.drawn_shapes import SPLITS, VERSION, Drawn, Draws, draw_shapes, paint
from ...run_lengths import runs_of_mask
from ...settings import CATEGORIES
from .detection_dataset import Annotations, DetectionDataset


class SyntheticShapes(DetectionDataset):
    """Shapes of random colours, sizes and places in front of a noisy background, drawn when they are read.

    A picture depends on ``seed``, split, index, ``sides``, ``per_picture`` and ``categories`` alone; more pictures are
    appended at the end. Masks are a shape's visible pixels, of which others cover a quarter at most, and boxes are the
    smallest ones around these. There are no crowds.
    """

    has_masks = True

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path | None,
        num_train: int = 2000,
        num_val: int = 200,
        sides: tuple[int, int] = (64, 64),
        per_picture: tuple[int, int] = (1, 4),
        categories: Sequence[str] = CATEGORIES[:3],
        seed: int = 0,
    ) -> None:
        """Serve ``split``, "train" or "val"; both paths are ignored.

        Args:
            num_train, num_val: pictures of each split.
            sides: smallest and largest height and width of a picture in pixels.
            per_picture: fewest and most shapes of a picture.
            categories: of ``CATEGORIES``.
            seed: of all pictures.
        """
        self.split = require_split(split, tuple(SPLITS), "synthetic_shapes")
        self.class_names = list(categories)
        self.num_classes = len(categories)
        self.category_ids = tuple(range(1, len(categories) + 1))
        self._number = num_train if split == "train" else num_val
        self._sides, self._per_picture, self._seed = tuple(sides), tuple(per_picture), seed

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> "SyntheticShapes":
        keys = config.DATA.SHAPES
        return cls(
            None, split, cache_folder, keys.TRAIN, keys.VAL, keys.SIDES, keys.PER_PICTURE, tuple(keys.CATEGORIES)
        )

    def __len__(self) -> int:
        return self._number

    def read(self, index: int) -> tuple[Image.Image, Annotations]:  # type: ignore[override]
        drawn = self._draw(index)
        return Image.fromarray(paint(drawn)), self._annotations(index, drawn)

    def annotations(self, index: int) -> Annotations:
        return self._annotations(index, self._draw(index))

    def size(self, index: int) -> tuple[int, int]:
        draws = Draws(self._seed_of(index))
        return draws.between(*self._sides), draws.between(*self._sides)

    def describe(self, index: int) -> str:
        """The picture's number and what it was drawn from."""
        return f"synthetic picture {self.split}_{index:05d} (seed {self._seed}, drawing {VERSION})"

    def summary(self, chosen: np.ndarray | None = None) -> str:
        """How many pictures, and of what: counting the shapes would take drawing all of them."""
        fewest, most = self._per_picture
        shapes = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        number = self._number if chosen is None else len(chosen)
        return f"{number:,} drawn pictures of {shapes} shapes each: {', '.join(self.class_names)}"

    def _draw(self, index: int) -> Drawn:
        return draw_shapes(self._seed_of(index), self._sides, self._per_picture, self.class_names)

    def _seed_of(self, index: int) -> tuple[int, int, int]:
        if not 0 <= index < self._number:
            raise IndexError(f"picture {index} is outside 0..{self._number - 1}")
        return self._seed, SPLITS[self.split], index

    def _annotations(self, index: int, drawn: Drawn) -> Annotations:
        number, runs = len(drawn.masks), [runs_of_mask(mask) for mask in drawn.masks]
        return Annotations(
            boxes=np.array([one.box() for one in runs], dtype=np.float64).reshape(number, 4),
            labels=np.array(drawn.labels, dtype=np.int64),
            areas=np.array([one.area for one in runs], dtype=np.float64),
            is_crowd=np.zeros(number, bool),
            ids=100 * (index + 1) + np.arange(number, dtype=np.int64),
            masks=[one.listed() for one in runs],
        )
