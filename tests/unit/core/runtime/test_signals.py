"""What a process does with each signal, by its mode; it sends signals to itself only."""

import contextlib
import importlib.util
import os
import queue
import signal
import sys
import threading
import time

import pytest

from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.runtime.signals import ProcessInterrupted

INT, TERM, HUP, SAVE = ALL = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1


def get_handlers() -> list:
    return [signal.getsignal(number) for number in ALL]


def get_blocked() -> set:
    return signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(ALL)


@pytest.fixture(autouse=True)
def sent(monkeypatch, own_signals, kills, at_exit, exit_codes):
    """What a process sends to others; it has received nothing, handles nothing yet, and does not really end."""
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{os.getpid()} {time.monotonic()}")
    yield kills
    signals.begin_child()  # forgets what it has received
    signals.set_mode(False)


@pytest.fixture
def handling(sent):
    """A process that handles signals."""
    with signals.installed():
        yield


def receive(*numbers):
    for number in numbers:
        signal.raise_signal(number)


def interrupted(name: str):
    return pytest.raises(ProcessInterrupted, match=f"^{name}$")


@pytest.fixture
def timers(monkeypatch) -> queue.Queue:
    """The timers that are started: seconds, function, its arguments, and whether Python's end waits for none."""
    started: queue.Queue = queue.Queue()

    class Timer:
        def __init__(self, *words):
            self.words, self.daemon = words, False

        def start(self):
            started.put((*self.words, self.daemon))

    monkeypatch.setattr(threading, "Timer", Timer)
    return started


@pytest.mark.parametrize("number, code", [(INT, 130), (TERM, 143), (HUP, 129)])
def test_a_signal_ends_a_start_once(handling, number, code):
    with interrupted(number.name) as raised:
        receive(number)
    assert (signals.exit_code(raised.value), raised.value.number, raised.value.again) == (code, number, False)
    receive(HUP)  # an exception is on its way
    signals.check()
    assert signals.stop_reason() == number.name and signals.number() == number and signals.is_ending()
    assert signals.exit_code(KeyboardInterrupt()) == 130 and signals.get_name(99) == "signal 99"


def test_work_in_a_program_begins_with_nothing_of_its_former_work(sent):
    signals.set_mode(True)
    signals.stop_after(-1.0, "STOP_AFTER")
    signals.record_only()
    with signals.installed():
        assert signals.stop_reason() is None and not signals.is_training()
        with interrupted("SIGTERM"):
            receive(TERM)


def test_a_signal_is_only_recorded_while_the_work_polls(handling, sent, exit_codes, capfd):
    assert signals.stop_reason() is None and not signals.save_requested() and not signals.is_ending()
    signals.record_only()
    receive(SAVE, TERM, HUP)
    signals.check()
    assert not signals.is_ending()  # what the work waits for is needed
    assert (signals.stop_reason(), signals.interrupts(), signals.save_requested()) == ("SIGTERM", 0, True)
    signals.clear_save_request()
    assert not signals.save_requested()
    signals.request_save()
    assert signals.save_requested()
    receive(INT)
    assert signals.interrupts() == 1 and sent == exit_codes == []
    receive(INT)
    assert exit_codes == [130] and signals.stop_reason() == "SIGTERM" and capfd.readouterr().err == "interrupted\n"


def test_a_save_request_interrupts_nothing(handling):
    receive(SAVE)
    assert signals.save_requested() and signals.stop_reason() is None


@pytest.mark.parametrize("forwards_saves", [True, False])
def test_a_worker_forwards_requests_to_its_parent(handling, sent, forwards_saves):
    assert not signals.has_parent()
    ends = []
    signals.forward_to_parent(41, forwards_saves, lambda *words: ends.append(words))
    signals.record_only()
    receive(SAVE, INT, TERM)
    saves = [(41, SAVE)] if forwards_saves else []
    assert signals.has_parent() and sent == [*saves, (41, TERM)]  # once; a terminal's SIGINT as SIGTERM
    receive(INT)
    assert ends == [(INT, True)]


def test_another_signal_is_forwarded_as_it_is(handling, sent):
    signals.forward_to_parent(41, True, lambda *words: None)
    signals.record_only()
    receive(HUP)
    assert sent == [(41, HUP)]


