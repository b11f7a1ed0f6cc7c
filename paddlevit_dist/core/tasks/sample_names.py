"""Matches samples with the names that other programs' results give them."""

import os
from collections.abc import Iterable, Sequence

from ..runtime.errors import UserError
from ..runtime.spelling import compose

_CASE = -1  # a depth: case names of volumes, whose first channel is CASE_0000.nii.gz in nnU-Net


class SampleNames:
    """The samples of a dataset by name; names match as paths with equal ends, or without the file's suffix.

    The first name that is looked up decides how much of a path counts: as many of the last folders as both sides have.
    ``source`` is the dataset for messages, ``kind`` a singular noun for a sample.
    """

    def __init__(self, names: Sequence[str], source: str, kind: str = "image") -> None:
        self.names, self.source, self.kind = names, source, kind
        self._paths = [_plain(name) for name in names]
        self._depth: int | None = None
        self._rows: dict[str, int] = {}

    def find_row(self, name: str) -> int | None:
        """Return the index of the sample with this name, or None; raises UserError if several samples match."""
        if self._depth is None:
            self.choose_depth([name])
        return self._rows.get(_end(_plain(name), self._depth or 0))

    def choose_depth(self, result_names: Iterable[str]) -> bool:
        """Choose how many folders of a path count, so that a name in the results matches a sample; False: none does.

        Raises:
            UserError: several samples then have the same name.
        """
        paths = [_plain(name) for name in result_names]
        for depth in [*range(max((candidate.count("/") for candidate in paths), default=0) + 1, 0, -1), 0, _CASE]:
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


def _end(path: str, depth: int) -> str:
    """Return the last ``depth`` parts of a path; 0: the file name without suffix; ``_CASE``: also without a channel."""
    if depth > 0:
        return "/".join(path.split("/")[-depth:])
    stem = os.path.splitext(path.rpartition("/")[2].removesuffix(".gz"))[0]
    return stem.removesuffix("_0000") if depth == _CASE else stem
