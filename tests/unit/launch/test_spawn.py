"""What a parent does for its workers: it packs their work, forwards requests, and finds the failure to report."""

import contextlib
import logging
import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import paddle
import pytest
from support.registrations import forgotten

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.launch import failures, group_watch, rendezvous, spawn
from paddlevit_dist.launch.devices import ProcessPlan
from paddlevit_dist.registry import lookup, register
from paddlevit_dist.runtime import signals
from paddlevit_dist.runtime.errors import DeviceFailure, WorkerFailure
from paddlevit_dist.settings.key import Key


class Child:
    """A process of which a test says when it ends."""

    def __init__(self, pid=0, exitcode=None):
        self.pid, self.exitcode, self.calls = pid, exitcode, []
        self.sentinel, self._writing = os.pipe()
        if exitcode is not None:
            self.end(exitcode)

    def end(self, code):
        self.exitcode = code
        os.close(self._writing)

    def __getattr__(self, name):
        return lambda *words: self.calls.append((name, *words))


class Watch:
    """A watchdog that finds the rank ``stuck`` in its second poll."""

    def __init__(self, stuck=None):
        self.stuck, self.polls = stuck, 0

    def poll(self, running):
        self.polls += 1
        assert self.polls < 20, "the parent does not notice that its workers have ended"
        return {"kind": failures.STANDSTILL, "rank": self.stuck} if self.stuck in running and self.polls == 2 else None

    def explain(self, failed, running):
        return [*failed, *({"explained": rank} for rank in running)]


@pytest.fixture(autouse=True)
def killed(monkeypatch, fresh_rank, fresh_status, simulated_time):
    """What this process, which handles signals and has received none, sends to others."""
    sent = []
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{os.getpid()} 1.0")
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    with signals.installed():
        yield sent


def receive(*numbers):
    """Receive signals as a parent of workers does."""
    signals.record_only_as_parent()
    for number in numbers:
        signal.raise_signal(number)


def record(folder, rank, error):
    failures.keep_records(folder, rank)
    failures.record_finish() if error is None else failures.record_failure(error)


def wait(folder, children, stuck=None):
    return spawn.wait_for_workers(children, folder, Watch(stuck))


def test_all_that_finish_leave_no_failure(tmp_path):
    for rank in range(3):
        record(tmp_path, rank, None)
    assert wait(tmp_path, [Child(exitcode=0) for _ in range(3)]) == []
    (end,) = wait(tmp_path, [Child(exitcode=code) for code in (0, 5, 0)])
    assert (end["rank"], end["kind"]) == (1, failures.EXIT) and abs(end["time"] - time.time()) < 60
    (end,) = wait(tmp_path / "without records", [Child(exitcode=0)])
    assert (end["rank"], end["message"]) == (0, "ended with exit code 0 before its work was complete")


def test_a_record_of_failure_counts_while_its_process_waits(tmp_path):
    record(tmp_path, 1, ValueError("why"))
    record(tmp_path, 2, None)
    first, *others = wait(tmp_path, [Child(), Child(), Child()])
    assert (first["rank"], first["message"]) == (1, "ValueError: why")
    assert others == [{"explained": 0}, {"explained": 2}]  # what has finished still runs


@pytest.mark.parametrize("error, waits", [(UserError("no"), 1), (ValueError("no"), 3)])
def test_others_have_time_to_fail_unless_the_cause_is_known(tmp_path, simulated_time, error, waits):
    record(tmp_path, 0, error)
    other = Child()
    simulated_time.meanwhile = lambda number: other.end(1) if number == 3 else None
    first, second = wait(tmp_path, [Child(), other])
    assert first["rank"] == 0 and simulated_time.waits == [0.2] * waits
    assert second == {"explained": 1} if waits == 1 else second["kind"] == failures.EXIT


def test_others_have_three_seconds_to_fail(tmp_path, simulated_time):
    record(tmp_path, 0, ValueError("no"))
    assert len(wait(tmp_path, [Child(), Child()])) == 2
    assert sum(simulated_time.waits) == pytest.approx(3.2)  # it is seen after the first