def test_a_parent_of_workers_counts_interrupts_and_does_not_end_itself(handling, exit_codes):
    signals.record_only_as_parent()
    receive(TERM, INT, INT)
    assert (signals.number(), signals.interrupts(), exit_codes) == (INT, 2, [])
    signals.record_only()
    receive(INT)
    assert exit_codes == [130]


def receive_in(file: str, function: str, *numbers) -> None:
    """Receive signals inside a function of this name and file."""
    names = {"receive": receive, "numbers": numbers}
    exec(compile(f"def {function}():\n    receive(*numbers)\n", file, "exec"), names)
    names[function]()


@pytest.mark.parametrize(
    "file, function, is_lost",
    [
        ("<frozen importlib._bootstrap>", "_load", True),
        ("/lib/weakref.py", "remove", True),
        ("/lib/_weakrefset.py", "_remove", True),
        ("/lib/mine.py", "remove", False),
        ("/lib/weakref.py", "keys", False),
        ("/lib/mine.py", "__del__", True),
    ],
)
def test_code_that_loses_exceptions_is_interrupted_a_moment_later(handling, file, function, is_lost):
    if not is_lost:
        with interrupted("SIGTERM"):
            receive_in(file, function, TERM)
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
        return
    with interrupted("SIGTERM"):
        with contextlib.suppress(ProcessInterrupted):
            receive_in(file, function, TERM)
            assert 0.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.02
            has_returned = True
        assert has_returned
        signals.check()


def test_a_timer_interrupts_what_does_not_check(handling):
    receive_in("/lib/mine.py", "__del__", TERM)
    with interrupted("SIGTERM"):
        while True:
            signal.pause()


@pytest.mark.parametrize("begin, ends_workers", [(signals.record_only, False), (signals.record_only_as_parent, True)])
def test_an_exception_that_is_due_later_is_not_raised_by_a_timer(handling, exit_codes, begin, ends_workers):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # however long this takes
    receive_in("/lib/mine.py", "__del__", TERM)
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0.0 or signal.SIGALRM in signal.sigpending()
    with contextlib.suppress(ProcessInterrupted):
        begin()
    begin()
    signal.sigtimedwait([signal.SIGALRM], 0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
    receive(INT, INT)
    assert exit_codes == ([] if ends_workers else [130])


def test_a_time_limit_counts_from_the_start_of_the_command(handling, monkeypatch, simulated_time):
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{os.getpid()} {time.monotonic() - 100.0}")
    signals.stop_after(160.0, "STOP_AFTER")
    for seconds, reason in ((50.0, None), (11.0, "STOP_AFTER")):
        simulated_time.now += seconds
        assert signals.stop_reason() == reason and signals.number() is None
    long_ago = time.monotonic() - 86_401.0
    for process, reason in ((os.getppid(), "STOP_AFTER"), (1_000_000_000, None)):
        monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{process} {long_ago}")
        signals.stop_after(86_400.0, "STOP_AFTER")
        assert signals.stop_reason() == reason


@pytest.mark.parametrize("is_training, again, code, line", [
    (True, False, 75, "stopped: asked to stop (SIGTERM) before the first update: nothing new was saved; the same "
     "command starts again\n"),
    (True, True, 130, "interrupted\n"),
    (False, False, 143, "interrupted (SIGTERM)\n"),
])  # fmt: skip
def test_a_start_that_is_stuck_in_a_library_ends_with_a_line(
    handling, timers, exit_codes, capfd, is_training, again, code, line
):
    signals.set_mode(is_training)
    signals.poll_in_thread()
    with signals.blocked():  # as inside a library, where no handler raises
        os.write(signal_descriptor(), bytes([SAVE, TERM, HUP]))
        seconds, function, words, is_daemon = timers.get(timeout=60.0)
        assert (seconds, words, is_daemon, exit_codes) == (10.0, (TERM,), True, [])
        assert signals.stop_reason() == "SIGTERM" and signals.save_requested()
        if again:
            signals.record_only()
            function(*words)  # the work polls by now
            assert exit_codes == []
            os.write(signal_descriptor(), bytes([INT, INT]))
            while not exit_codes:
                os.sched_yield()
        else:
            function(*words)
    assert exit_codes == [code] and capfd.readouterr().err == line and timers.empty()


def signal_descriptor() -> int:
    """The descriptor by which signals wake the watching thread."""
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    return descriptor


def test_a_program_that_caught_the_stop_of_a_start_goes_on(sent, timers, exit_codes):
    with interrupted("SIGTERM"), signals.installed():
        signals.poll_in_thread()
        receive(TERM)
        signals.check()
    while not timers.empty():  # seconds later
        _, function, words, _ = timers.get()
        function(*words)
    assert exit_codes == [] and signals.stop_reason() is None


def test_a_start_that_has_noticed_is_not_stuck(handling, timers, exit_codes):
    signals.poll_in_thread()
    with interrupted("SIGTERM"):
        receive(TERM)
    _, function, words, _ = timers.get(timeout=60.0)
    function(*words)
    assert exit_codes == []


@pytest.mark.parametrize(
    "words, trains",
    [
        (["-epochs=3", "SEED", "1"], True),
        (["-eval"], False),
        (["--eval=True"], False),
        (["-evaluation"], True),
        (["eval"], True),
        (["-cfg=x", "-h"], False),
        (["--version"], False),
        (["-show_config"], False),
        (["-help"], False),
        ([], True),
    ],
)
def test_a_command_that_only_shows_or_evaluates_does_not_train(words, trains):
    assert signals.looks_like_training(words) is trains


def test_handlers_of_a_program_are_put_back():
    before = get_handlers()
    with signals.installed():
        (handler,) = set(get_handlers())
        assert handler not in before
        with signals.blocked():
            assert get_blocked() == set(ALL)
        assert get_blocked() == set()
        with signals.installed():
            pass
        assert set(get_handlers()) == {handler}
    assert get_handlers() == before
    child = signal.getsignal(signal.SIGCHLD)
    with signals.child_handler_kept():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGCHLD) is child


