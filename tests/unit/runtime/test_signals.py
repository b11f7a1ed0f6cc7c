"""What a process does with each signal, by its mode; no signal is sent."""

import os
import signal
import sys
import threading
import time

import pytest

from paddlevit_dist.runtime import signals
from paddlevit_dist.runtime.signals import ProcessInterrupted

INT, TERM, HUP, SAVE = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1


@pytest.fixture(autouse=True)
def state(monkeypatch):
    """The state of a process that has received nothing; ``sent`` lists what it sends to others."""
    monkeypatch.setattr(signals, "_state", signals._SignalState())
    monkeypatch.setattr(signals.atexit, "register", lambda function: None)
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{os.getpid()} {time.time()}")
    signals._state.sent = []
    monkeypatch.setattr(os, "kill", lambda *words: signals._state.sent.append(words))
    signals._state.exit_now = lambda *words: signals._state.sent.append(words)
    return signals._state


def receive(*numbers):
    for number in numbers:
        signals._handle(number, sys._getframe())


@pytest.mark.parametrize("number, code", [(INT, 130), (TERM, 143), (HUP, 129)])
def test_a_signal_ends_a_start_once(number, code):
    with pytest.raises(ProcessInterrupted) as raised:
        receive(number)
    assert (signals.exit_code(raised.value), str(raised.value), raised.value.again) == (code, number.name, False)
    receive(HUP)  # an exception is on its way
    assert signals.stop_reason() == number.name and signals.number() == number and signals.is_ending()
    assert signals.exit_code(KeyboardInterrupt()) == 130 and signals.get_name(99) == "signal 99"
    assert signals._IMPORT_POLL_SECONDS == 0.02


def test_a_signal_is_only_recorded_while_the_work_polls(state):
    assert signals.stop_reason() is None and not signals.save_requested() and not signals.is_ending()
    signals.record_only()
    receive(SAVE, TERM, HUP)
    assert not signals.is_ending()  # what the work waits for is needed
    assert (signals.stop_reason(), signals.interrupts(), signals.save_requested()) == ("SIGTERM", 0, True)
    signals.clear_save_request()
    assert not signals.save_requested() and state.sent == []
    signals.request_save()
    assert signals.save_requested()
    receive(INT)
    assert signals.interrupts() == 1 and state.sent == []
    receive(INT)
    assert state.sent == [(INT, True)] and signals.stop_reason() == "SIGTERM"


def test_a_save_request_interrupts_nothing():
    receive(SAVE)
    assert signals.save_requested() and signals.stop_reason() is None


@pytest.mark.parametrize("forwards_saves", [True, False])
def test_a_worker_forwards_requests_to_its_parent(state, forwards_saves):
    assert not signals.has_parent()
    signals.forward_to_parent(41, forwards_saves, state.exit_now)
    signals.record_only()
    receive(SAVE, INT, TERM)
    saves = [(41, SAVE)] if forwards_saves else []
    assert signals.has_parent() and state.sent == [*saves, (41, TERM)]  # once; a terminal's SIGINT as SIGTERM
    receive(INT)
    assert state.sent[-1] == (INT, True)


def test_another_signal_is_forwarded_as_it_is(state):
    signals.forward_to_parent(41, True, state.exit_now)
    signals.record_only()
    receive(HUP)
    assert state.sent == [(41, HUP)]


def test_a_parent_of_workers_counts_interrupts_and_does_not_end_itself(state):
    signals.record_only_as_parent()
    receive(TERM, INT, INT)
    assert (signals.number(), signals.interrupts(), state.sent) == (INT, 2, [])
    signals.record_only()
    receive(INT)
    assert state.sent == [(INT, True)]


def test_an_exception_that_could_not_be_raised_is_raised_later(state):
    state.due = TERM
    assert signals.stop_reason() == "SIGTERM"
    state.holding = 1
    signals.check()
    state.holding = 0
    with pytest.raises(ProcessInterrupted, match="^SIGTERM$"):
        signals.check()
    signals.check()  # once
    state.raised, state.only_records = False, True
    signals.check()


def test_code_that_loses_exceptions_is_interrupted_a_moment_later(state, monkeypatch):
    monkeypatch.setattr(signals, "_IMPORT_POLL_SECONDS", 600.0)
    source = compile("def __del__():\n    receive(TERM)\n", "x.py", "exec")
    names = {"receive": receive, "TERM": TERM}
    exec(source, names)
    try:
        names["__del__"]()
        assert signal.getsignal(signal.SIGALRM) is signals._try_again
        assert 0.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600.0
        assert not state.raised
    finally:
        signals._cancel_retry()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
    with pytest.raises(ProcessInterrupted):
        signals._try_again(0, sys._getframe())


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
def test_exceptions_are_lost_in_imports_and_callbacks(file, function, is_lost):
    names = {}
    exec(compile(f"def {function}(): pass", file, "exec"), names)
    assert signals._loses_exceptions(names[function].__code__) is is_lost


