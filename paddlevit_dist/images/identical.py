"""Pictures of the validation set that are also in the training set, byte by byte: what is learned by heart scores."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from .opening import Opened, digest_of, in_threads

SECONDS = 10.0


class Identical(NamedTuple):
    """Which pictures are in both sets.

    Attributes:
        pictures: of "val", indices, that have an identical one in "train".
        example: a pair of indices, of "val" and of "train".
        compared: pictures of "train" that were compared.
    """

    pictures: List[int]
    example: Optional[Tuple[int, int]]
    compared: int


def find_identical(train: Any, opened_train: Opened, opened_val: Opened, seconds: float = SECONDS) -> Identical:
    """Compare the opened pictures of "val" with those of "train", by size first, as many as the time allows.

    Args:
        train: offers ``num_bytes(index)`` and ``encoded(index)``.
        opened_train: of it; these are not read again.
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
    """The line about ``found``, if there is something to tell: identical pictures, or that not all were compared."""
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
