"""How processes are spawned, or one runs in place: what each is given, and in which order they begin and end."""

import contextlib
import io
import logging
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import paddle
import pytest
from support.children import SimulatedChild, record

from paddlevit_dist import UserError
from paddlevit_dist.core.launch import failures, group_watch, rendezvous, spawn
from paddlevit_dist.core.launch.devices import ProcessPlan
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.runtime.errors import DeviceFailure, WorkerFailure


@pytest.fixture(autouse=True)
def killed(signals_sent):
    """The signals that this process sends to others."""
    return signals_sent


def work(a, b):
    """Run as the function of a worker."""


class NotedCalls(list):
    """Notes calls of functions that it replaces, by their names."""

    def __init__(self, monkeypatch) -> None:
        self.monkeypatch = monkeypatch

    def replace(self, module, *names, result=None) -> None:
        def note(name):
            def call(*words, **named):
                self.append((name, *words, *named.items()))
                if isinstance(result, BaseException):
                    raise result
                return result

            return call

        for name in names:
            self.monkeypatch.setattr(module, name, note(name))


@pytest.fixture
def calls(monkeypatch):
    return NotedCalls(monkeypatch)


class StandInProcesses:
    """Processes that Paddle would spawn.

    Attributes:
        entry, words: what each of them would run, and its arguments; ``options`` are Paddle's.
        looks: called when they would start.
        processes: those that are waited for.
    """

    def __init__(self) -> None:
        self.entry, self.words, self.options = None, (), {}
        self.looks, self.processes = (lambda: None), []

    def spawn(self, entry, args, **options):
        self.entry, self.words, self.options = entry, args, options
        self.looks()
        return self

    def launch(self, plan, seconds=30.0):
        """Run ``work`` in processes of a plan."""
        spawn.launch_workers(work, (1, 2), plan, seconds, in_child=True)


@pytest.fixture
def spawned(monkeypatch, calls):
    """Stands in for the processes that Paddle spawns."""
    stand_in = StandInProcesses()
    calls.replace(multiprocessing.resource_tracker, "ensure_running")
    monkeypatch.setattr(paddle.distributed, "spawn", stand_in.spawn)
    calls.clear()
    return stand_in


@pytest.mark.parametrize(
    "variables, added",
    [
        ({"CUDA_VISIBLE_DEVICES": "0, 1 ,2"}, {"CUDA_VISIBLE_DEVICES": "0,1,2", "GLOO_SOCKET_IFNAME": "lo"}),
        ({"GLOO_SOCKET_IFNAME": "eth7"}, {"GLOO_SOCKET_IFNAME": "eth7"}),
        ({}, {"GLOO_SOCKET_IFNAME": "lo"}),
    ],
)
def test_workers_of_one_machine_meet_on_its_loopback(monkeypatch, spawned, variables, added):
    for name in ("CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spawned.looks = lambda: warnings.warn(
            "Your model will be trained under CPUONLY mode by using GLOO", stacklevel=1
        )
        spawned.launch(ProcessPlan(1, "cpu", False, []))
        with pytest.raises(UserWarning):  # the program's own filters hold again
            spawned.looks()
    assert {
        name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME") if name in os.environ
    } == added


@pytest.mark.parametrize(
    "file, spec, is_replaced",
    [
        ("/x/train.py", None, False),
        ("/x/tool.py", "package.tool", False),
        ("/x/__main__.py", "package.__main__", True),
        (None, None, True),  # a notebook
    ],
)
def test_spawned_processes_import_the_package_before_paddle(monkeypatch, spawned, file, spec, is_replaced):
    before = spec and SimpleNamespace(name=spec)
    main, found = SimpleNamespace(__file__=file, __spec__=before), []
    monkeypatch.setitem(sys.modules, "__main__", main)
    spawned.looks = lambda: found.append(main.__spec__)
    spawned.launch(ProcessPlan(1, "cpu", False, []))
    assert found == [signals.__spec__ if is_replaced else before] and main.__spec__ is before


@pytest.mark.parametrize(
    "plan, in_child, is_pool, where",
    [
        (ProcessPlan(1, "cpu", False, []), False, False, "here"),
        (ProcessPlan(1, "cpu", False, []), False, True, "here"),
        (ProcessPlan(1, "cpu", False, []), True, False, "in children"),
        (ProcessPlan(3, "cpu", False, []), False, False, "in children"),
        (ProcessPlan(3, "cpu", True, []), False, True, "here"),
        (ProcessPlan(3, "cpu", True, []), True, False, "here"),
        (ProcessPlan(3, "cpu", False, []), False, True, None),
    ],
)
def test_one_process_runs_in_place_and_several_in_children(monkeypatch, spawned, plan, in_child, is_pool, where):
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", is_pool)
    ran = []

    def launch() -> None:
        spawn.launch_workers(work if where == "in children" else ran.append, (1,), plan, 30.0, in_child=in_child)

    if where is None:
        with pytest.raises(
            UserError, match=r"^3 processes \(NGPUS\): a worker of a process pool cannot start processes"
        ):
            launch()
    else:
        launch()
    assert (ran, spawned.options.get("nprocs")) == (
        [1] if where == "here" else [],
        plan.processes if where == "in children" else None,
    )