def test_a_forked_process_forgets_its_parents_requests():
    before = get_handlers()
    signals.begin_child()  # of a program that handles signals itself
    assert get_handlers() == before
    with signals.installed():
        signals.record_only()
        receive(INT)
        signals.begin_child()
        assert (signals.stop_reason(), signals.interrupts()) == (None, 0)
        assert get_handlers() == [signal.default_int_handler, *[signal.SIG_DFL] * 3]
    signals.block()
    assert get_blocked() == set(ALL)


@pytest.mark.parametrize("started, is_kept", [("{own} 5.0", True), ("{parent} 5.0", True), ("1000000000 5.0", False)])
def test_a_process_handles_what_is_not_ignored_and_notes_its_start_once(monkeypatch, at_exit, started, is_kept):
    value = started.format(own=os.getpid(), parent=os.getppid())
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", value)
    signal.pthread_sigmask(signal.SIG_BLOCK, [INT, TERM])
    for _ in range(2):
        signals.install()
        assert len(set(get_handlers())) == 1 and get_blocked() == set()
    assert len(at_exit) == 1
    own, _, moment = os.environ["PADDLEVIT_DIST_STARTED"].partition(" ")
    if is_kept:
        assert f"{own} {moment}" == value
    else:
        assert own == str(os.getpid()) and abs(float(moment) - time.monotonic()) < 600


def test_what_was_ignored_stays_ignored_also_in_children(monkeypatch):
    monkeypatch.setattr(signals, "_ignored", set())
    signal.signal(HUP, signal.SIG_IGN)
    for begin in (signals.install, signals.install, signals.begin_child):
        begin()
        assert [handler is signal.SIG_IGN for handler in get_handlers()] == [False, False, True, False]


def test_other_threads_install_and_poll_nothing():
    def act() -> None:
        signals.install()
        with signals.blocked(), signals.child_handler_kept(), signals.installed():
            seen.append(get_blocked())
        seen.append(get_blocked())
        signals.poll_in_thread()

    before, descriptor = get_handlers(), signal_descriptor()
    for context in (contextlib.nullcontext(), signals.installed()):
        seen = []
        with context:
            during = get_handlers()
            thread = threading.Thread(target=act)
            thread.start()
            thread.join()
            assert seen == [set(ALL), set()] and get_handlers() == during and signal_descriptor() == descriptor
    assert get_handlers() == before


