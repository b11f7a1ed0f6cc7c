"""Finds samples by the names that somebody else's results give them."""

import os
from collections.abc import Iterable, Sequence

from ..runtime.errors import UserError

_CASE = -1  # a depth: names of volumes, whose first channel nnU-Net calls CASE_0000.nii.gz


class SampleNames:
    """The samples of the truth by their names: as paths that end alike, or without the suffix of the file.

    How much of a name counts is decided by the first that is looked up: as many of the last folders as both know.

    Args:
        names: of the samples.
        source: what they are the samples of, for messages.
        kind: what one is.
    """

    def __init__(self, names: Sequence[str], source: str, kind: str = "image") -> None:
        self.names, self.source, self.kind = names, source, kind
        self._paths = [_plain(name) for name in names]
        self._depth: int | None = None
        self._rows: dict[str, int] = {}

    def row(self, name: str) -> int | None:
        """Which sample is called like this; None: none.

        Raises:
            UserError: several are, as far as names of results can tell.
        """
        if self._depth is None:
            self.settle([name])
        return self._rows.get(_end(_plain(name), self._depth or 0))

    def settle(self, called: Iterable[str]) -> bool:
        """Decide how much of a name counts: as much as one of these has in common with that of a sample; whether one
        has.

        Raises:
            UserError: several samples are called alike then.
        """
        paths = [_plain(name) for name in called]
        for depth in [*range(max((path.count("/") for path in paths), default=0) + 1, 0, -1), 0, _CASE]:
            rows = {_end(own, depth): row for row, own in enumerate(self._paths)}
            path = next((path for path in paths if _end(path, depth) in rows), None)
            if path is None:
                continue
            if len(rows) < len(self.names):
                last = set(rows.values())
                twice = next(own for row, own in enumerate(self.names) if row not in last)
                raise UserError(
                    f"{self.source}: several {self.kind}s are called {_end(_plain(twice), depth)}, as names like "
                    f"'{path}' go: results need more of the path, such as {twice}"
                )
            self._depth, self._rows = depth, rows
            return True
        return False


def _plain(name: str) -> str:
    return os.path.normpath(name.strip().replace("\\", "/")) if name.strip() else ""


def _end(path: str, depth: int) -> str:
    """The last ``depth`` parts of a path; 0: its last part without the suffix; ``_CASE``: and without a channel's."""
    if depth > 0:
        return "/".join(path.split("/")[-depth:])
    stem = os.path.splitext(path.rpartition("/")[2].removesuffix(".gz"))[0]
    return stem.removesuffix("_0000") if depth == _CASE else stem
