"""Split one data set into training and validation pictures, class by class."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, List, Optional, Tuple

import numpy as np
from PIL import Image

from ...errors import UserError
from ...files import atomic_file
from .reading import check_split


class Part:
    """Some rows of another data set. Its pickle holds the other data set and the name of a memory-mapped file."""

    def __init__(self, dataset: Any, rows_file: Path) -> None:
        """Serve the rows of ``dataset`` that ``rows_file`` lists, int64."""
        self.dataset = dataset
        self.rows_file = str(rows_file)
        self._rows: Optional[np.ndarray] = None
        self._labels: Optional[np.ndarray] = None

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_rows": None, "_labels": None}

    def __getattr__(self, name: str) -> Any:
        """Facts of the whole data set: kind, image_mode, num_classes, class_names, notes."""
        if name.startswith("_") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: int) -> Tuple[Image.Image, int]:
        """Picture ``index`` of the part, and its label."""
        return self.dataset.read(int(self.rows[index]))

    def encoded(self, index: int) -> bytes:
        """The file of picture ``index`` as it is."""
        return self.dataset.encoded(int(self.rows[index]))

    def num_bytes(self, index: int) -> int:
        """Size of the file of picture ``index``."""
        return self.dataset.num_bytes(int(self.rows[index]))

    def describe(self, index: int) -> str:
        """Names picture ``index`` as the whole data set does."""
        return self.dataset.describe(int(self.rows[index]))

    @property
    def rows(self) -> np.ndarray:
        """Rows of the whole data set, rising, int64, memory mapped."""
        if self._rows is None:
            self._rows = np.asarray(np.load(self.rows_file, mmap_mode="r", allow_pickle=False))
        return self._rows

    @property
    def labels(self) -> np.ndarray:
        """The labels of the part."""
        if self._labels is None:
            self._labels = self.dataset.labels[self.rows]
        return self._labels


def hold_out(dataset: Any, split: str, fraction: float, seed: int, cache_folder: Path) -> Part:
    """The "train" or "val" part of ``dataset``, of which ``fraction`` of each class is held out as "val".

    The same labels, fraction and seed always give the same parts. A class keeps at least one picture for training,
    and gives at least one to validation if it has two.

    Raises:
        UserError: nothing would be held out.
    """
    check_split(split)
    labels = np.asarray(dataset.labels)
    held_out = choose_held_out(labels, fraction, seed)
    if not held_out.any():
        raise UserError(f"DATA.VAL_FRACTION {fraction} holds nothing out: no class has two pictures")
    rows = np.flatnonzero(held_out if split == "val" else ~held_out)
    key = hashlib.sha256(labels.tobytes() + f"{labels.dtype} {fraction!r} {seed}".encode()).hexdigest()[:16]
    file = Path(cache_folder, f"held-out-{split}-{key}.npy")
    with atomic_file(file) as out:
        np.save(out, rows, allow_pickle=False)
    return Part(dataset, file)


def choose_held_out(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Which samples are held out, bool (samples,): in each class a random ``fraction``, rounded."""
    order = np.lexsort((np.random.default_rng(seed).random(len(labels)), labels))  # by class, random within
    sizes = np.unique(labels, return_counts=True)[1]
    quotas = np.clip(np.round(sizes * fraction).astype(np.int64), np.minimum(1, sizes - 1), sizes - 1)
    starts = np.cumsum(sizes) - sizes
    rank_in_class = np.arange(len(labels)) - np.repeat(starts, sizes)
    held_out = np.zeros(len(labels), bool)
    held_out[order[rank_in_class < np.repeat(quotas, sizes)]] = True
    return held_out


def list_held_out(part: Part, root: Optional[str]) -> List[str]:
    """A line for each picture of ``part``, relative to ``root`` where it lies below it."""
    prefix = "" if root is None else f"{root.rstrip('/')}/"
    described = (part.describe(index) for index in range(len(part)))
    return [line[len(prefix) :] if prefix and line.startswith(prefix) else line for line in described]