def test_a_rank_that_stands_still_is_the_only_failure(tmp_path):
    assert wait(tmp_path, [Child(), Child()], stuck=1) == [{"kind": failures.STANDSTILL, "rank": 1}]


def test_requests_are_forwarded_once(killed):
    children = [Child(71), Child(72)]
    relay = spawn.SignalRelay(children)
    relay.forward()
    assert not killed and not children[0].calls
    signals.request_save()
    relay.forward()
    relay.forward()
    assert killed == [(71, signal.SIGUSR1)] and not children[1].calls
    receive(signal.SIGTERM)
    relay.forward()
    relay.forward()
    assert [child.calls for child in children] == [[("terminate",)]] * 2
    children[0].end(0)
    signals.request_save()
    relay.forward()
    assert len(killed) == 1 and not signals.save_requested()  # the rank that saves has ended


def test_a_stop_takes_half_an_hour_at_most(simulated_time):
    relay = spawn.SignalRelay([Child(71)])
    receive(signal.SIGTERM)
    for seconds in (0.0, 10.0, 1790.0):
        simulated_time.now += seconds
        relay.forward()
    simulated_time.now += 0.5
    with pytest.raises(WorkerFailure, match="^rank 0 failed: still working 1800 s after the request to stop$"):
        relay.forward()


@pytest.mark.parametrize("interrupts", [1, 2])
def test_a_second_interrupt_ends_without_a_save(interrupts):
    receive(*[signal.SIGINT] * interrupts)
    relay = spawn.SignalRelay([Child(71)])
    with pytest.raises(signals.ProcessInterrupted) if interrupts == 2 else contextlib.nullcontext() as raised:
        relay.forward()
    if interrupts == 2:
        assert (raised.value.number, raised.value.again) == (signal.SIGINT, True)


@pytest.mark.parametrize(
    "error, number, expected",
    [
        (UserError("no file"), None, UserError("no file")),
        (DeviceFailure("no GPU"), None, DeviceFailure("no GPU")),
        (Stopped("SIGHUP", "epoch 2"), None, Stopped("SIGHUP", "epoch 2")),
        (Stopped("SIGHUP", "epoch 2"), signal.SIGTERM, Stopped("SIGTERM", "epoch 2")),
        (signals.ProcessInterrupted(1), None, signals.ProcessInterrupted(1)),
        (signals.ProcessInterrupted(2, again=True), 15, signals.ProcessInterrupted(15, again=True)),
        (ValueError("why"), None, WorkerFailure(4, "ValueError: why")),
    ],
)
def test_the_cause_is_raised_again_in_the_parent(tmp_path, error, number, expected):
    receive(*([] if number is None else [number]))
    record(tmp_path, 4, error)
    with pytest.raises(type(expected)) as raised:
        spawn.raise_cause(failures.read(tmp_path, 4))
    found = raised.value
    assert (type(found), str(found)) == (type(expected), str(expected))
    for name in ("number", "again", "reason", "saved", "rank", "exit_code"):
        assert getattr(found, name, None) == getattr(expected, name, None)
    if isinstance(found, WorkerFailure):
        assert found.traceback.endswith("ValueError: why\n")


def work(a, b):
    """Run as the function of a worker."""


class Mine:
    """A registered class that workers can import."""


KEYS = {"task": ["OWN.RATE"], "model": ["OWN.DEPTH", "OWN.WIDTH"]}
KINDS = {
    "task": register.register_task,
    "dataset": register.register_dataset,
    "model": register.register_model,
    "transform": register.register_transform,
    "score_kind": register.register_score_kind,
    "scene_format": register.register_scene_format,
}


