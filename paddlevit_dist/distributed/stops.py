"""How ranks stop, or save, at the same update when one of them is asked to, without synchronizing: the main process
announces the update in advance.

A worker passes a request on to its parent, which passes it on to all workers of its machine (``launch``). Ranks that
something else has started, perhaps on several machines, tell one another through the group's store.
"""

import time

import paddle

from ..runtime import signals
from . import world
from .collectives import all_gather, network_of_group

_SECONDS_BETWEEN_LOOKS = 1.0  # at the store: 0.1 ms each


class StopRequested(Exception):
    """A wait for data, or an evaluation, was given up because the run is to stop."""


class _GroupState:
    """Memory of what this process has told the other ranks, and heard of them."""

    said_stop = False
    heard_stop = False
    saves_heard = 0
    looked_at = 0.0


_group = _GroupState()


def stop_requested() -> bool:
    """Whether this run is to stop, as far as this rank knows; costs nothing. For the main thread alone."""
    _exchange()
    return _group.heard_stop or signals.stop_reason() is not None


def reason() -> str:
    """Say what asked the run to stop."""
    return signals.stop_reason() or "another rank was"


def any_rank_stopping(leaves: bool) -> bool:
    """Whether any rank leaves. Every rank must call this."""
    return any(all_gather(leaves))


def _exchange() -> None:
    """Tell ranks that another process started, and hear what they were asked, at most once a second."""
    if world.world_size() == 1 or signals.has_parent():
        return
    network = network_of_group()
    if signals.stop_reason() is not None and not _group.said_stop:
        _group.said_stop = True
        network.ask(stop=True)
    if signals.save_requested() and not world.is_main():
        signals.clear_save_request()
        network.ask(stop=False)
    now = time.monotonic()
    if now - _group.looked_at < _SECONDS_BETWEEN_LOOKS:
        return
    _group.looked_at = now
    stops, saves = network.asked()
    _group.heard_stop = stops > 0
    if world.is_main() and saves > _group.saves_heard:
        _group.saves_heard = saves
        signals.request_save()


class SyncPoint:
    """An update that the main process announces and every rank reaches: all save after it, and stop if that was said.
    Every rank must create one at the same time.

    The number is kept in the group's store; reading it takes about 0.1 ms plus the network's latency. No rank waits for
    another.

    It is announced one update ahead on CPUs, where no rank ends an update before the main process has begun it; two on
    devices that compute while the host goes on, which has then seen all but its last one end.
    """

    def __init__(self) -> None:
        self._ahead = 1 if paddle.get_device() == "cpu" else 2
        self._update, self._is_stop = -self._ahead, False
        self._board = network_of_group() if world.world_size() > 1 else None
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

    def reached(self, update: int) -> bool:
        """Whether ``update`` is the announced one. Every rank must call this at the end of each update."""
        if self._board is not None and not world.is_main():
            self._update, is_stop = divmod(self._board.posted(), 2)
            self._is_stop = bool(is_stop)
        return self._update == update

    def poll(self, update: int) -> None:
        """Before the update that follows ``update``: on the main process, announce what this run was asked to do."""
        stops = stop_requested()
        if not world.is_main():
            return
        if stops:
            self.announce(update, stop=True)
        elif signals.save_requested() and self.announce(update):
            signals.clear_save_request()

    def should_stop(self, update: int) -> bool:
        """Whether all ranks stop after ``update``; as seen by the last ``reached``."""
        return (self._update == update and self._is_stop) or (world.world_size() == 1 and stop_requested())

    def _show(self) -> None:
        if self._board is not None and world.is_main():
            self._board.post(2 * self._update + self._is_stop)
