"""What a rank tells the others, and that it goes on looking."""

import contextlib
import io
import socket
import threading
from types import SimpleNamespace

import pytest

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.core.launch import group_watch, status
from paddlevit_dist.core.launch.group_watch import GroupStates, GroupWatch
from paddlevit_dist.core.launch.rendezvous import RankConnection


def test_the_watch_goes_on_while_a_long_join_has_stderr_elsewhere():
    """A group of GPUs takes seconds to join, and what Paddle says meanwhile goes into a string."""
    looks, has_looked_twice = [], threading.Event()

    def look() -> None:
        looks.append(1)
        if len(looks) == 2:
            has_looked_twice.set()

    with contextlib.redirect_stderr(io.StringIO()), GroupWatch(0, {}, 0.5, look):
        assert has_looked_twice.wait(60.0)


class OpenPeer:
    """A rank whose connection is open, and that is told things."""

    def __init__(self) -> None:
        self.told, self.socket = [], SimpleNamespace(settimeout=lambda seconds: None)

    def send(self, **message) -> None:
        self.told.append(message)


def test_what_a_rank_notes_last_is_what_it_tells_last(monkeypatch):
    """Else rank 0 would take one that has finished and gone for one that has failed."""
    has_read, may_end, read, reads = threading.Event(), threading.Event(), status.get_status, []

    def read_slowly() -> status.RankStatus:
        found = read()
        if threading.current_thread() is not threading.main_thread():
            reads.append(found)
        if len(reads) == 2 and not has_read.is_set():  # the first is of its own progress
            has_read.set()
            may_end.wait(0.2)
        return found

    status.note("at work")
    peer = OpenPeer()
    watch = GroupWatch(1, {0: peer}, 60.0)
    monkeypatch.setattr(status, "get_status", read_slowly)
    watching = threading.Thread(target=watch.judge)
    watching.start()
    assert has_read.wait(60.0)
    watch.tell_end(None)
    may_end.set()
    watching.join()
    assert [message["status"].text for message in peer.told] == ["at work", "finished"]


# What the ranks know of one another


@pytest.fixture
def at_master(monkeypatch, fresh_status):
    """Rank 0 is at 10.0.0.1:7000; this process has noted nothing."""
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "7000")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("seconds, silence", [(4.0, 3.0), (8.0, 6.0), (60.0, 50.0)])
def test_a_rank_that_is_silent_on_an_open_connection_has_failed(at_master, rank, seconds, silence):
    """Such as one whose machine has lost its network or power."""
    others = (1, 2) if rank == 0 else (0,)
    states = GroupStates(rank, others, seconds, 100.0)
    for now in (100.0, 100.0 + silence - 0.1):
        assert states.judge(now) is None
    for other in others[:-1]:
        states.hear(other, {}, 100.0 + silence)
    failure = states.judge(100.0 + silence + 0.1)
    assert failure.rank == others[-1] and failure.is_lost and states.connected() == list(others)
    what = "no answer" if rank else "no message"
    assert f"{what} for {silence:.0f} s (WATCHDOG_SECONDS)" in str(failure)


def test_a_rank_whose_connection_has_just_ended_may_still_say_why():
    states = GroupStates(0, (1,), 60.0, 100.0)
    states.lose(1, 101.0)
    assert states.judge(104.0) is None and states.connected() == []
    line = str(states.judge(104.1))
    assert line.startswith("rank 1 failed: no message for 4 s (its connection has ended)")  # no key says 4 s


def test_after_a_lost_connection_the_silent_rank_is_found_sooner():
    states = GroupStates(0, (1, 2), 60.0, 100.0)
    states.has_lost_a_peer = True
    states.hear(2, {}, 101.0)
    assert states.judge(107.9) is None  # 8 polls of a second
    line = str(states.judge(108.1))
    assert line.startswith("rank 1 failed: no message for 8 s (an exchange with it has failed)")
    states.hear(1, {"status": (1, 5, False, "finished")}, 100.0)
    assert states.judge(108.5) is None and states.has_finished(1) and not states.has_finished(2)
    states.lose(2, 105.0)  # a connection that ended is no answer
    assert states.judge(108.5).rank == 2


def test_rank_0_ends_the_run_if_a_rank_hangs_that_answers(fresh_status):
    states, lines = GroupStates(0, (1, 2), 60.0, 100.0), []
    for now in (100.0, 163.9, 164.1):  # 4 polls of a second later than the rank itself would
        for rank in (1, 2):
            states.hear(rank, {"status": (5, 77, rank == 1, f"in step {rank}")}, now)
        status.note("at work")
        lines.append(states.judge(now))
    assert list(map(str, lines)) == ["None", "None", "rank 2 failed: no progress for 64 s (WATCHDOG_SECONDS) in step 2"]