def test_a_time_limit_counts_from_the_start_of_the_command(monkeypatch):
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{os.getpid()} {time.time() - 100.0}")
    signals.stop_after(160.0, "STOP_AFTER")
    assert signals.stop_reason() is None and 50.0 < signals._state.deadline - time.monotonic() < 61.0
    signals.stop_after(90.0, "STOP_AFTER")
    assert signals.stop_reason() == "STOP_AFTER" and signals.number() is None
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{os.getppid()} 5.0")
    assert signals._find_start() == 5.0
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", "1000000000 5.0")
    assert signals._find_start() == signals._loaded


@pytest.mark.parametrize("is_training, again, code, line", [
    (True, False, 75, b"stopped: asked to stop (SIGTERM) before the first update: nothing new was saved; the same "
     b"command starts again\n"),
    (True, True, 143, b"interrupted (SIGTERM)\n"),
    (False, False, 143, b"interrupted (SIGTERM)\n"),
])  # fmt: skip
def test_a_process_that_is_stuck_ends_with_a_line(monkeypatch, is_training, again, code, line):
    ends = []
    monkeypatch.setattr(os, "write", lambda *words: ends.append(words))
    monkeypatch.setattr(os, "_exit", ends.append)
    signals.set_mode(is_training)
    signals._exit_now(TERM, again)
    assert ends == [(2, line), code]
    assert signals.describe(INT, False) == "interrupted"


def test_a_start_that_is_stuck_is_ended_unless_it_has_noticed(state):
    signals._exit_if_stuck(TERM)
    assert state.sent == [(TERM, False)]
    for name in ("raised", "only_records"):
        vars(state).update({"raised": False, "only_records": False, name: True})
        signals._exit_if_stuck(TERM)
    assert len(state.sent) == 1


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
    numbers = [INT, TERM, HUP, SAVE]
    before = [signal.getsignal(number) for number in numbers]
    with signals.installed():
        assert [signal.getsignal(number) for number in numbers] == [signals._handle] * 4
        with signals.blocked():
            assert set(numbers) <= signal.pthread_sigmask(signal.SIG_BLOCK, []) and signals._state.holding == 1
        assert signals._state.holding == 0 and not set(numbers) & signal.pthread_sigmask(signal.SIG_BLOCK, [])
        with signals.installed():
            pass
        assert signals._state.installed and signal.getsignal(TERM) is signals._handle
    assert [signal.getsignal(number) for number in numbers] == before and not signals._state.installed
    child = signal.getsignal(signal.SIGCHLD)
    with signals.child_handler_kept():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGCHLD) is child


def test_the_watching_thread_records_and_gives_a_start_ten_seconds(state, monkeypatch):
    timers = []

    class Timer:
        def __init__(self, *words):
            self.words, self.daemon = words, False

        def start(self):
            timers.append((*self.words, self.daemon))

    monkeypatch.setattr(signals.threading, "Timer", Timer)
    for numbers, only_records in (([SAVE, TERM, HUP], False), ([TERM], False), ([INT], True)):
        state.only_records = only_records
        reading, writing = os.pipe()
        messages = iter([bytes(numbers), b"\0"])
        monkeypatch.setattr(os, "read", lambda descriptor, size, messages=messages: next(messages))
        signals._watch(reading)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(reading)
        os.close(writing)
    assert timers == [(10.0, signals._exit_if_stuck, (TERM,), True)]
    assert signals.stop_reason() == "SIGTERM" and signals.save_requested()


def test_a_forked_process_forgets_its_parents_requests(state):
    signals._begin_child()
    with signals.installed():
        state.number, state.interrupts = TERM, 1
        signals._begin_child()
        assert (signals.stop_reason(), signals.interrupts(), state.installed) == (None, 0, False)
        handlers = [signal.getsignal(number) for number in (INT, TERM, HUP, SAVE)]
        assert handlers == [signal.default_int_handler, *[signal.SIG_DFL] * 3]
        state.installed = True
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    signals.block()
    assert signal.pthread_sigmask(signal.SIG_SETMASK, before) >= {INT, TERM, HUP, SAVE}


