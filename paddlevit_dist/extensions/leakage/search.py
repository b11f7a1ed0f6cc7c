"""Find the samples of one dataset that are also in another."""

import collections
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...core.launch.devices import cpu_cores
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.json_format import format_json
from ...core.runtime.printing import one_line
from ...core.tasks.dataset import Dataset
from . import perceptual, registration
from .comparing import find_nearest
from .fingerprints import (
    HASHED,
    UNREADABLE,
    DatasetFingerprints,
    can_compare,
    compute_fingerprints,
    read_pixels,
    read_smaller,
)

FILE = "leaks.json"
SAME_FILE, SAME_CONTENT, NEAR, ALIKE = "same file", "same content", "near duplicate", "looks alike"
_CHUNK = 4096  # pairs whose thumbnails are in memory together
_MOST_PROOFS = 3  # training images with which a validation image is compared in detail, the most similar ones
_NEARLY_EQUAL = 0.999  # likeness from which all pixels are compared
_KIND_SHARE = 0.1  # of the validation images: if more look like training images, this is the kind of the images


class DuplicatePair(NamedTuple):
    """A validation sample and its copy in the training set."""

    val: int  # index of the validation sample
    train: int  # index of the training sample
    kind: str  # "same file", "same content" or "near duplicate"; "looks alike" if pixels do not prove it
    likeness: float = 1.0  # for near duplicates and those that look alike the mean of ``perceptual.ImageSimilarity``


class SearchResult(NamedTuple):
    """Result of a search."""

    pairs: list[DuplicatePair]  # at most one for each validation sample, sorted by its index
    compared: tuple[int, int]  # numbers of validation and of training samples that were compared
    totals: tuple[int, int]  # numbers of all validation and all training samples
    unreadable: int  # number of unreadable samples in both datasets
    alike: Sequence[DuplicatePair] = ()  # as ``pairs``, of other validation samples, for which copies are not proven

    @property
    def is_kind(self) -> bool:
        """Whether a tenth or more of the validation images look like training images."""
        return len(self.alike) >= max(2, _KIND_SHARE * self.compared[0])

    def suspicion(self, split: str, sample_name: str) -> str:
        """Format the number of samples that only look like training samples as one line; empty: there are none."""
        if not self.alike:
            return ""
        text = f"{len(self.alike):,} of {self.totals[0]:,} {sample_name} of {split} look like one of train"
        if self.is_kind:  # not one by one
            kind = "this kind of image, such as one object before a plain background, looks alike"
            return f"{text}, and pixels prove no copy: {kind}; they stay in every score"
        return f"{text}, but pixels do not prove a copy: compare them; they stay in every score"

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
        seconds: time limit for reading each dataset; only the samples read in this time are compared. The same time
            again is for proofs: the least similar ones of more pairs only look alike.

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
    for pair in _find_near(val, train, val_prints, train_prints, pairs, seconds):
        if pair.val not in pairs or _rank(pair) > _rank(pairs[pair.val]):
            pairs[pair.val] = pair
    unreadable = sum(int(np.count_nonzero(prints.state == UNREADABLE)) for prints in (val_prints, train_prints))
    compared = val_prints.num_read, train_prints.num_read
    found = [pairs[index] for index in sorted(pairs)]
    proven, alike = ([pair for pair in found if (pair.kind == ALIKE) is is_alike] for is_alike in (False, True))
    return SearchResult(proven, compared, (len(val), len(train)), unreadable, alike)


def _rank(pair: DuplicatePair) -> tuple[int, float]:
    return (ALIKE, NEAR, SAME_CONTENT, SAME_FILE).index(pair.kind), pair.likeness


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
    seconds: float,
) -> Iterator[DuplicatePair]:
    """Yield pairs of images whose hashes are near and whose thumbnails are similar, with what their pixels prove."""
    hashed = np.flatnonzero(val_prints.state == HASHED).tolist()
    queries = np.array([i for i in hashed if i not in equal_pairs], np.int64)
    others = np.flatnonzero(train_prints.state == HASHED)
    if not len(queries):  # scenes and volumes have no hashes: nothing is compiled for them
        return
    matches, _ = find_nearest(val_prints.hashes[queries], train_prints.hashes[others, 0])
    rows, columns = np.nonzero(matches >= 0)
    candidates = np.stack([queries[rows], others[matches[rows, columns]]], axis=1)  # (pairs, 2)
    alike = [pair for pair, is_copy in _compare_thumbnails(val, train, candidates) if is_copy]
    alike.sort(key=lambda pair: -pair.likeness)  # the most similar first, as long as there is time
    yield from _prove_copies(val, train, _choose_similar(alike), seconds)


