"""How ranks act at the same update without synchronising: the main process announces the update in advance."""

from __future__ import annotations

from typing import Optional

from . import world
from .collectives import Board, notice_board

AHEAD = 2  # updates: a host has seen all but its last one finish, so every rank looks in time


class Agreement:
    """An update that the main process announces and every rank reaches. Every rank must create one at the same time.

    The number is kept in memory shared by the ranks of one machine, or in the group's store; reading it takes about 2
    microseconds, or 0.1 ms plus the network's latency. No rank waits for another.

    Args:
        board: where the number is kept; None picks what suits the group.
    """

    def __init__(self, board: Optional[Board] = None) -> None:
        self._update = -AHEAD
        self._board = board or notice_board()
        self._show()  # not that of an earlier training

    def announce(self, update: int) -> None:
        """At the end of ``update``, on the main process: make all ranks agree on the one after the next. Does nothing
        while some rank may not have seen the previous announcement yet."""
        if self._update + AHEAD <= update:
            self._update = update + AHEAD
            self._show()

    def is_at(self, update: int) -> bool:
        """Whether ``update`` is the announced one. Every rank must call this at the end of each update."""
        if self._board is not None and not world.is_main():
            self._update = self._board.posted()
        return self._update == update

    def _show(self) -> None:
        if self._board is not None and world.is_main():
            self._board.post(self._update)
