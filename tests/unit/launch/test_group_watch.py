"""What a rank tells the others, and that it goes on looking."""

import contextlib
import io
import math
import socket
import threading

import pytest

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.launch import group_watch
from paddlevit_dist.launch.status import RankStatus


def test_the_watch_goes_on_while_a_long_join_has_stderr_elsewhere(monkeypatch):
    """A group of GPUs takes seconds to join, and what Paddle says meanwhile goes into a string."""
    has_looked = threading.Event()
    monkeypatch.setattr(group_watch.ProcessInfo, "read", lambda pid: has_looked.set() or group_watch._NO_PROCESS)
    watch = group_watch.GroupWatch(0, 1, {}, 60.0)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            assert has_looked.wait(60.0)
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
    assert has_read.wait(60.0)
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


class Waits:
    """An event that notes for how long it was awaited."""

    def __init__(self, is_set: bool = False) -> None:
        self.seconds, self._is_set = [], is_set

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return self._is_set

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True


@pytest.fixture
def build(monkeypatch):
    """Return a function that builds the watch of a rank whose thread has ended, and notes how it ends the process."""
    monkeypatch.setattr(group_watch.status, "_notes", group_watch.status._StatusNotes())
    monkeypatch.setattr(group_watch.ProcessInfo, "read", lambda pid: group_watch._NO_PROCESS)
    ended = []

    def build_one(rank: int, size: int, seconds: float = 60.0) -> tuple[group_watch.GroupWatch, list]:
        with monkeypatch.context() as patch:  # a thread that looks would only end after a while
            patch.setattr(group_watch.GroupWatch, "_run_watch", lambda watch: None)
            watch = group_watch.GroupWatch(rank, size, {}, seconds)
            watch.stop()
        assert watch._stopped.is_set() and not watch._thread.is_alive() and watch._thread.daemon
        watch._stopped, watch._stderr = Waits(), io.StringIO()
        watch._peers = {other: OpenPeer() for other in ((0,) if rank else range(1, size))}
        watch._heard = dict.fromkeys(watch._peers, watch._clock.now())
        monkeypatch.setattr(
            watch, "_end", lambda message, code, broadcast=False: ended.append((message, code, broadcast))
        )
        return watch, ended

    return build_one


@pytest.mark.parametrize(
    "seconds, poll, silence, step", [(4.0, 0.4, 3.0, 2.0), (8.0, 0.8, 6.0, 3.2), (60.0, 1.0, 50.0, 4.0)]
)
def test_times_follow_from_the_limit(build, seconds, poll, silence, step):
    watch, _ = build(0, 1, seconds)
    assert (watch._poll, watch._silence, watch._clock._longest_step) == pytest.approx((poll, silence, step))


@pytest.mark.parametrize("seconds, guarded", [(10.0, 15.0), (25.0, 30.0), (100.0, 120.0)])
@pytest.mark.parametrize("fails", [False, True])
def test_a_rank_joins_and_works_watched_by_others_and_guarded(monkeypatch, seconds, guarded, fails):
    events, peers = [], {0: OpenPeer()}
    monkeypatch.setattr(group_watch.status, "_notes", group_watch.status._StatusNotes())

    def note(*what) -> None:
        events.append((*what, *group_watch.status.get_status()[2:]))

    class Helper:
        signal_alive = "signal"

        def __init__(self, *words) -> None:
            note("guard", *words)

        def close(self) -> None:
            note("close")

    @contextlib.contextmanager
    def enter(*words):
        note("enter", *words)
        yield

    def work() -> None:
        note("work")
        if fails:
            raise ZeroDivisionError

    monkeypatch.setattr(group_watch, "Guard", Helper)
    monkeypatch.setattr(group_watch, "GroupWatch", enter)
    monkeypatch.setattr(group_watch.rendezvous, "get_rank_and_size", lambda: (1, 3))
    monkeypatch.setattr(group_watch.rendezvous, "broadcast_startup_failure", enter)
    monkeypatch.setattr(group_watch.rendezvous, "meet", lambda *words: note("meet", *words) or peers)
    monkeypatch.setattr(group_watch.secret, "get_run_secret", lambda: note("secret"))
    with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
        group_watch.run(lambda: note("join"), work, seconds)
    start, joining, at_work = (False, "starting"), (False, "joining the group"), (False, "at work")
    assert events == [
        ("enter", seconds, *start),
        ("secret", *start),
        ("guard", 1, guarded, *joining),
        ("meet", 1, 3, seconds, *joining),
        ("enter", 1, 3, peers, seconds, "signal", *joining),
        ("join", True, "joining the group"),
        ("work", *at_work),
        ("close", *at_work),
    ]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "error, told, waited",
    [
        (None, "finished", math.inf),
        (Stopped("SIGTERM", "epoch 2"), "finished", 10.0),
        (UserError("no file"), ("no file", 2), None),
        (ValueError("shapes"), ("rank {rank} failed: ValueError: shapes", 1), None),
        (RuntimeError("gloo broke"), ("rank {rank} failed: RuntimeError: gloo broke", 1), None),
        (KeyboardInterrupt(), None, None),
    ],
)
def test_the_last_message_of_a_rank_is_how_it_ends(build, monkeypatch, rank, error, told, waited):
    watch, _ = build(rank, 3)
    waits = []
    monkeypatch.setattr(watch, "_wait_for_others", waits.append)
    watch.__exit__(type(error), error, None)
    messages = next(iter(watch._peers.values())).told
    if told == "finished":
        (message,) = messages
        assert list(message) == ["status"] and message["status"].text == "finished"
    elif told is not None:
        assert messages == [{"end": told[0].format(rank=rank), "code": told[1], "guilty": rank}]
    else:
        assert messages == []
    assert waits == ([waited] if waited and not rank else []) and watch._stopped.is_set()
    is_echo = isinstance(error, RuntimeError)
    assert (watch._stopped.seconds, watch._has_lost_a_peer) == ([60.0] if is_echo else [], is_echo)


