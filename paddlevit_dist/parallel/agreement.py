"""How ranks do something at the same update without meeting: the main process names the update in advance."""

from __future__ import annotations

from typing import Optional

from . import world
from .collectives import Board, notice_board

AHEAD = 2  # updates: a host has seen the end of all but its last one, so every rank looks in time


class Agreement:
    """An update that the main process announces and every rank comes to. Every rank must make one at the same time.

    The number lies in memory that the ranks of one machine share, or in the group's store; a look at it takes about 2
    microseconds, or 0.1 ms and the way through the network. No rank waits for another.

    Args:
        board: where the number lies; None for what suits the group.
    """

    def __init__(self, board: Optional[Board] = None) -> None:
        self._update = -AHEAD
        self._board = board or notice_board()
        self._show()  # not that of a training before

    def announce(self, update: int) -> None:
        """At the end of ``update``, on the main process: let all ranks agree on the one after the next. Nothing happens
        where some rank may not yet have looked at the announcement before."""
        if self._update + AHEAD <= update:
            self._update = update + AHEAD
            self._show()

    def is_at(self, update: int) -> bool:
        """Whether ``update`` is the one. Every rank must call this at the end of each update."""
        if self._board is not None and not world.is_main():
            self._update = self._board.posted()
        return self._update == update

    def _show(self) -> None:
        if self._board is not None and world.is_main():
            self._board.post(self._update)
