"""Which rank blocks the others, by notes and by what the kernel knows of its process."""

import faulthandler
import os
import signal
import threading
from types import SimpleNamespace

import pytest

from paddlevit_dist.core.launch import failures, status, watchdog
from paddlevit_dist.core.launch.status import AT_END, NOT_STARTED, RankStatus
from paddlevit_dist.core.launch.watchdog import (
    MonotonicClock,
    ProcessInfo,
    RankState,
    describe,
    find_stalled_rank,
    update_state,
)

RUNNING = ProcessInfo("S (sleeping)", "futex_wait", 1000, 50)
STOPPED = RUNNING._replace(state="T (stopped)")


def make_state(since: float, waits: bool = False, stopped: bool = False, heard: bool = True, text: str = "in step 3"):
    return RankState(RankStatus(5, 77, waits, text), since, 1000, 50, stopped, heard)


# Progress


def observe(before: RankState | None = None, now: float = 9.0, **latest) -> RankState:
    note = {"moves": 5, "process": 77, "waits": False, "text": "in step 3"}
    process = RUNNING._replace(**{name: latest.pop(name) for name in ("bytes_moved", "ticks") if name in latest})
    return update_state(before, RankStatus(**{**note, **latest}), process, now)


BEFORE = make_state(2.0)


@pytest.mark.parametrize(
    ("latest", "moved"),
    [
        ({}, False),
        ({"moves": 6}, True),
        ({"waits": True}, True),
        ({"bytes_moved": 1000 + (1 << 20)}, False),
        ({"bytes_moved": 1001 + (1 << 20)}, True),
        ({"ticks": 51}, False),
        ({"text": NOT_STARTED, "ticks": 51}, True),
        ({"text": AT_END, "ticks": 51}, True),
        ({"text": AT_END}, False),
    ],
)
def test_a_note_and_many_bytes_are_progress_and_computing_only_at_both_ends(latest, moved):
    after = observe(BEFORE, **latest)
    assert after.since == (9.0 if moved else 2.0) and after.is_heard and not after.is_stopped
    assert after.bytes_moved == (latest.get("bytes_moved", 1000) if moved else 1000)
    assert after.ticks == (latest.get("ticks", 50) if moved else 50)
    assert after.status.text == latest.get("text", "in step 3")


@pytest.mark.parametrize("latest", [{"bytes_moved": 9 << 20}, {"text": AT_END, "ticks": 99}])
def test_a_rank_that_waits_for_others_makes_no_progress_by_that(latest):
    assert observe(make_state(2.0, waits=True), waits=True, **latest).since == 2.0


def test_the_first_observation_begins_and_a_stopped_process_is_noted():
    assert observe() == RankState(RankStatus(5, 77, False, "in step 3"), 9.0, 1000, 50, False, True)
    for before in (None, BEFORE):
        assert update_state(before, BEFORE.status, STOPPED, 9.0).is_stopped


# Blame


@pytest.mark.parametrize(
    ("states", "rank"),
    [
        ([make_state(5), make_state(0.1)], None),
        ([make_state(0), make_state(1)], None),
        ([make_state(5), make_state(-1), make_state(-2)], 2),
        ([make_state(-9, waits=True), make_state(-1), make_state(5)], 1),
        ([make_state(-9), make_state(-1, stopped=True), make_state(5)], 1),
        ([make_state(-9), make_state(5), make_state(-1, heard=False)], 2),
        ([make_state(-9), make_state(5, stopped=True)], 0),
        ([make_state(-1, waits=True), make_state(-3, waits=True), make_state(-2, waits=True)], 1),
        ([make_state(-1, waits=True), make_state(-3, waits=True), make_state(5, waits=True)], None),
    ],
)
def test_the_stopped_rank_is_blamed_first_then_one_that_works_then_all_that_wait(states, rank):
    assert find_stalled_rank(dict(enumerate(states)), 10.0, 10.0) == rank


@pytest.mark.parametrize(
    ("states", "process", "line"),
    [
        ([make_state(2)], "S in x", "no progress for 8 s (WATCHDOG_SECONDS) in step 3; its process is S in x"),
        ([make_state(2)], "", "no progress for 8 s (WATCHDOG_SECONDS) in step 3"),
        (
            [make_state(2, heard=False), make_state(1)],
            "",
            "no message for 8 s (WATCHDOG_SECONDS): its process or its machine hangs or has ended; last in step 3",
        ),
        (
            [make_state(2, waits=True, text="at a barrier"), make_state(1, text="in a gather")],
            "",
            "every rank has waited for the others for 8 s (WATCHDOG_SECONDS): rank 0 at a barrier, rank 1 in a gather",
        ),
        ([make_state(2, waits=True)], "", "no progress for 8 s (WATCHDOG_SECONDS) in step 3"),
        (
            [make_state(2, True, True), make_state(1)],
            "T",
            "no progress for 8 s (WATCHDOG_SECONDS) in step 3; its process is T",
        ),
    ],
)
def test_the_line_says_where_it_hangs(states, process, line):
    assert describe(0, dict(enumerate(states)), 10.0, process) == line
    assert "(MINE)" in describe(0, dict(enumerate(states)), 10.0, process, "MINE")


