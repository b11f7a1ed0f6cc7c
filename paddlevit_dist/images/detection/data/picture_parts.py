"""Some of a dataset's pictures: those held out for validation, the others, or those with something to learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Optional, Sequence, Tuple

import numpy as np

from ...data.held_out import Part, choose_held_out, write_rows
from .detection_dataset import Annotations, DetectionDataset
from .views import Size


class PicturesPart(Part, DetectionDataset):  # type: ignore[misc] # what both have is the first one's
    """Pictures of another dataset, pickled as that dataset and the name of a memory-mapped file of rows."""

    dataset: Any

    labels = None  # type: ignore[assignment] # of a picture there are many

    def __getstate__(self) -> Any:
        return {**super().__getstate__(), "notices": ()}

    @property
    def labelled(self) -> bool:  # type: ignore[override] # this and what follows: the whole dataset's
        return self.dataset.labelled

    @property
    def category_ids(self) -> Tuple[int, ...]:  # type: ignore[override]
        return self.dataset.category_ids

    @property
    def has_masks(self) -> bool:  # type: ignore[override]
        return self.dataset.has_masks

    @property
    def image_ids(self) -> np.ndarray:
        return self.dataset.image_ids[self.rows]

    def image_id(self, index: int) -> int:
        return self.dataset.image_id(int(self.rows[index]))

    @property
    def sizes(self) -> np.ndarray:
        return self.dataset.sizes[self.rows]

    def size(self, index: int) -> Size:
        return self.dataset.size(int(self.rows[index]))

    def annotations(self, index: int) -> Annotations:
        return self.dataset.annotations(int(self.rows[index]))

    def missing(self) -> Sequence[int]:
        return np.flatnonzero(np.isin(self.rows, self.dataset.missing())).tolist()

    def beside(self) -> Sequence[str]:
        return self.dataset.beside()

    def check_size(self, index: int) -> Optional[Exception]:
        """As the whole dataset does."""
        return self.dataset.check_size(int(self.rows[index]))

    def learnable(self) -> np.ndarray:
        """bool (samples,): there is something to learn in the picture."""
        return self.dataset.learnable()[self.rows]

    def summary(self, chosen: Optional[np.ndarray] = None) -> str:
        return self.dataset.summary(self.rows if chosen is None else self.rows[chosen])


def held_out_part(dataset: Any, split: str, fraction: float, seed: int, cache_folder: Path) -> PicturesPart:
    """The "train" or "val" part of a dataset, of whose pictures ``fraction`` are held out as "val"."""
    held_out = choose_held_out(dataset, np.zeros(len(dataset), np.int64), fraction, seed)
    rows = np.flatnonzero(held_out if split == "val" else ~held_out)
    return _part(dataset, rows, f"held-out-{split}", cache_folder, is_share=True)


def learnable_part(dataset: Any, cache_folder: Path) -> PicturesPart:
    """The pictures in which there is something to learn."""
    return _part(dataset, np.flatnonzero(dataset.learnable()), "learnable", cache_folder)


def ordered_by_shape(dataset: Any, resized: Callable[[Size], Size], cache_folder: Path) -> PicturesPart:
    """All pictures, those of equal size after ``resized`` together, so that batches of them need no padding."""
    sizes = np.array([resized((height, width)) for height, width in dataset.sizes.tolist()]).reshape(-1, 2)
    return _part(dataset, np.lexsort((sizes[:, 1], sizes[:, 0])), "by-shape", cache_folder)


def _part(dataset: Any, rows: np.ndarray, name: str, cache_folder: Path, is_share: bool = False) -> PicturesPart:
    return PicturesPart(dataset, write_rows(cache_folder, f"pictures-{name}", rows), is_share)