@pytest.mark.parametrize("interrupts, code, left", [(1, 3, [3]), (0, 3, []), (1, None, [])])
def test_at_the_end_signals_are_ignored(at_exit, exit_codes, interrupts, code, left):
    before = get_handlers()
    with signals.installed():
        signals.record_only()
        receive(*[INT] * interrupts)
        signals.note_end(code)
        for function in at_exit:
            function()
        assert exit_codes == left and get_handlers() == [signal.SIG_IGN] * 4
    for function in at_exit:  # what a program handles itself is left as it is
        function()
    assert get_handlers() == before and len(at_exit) == 1


def test_a_thread_is_woken_by_signals_and_ends_with_the_block():
    woken, others = signal_descriptor(), set(threading.enumerate())
    signals.poll_in_thread()  # no handlers are installed
    assert signal_descriptor() == woken
    with signals.installed():
        for _ in range(2):
            signals.poll_in_thread()
        (thread,) = set(threading.enumerate()) - others
        writing = signal_descriptor()
        assert thread.daemon and thread.name == "signals" and not os.get_blocking(writing)
        signals.record_only()
        os.write(writing, bytes([TERM, SAVE]))
        while not signals.save_requested():
            os.sched_yield()
        assert signals.number() == TERM
    thread.join(60.0)
    assert not thread.is_alive() and signal_descriptor() == woken
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writing)


def test_a_held_signal_is_raised_at_the_end_and_a_second_interrupt_at_once(handling, exit_codes, capfd):
    with interrupted("SIGINT"), signals.held():
        receive(INT)
        signals.check()
        assert signals.number() == INT and exit_codes == [] and capfd.readouterr().err == ""
        receive(INT)
        assert exit_codes == [130] and capfd.readouterr().err == "interrupted\n"


def test_a_signal_that_came_while_blocked_is_raised_at_the_end(handling):
    begun = []
    with interrupted("SIGHUP"), signals.blocked():
        with signals.blocked():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [HUP])
            receive(HUP)
            signals.check()
            begun.append("inside")
        begun.append("outside")
    assert begun == ["inside", "outside"] and signals.stop_reason() == "SIGHUP"
    signals.check()  # once


def test_watched_signals_are_counted_by_the_thread_only(handling):
    signals.poll_in_thread()
    signals.record_only()
    receive(INT, SAVE)
    while not signals.save_requested():
        os.sched_yield()
    assert signals.interrupts() == 1


def test_a_helper_ignores_all():
    signal.pthread_sigmask(signal.SIG_BLOCK, [INT, SAVE])
    signals.ignore_all()
    assert get_handlers() == [signal.SIG_IGN] * 4 and get_blocked() == set()


def test_signals_wait_while_a_package_with_its_own_handler_is_imported_and_are_then_handled_here(tmp_path, monkeypatch):
    lines = ["import signal", "BLOCKED = signal.pthread_sigmask(signal.SIG_BLOCK, [])"]
    lines += ["signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Paddle does"]
    (tmp_path / "greedy.py").write_text("\n".join(lines))
    monkeypatch.setattr(signals, "_HANDLES_SIGTERM", "greedy")
    monkeypatch.syspath_prepend(tmp_path)
    before, finders = get_handlers(), list(sys.meta_path)
    with signals.installed():
        during = get_handlers()
        assert importlib.util.find_spec("greedy") is not None  # asks only
        module = importlib.import_module("greedy")
        assert get_handlers() == during != before
    assert {TERM, INT, HUP, SAVE} <= module.BLOCKED
    assert get_handlers() == before and sys.meta_path == finders
    monkeypatch.delitem(sys.modules, "greedy")


def test_a_parent_ends_before_it_starts_workers(handling):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # what raises is no timer
    with interrupted("SIGTERM"):
        receive_in("/lib/mine.py", "__del__", TERM)
        signals.record_only_as_parent()
    assert signals.is_ending()
    signal.sigtimedwait([signal.SIGALRM], 0)
