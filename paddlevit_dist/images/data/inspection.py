"""Checks before a run starts: files left out, images that cannot be read, classes without images."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from ...errors import UserError
from .left_out import LeftOut, printable
from .opening import Opened, digest_of, findings, in_threads, open_split, refuse_bad

SECONDS = 10.0


class Identical(NamedTuple):
    """Images that are in both sets.

    Attributes:
        pictures: of "val", indices, that have an identical one in "train".
        example: a pair of indices, into "val" and "train".
        compared: images of "train" that were compared.
    """

    pictures: List[int]
    example: Optional[Tuple[int, int]]
    compared: int


def find_identical(train: Any, opened_train: Opened, opened_val: Opened, seconds: float = SECONDS) -> Identical:
    """Compare the opened images of "val" with those of "train", by size first, as many as time allows.

    Args:
        train: dataset with ``num_bytes(index)`` and ``encoded(index)``.
        opened_train: its opened images; these are not read again.
    """
    wanted: Dict[bytes, List[int]] = {}
    for look in opened_val.looks:
        if not look.error:
            wanted.setdefault(look.digest, []).append(look.index)
    sizes = {look.num_bytes for look in opened_val.looks if not look.error}
    partner: Dict[bytes, int] = {}
    for look in opened_train.looks:
        if not look.error and look.digest in wanted:
            partner[look.digest] = min(look.index, partner.get(look.digest, look.index))
    seen = {look.index for look in opened_train.looks}
    progress = Counter({"compared": len(seen)})
    end = time.monotonic() + seconds

    def candidates() -> Iterator[int]:
        for index in np.random.default_rng(0).permutation(len(train)).tolist() if len(seen) < len(train) else ():
            if time.monotonic() > end:
                return
            if index not in seen:
                if train.num_bytes(index) in sizes:
                    yield index
                progress["compared"] += 1

    for index, digest in in_threads(_digest, train, candidates(), "comparing train and val", None, seconds):
        if digest in wanted:
            partner[digest] = min(index, partner.get(digest, index))
    pairs = sorted((index, partner[digest]) for digest in partner for index in wanted[digest])
    return Identical([index for index, _ in pairs], pairs[0] if pairs else None, progress["compared"])


def tell_identical(found: Identical, train: Any, val: Any, opened_val: Opened) -> List[str]:
    """The line about ``found``, if there is anything to report: identical images, or that not all were compared."""
    whole = len(opened_val.looks) == opened_val.total and found.compared == len(train)
    scope = "" if whole else f" (compared: {opened_val.amount} with {found.compared:,} of {len(train):,})"
    if found.example:
        number = len(found.pictures)
        are = "pictures of val are" if number > 1 else "picture of val is"
        pair = f"{val.describe(found.example[0])} and {train.describe(found.example[1])}"
        return [f"{number:,} {are} identical to pictures of train, as {pair}{scope}"]
    return [] if whole else [f"no picture of val found identical to one of train{scope}"]


def _digest(train: Any, index: int) -> Tuple[int, bytes]:
    try:
        return index, digest_of(train.encoded(index))
    except OSError:
        return index, b""


class _Split(NamedTuple):
    dataset: Any
    opened: Opened


class Inspection:
    """Inspects the splits one by one, in the process that builds them.

    Args:
        is_evaluation: whether the run only evaluates.
        replaces_bad: whether training replaces an unreadable image with the next one.
        allows_left_out: whether a split may be evaluated without images that cannot be opened here, which makes it a
            score of a different set.
    """

    def __init__(self, is_evaluation: bool, replaces_bad: bool, allows_left_out: bool = False) -> None:
        self.is_evaluation = is_evaluation
        self.replaces_bad = replaces_bad
        self.allows_left_out = allows_left_out
        self._splits: Dict[str, _Split] = {}

    def look(self, dataset: Any, split: str, num_classes: int) -> List[str]:
        """Lines about ``split`` ("train" or "val") for the log.

        Raises:
            UserError: an image cannot be read, or the split would be evaluated without some.
        """
        lines = self._left_out(dataset.left_out, is_evaluated=self.is_evaluation or split != "train")
        lines += classes_without_pictures(dataset, split, num_classes)
        if dataset.reading is not None:  # image files; other datasets were checked in full when they were opened
            opened = open_split(dataset, split)
            refuse_bad(opened, self.replaces_bad and split == "train")
            lines += findings(opened, dataset)
            self._splits[split] = _Split(dataset, opened)
        if len(self._splits) == 2:
            train, val = self._splits["train"], self._splits["val"]
            found = find_identical(train.dataset, train.opened, val.opened)
            lines += tell_identical(found, train.dataset, val.dataset, val.opened)
            self._splits = {}
        return [printable(line) for line in lines]

    def _left_out(self, left_out: Optional[LeftOut], is_evaluated: bool) -> List[str]:
        if left_out is None:
            return []
        if is_evaluated and left_out.num_pictures and not self.allows_left_out:
            raise UserError(
                f"{left_out.summary()}; an evaluation without them would be of another set: make them readable "
                f"here or move them away, as {left_out.example}, or add DATA.ALLOW_LEFT_OUT True"
            )
        return left_out.lines()


def classes_without_pictures(dataset: Any, split: str, num_classes: int) -> List[str]:
    """A line if the dataset has classes without any image in ``split``."""
    labels = dataset.labels
    if labels is None:
        return []
    missing = np.setdiff1d(np.arange(num_classes), np.unique(np.asarray(labels)))
    if not len(missing):
        return []
    names = dataset.class_names
    shown = ", ".join(names[label] if names else str(label) for label in missing[:3].tolist())
    more = ", …" if len(missing) > 3 else ""
    return [f"{split} has no pictures of {len(missing):,} of {num_classes:,} classes: {shown}{more}"]
