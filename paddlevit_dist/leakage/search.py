"""The samples of one data set that stand in another: pairs, each with what is equal."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.printing import one_line
from . import perceptual
from .comparing import nearest
from .fingerprints import (
    HASHED,
    UNREADABLE,
    DatasetFingerprints,
    can_be_compared,
    fingerprints,
    read_pixels,
    thumbnails,
)

FILE = "leaks.json"
SAME_FILE, SAME_CONTENT, NEAR = "same file", "same content", "near duplicate"
_LOOKS_AT_ONCE = 4096  # pairs whose small images are in memory together


class DuplicatePair(NamedTuple):
    """A sample of validation, the one of training that it is, and what is equal; ``likeness`` is 1 but for images
    that are near duplicates (``perceptual.ImageSimilarity``, the mean of both)."""

    val: int
    train: int
    kind: str
    likeness: float = 1.0


class SearchResult(NamedTuple):
    """Outcome of a search.

    Attributes:
        pairs: at most one for each sample of validation, by their indices.
        looked: how many samples of validation and of training were compared.
        totals: how many there are.
        unreadable: how many of both cannot be read.
    """

    pairs: list[DuplicatePair]
    looked: tuple[int, int]
    totals: tuple[int, int]
    unreadable: int

    def summary(self, split: str, sample_name: str) -> str:
        """One line: how many, of which kind, and what was compared."""
        kinds = [f"{number:,} {kind}" for kind in (SAME_FILE, SAME_CONTENT, NEAR) if (number := self.count(kind))]
        found = f"{len(self.pairs):,} of {self.totals[0]:,} {sample_name} of {split} stand in train"
        found += f" ({', '.join(kinds)})" if kinds else ""
        if self.looked != self.totals:
            sides = zip((split, "train"), self.looked, self.totals)
            found += "; compared: " + " with ".join(f"{n:,} of {total:,} of {side}" for side, n, total in sides)
        return found + (f"; {self.unreadable:,} cannot be read" if self.unreadable else "")

    def count(self, kind: str) -> int:
        """How many pairs are of a kind."""
        return sum(pair.kind == kind for pair in self.pairs)


def find(val: Any, train: Any, cache_folder: Path | None, seconds: float = float("inf")) -> SearchResult:
    """Look for each sample of the data set ``val`` in ``train``. Shows its progress, and can be interrupted.

    Args:
        cache_folder: keeps what is known of image files for the next time.
        seconds: for reading each of them; then what was read is compared.
    Raises:
        UserError: one of them holds what cannot be compared.
    """
    for dataset in (val, train):
        if not can_be_compared(dataset):
            raise UserError(f"{type(dataset).__name__} holds neither images nor scenes nor volumes")
    ours = fingerprints(val, "reading val", perceptual.NUM_VARIANTS, cache_folder, seconds)
    theirs = fingerprints(train, "reading train", 1, cache_folder, seconds)
    pairs = dict(_equal(ours.content, theirs.content, SAME_CONTENT))
    pairs.update(_equal(ours.stored, theirs.stored, SAME_FILE))
    for pair in _near(val, train, ours, theirs, pairs):
        if pair.val not in pairs or _rank(pair) > _rank(pairs[pair.val]):
            pairs[pair.val] = pair
    unreadable = sum(int(np.count_nonzero(one.state == UNREADABLE)) for one in (ours, theirs))
    looked = ours.num_read, theirs.num_read
    return SearchResult([pairs[index] for index in sorted(pairs)], looked, (len(val), len(train)), unreadable)


def _rank(pair: DuplicatePair) -> tuple[bool, float]:
    return pair.kind != NEAR, pair.likeness


def _equal(ours: np.ndarray, theirs: np.ndarray, kind: str) -> Iterator[tuple[int, DuplicatePair]]:
    """The first of theirs with the same digest, for each of ours; 0 is none."""
    known, first = np.unique(theirs, return_index=True)
    if not len(known):
        return
    places = np.minimum(np.searchsorted(known, ours), len(known) - 1)
    for index in np.flatnonzero((ours != 0) & (known[places] == ours)).tolist():
        yield index, DuplicatePair(index, int(first[places[index]]), kind)


def _near(
    val: Any, train: Any, ours: DatasetFingerprints, theirs: DatasetFingerprints, known: dict[int, DuplicatePair]
) -> Iterator[DuplicatePair]:
    """Those whose hashes are near and whose second look says that they are copies."""
    mine = np.array([index for index in np.flatnonzero(ours.state == HASHED).tolist() if index not in known], np.int64)
    others = np.flatnonzero(theirs.state == HASHED)
    if not len(mine) or not len(others):
        return
    found, _ = nearest(ours.hashes[mine], theirs.hashes[others, 0])
    rows, columns = np.nonzero(found >= 0)
    candidates = np.stack([mine[rows], others[found[rows, columns]]], axis=1)  # (pairs, 2)
    for part in np.array_split(candidates, max(1, math.ceil(len(candidates) / _LOOKS_AT_ONCE))):
        sides = (val, part[:, 0], "looking again at val"), (train, part[:, 1], "looking again at train")
        seen, theirs_seen = (thumbnails(data, np.unique(indices).tolist(), label) for data, indices, label in sides)
        for index, other in part.tolist():
            if index in seen and other in theirs_seen:
                likeness = perceptual.likeness(seen[index], theirs_seen[other])
                if likeness.is_copy:
                    is_same = likeness.details > 0.999 and _same_pixels(val, index, train, other)
                    yield (
                        DuplicatePair(index, other, SAME_CONTENT)
                        if is_same
                        else DuplicatePair(index, other, NEAR, sum(likeness) / 2)
                    )


def _same_pixels(val: Any, index: int, train: Any, other: int) -> bool:
    try:
        return np.array_equal(read_pixels(val, index), read_pixels(train, other))
    except UserError:
        return False


def write(file: Path, search: SearchResult, val: Any, train: Any) -> None:
    """Write the pairs with their names as JSON.

    Raises:
        UserError: the file system refuses.
    """
    rows = [
        {
            "sample": pair.val,
            "val": one_line(val.describe(pair.val)),
            "train": one_line(train.describe(pair.train)),
            "kind": pair.kind,
            "likeness": round(pair.likeness, 4),
        }
        for pair in search.pairs
    ]
    content = {"pairs": rows, "compared": search.looked, "samples": search.totals, "unreadable": search.unreadable}
    with atomic_file(file) as out:
        out.write(json.dumps(content, indent=1).encode())


def read(file: Path) -> list[int]:
    """The samples of validation that a file of ``write`` lists."""
    return [row["sample"] for row in json.loads(file.read_text(encoding="utf-8"))["pairs"]]