@pytest.fixture
def handlers():
    """Handlers and the mask, which are put back afterwards."""
    before = {number: signal.getsignal(number) for number in (INT, TERM, HUP, SAVE)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@pytest.mark.parametrize("started, is_kept", [("{own} 5.0", True), ("{parent} 5.0", True), ("1000000000 5.0", False)])
def test_a_process_handles_what_is_not_ignored_and_notes_its_start_once(monkeypatch, handlers, started, is_kept):
    registered = []
    monkeypatch.setattr(signals, "_ignored", set())
    monkeypatch.setattr(signals.atexit, "register", registered.append)
    value = started.format(own=os.getpid(), parent=os.getppid())
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", value)
    signal.signal(HUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [INT, TERM])
    for _ in range(2):
        signals.install()
        expected = [signal.SIG_IGN if number == HUP else signals._handle for number in (INT, TERM, HUP, SAVE)]
        assert [signal.getsignal(number) for number in (INT, TERM, HUP, SAVE)] == expected
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {INT, TERM, HUP, SAVE}
    assert registered == [signals._finish] and signals._state.installed and signals._ignored == {HUP}
    own, _, moment = os.environ["PADDLEVIT_DIST_STARTED"].partition(" ")
    if is_kept:
        assert f"{own} {moment}" == value
    else:
        assert own == str(os.getpid()) and abs(float(moment) - time.time()) < 600
    signals._begin_child()
    assert signal.getsignal(HUP) is signal.SIG_IGN  # stays ignored in children


def test_other_threads_install_and_poll_nothing(handlers, monkeypatch):
    def act() -> None:
        signals.install()
        signals._state.installed = True
        signals.poll_in_thread()
        signals._state.installed = False
        with signals.blocked(), signals.child_handler_kept(), signals.installed():
            seen.append(
                (signal.pthread_sigmask(signal.SIG_BLOCK, []) >= {INT, TERM, HUP, SAVE}, signals._state.holding)
            )
        seen.append(signal.pthread_sigmask(signal.SIG_BLOCK, []) & {INT, TERM, HUP, SAVE})

    seen, before = [], [signal.getsignal(number) for number in (INT, TERM, HUP, SAVE)]
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    assert seen == [(True, 0), set()] and not signals._state.installed and not signals._state.is_watched
    assert [signal.getsignal(number) for number in (INT, TERM, HUP, SAVE)] == before


@pytest.mark.parametrize(
    "is_installed, interrupts, code, left, is_ignored",
    [(False, 1, 3, [], False), (True, 1, 3, [3], True), (True, 0, 3, [], True), (True, 1, None, [], True)],
)
def test_at_the_end_signals_are_ignored(state, handlers, monkeypatch, is_installed, interrupts, code, left, is_ignored):
    codes = []
    monkeypatch.setattr(signals.process_exit, "leave", codes.append)
    state.installed, state.interrupts = is_installed, interrupts
    signals.note_end(code)
    before = signal.getsignal(TERM)
    signals._finish()
    assert codes == left
    for number in (INT, TERM, HUP, SAVE):
        assert (signal.getsignal(number) is signal.SIG_IGN) is is_ignored
    assert is_ignored or signal.getsignal(TERM) is before


def test_a_thread_is_woken_by_signals_and_ends_with_the_block(monkeypatch):
    threads, woken = [], signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(woken)

    class Thread:
        def __init__(self, **options) -> None:
            threads.append(options)

        def start(self) -> None:
            threads.append("started")

    monkeypatch.setattr(signals.threading, "Thread", Thread)
    signals.poll_in_thread()  # no handlers are installed
    assert threads == []
    with signals.installed():
        for _ in range(2):
            signals.poll_in_thread()
        (reading,) = threads[0].pop("args")
        assert threads == [{"target": signals._watch, "name": "signals", "daemon": True}, "started"]
        writing = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        assert signals._state.is_watched and not os.get_blocking(writing) and signals._state.woken == woken
        os.write(writing, bytes([TERM]))
        assert os.read(reading, 10) == bytes([TERM])
    assert os.read(reading, 10) == b"\0"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writing)
    assert signal.set_wakeup_fd(woken) == woken and not signals._state.is_watched
    os.close(reading)


def test_a_signal_that_came_while_blocked_is_raised_at_the_end(state):
    with pytest.raises(ProcessInterrupted, match="^SIGHUP$"), signals.blocked():
        with signals.blocked():
            state.due = HUP
        assert state.holding == 1 and not state.raised
    assert state.holding == 0 and state.raised


def test_watched_signals_are_recorded_by_the_thread_only(state):
    state.is_watched = True
    signals.record_only()
    receive(TERM, INT)
    assert (state.number, state.interrupts, state.due) == (None, 0, None)
    state.only_records = False
    with pytest.raises(ProcessInterrupted, match="^SIGTERM$"):
        receive(TERM)
    assert signals.number() == TERM and state.number is None


def test_a_helper_ignores_all(handlers):
    signal.pthread_sigmask(signal.SIG_BLOCK, [INT, SAVE])
    signals.ignore_all()
    assert [signal.getsignal(number) for number in (INT, TERM, HUP, SAVE)] == [signal.SIG_IGN] * 4
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & {INT, TERM, HUP, SAVE}


def test_handlers_are_installed_again_only_if_they_were(state, monkeypatch):
    calls = []
    monkeypatch.setattr(signals, "install", lambda: calls.append(1))
    signals.install_again()
    state.installed = True
    signals.install_again()
    assert calls == [1]


@pytest.mark.parametrize("begin", [signals.record_only, signals.record_only_as_parent])
def test_an_exception_that_is_due_later_is_not_raised_by_a_timer(state, begin):
    signal.signal(signal.SIGALRM, signals._try_again)
    signal.setitimer(signal.ITIMER_REAL, 600.0)
    begin()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL and signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
    assert state.only_records and state.ends_workers is (begin is signals.record_only_as_parent)


def test_a_parent_ends_before_it_starts_workers(state):
    state.due = TERM
    with pytest.raises(ProcessInterrupted):
        signals.record_only_as_parent()
    assert not state.only_records