@pytest.mark.parametrize("seconds", [None, 30.0])
@pytest.mark.parametrize("total", [1, 3])
def test_a_process_in_place_joins_others_first_if_there_are_any(monkeypatch, calls, total, seconds):
    calls.replace(spawn.tuning, "use_threads")
    calls.replace(paddle, "disable_signal_handler")
    calls.replace(spawn.signals, "poll_in_thread")
    calls.replace(spawn.process_exit, "note_group")
    calls.replace(rendezvous, "join_group")

    def run(join, do, limit, note_end) -> None:
        calls.append(("watched", limit, note_end))
        join()
        do()

    monkeypatch.setattr(group_watch, "run", run)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(total))
    plan = ProcessPlan(1, "cpu", total > 1, [])
    spawn.launch_workers(lambda *words: calls.append(("work", *words)), (1, 2), plan, seconds, note_end=print)
    joined = [("join_group", "cpu", ("spawned", False))]
    assert calls == [
        *[("use_threads",), ("disable_signal_handler",), ("poll_in_thread",)],
        *([("note_group",), *[("watched", 30.0, print)] * (seconds is not None), *joined] if total > 1 else []),
        ("work", 1, 2),
    ]


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("error, code", [(None, 0), (UserError("no"), 2), (DeviceFailure("no"), 1), (ValueError(), 1)])
def test_a_spawned_process_joins_works_and_records_its_end(monkeypatch, calls, spawned, rank, error, code):
    kept = io.TextIOWrapper(io.BytesIO())  # which an end without exit handlers would lose

    def note_work(*words) -> None:
        print("epoch 3")
        calls.append(("work", *words, spawn.status.get_status()[2:]))
        if error is not None:
            raise error

    spawned.launch(ProcessPlan(1, "cpu", False, []))
    monkeypatch.setenv("PADDLE_TRAINER_ID", str(rank))
    payload, folder, parent, device, run_secret, pages = spawned.words
    assert (parent, device, len(run_secret)) == (os.getpid(), "cpu", 32)
    assert payload.unpack() == (work, (1, 2)) and len(pages) == 2 * 512
    calls.clear()
    calls.replace(spawn.printing, "ignore_broken_pipe")
    calls.replace(spawn.faulthandler, "enable", "disable")
    calls.replace(spawn.process_exit, "die_with_parent", "end")
    calls.replace(spawn.failures, "keep_records", "record_failure", "wait_for_parent", "record_finish")
    calls.replace(spawn.signals, "forward_to_parent", "install", "poll_in_thread", "record_only")
    calls.replace(spawn.secret, "use")
    calls.replace(spawn, "dump_stacks_on_request")
    calls.replace(spawn.status, "publish")
    calls.replace(spawn.multiprocessing, "set_start_method")
    calls.replace(spawn.tuning, "use_threads")
    calls.replace(paddle, "disable_signal_handler")
    calls.replace(spawn.os, "_exit", result=SystemExit())
    monkeypatch.setattr(
        rendezvous,
        "join_group",
        lambda *words, **named: calls.append(("join", *words, named, spawn.status.get_status()[2:])),
    )
    payload = SimpleNamespace(unpack=lambda: calls.append(("unpack",)) or (note_work, (1, 2)))
    ends = contextlib.nullcontext() if error is None else pytest.raises(SystemExit)
    with contextlib.redirect_stdout(kept), ends:
        spawned.entry(payload, folder, 71, "cpu", b"secret", "pages")
    folder, (_, _, *forwarded) = Path(folder), calls[4]
    assert forwarded[0] == ("forwards_saves", rank > 0) and forwarded[1][0] == "exit_now"
    assert calls == [
        *[("ignore_broken_pipe",), ("enable",), ("die_with_parent", 71), ("keep_records", folder, rank)],
        *[("forward_to_parent", 71, *forwarded), ("use", b"secret"), ("dump_stacks_on_request", folder, rank)],
        *[("publish", "pages", rank), ("set_start_method", "fork", ("force", True)), ("use_threads",)],
        *[("disable_signal_handler",), ("disable",), ("enable",), ("install",), ("poll_in_thread",), ("unpack",)],
        ("join", "cpu", {"spawned": True}, (True, "joining the group")),
        ("work", 1, 2, (False, "at work")),
        ("record_only",),
        *([("record_finish",), ("end", 0)] if error is None else []),
        *([("record_failure", error), ("wait_for_parent",), ("_exit", code)] if error is not None else []),
    ]
    assert spawn.status.get_status().text == (spawn.status.AT_END if error is None else "at work")
    assert error is None or kept.buffer.getvalue() == b"epoch 3\n"


