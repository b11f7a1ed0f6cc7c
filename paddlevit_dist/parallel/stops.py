"""How ranks stop, or save, at the same update when one of them is asked to.

A worker passes a request on to its parent, which passes it on to all workers of its machine (``launch``). Ranks that
something else has started, perhaps on several machines, tell one another through the group's store.
"""

from __future__ import annotations

import time

from .. import signals
from . import world
from .agreement import Agreement
from .collectives import all_gather, network_of_group

_SECONDS_BETWEEN_LOOKS = 1.0  # at the store: 0.1 ms each


class LeftEarly(Exception):
    """A wait for data, or an evaluation, was given up because the run is to stop."""


class _Group:
    """What this process has told the other ranks, and heard of them."""

    said_stop = False
    heard_stop = False
    saves_heard = 0
    looked_at = 0.0


_group = _Group()


def wanted() -> bool:
    """Whether this run is to stop, as far as this rank knows; costs nothing. For the main thread alone."""
    _exchange()
    return _group.heard_stop or signals.asked() is not None


def reason() -> str:
    """What asked the run to stop."""
    return signals.asked() or "another rank was"


def leave_together(leaves: bool) -> bool:
    """Whether any rank leaves. Every rank must call this."""
    return any(all_gather(leaves))


def _exchange() -> None:
    """Tell ranks that another process started, and hear what they were asked, at most once a second."""
    if world.world_size() == 1 or signals.has_parent():
        return
    network = network_of_group()
    if signals.asked() is not None and not _group.said_stop:
        _group.said_stop = True
        network.ask(stop=True)
    if signals.save_is_asked() and not world.is_main():
        signals.forget_save()
        network.ask(stop=False)
    now = time.monotonic()
    if now - _group.looked_at < _SECONDS_BETWEEN_LOOKS:
        return
    _group.looked_at = now
    stops, saves = network.asked()
    _group.heard_stop = stops > 0
    if world.is_main() and saves > _group.saves_heard:
        _group.saves_heard = saves
        signals.ask_for_save()


class Stops:
    """When all ranks of a training stop, or save because they are told to. Every rank has one, and calls its methods
    at each update.

    Args:
        agreement: that of the training's saves; an announced stop is a save as well.
    """

    def __init__(self, agreement: Agreement) -> None:
        self._agreement = agreement

    def look(self, update: int) -> None:
        """Before the update that follows ``update``: on the main process, announce what this run was asked to do."""
        stops = wanted()
        if not world.is_main():
            return
        if stops:
            self._agreement.announce(update, stop=True)
        elif signals.save_is_asked() and self._agreement.announce(update):
            signals.forget_save()

    def are_at(self, update: int) -> bool:
        """Whether all ranks stop after ``update``. To be called after the checkpointer's ``is_due``."""
        return self._agreement.stops_at(update) or (world.world_size() == 1 and wanted())