def _choose_similar(alike: Iterable[DuplicatePair]) -> list[DuplicatePair]:
    """Choose each validation sample's pairs that come first."""
    counts = collections.Counter[int]()
    chosen = []
    for pair in alike:
        counts[pair.val] += 1
        if counts[pair.val] <= _MOST_PROOFS:
            chosen.append(pair)
    return chosen


def _compare_thumbnails(val: Dataset, train: Dataset, candidates: np.ndarray) -> Iterator[tuple[DuplicatePair, bool]]:
    """Yield the pairs of candidates (pairs, 2) and whether their thumbnails are as similar as copies."""
    for part in np.array_split(candidates, max(1, math.ceil(len(candidates) / _CHUNK))):
        thumbs, other_thumbs = _read_sides(perceptual.make_thumbnail, val, train, part, "comparing images")
        for index, other in part.tolist():
            if index in thumbs and other in other_thumbs:
                similarity = perceptual.compute_similarity(thumbs[index], other_thumbs[other])
                yield DuplicatePair(index, other, ALIKE, sum(similarity) / 2), similarity.is_copy


def _prove_copies(val: Dataset, train: Dataset, alike: list[DuplicatePair], seconds: float) -> Iterator[DuplicatePair]:
    """Yield the pairs, as near duplicates or as same content if pixels that are compared in this time prove it."""
    end = time.monotonic() + seconds

    def is_proven(pair: DuplicatePair) -> bool:
        pair_pictures = pictures[pair.val], others[pair.train]
        return time.monotonic() < end and registration.compare_registered(*pair_pictures).is_proof

    number = max(1, _CHUNK // 4)  # since the images are larger than thumbnails
    for start in range(0, len(alike), number):
        part = alike[start : start + number]
        indices = np.array([(pair.val, pair.train) for pair in part])
        pictures, others = _read_sides(registration.make_picture, val, train, indices, "comparing details")
        part = [pair for pair in part if pair.val in pictures and pair.train in others]
        with ThreadPoolExecutor(cpu_cores()) as pool:
            for pair, is_copy in zip(part, pool.map(is_proven, part)):
                if pair.likeness > _NEARLY_EQUAL and _has_same_pixels(val, train, pair):
                    yield pair._replace(kind=SAME_CONTENT, likeness=1.0)
                else:
                    yield pair._replace(kind=NEAR) if is_copy else pair


def _read_sides(
    shrink: Callable[[Image.Image], np.ndarray], val: Dataset, train: Dataset, pairs: np.ndarray, label: str
) -> list[dict[int, np.ndarray]]:
    """Read the images of pairs (pairs, 2), shrunk, by index: of val, and of train."""
    sides = (val, pairs[:, 0], f"{label} of val"), (train, pairs[:, 1], f"{label} of train")
    return [read_smaller(shrink, data, np.unique(indices).tolist(), text) for data, indices, text in sides]


def _has_same_pixels(val: Dataset, train: Dataset, pair: DuplicatePair) -> bool:
    try:
        return np.array_equal(read_pixels(val, pair.val), read_pixels(train, pair.train))
    except UserError:
        return False


def write_leaks(file: Path, search: SearchResult, val: Any, train: Any) -> None:
    """Write the pairs with their names as JSON; raises a UserError if the file cannot be written."""
    rows, alike = (
        [
            {
                "sample": pair.val,
                "val": one_line(val.describe(pair.val)),
                "train": one_line(train.describe(pair.train)),
                "kind": pair.kind,
                "likeness": round(pair.likeness, 4),
            }
            for pair in pairs
        ]
        for pairs in (search.pairs, search.alike)
    )
    counts = {"compared": search.compared, "samples": search.totals, "unreadable": search.unreadable}
    content = {"pairs": rows, "alike": alike, **counts}
    with atomic_file(file) as out:
        out.write(format_json(content, indent=1).encode())


def read_leaks(file: Path) -> list[int]:
    """Read the indices of the validation samples whose copies are proven in a file of ``write_leaks``."""
    return [row["sample"] for row in json.loads(file.read_text(encoding="utf-8"))["pairs"]]