def test_a_process_that_is_interrupted_records_it_and_ends(calls, spawned, monkeypatch, tmp_path, exit_codes):
    spawned.launch(ProcessPlan(1, "cpu", False, []))
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    payload, _, *words = spawned.words
    calls.replace(spawn.process_exit, "die_with_parent")
    calls.replace(spawn.signals, "forward_to_parent", result=ZeroDivisionError())  # in place of its work
    with pytest.raises(ZeroDivisionError):
        spawned.entry(payload, str(tmp_path), *words)
    dict(calls[-1][2:])["exit_now"](15, True)
    found = failures.read(tmp_path, 1)
    assert (found["kind"], found["number"], found["again"]) == (failures.INTERRUPTED, 15, True) and exit_codes == [143]


class OrderedChild(SimulatedChild):
    """A process that notes in ``order`` how it is ended."""

    def __init__(self, name, order):
        super().__init__()
        self.name, self.order = name, order

    def kill(self):
        self.order.append(("kill", self.name))

    def join(self, seconds):
        self.order.append((seconds, self.name))


@pytest.mark.parametrize("failed", [[], [1], [1, 2]])
def test_workers_that_have_not_failed_are_ended_first_and_the_cause_is_raised(monkeypatch, spawned, failed):
    order, folders = [], []
    workers = [OrderedChild(f"worker {rank}", order) for rank in range(3)]
    other, helper = "an earlier child", OrderedChild("the resource tracker's", order)
    children = iter([[other], [other, *workers, helper]])
    monkeypatch.setattr(multiprocessing, "active_children", lambda: next(children))

    def end_workers() -> None:
        folders.append(Path(spawned.words[1]))
        for rank, worker in enumerate(workers):
            record(folders[0], rank, ValueError(f"of {rank}") if rank in failed else None)
            if not failed:
                worker.end(0)

    spawned.looks, spawned.processes = end_workers, workers
    with (
        pytest.raises(WorkerFailure, match="^rank 1 failed: ValueError: of 1$") if failed else contextlib.nullcontext()
    ):
        spawned.launch(ProcessPlan(3, "cpu", False, []))
    assert folders[0].name.startswith("paddlevit_dist_ends_") and not folders[0].exists()
    first = [worker.name for rank, worker in enumerate(workers) if rank not in failed]
    last = [*[worker.name for worker in workers], helper.name]
    assert order == [(how, name) for names in (first, last) for how in ("kill", 5.0) for name in names]
    assert spawned.options == {"nprocs": 3, "join": False, "backend": "gloo"}


def test_four_semaphores_for_each_worker_are_tried_before_any_starts(monkeypatch, spawned):
    events = []
    monkeypatch.setattr(multiprocessing, "Lock", lambda: events.append("semaphore"))
    spawned.looks = lambda: events.append("start")
    spawned.launch(ProcessPlan(3, "cpu", False, []))
    assert events == [*["semaphore"] * 12, "start"]


@pytest.mark.parametrize("device, variable", [("cpu", None), ("npu", "npu")])
def test_workers_are_started_with_signals_blocked_and_without_lines_of_paddle(monkeypatch, spawned, device, variable):
    root, started = logging.getLogger(), []
    before, usual = root.level, signal.pthread_sigmask(signal.SIG_BLOCK, [])

    def begin():
        started.append((root.level, signal.pthread_sigmask(signal.SIG_BLOCK, []) - usual))
        started.append(os.environ.get("PADDLE_XCCL_BACKEND"))
        assert os.environ["OMP_NUM_THREADS"] == "1"  # Paddle's import would complain of others
        raise ZeroDivisionError  # in place of the processes

    monkeypatch.delenv("PADDLE_XCCL_BACKEND", raising=False)
    for name in ("PADDLEVIT_DIST_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "3")
    spawned.looks = begin
    root.setLevel(logging.DEBUG)
    try:
        with pytest.raises(ZeroDivisionError):
            spawned.launch(ProcessPlan(3, device, False, []))
        assert root.level == logging.DEBUG
    finally:
        root.setLevel(before)
    handled = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}
    assert started == [(logging.WARNING, handled - usual), variable]
    signal.raise_signal(signal.SIGHUP)  # a parent records requests only
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == usual
