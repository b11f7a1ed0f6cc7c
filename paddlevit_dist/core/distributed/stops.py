"""Makes all ranks stop, or save, after the same step without synchronizing: rank 0 announces the step in advance.

A worker forwards a request to its parent process, which forwards it to all workers of its machine (``launch``). Ranks
without such a parent, perhaps on several machines, notify each other through the group's store.
"""

import time

from ..launch import status
from ..runtime import device_kinds, signals
from . import world
from .collectives import all_gather, get_channel

_POLL_SECONDS = 1.0  # between reads of the store, which take 0.1 ms each


class StopRequested(Exception):
    """A wait for data, or an evaluation, ended early because the run is asked to stop."""


class _GroupState:
    """Requests to stop or save that this process has exchanged with the other ranks through the store.

    ``saves_received`` is a number, ``polled_at`` the ``time.monotonic()`` of the last read.
    """

    has_sent_stop = False
    has_received_stop = False
    saves_received = 0
    polled_at = 0.0


_group = _GroupState()


def stop_requested() -> bool:
    """Return whether this rank knows of a request to stop. Call it in the main thread only; it is cheap."""
    _exchange()
    return _group.has_received_stop or signals.stop_reason() is not None


def reason() -> str:
    """Return the reason why the run was asked to stop, for a message."""
    return signals.stop_reason() or "another rank was"


def any_rank_stopping(leaves: bool) -> bool:
    """Return whether ``leaves`` is true on any rank. Every rank must call this."""
    return any(all_gather(leaves))


def _exchange() -> None:
    """Exchange requests with ranks that another process started, at most once a second."""
    if world.world_size() == 1 or signals.has_parent():
        return
    channel = get_channel()
    if signals.stop_reason() is not None and not _group.has_sent_stop:
        _group.has_sent_stop = True
        channel.send_request(stop=True)
    if signals.save_requested() and not world.is_main():
        signals.clear_save_request()
        channel.send_request(stop=False)
    now = time.monotonic()
    if now - _group.polled_at < _POLL_SECONDS:
        return
    _group.polled_at = now
    stops, saves = channel.count_requests()
    _group.has_received_stop = stops > 0
    if world.is_main() and saves > _group.saves_received:
        _group.saves_received = saves
        signals.request_save()


class SyncPoint:
    """A step, announced by rank 0, after which all ranks save a checkpoint and optionally stop.

    Every rank must create one at the same time. The number of the step is in memory that the ranks share, if one parent
    has started all of them, else in the group's store; reading it takes about 0.1 ms plus the network's latency. No
    rank waits for another. The step is announced one step ahead on CPUs, where no rank completes a step before rank 0
    has begun it, and two ahead on devices that compute asynchronously: then, rank 0 has seen all steps but the last one
    complete.
    """

    def __init__(self) -> None:
        self._ahead = 1 if device_kinds.current().name == device_kinds.CPU else 2
        self._update, self._is_stop = -self._ahead, False
        self._board = (status.shared_number() or get_channel()) if world.world_size() > 1 else None
        self._publish()  # replaces the number of an earlier training run

    def announce(self, update: int, stop: bool = False) -> bool:
        """Announce a coming step, and whether the run stops after it; rank 0 calls it after ``update`` steps.

        Returns False if nothing was announced, because some rank may not have seen the previous announcement yet.
        """
        if self._update + self._ahead > update:
            return False
        self._update, self._is_stop = update + self._ahead, stop
        self._publish()
        return True

    def reached(self, update: int) -> bool:
        """Return whether ``update`` is the announced step. Every rank must call this after each step."""
        if self._board is not None and not world.is_main():
            self._update, is_stop = divmod(self._board.posted(), 2)
            self._is_stop = bool(is_stop)
        return self._update == update

    def poll(self, update: int) -> None:
        """Check for requests before the step after ``update``; on rank 0, announce them."""
        stops = stop_requested()
        if not world.is_main():
            return
        if stops:
            self.announce(update, stop=True)
        elif signals.save_requested() and self.announce(update):
            signals.clear_save_request()

    def should_stop(self, update: int) -> bool:
        """Return whether all ranks stop after ``update``, as of the last call of ``reached``."""
        return (self._update == update and self._is_stop) or (world.world_size() == 1 and stop_requested())

    def _publish(self) -> None:
        if self._board is not None and world.is_main():
            self._board.post(2 * self._update + self._is_stop)
