"""What a rank tells the others, and that it goes on looking."""

import contextlib
import io
import threading

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
