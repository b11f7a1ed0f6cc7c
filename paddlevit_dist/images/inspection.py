"""What is looked at before a run starts: files left out, pictures that cannot be read, classes without pictures."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

import numpy as np

from ..errors import UserError
from .datasets.left_out import LeftOut, printable
from .identical import find_identical, tell_identical
from .opening import Opened, findings, open_split, refuse_bad


class _Split(NamedTuple):
    dataset: Any
    opened: Opened


class Inspection:
    """Looks at one split after the other, in the process that builds them.

    Args:
        is_evaluation: the run evaluates only: what is left out would make it a result on another set.
        replaces_bad: a training takes the next picture for an unreadable one.
    """

    def __init__(self, is_evaluation: bool, replaces_bad: bool) -> None:
        self.is_evaluation = is_evaluation
        self.replaces_bad = replaces_bad
        self._splits: Dict[str, _Split] = {}

    def look(self, dataset: Any, split: str, num_classes: int) -> List[str]:
        """Lines about ``split`` ("train" or "val") for the log.

        Raises:
            UserError: a picture cannot be read, or an evaluation would leave pictures out.
        """
        lines = self._left_out(getattr(dataset, "left_out", None))
        lines += classes_without_pictures(dataset, split, num_classes)
        if hasattr(dataset, "reading"):  # of picture files; others were checked as a whole when they were opened
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

    def _left_out(self, left_out: Optional[LeftOut]) -> List[str]:
        if left_out is None:
            return []
        if self.is_evaluation and left_out.num_pictures:
            raise UserError(
                f"{left_out.summary()}; an evaluation without them would be one of another set: make them readable "
                f"here or move them away, as {left_out.example}"
            )
        return left_out.lines()


def classes_without_pictures(dataset: Any, split: str, num_classes: int) -> List[str]:
    """A line if the data set has classes of which ``split`` shows none."""
    labels = getattr(dataset, "labels", None)
    if labels is None:
        return []
    missing = np.setdiff1d(np.arange(num_classes), np.unique(np.asarray(labels)))
    if not len(missing):
        return []
    names = dataset.class_names
    shown = ", ".join(names[label] if names else str(label) for label in missing[:3].tolist())
    more = ", …" if len(missing) > 3 else ""
    return [f"{split} has no pictures of {len(missing):,} of {num_classes:,} classes: {shown}{more}"]