def test_rank_0_waits_until_all_others_have_finished_but_not_for_ever(build, monkeypatch):
    watch, _ = build(0, 3)
    clock, waits = [5.0], []
    monkeypatch.setattr(group_watch.time, "monotonic", lambda: clock[0])

    def sleep(seconds: float) -> None:
        waits.append((seconds, group_watch.status.get_status().waits))
        clock[0] += 0.5
        if len(waits) < 3:
            watch._hear(len(waits), {"status": (5, 77, False, "finished")})

    monkeypatch.setattr(group_watch.time, "sleep", sleep)
    watch._wait_for_others(math.inf)
    assert waits == [(0.02, True)] * 2
    del watch._states[1]
    watch._wait_for_others(1.5)
    assert len(waits) == 5 and not group_watch.status.get_status().waits


@pytest.mark.parametrize("rank, guilty", [(0, 1), (0, 0), (1, 0), (1, 1)])
@pytest.mark.parametrize("is_stopped", [False, True])
def test_an_end_is_forwarded_by_rank_0_and_ends_all_but_the_guilty(build, rank, guilty, is_stopped):
    watch, ended = build(rank, 3)
    watch._stopped = Waits(is_stopped)
    watch._heard = {}
    watch._hear(2, {"end": "no disk", "code": 7, "guilty": guilty})
    told = {"end": "no disk", "code": 7, "guilty": guilty}
    assert [peer.told for peer in watch._peers.values()] == (
        [[told]] * 2 if (rank, guilty) == (0, 1) else [[]] * len(watch._peers)
    )
    assert watch._stopped.seconds == ([3.0] if guilty != rank else [])
    assert ended == ([("no disk", 7, False)] if guilty != rank and not is_stopped else [])
    assert list(watch._heard) == [2] and watch._states == {}


@pytest.mark.parametrize("broadcast", [True, False])
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_process_ends_with_one_line_and_tells_the_others(build, monkeypatch, broadcast, is_stopped):
    watch, _ = build(1, 3)
    monkeypatch.undo()
    codes, watch._stopped = [], Waits(is_stopped)
    monkeypatch.setattr(group_watch.os, "_exit", codes.append)
    watch._end("rank 2 failed:\nno disk", 7, **({"broadcast": True} if broadcast else {}))
    lines = "" if is_stopped else "error: rank 2 failed:\\nno disk\n"
    assert (codes, watch._stderr.getvalue()) == ([] if is_stopped else [7], lines)
    told = {"end": "rank 2 failed:\nno disk", "code": 7, "guilty": 1}
    assert watch._peers[0].told == ([told] if broadcast and not is_stopped else [])


def test_after_a_lost_connection_the_silent_rank_is_found_sooner(build):
    watch, ended = build(0, 3)
    watch._has_lost_a_peer, now = True, watch._clock.now()
    watch._heard = {1: now, 2: now + 1.0}
    watch._gone = {1: now - 1.0}
    watch._judge(now + 7.9)  # 8 polls of a second; a connection that ended is no answer
    assert [end[0].split(":")[0] for end in ended] == ["rank 1 failed"] and ended[0][1:] == (1, True)
    watch._gone, watch._states = {}, {}
    ended.clear()
    watch._judge(now + 7.9)
    assert ended == []
    watch._judge(now + 8.1)
    assert len(ended) == 1
    watch._states = {1: watch._states[1]._replace(status=RankStatus(1, 5, False, "finished")), 2: watch._states[2]}
    watch._judge(now + 8.5)
    assert len(ended) == 1