def test_workers_get_function_arguments_and_what_is_registered():
    with forgotten():
        for kind, enter in KINDS.items():
            names = KEYS.get(kind)
            enter(
                f"own_{kind}",
                Mine,
                **({} if names is None else {"keys": [Key(name, 3, "int", "a number") for name in names]}),
            )
        register.register_model("own_lambda", lambda: None)
        payload = spawn.WorkerPayload.pack(work, (1, [2, "three"]))
    assert {(entry.kind, entry.name) for entry in payload.registered if entry.pickled} >= {
        (kind, f"own_{kind}") for kind in KINDS
    }
    assert [entry.pickled for entry in payload.registered if entry.name == "own_lambda"] == [None]
    with forgotten():
        register.register_dataset("own_dataset", dict)  # an imported module has done so
        assert payload.unpack() == (work, (1, [2, "three"]))
        found = {kind: lookup.REGISTRATIONS.get((kind, f"own_{kind}")) for kind in KINDS}
        assert {kind: found[kind].target for kind in KINDS} == {**dict.fromkeys(KINDS, Mine), "dataset": dict}
        keys = {kind: [row.name for table in found[kind].keys for row in table.keys] for kind in KINDS}
        assert keys == {**dict.fromkeys(KINDS, []), **KEYS, "dataset": []}
        assert "own_lambda" not in lookup.list_names("model")


def test_classes_that_cannot_be_imported_are_refused():
    with pytest.raises(UserError, match=r": worker processes import the classes of task and datasets: define them at"):
        spawn.WorkerPayload.pack(work, (lambda: None,))
    with pytest.raises(UserError, match="local"):
        spawn.WorkerPayload.pack(work, (type("Inner", (), {"__qualname__": "f.<locals>.Inner"})(),))


def name_missing(module, attribute="Gone"):
    """Return a pickle of an attribute that a module lacks."""
    return b"\x80\x04c" + f"{module}\n{attribute}\n".encode() + b"."


@pytest.mark.parametrize(
    "program, told",
    [
        (
            "train.py",
            'worker processes do not run the code of train.py inside `if __name__ == "__main__"`: define and register '
            "it at the top level of that file, or in a module named with -import=MODULE",
        ),
        (
            "",
            "worker processes do not run notebook cells or typed code: put it into a file, my_things.py, and import it "
            "with IMPORTS=['my_things.py'] (-import=my_things.py)",
        ),
    ],
)
def test_what_workers_cannot_find_in_the_program_is_told(program, told):
    payload = spawn.WorkerPayload(spawn.plugins.WorkerImports((), False), [], name_missing("__main__"), program)
    with pytest.raises(UserError) as refused:
        payload.unpack()
    assert (
        str(refused.value).endswith(f": {told}") and "Gone" in str(refused.value) and " on <" not in str(refused.value)
    )
    other = spawn.WorkerPayload(payload.imports, [], name_missing("os"), program)
    with pytest.raises(AttributeError, match="Gone"):
        other.unpack()


class Calls(list):
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
    return Calls(monkeypatch)


class Spawned:
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
    stand_in = Spawned()
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
        spawned.launch(ProcessPlan(1, "cpu", False, []))
        warnings.warn("Your model will be trained under CPUONLY mode by using GLOO", stacklevel=1)
        with pytest.raises(UserWarning):
            warnings.warn("another", stacklevel=1)
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

    def run(join, do, limit) -> None:
        calls.append(("watched", limit))
        join()
        do()

    monkeypatch.setattr(group_watch, "run", run)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(total))
    plan = ProcessPlan(1, "cpu", total > 1, [])
    spawn.launch_workers(lambda *words: calls.append(("work", *words)), (1, 2), plan, seconds)
    joined = [("join_group", "cpu", ("spawned", False))]
    assert calls == [
        *[("use_threads",), ("disable_signal_handler",), ("poll_in_thread",)],
        *([("note_group",), *[("watched", 30.0)] * (seconds is not None), *joined] if total > 1 else []),
        ("work", 1, 2),
    ]


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("error, code", [(None, 0), (UserError("no"), 2), (DeviceFailure("no"), 1), (ValueError(), 1)])
def test_a_spawned_process_joins_works_and_records_its_end(monkeypatch, calls, spawned, rank, error, code):
    def note_work(*words) -> None:
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
    with contextlib.nullcontext() if error is None else pytest.raises(SystemExit):
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


class Worker(Child):
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
    workers = [Worker(f"worker {rank}", order) for rank in range(3)]
    other, helper = "an earlier child", Worker("the resource tracker's", order)
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
