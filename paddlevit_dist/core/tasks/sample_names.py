"""Matches samples with the names that other programs' results give them."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..runtime.errors import UserError
from ..runtime.spelling import compose


class _ComparedEnd(NamedTuple):
    """How much of a path counts."""

    parts: int  # the last ones, at least the file's name
    ending: str  # what is removed from the name


_NOTHING, _SUFFIX = "nothing", "suffix"
_CHANNEL = "channel"  # also _0000 of case names of volumes: the first channel is CASE_0000.nii.gz in nnU-Net


class SampleNames:
    """The samples of a dataset by name; names match as paths with equal ends, or without the file's suffix.

    The first name that is looked up decides how much of a path counts: as many of the last folders as both sides have.
    ``source`` is the dataset for messages, ``kind`` a singular noun for a sample.
    """

    def __init__(self, names: Sequence[str], source: str, kind: str = "image") -> None:
        self.names, self.source, self.kind = names, source, kind
        self._paths = [_plain(name) for name in names]
        self._depth: _ComparedEnd | None = None
        self._rows: dict[str, int] = {}

    def find_row(self, name: str) -> int | None:
        """Return the index of the sample with this name, or None; raises UserError if several samples match."""
        if self._depth is None:
            self.choose_depth([name])
        return None if self._depth is None else self._rows.get(_end(_plain(name), self._depth))

    def choose_depth(self, result_names: Iterable[str]) -> bool:
        """Choose how many folders of a path count, so that a name in the results matches a sample; False: none does.

        Raises:
            UserError: several samples then have the same name.
        """
        paths = [_plain(name) for name in result_names]
        parts = range(max((candidate.count("/") for candidate in paths), default=0) + 1, 0, -1)
        depths = [_ComparedEnd(number, ending) for ending in (_NOTHING, _SUFFIX) for number in parts]
        for depth in [*depths, _ComparedEnd(1, _CHANNEL)]:
            rows = {_end(sample_path, depth): row for row, sample_path in enumerate(self._paths)}
            path = next((candidate for candidate in paths if _end(candidate, depth) in rows), None)
            if path is None:
                continue
            if len(rows) < len(self.names):
                last = set(rows.values())
                duplicate = next(name for row, name in enumerate(self.names) if row not in last)
                raise UserError(
                    f"{self.source}: several {self.kind}s are called {_end(_plain(duplicate), depth)} if names are "
                    f"compared as in '{path}': results need more of the path, such as {duplicate}"
                )
            self._depth, self._rows = depth, rows
            return True
        return False


def _plain(name: str) -> str:
    return os.path.normpath(compose(name.strip()).replace("\\", "/")) if name.strip() else ""


def _end(path: str, depth: _ComparedEnd) -> str:
    """Return what counts of a path."""
    end = "/".join(path.split("/")[-depth.parts :])
    if depth.ending == _NOTHING:
        return end
    stem = os.path.splitext(end.removesuffix(".gz"))[0]
    return stem.removesuffix("_0000") if depth.ending == _CHANNEL else stem