def test_rank_0_ends_the_run_if_a_rank_hangs_that_answers(build):
    watch, ended = build(0, 3)
    now = watch._clock.now()
    watch._clock.now = lambda: now
    for rank in (1, 2):
        watch._hear(rank, {"status": (5, 77, rank == 1, f"in step {rank}")})
    for seconds in (0.0, 63.9, 64.1):  # 4 polls of a second later than the rank itself would
        watch._heard = dict.fromkeys((1, 2), now + seconds)
        group_watch.status.note("at work")
        watch._judge(now + seconds)
        assert len(ended) == (seconds > 64.0)
    assert ended == [("rank 2 failed: no progress for 64 s (WATCHDOG_SECONDS) in step 2", 1, True)]


def test_a_rank_whose_rank_0_is_gone_says_where_and_what_it_did(build, monkeypatch):
    monkeypatch.setattr(group_watch.rendezvous, "endpoint", lambda: ("10.0.0.1", 7000))
    watch, ended = build(2, 3)
    group_watch.status.note("in epoch 3")
    watch._gone = {0: 1000.0}
    watch._judge(1003.0)
    assert ended == []
    watch._judge(1003.1)
    line = (
        "rank 0 failed: its process or its machine has ended or hangs (its store at 10.0.0.1:7000: the connection has "
        "ended); rank 2 was in epoch 3"
    )
    assert ended[0] == (line, 1, False)


@pytest.mark.parametrize("waits, is_late", [(False, True), (True, True), (False, False)])
def test_a_rank_that_makes_no_progress_ends_itself_unless_it_waits(build, monkeypatch, waits, is_late):
    watch, ended = build(1, 3, 10.0)
    begun, alive, calls = watch._clock.now(), [], []
    group_watch.status.note("in step 3")
    times = iter([begun, begun + (10.5 if is_late else 9.5)])
    watch._clock.now = lambda: next(times)
    watch._signal_alive = lambda: alive.append(1)
    monkeypatch.setattr(watch, "_listen", lambda: group_watch.status._note_waiting(waits) if not calls else None)

    def judge(now: float) -> None:
        calls.append(now)
        if len(calls) == 2:
            watch._stopped.set()

    monkeypatch.setattr(watch, "_judge", judge)
    monkeypatch.setattr(group_watch.watchdog, "format_stacks", lambda: "the stacks")
    watch._run_watch()
    assert len(alive) == len(calls) == len(watch._peers[0].told) == 2 and calls[1] > calls[0]
    is_ended = is_late and not waits
    line = "rank 1 failed: no progress for 10 s (WATCHDOG_SECONDS) in step 3; its process is gone"
    assert ended == ([(line, 1, True)] if is_ended else [])
    assert watch._stderr.getvalue() == ("the stacks\n" if is_ended else "")


def test_messages_are_heard_until_a_connection_ends(build, monkeypatch):
    watch, _ = build(0, 3, 0.5)
    pairs = {rank: socket.socketpair() for rank in (1, 2)}
    watch._peers = {rank: group_watch.rendezvous.RankConnection(ours) for rank, (ours, _) in pairs.items()}
    heard = []
    monkeypatch.setattr(watch, "_hear", lambda rank, message: heard.append((rank, message)))
    with contextlib.ExitStack() as opened:
        for pair in pairs.values():
            for each in pair:
                opened.enter_context(each)
        pairs[2][1].sendall(b'{"status": 1}\n{"status": 2}\n')
        pairs[1][1].close()
        watch._listen()
        assert heard == [(2, {"status": 1}), (2, {"status": 2})] and list(watch._gone) == [1]
        watch._stopped.set()
        pairs[2][1].close()
        watch._listen()
    assert list(watch._gone) == [1]


def test_no_connection_is_waited_for_longer_than_a_poll(monkeypatch):
    monkeypatch.setattr(group_watch.GroupWatch, "_run_watch", lambda watch: None)
    first, second = socket.socketpair()
    with first, second:
        peers = {rank: group_watch.rendezvous.RankConnection(each) for rank, each in ((1, first), (2, second))}
        watch = group_watch.GroupWatch(0, 3, peers, 4.0)
        watch.stop()
        assert first.gettimeout() == second.gettimeout() == watch._poll == 0.4 and watch._heard.keys() == {1, 2}
