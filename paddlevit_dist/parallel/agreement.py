"""How ranks act at the same update without synchronising: the main process announces the update in advance."""

from __future__ import annotations

from typing import Optional

import paddle

from . import world
from .collectives import Board, notice_board


class Agreement:
    """An update that the main process announces and every rank reaches. Every rank must create one at the same time.

    The number is kept in memory shared by the ranks of one machine, or in the group's store; reading it takes about 2
    microseconds, or 0.1 ms plus the network's latency. No rank waits for another.

    Args:
        board: where the number is kept; None picks what suits the group.
        ahead: how many updates in advance. None: 1 on CPUs, where no rank ends an update before the main process has
            begun it; 2 on devices that compute while the host goes on, which has then seen all but its last one end.
    """

    def __init__(self, board: Optional[Board] = None, ahead: Optional[int] = None) -> None:
        self._ahead = (1 if paddle.get_device() == "cpu" else 2) if ahead is None else ahead
        self._update, self._is_stop = -self._ahead, False
        self._board = board or notice_board()
        self._show()  # not that of an earlier training

    def announce(self, update: int, stop: bool = False) -> bool:
        """At the end of ``update`` or before the next begins, on the main process: make all ranks agree on one to come.

        Args:
            stop: it is to be the last one.
        Returns:
            False if nothing was announced, as some rank may not have seen the previous announcement yet.
        """
        if self._update + self._ahead > update:
            return False
        self._update, self._is_stop = update + self._ahead, stop
        self._show()
        return True

    def is_at(self, update: int) -> bool:
        """Whether ``update`` is the announced one. Every rank must call this at the end of each update."""
        if self._board is not None and not world.is_main():
            self._update, is_stop = divmod(self._board.posted(), 2)
            self._is_stop = bool(is_stop)
        return self._update == update

    def stops_at(self, update: int) -> bool:
        """The same, if it is to be the last one; as seen by the last ``is_at``."""
        return self._update == update and self._is_stop

    def _show(self) -> None:
        if self._board is not None and world.is_main():
            self._board.post(2 * self._update + self._is_stop)