def test_a_rank_whose_rank_0_is_gone_says_where_and_what_it_did(at_master):
    status.note("in epoch 3")
    states = GroupStates(2, (0,), 60.0, 1000.0)
    states.lose(0, 1000.0)
    assert states.judge(1003.0) is None
    assert str(states.judge(1003.1)) == (
        "rank 0 failed: its process or its machine has ended or hangs (its store at 10.0.0.1:7000: the connection has "
        "ended); rank 2 was in epoch 3"
    )


# What a rank does


@pytest.fixture
def build(at_master, simulated_time, exit_codes, capsys):
    """Return a function that builds the watch of a rank without its thread, and one that reads how it ended."""

    def build_one(rank: int, size: int, seconds: float = 60.0) -> tuple[GroupWatch, dict[int, OpenPeer]]:
        peers = {other: OpenPeer() for other in ((0,) if rank else range(1, size))}
        return GroupWatch(rank, peers, seconds), peers

    def read_end() -> tuple[list[int], str]:
        return exit_codes, capsys.readouterr().err

    return build_one, read_end


@pytest.mark.parametrize("seconds, jumps, silent_for", [(4.0, 2, 4), (8.0, 2, 6), (60.0, 13, 52)])
def test_a_suspended_process_counts_a_few_seconds_of_its_absence(build, simulated_time, seconds, jumps, silent_for):
    build_one, read_end = build
    watch, _ = build_one(1, 2, seconds)
    for jump in range(jumps):
        assert read_end() == ([], "")
        status.note(f"in step {jump}")
        simulated_time.now += 100.0
        watch.judge()
    codes, line = read_end()
    assert codes == [1] and f"no answer for {silent_for} s" in line


