"""Find the samples of one dataset that are also in another."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.json_format import format_json
from ...core.runtime.printing import one_line
from ...core.tasks.dataset import Dataset
from . import perceptual
from .comparing import find_nearest
from .fingerprints import (
    HASHED,
    UNREADABLE,
    DatasetFingerprints,
    can_compare,
    compute_fingerprints,
    read_pixels,
    read_thumbnails,
)

FILE = "leaks.json"
SAME_FILE, SAME_CONTENT, NEAR = "same file", "same content", "near duplicate"
_CHUNK = 4096  # pairs whose thumbnails are in memory together


class DuplicatePair(NamedTuple):
    """A validation sample and its copy in the training set."""

    val: int  # index of the validation sample
    train: int  # index of the training sample
    kind: str  # "same file", "same content" or "near duplicate"
    likeness: float = 1.0  # for near duplicates the mean of ``perceptual.ImageSimilarity``


class SearchResult(NamedTuple):
    """Result of a search."""

    pairs: list[DuplicatePair]  # at most one for each validation sample, sorted by its index
    compared: tuple[int, int]  # numbers of validation and of training samples that were compared
    totals: tuple[int, int]  # numbers of all validation and all training samples
    unreadable: int  # number of unreadable samples in both datasets

    def summary(self, split: str, sample_name: str) -> str:
        """Format the number and the kinds of pairs, and the number of samples compared, as one line."""
        kinds = [f"{number:,} {kind}" for kind in (SAME_FILE, SAME_CONTENT, NEAR) if (number := self.count(kind))]
        text = f"{len(self.pairs):,} of {self.totals[0]:,} {sample_name} of {split} are also in train"
        text += f" ({', '.join(kinds)})" if kinds else ""
        if self.compared != self.totals:
            sides = zip((split, "train"), self.compared, self.totals)
            text += "; compared: " + " with ".join(f"{n:,} of {total:,} of {side}" for side, n, total in sides)
        return text + (f"; {self.unreadable:,} cannot be read" if self.unreadable else "")

    def count(self, kind: str) -> int:
        """Count the pairs of a kind."""
        return sum(pair.kind == kind for pair in self.pairs)


def find_copies(val: Any, train: Any, cache_folder: Path | None, seconds: float = float("inf")) -> SearchResult:
    """Search the dataset ``train`` for each sample of ``val``. Shows its progress, and can be interrupted.

    Args:
        val: dataset of images, scenes, shapes or volumes.
        train: dataset of the same kind.
        cache_folder: for the fingerprints of image files; None for no cache.
        seconds: time limit for reading each dataset; only the samples read in this time are compared.

    Raises:
        UserError: if the samples of a dataset cannot be compared.
    """
    for dataset in (val, train):
        if not can_compare(dataset):
            raise UserError(f"{type(dataset).__name__} contains neither images nor scenes nor volumes")
    val_prints = compute_fingerprints(val, "reading val", perceptual.NUM_VARIANTS, cache_folder, seconds)
    train_prints = compute_fingerprints(train, "reading train", 1, cache_folder, seconds)
    pairs = dict(_find_equal(val_prints.content, train_prints.content, SAME_CONTENT))
    pairs.update(_find_equal(val_prints.stored, train_prints.stored, SAME_FILE))
    for pair in _find_near(val, train, val_prints, train_prints, pairs):
        if pair.val not in pairs or _rank(pair) > _rank(pairs[pair.val]):
            pairs[pair.val] = pair
    unreadable = sum(int(np.count_nonzero(prints.state == UNREADABLE)) for prints in (val_prints, train_prints))
    compared = val_prints.num_read, train_prints.num_read
    return SearchResult([pairs[index] for index in sorted(pairs)], compared, (len(val), len(train)), unreadable)


def _rank(pair: DuplicatePair) -> tuple[bool, float]:
    return pair.kind != NEAR, pair.likeness


def _find_equal(val_digests: np.ndarray, train_digests: np.ndarray, kind: str) -> Iterator[tuple[int, DuplicatePair]]:
    """Yield the first training sample with the digest of each validation sample; a digest of 0 means none."""
    digests, first = np.unique(train_digests, return_index=True)
    if not len(digests):
        return
    places = np.searchsorted(digests, val_digests).clip(max=len(digests) - 1)
    for index in np.flatnonzero((val_digests != 0) & (digests[places] == val_digests)).tolist():
        yield index, DuplicatePair(index, int(first[places[index]]), kind)


def _find_near(
    val: Dataset,
    train: Dataset,
    val_prints: DatasetFingerprints,
    train_prints: DatasetFingerprints,
    equal_pairs: dict[int, DuplicatePair],
) -> Iterator[DuplicatePair]:
    """Yield pairs of images whose hashes are near and whose thumbnails are similar."""
    hashed = np.flatnonzero(val_prints.state == HASHED).tolist()
    queries = np.array([i for i in hashed if i not in equal_pairs], np.int64)
    others = np.flatnonzero(train_prints.state == HASHED)
    if not len(queries):  # scenes and volumes have no hashes: nothing is compiled for them
        return
    matches, _ = find_nearest(val_prints.hashes[queries], train_prints.hashes[others, 0])
    rows, columns = np.nonzero(matches >= 0)
    candidates = np.stack([queries[rows], others[matches[rows, columns]]], axis=1)  # (pairs, 2)
    for part in np.array_split(candidates, max(1, math.ceil(len(candidates) / _CHUNK))):
        sides = (val, part[:, 0], "comparing images of val"), (train, part[:, 1], "comparing images of train")
        val_thumbs, train_thumbs = (
            read_thumbnails(data, np.unique(indices).tolist(), label) for data, indices, label in sides
        )
        for index, other in part.tolist():
            if index in val_thumbs and other in train_thumbs:
                similarity = perceptual.compute_similarity(val_thumbs[index], train_thumbs[other])
                if similarity.is_copy:
                    is_same = similarity.details > 0.999 and _has_same_pixels(val, index, train, other)
                    yield (
                        DuplicatePair(index, other, SAME_CONTENT)
                        if is_same
                        else DuplicatePair(index, other, NEAR, sum(similarity) / 2)
                    )


def _has_same_pixels(val: Dataset, index: int, train: Dataset, other: int) -> bool:
    try:
        return np.array_equal(read_pixels(val, index), read_pixels(train, other))
    except UserError:
        return False


def write_leaks(file: Path, search: SearchResult, val: Any, train: Any) -> None:
    """Write the pairs with their names as JSON; raises a UserError if the file cannot be written."""
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
    content = {"pairs": rows, "compared": search.compared, "samples": search.totals, "unreadable": search.unreadable}
    with atomic_file(file) as out:
        out.write(format_json(content, indent=1).encode())


def read_leaks(file: Path) -> list[int]:
    """Read the indices of the validation samples in a file of ``write_leaks``."""
    return [row["sample"] for row in json.loads(file.read_text(encoding="utf-8"))["pairs"]]