def test_what_the_kernel_knows_of_a_process(tmp_path):
    this = ProcessInfo.read(os.getpid())
    assert this.state.startswith("R") and not this.is_stopped and this.ticks > 0
    (tmp_path / "some").write_bytes(bytes(3 << 20))
    later = ProcessInfo.read(os.getpid())
    assert 3 << 20 <= later.bytes_moved - this.bytes_moved < 4 << 20
    assert ProcessInfo.read(2**22 + 1) == ProcessInfo("", "", 0, 0)
    assert str(RUNNING) == "S (sleeping) in futex_wait" and str(RUNNING._replace(waits_in="")) == "S (sleeping)"
    assert str(ProcessInfo("", "", 0, 0)) == "gone" and STOPPED.is_stopped
    assert str(STOPPED) == "T (stopped): it has received SIGSTOP, SIGTSTP or a similar signal"


def test_stacks_leave_out_those_that_watch():
    begun, ended = threading.Barrier(3, timeout=60), threading.Event()

    def _watch():
        begun.wait()
        ended.wait(60)

    def work():
        begun.wait()
        ended.wait(60)

    threads = [threading.Thread(target=target) for target in (_watch, work)]
    try:
        for thread in threads:
            thread.start()
        begun.wait()  # a thread that has started may not have come to its function
        stacks = watchdog.format_stacks()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert " in work\n" in stacks and " in _watch" not in stacks and "test_stacks_leave_out" in stacks
    assert stacks.endswith("\n") and not stacks.endswith("\n\n")


def test_the_clock_stands_still_while_this_process_does(simulated_time):
    clock, begun = MonotonicClock(2.0), simulated_time.now
    found = []
    for seconds in (1.0, 39.0, 1.5):
        simulated_time.now += seconds
        found.append(clock.now() - begun)
    assert found == [1.0, 3.0, 4.5]


# The parent's watchdog


@pytest.fixture
def build(monkeypatch, simulated_time, tmp_path):
    """Return a function that builds the watchdog of three ranks, their notes, and the processes that run."""
    monkeypatch.setattr(ProcessInfo, "read", classmethod(lambda cls, process: STOPPED if process == 12 else RUNNING))
    monkeypatch.setattr(watchdog.Watchdog, "get_stacks", lambda self, rank: f"stack of {rank}")
    notes = {0: (1, True, "in a gather"), 1: (1, False, "in a loop"), 2: (1, True, "at a barrier")}
    monkeypatch.setattr(status, "read", lambda pages, rank: RankStatus(notes[rank][0], 10 + rank, *notes[rank][1:]))

    def build_one(seconds, pids=(10, 11, 13)):
        processes = [SimpleNamespace(pid=pid) for pid in pids]
        dog = watchdog.Watchdog(None, processes, seconds, tmp_path)
        return dog, dict(enumerate(processes)), simulated_time, notes

    return build_one


def pass_time(dog, running, time, seconds: float) -> dict | None:
    end = None
    for _ in range(int(seconds)):
        time.now += 1.0
        end = end or dog.poll(running)
    return end


def test_a_rank_without_progress_is_recorded_with_its_stack(build):
    dog, running, time, notes = build(10.0)
    assert pass_time(dog, running, time, 11) is None
    notes[1] = (2, False, "in a loop")
    assert pass_time(dog, running, time, 11) is None
    end = pass_time(dog, running, time, 2)
    assert (end["kind"], end["rank"], end["traceback"]) == (failures.STANDSTILL, 1, "stack of 1")
    assert end["message"].startswith("no progress for 11 s (WATCHDOG_SECONDS) in a loop; its process is S (sleeping)")


def test_a_stopped_rank_is_not_asked_for_its_stack(build):
    dog, running, time, _ = build(10.0, (10, 11, 12))
    end = pass_time(dog, running, time, 13)
    assert (end["rank"], end["traceback"]) == (2, "") and "T (stopped)" in end["message"]


def test_without_a_limit_nothing_is_watched_and_ranks_that_ended_are_not(build):
    dog, running, time, _ = build(None)
    assert pass_time(dog, running, time, 99) is None
    dog, running, time, _ = build(10.0)
    del running[1]
    end = pass_time(dog, running, time, 13)
    assert end["rank"] == 0 and end["message"].startswith("every rank has waited for the others for ")