@pytest.mark.parametrize("seconds, guarded", [(10.0, 15.0), (25.0, 30.0), (100.0, 120.0)])
@pytest.mark.parametrize("fails", [False, True])
def test_a_rank_joins_and_works_watched_by_others_and_guarded(monkeypatch, fresh_status, seconds, guarded, fails):
    events, peers = [], {0: OpenPeer()}

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
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", "3")
    monkeypatch.setattr(group_watch.rendezvous, "broadcast_startup_failure", enter)
    monkeypatch.setattr(group_watch.rendezvous, "meet", lambda *words: note("meet", *words) or peers)
    monkeypatch.setattr(group_watch.secret, "get_run_secret", lambda: note("secret"))
    with pytest.raises(ZeroDivisionError) if fails else contextlib.nullcontext():
        group_watch.run(lambda: note("join"), work, seconds, print)
    start, joining, at_work = (False, "starting"), (False, "joining the group"), (False, "at work")
    assert events == [
        ("enter", seconds, *start),
        ("secret", *start),
        ("guard", 1, guarded, *joining),
        ("meet", 1, 3, seconds, *joining),
        ("enter", 1, peers, seconds, "signal", print, *joining),
        ("join", True, "joining the group"),
        ("work", *at_work),
        ("close", *at_work),
    ]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "error, told, waited",
    [
        (None, "finished", 40.0),
        (Stopped("SIGTERM", "epoch 2"), "finished", 10.0),
        (UserError("no file"), ("no file", 2), 0.0),
        (ValueError("shapes"), ("rank {rank} failed: ValueError: shapes", 1), 0.0),
        (RuntimeError("gloo broke"), ("rank {rank} failed: RuntimeError: gloo broke", 1), 60.0),
        (KeyboardInterrupt(), None, 0.0),
    ],
)
def test_the_last_message_of_a_rank_is_how_it_ends(build, simulated_time, rank, error, told, waited):
    watch, peers = build[0](rank, 3)
    has_waited = []

    def meanwhile(number: int) -> None:
        has_waited.append(status.get_status().waits)
        if number in (1000, 2000):  # after 20 and 40 s
            watch.hear(number // 1000, {"status": (5, 77, False, "finished")})

    simulated_time.meanwhile = meanwhile
    watch.tell_end(error)
    messages = next(iter(peers.values())).told
    if told == "finished":
        (message,) = messages
        assert list(message) == ["status"] and message["status"].text == "finished"
    elif told is not None:
        assert messages == [{"end": told[0].format(rank=rank), "code": told[1], "guilty": rank, "lost": False}]
    else:
        assert messages == []
    if told == "finished" and rank:
        waited = 0.0
    assert sum(simulated_time.waits) == pytest.approx(waited, abs=0.021)
    assert all(has_waited) and not status.get_status().waits
    if told == "finished":
        assert set(simulated_time.waits) <= {0.02}


def test_after_an_error_of_a_collective_the_silent_rank_is_found_sooner(build, simulated_time):
    build_one, read_end = build
    watch, _ = build_one(0, 3)
    watch.tell_end(RuntimeError("gloo broke"))
    ends = []
    for _ in range(5):
        watch.hear(2, {})
        watch.judge()
        simulated_time.now += 1.5
        ends.append(len(read_end()[0]))
    assert ends == [0, 0, 0, 1, 2]  # silent for 4, and three times 1.5 s


@pytest.mark.parametrize("rank, guilty", [(0, 1), (0, 0), (1, 0), (1, 1)])
def test_an_end_is_forwarded_by_rank_0_and_ends_all_but_the_guilty(build, simulated_time, rank, guilty):
    build_one, read_end = build
    watch, peers = build_one(rank, 3)
    told = {"end": "no disk", "code": 7, "guilty": guilty, "lost": False}
    watch.hear(2, told)
    assert [peer.told for peer in peers.values()] == ([[told]] * 2 if (rank, guilty) == (0, 1) else [[]] * len(peers))
    assert simulated_time.waits == ([3.0] if guilty != rank else [])
    assert read_end() == (([7], "error: no disk\n") if guilty != rank else ([], ""))


def test_a_rank_whose_main_thread_has_ended_is_not_ended_by_another(exit_codes, simulated_time, capsys):
    with GroupWatch(1, {}, 0.5) as watch:
        for _ in range(2_000_000):  # the watching thread gets its turn: it must not pass the simulated time
            pass
    watch.hear(0, {"end": "no disk", "code": 7, "guilty": 0})
    for _ in range(3):  # without progress
        watch.judge()
        simulated_time.now += 1.0
    lines = capsys.readouterr().err.splitlines()  # stacks, whose code may write errors
    assert exit_codes == [] and not [line for line in lines if line.startswith("error: ")]


@pytest.mark.parametrize("waits, is_late", [(False, True), (True, True), (False, False)])
def test_a_rank_that_makes_no_progress_ends_itself_unless_it_waits(build, simulated_time, waits, is_late):
    build_one, read_end = build
    watch, peers = build_one(1, 3, 10.0)
    status.note("in step 3")
    status.set_detail("", may_wait=waits)
    for _ in range(8):
        watch.hear(0, {})
        watch.judge()
        simulated_time.now += 1.5 if is_late else 1.2
    (codes, printed), messages = read_end(), peers[0].told
    if waits or not is_late:
        assert (codes, printed) == ([], "")
        assert [list(message) for message in messages] == [["status"]] * 8 and messages[0]["status"].text == "in step 3"
    else:
        assert codes == [1]
        stacks, line = printed.split("\nerror: ")
        assert "in test_a_rank_that_makes_no_progress_ends_itself_unless_it_waits" in stacks
        assert line.startswith("rank 1 failed: no progress for 10 s (WATCHDOG_SECONDS) in step 3; its process is R")
        assert {"end": line.strip(), "code": 1, "guilty": 1, "lost": True} in messages


def test_rank_0_tells_the_others_whom_it_has_found(build, simulated_time):
    build_one, read_end = build
    watch, peers = build_one(0, 2, 8.0)
    kept = io.TextIOWrapper(io.BytesIO())  # which an end without exit handlers would lose
    with contextlib.redirect_stdout(kept):
        print("epoch 3")
        for seconds in (3.0, 3.1):
            simulated_time.now += seconds
            watch.judge()
    codes, line = read_end()
    assert codes == [1] and line.startswith("error: rank 1 failed: no message for 6 s")
    assert kept.buffer.getvalue() == b"epoch 3\n"
    assert peers[1].told[-1] == {"end": line[len("error: ") : -1], "code": 1, "guilty": 0, "lost": True}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    "message, lost",
    [("rank 2 failed: ValueError: shapes", False), ("rank 2 failed: no progress for 9 s", True), ("no disk", False)],
)
def test_rank_0_records_why_another_rank_ends_it(at_master, simulated_time, exit_codes, message, lost, rank):
    noted = []
    watch = GroupWatch(rank, {2: OpenPeer()}, 60.0, note_end=noted.append)
    watch.hear(2, {"end": message, "code": 1, "guilty": 2, "lost": lost})
    whole = message if message.startswith("rank 2") else f"rank 2 failed: {message}"
    assert [(str(error), error.is_lost) for error in noted] == ([] if rank else [(whole, lost)])
    assert exit_codes == [1]


def test_messages_are_heard_until_a_connection_ends(exit_codes):
    pairs = {rank: socket.socketpair() for rank in (1, 2)}
    with contextlib.ExitStack() as opened:
        for pair in pairs.values():
            for each in pair:
                opened.enter_context(each)
        watch = GroupWatch(0, {rank: RankConnection(ours) for rank, (ours, _) in pairs.items()}, 0.5)
        assert {ours.gettimeout() for ours, _ in pairs.values()} == {0.05}  # no longer than a poll
        for number in (1, 2):
            pairs[2][1].sendall(b'{"end": "no disk", "code": %d, "guilty": 0}\n' % number)
        pairs[2][1].sendall(b'{"status": [5, 77, false, "finished"]}\n')
        pairs[1][1].sendall(b'{"status": [5, 77, false, "finished"]}\n')
        pairs[1][1].close()
        watch.listen()
        watch.listen()
        waiting = threading.Thread(target=watch.tell_end, args=(None,), daemon=True)  # ends: both have finished
        waiting.start()
        waiting.join(60.0)
        assert not waiting.is_alive() and pairs[2][1].recv(1 << 16).endswith(b'"finished"]}\n') and exit_codes == []
