"""What a rank tells the others, and that it goes on looking."""

import contextlib
import io
import threading

import pytest

from paddlevit_dist.launch import group_watch


def test_the_watch_goes_on_while_a_long_join_has_stderr_elsewhere(monkeypatch):
    """A group of GPUs takes seconds to join, and what Paddle says meanwhile goes into a string."""
    has_looked = threading.Event()
    monkeypatch.setattr(group_watch.ProcessInfo, "read", lambda pid: has_looked.set() or group_watch._NO_PROCESS)
    watch = group_watch.GroupWatch(0, 1, {}, 60.0)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            assert has_looked.wait(600.0)
    finally:
        watch.stop()


def test_what_a_rank_notes_last_is_what_it_tells_last(monkeypatch):
    """Else rank 0 would take one that has finished and gone for one that has failed."""
    told, has_read, has_told = [], threading.Event(), threading.Event()

    class Peer:
        def send(self, **message):
            told.append(message["status"])

    def read_slowly() -> str:
        if threading.current_thread() is threading.main_thread():
            return "finished"
        has_read.set()
        has_told.wait(0.2)
        return "at work"

    watch = group_watch.GroupWatch(0, 1, {}, 60.0)
    watch.stop()
    watch._peers = {1: Peer()}
    monkeypatch.setattr(group_watch.status, "get_status", read_slowly)
    watching = threading.Thread(target=watch._log_status)
    watching.start()
    assert has_read.wait(600.0)
    watch._log_status()
    has_told.set()
    watching.join()
    assert told == ["at work", "finished"]


class OpenPeer:
    """A rank whose connection is open, and that is told things."""

    def __init__(self) -> None:
        self.told = []

    def send(self, **message) -> None:
        self.told.append(message)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_silent_on_an_open_connection_has_failed(monkeypatch, rank):
    """Such as one whose machine has lost its network or power."""
    watch, ended = group_watch.GroupWatch(rank, 3, {}, 60.0), []
    watch.stop()
    monkeypatch.setattr(watch, "_end", lambda message, code, broadcast=False: ended.append((message, code)))
    monkeypatch.setattr(group_watch.rendezvous, "endpoint", lambda: ("10.0.0.1", 7000))
    others = (1, 2) if rank == 0 else (0,)
    watch._peers = {other: OpenPeer() for other in others}
    now = watch._clock.now()
    watch._heard = dict.fromkeys(others, now)
    for seconds in (0.0, 49.0):  # of the 50 that are allowed here
        watch._judge(now + seconds)
    assert ended == []
    silent = others[-1]
    watch._heard = {other: now + (0.0 if other == silent else 55.0) for other in others}
    watch._judge(now + 55.0)
    message, code = ended[0]  # which ends the process
    assert message.startswith(f"rank {silent} failed: ") and code == 1
    assert rank == 0 or "no answer for 55 s" in message


def test_a_rank_whose_connection_has_just_ended_may_still_say_why(monkeypatch):
    watch, ended = group_watch.GroupWatch(0, 2, {}, 60.0), []
    watch.stop()
    monkeypatch.setattr(watch, "_end", lambda message, code, broadcast=False: ended.append(message))
    watch._peers, now = {1: OpenPeer()}, watch._clock.now()
    watch._heard, watch._gone = {1: now}, {1: now}
    watch._judge(now + group_watch._GRACE_SECONDS / 2)
    assert ended == []
    watch._judge(now + group_watch._GRACE_SECONDS * 2)
    assert len(ended) == 1 and ended[0].startswith("rank 1 failed: ")