def test_failures_that_only_miss_a_peer_get_the_rank_that_hangs(build):
    dog, running, time, _ = build(1000.0)
    lost, other = [{"kind": failures.EXCEPTION, "message": "gloo broke"}] * 2, {"kind": failures.USER_ERROR}
    assert dog.explain(lost, running) == lost
    pass_time(dog, running, time, 20)
    assert dog.explain(lost, running) == lost
    time.now += 1.0
    assert dog.explain([], running) == [] and dog.explain(lost, {}) == lost
    assert dog.explain([*lost, other], running) == [*lost, other]
    *first, end = dog.explain(lost, running)
    assert first == lost and end["rank"] == 1 and "(a collective gives up after 30 s)" in end["message"]


@pytest.mark.parametrize(("seconds", "reads"), [(100.0, 11), (2.0, 41)])
def test_ranks_are_looked_at_ten_times_in_the_limit_but_once_a_second_at_least(build, monkeypatch, seconds, reads):
    dog, running, time, _ = build(seconds)
    looks, read = [], status.read
    monkeypatch.setattr(status, "read", lambda pages, rank: looks.append(rank) or read(pages, rank))
    for _ in range(41):
        dog.poll(running)
        time.now += 0.25
    assert len(looks) == 3 * reads


def test_fields_of_proc_are_read_where_they_are(tmp_path):
    texts = {
        "stat": "5 (a) b) S 4 5 6 7 8 9 10 11 12 13 140 1500",
        "status": "Name:\tx\nState:S (sleeping)\nStateful:\tno\n",
        "wchan": "futex_wait_0\n",
        "io": "rchar: 100\nwchar: 20\nread_bytes: 3\n",
    }
    (tmp_path / "5").mkdir()
    for name, text in texts.items():
        (tmp_path / "5" / name).write_text(text)
    assert ProcessInfo.read(5, tmp_path) == ProcessInfo("S (sleeping)", "futex_wait_", 120, 1640)
    (tmp_path / "5" / "stat").write_text(texts["stat"].rpartition(" ")[0])
    assert ProcessInfo.read(5, tmp_path).ticks == 0


def test_ranks_that_wait_for_one_another_are_listed_in_order():
    states = {2: make_state(2, True, text="c"), 0: make_state(3, True, text="a"), 1: make_state(3, True, text="b")}
    assert describe(2, states, 10.0, "").endswith(" for 8 s (WATCHDOG_SECONDS): rank 0 a, rank 1 b, rank 2 c")


@pytest.mark.parametrize("seconds, step", [(4.0, 2.0), (8.0, 3.2), (90.0, 4.0)])
def test_a_parent_that_was_suspended_counts_a_few_seconds_of_it(build, seconds, step):
    dog, running, time, _ = build(seconds)
    polls = 1
    assert dog.poll(running) is None
    while (end := dog.poll(running)) is None:
        time.now += 100.0
        polls += 1
    assert polls == 2 + int(seconds / step) and end["rank"] == 1


def test_stacks_are_written_into_a_private_file_on_request(tmp_path):
    watchdog.dump_stacks_on_request(tmp_path, 3)
    try:
        for number in (1, 2):
            signal.raise_signal(signal.SIGUSR2)
            text = (tmp_path / "stack_3.txt").read_text()
            assert text.count("Current thread") == text.count("test_stacks_are_written_into") == number
    finally:
        faulthandler.unregister(signal.SIGUSR2)
    assert (tmp_path / "stack_3.txt").stat().st_mode & 0o777 == 0o600


STACK = b'Thread 1:\n  File "a.py", line 1 in work\n'
WATCHING = b'Thread 2:\n  File "b.py", line 2 in wait\n  File "b.py", line 3 in _run_watch\n'


@pytest.mark.parametrize(
    "contents, waits, stacks",
    [
        ([b"", b"Th", STACK, STACK, b"more"], 4, STACK.decode()),
        ([STACK + b"\n" + WATCHING] * 2, 2, STACK.decode()),
        ([WATCHING] * 2, 2, ""),
        ([bytes([65 + number % 2]) for number in range(90)], 60, "B\n"),  # 3 s
        ([b""] * 90, 60, ""),
    ],
)
def test_the_stacks_of_a_rank_are_read_once_they_are_complete(tmp_path, kills, simulated_time, contents, waits, stacks):
    dog = watchdog.Watchdog(None, [SimpleNamespace(pid=41), SimpleNamespace(pid=42)], 10.0, tmp_path)
    assert dog.get_stacks(1) == ""
    (tmp_path / "stack_1.txt").touch()

    def write(number: int) -> None:
        (tmp_path / "stack_1.txt").write_bytes(contents[number - 1])

    simulated_time.meanwhile = write
    assert dog.get_stacks(1) == stacks
    assert simulated_time.waits == [0.05] * waits
    assert kills == [(42, watchdog.signal.SIGUSR2)]
