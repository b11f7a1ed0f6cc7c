"""What a parent does for its workers: it packs their work, forwards requests, and finds the failure to report."""

import contextlib
import logging
import os
import signal
import sys
import time
import warnings
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
def state(monkeypatch):
    """The requests that this process has received: none."""
    monkeypatch.setattr(signals, "_state", signals._SignalState())
    monkeypatch.setattr(signals.atexit, "register", lambda function: None)
    monkeypatch.setenv("PADDLEVIT_DIST_STARTED", f"{os.getpid()} 1.0")
    monkeypatch.setattr(spawn, "_GRACE_SECONDS", 0.05)
    return signals._state


def record(folder, rank, error, monkeypatch):
    monkeypatch.setattr(failures, "_own_records", None)
    failures.keep_records(folder, rank)
    failures.record_finish() if error is None else failures.record_failure(error)


def wait(folder, children, stuck=None):
    return spawn._wait(children, folder, Watch(stuck))


def test_all_that_finish_leave_no_failure(tmp_path, monkeypatch):
    for rank in range(3):
        record(tmp_path, rank, None, monkeypatch)
    assert wait(tmp_path, [Child(exitcode=0) for _ in range(3)]) == []
    (end,) = wait(tmp_path, [Child(exitcode=code) for code in (0, 5, 0)])
    assert (end["rank"], end["kind"]) == (1, failures.EXIT) and abs(end["time"] - time.time()) < 60
    (end,) = wait(tmp_path / "without records", [Child(exitcode=0)])
    assert (end["rank"], end["message"]) == (0, "ended with exit code 0 before its work was complete")


def test_a_record_of_failure_counts_while_its_process_waits(tmp_path, monkeypatch):
    record(tmp_path, 1, ValueError("why"), monkeypatch)
    record(tmp_path, 2, None, monkeypatch)
    first, *others = wait(tmp_path, [Child(), Child(), Child()])
    assert (first["rank"], first["message"]) == (1, "ValueError: why")
    assert others == [{"explained": 0}, {"explained": 2}]  # what has finished still runs


@pytest.mark.parametrize("error, is_waited", [(UserError("no"), False), (ValueError("no"), True)])
def test_others_have_time_to_fail_unless_the_cause_is_known(tmp_path, monkeypatch, error, is_waited):
    monkeypatch.setattr(spawn, "_GRACE_SECONDS", 600.0)
    record(tmp_path, 0, error, monkeypatch)
    other = Child()

    def end_other(*words, timeout):
        if relay.count(timeout) == 1:
            other.end(1)
        relay.append(timeout)

    relay = []
    monkeypatch.setattr(spawn.multiprocessing.connection, "wait", end_other)
    ends = wait(tmp_path, [Child(), other])
    assert ends[0]["rank"] == 0 and relay == [0.2] * (2 if is_waited else 1)
    assert ends[1] == {"explained": 1} if not is_waited else ends[1]["kind"] == failures.EXIT


def test_a_rank_that_stands_still_is_the_only_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(spawn.multiprocessing.connection, "wait", lambda *words, timeout: None)
    assert wait(tmp_path, [Child(), Child()], stuck=1) == [{"kind": failures.STANDSTILL, "rank": 1}]


def test_requests_are_forwarded_once(state, monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda *words: killed.append(words))
    children = [Child(71), Child(72)]
    relay = spawn._SignalRelay(children)
    relay.forward()
    assert not killed and not children[0].calls
    signals.request_save()
    relay.forward()
    relay.forward()
    assert killed == [(71, signal.SIGUSR1)] and not children[1].calls
    state.number = signal.SIGTERM
    relay.forward()
    relay.forward()
    assert [child.calls for child in children] == [[("terminate",)]] * 2
    children[0].end(0)
    signals.request_save()
    relay.forward()
    assert len(killed) == 1 and not signals.save_requested()  # the rank that saves has ended


def test_a_stop_takes_half_an_hour_at_most(state, monkeypatch):
    clock = [50.0]
    monkeypatch.setattr(spawn.time, "monotonic", lambda: clock[0])
    relay = spawn._SignalRelay([Child(71)])
    state.number = signal.SIGTERM
    for clock[0] in (50.0, 60.0, 1850.0):
        relay.forward()
    clock[0] = 1850.5
    with pytest.raises(WorkerFailure, match="^rank 0 failed: still working 1800 s after the request to stop$"):
        relay.forward()


@pytest.mark.parametrize("interrupts", [1, 2])
def test_a_second_interrupt_ends_without_a_save(state, interrupts):
    state.interrupts = interrupts
    relay = spawn._SignalRelay([Child(71)])
    with pytest.raises(signals.ProcessInterrupted) if interrupts == 2 else contextlib.nullcontext() as raised:
        relay.forward()
    if interrupts == 2:
        assert (raised.value.number, raised.value.again) == (signal.SIGINT, True)


def test_all_are_killed_before_one_is_awaited():
    order = []
    processes = [
        SimpleNamespace(kill=lambda n=n: order.append(("kill", n)), join=lambda s, n=n: order.append((s, n)))
        for n in range(2)
    ]
    spawn._end_all(processes)
    assert order == [("kill", 0), ("kill", 1), (5.0, 0), (5.0, 1)]


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
def test_the_cause_is_raised_again_in_the_parent(tmp_path, monkeypatch, state, error, number, expected):
    state.number = number
    record(tmp_path, 4, error, monkeypatch)
    with pytest.raises(type(expected)) as raised:
        spawn._raise(failures.read(tmp_path, 4))
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
    other = payload._replace(work=name_missing("os"))
    with pytest.raises(AttributeError, match="Gone"):
        other.unpack()


@pytest.mark.parametrize(
    "variables, added",
    [
        ({"CUDA_VISIBLE_DEVICES": "0, 1 ,2"}, {"CUDA_VISIBLE_DEVICES": "0,1,2", "GLOO_SOCKET_IFNAME": "lo"}),
        ({"GLOO_SOCKET_IFNAME": "eth7"}, {"GLOO_SOCKET_IFNAME": "eth7"}),
        ({}, {"GLOO_SOCKET_IFNAME": "lo"}),
    ],
)
def test_workers_of_one_machine_meet_on_its_loopback(monkeypatch, variables, added):
    for name in ("CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spawn._prepare_rendezvous()
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
def test_spawned_processes_import_the_package_before_paddle(monkeypatch, file, spec, is_replaced):
    before = spec and SimpleNamespace(name=spec)
    main = SimpleNamespace(__file__=file, __spec__=before)
    monkeypatch.setitem(sys.modules, "__main__", main)
    with spawn._package_before_paddle():
        assert main.__spec__ is (signals.__spec__ if is_replaced else before)
    assert main.__spec__ is before


@pytest.mark.parametrize(
    "plan, in_child, is_pool, called",
    [
        (ProcessPlan(1, "cpu", False, []), False, False, "_run_in_place"),
        (ProcessPlan(1, "cpu", False, []), False, True, "_run_in_place"),
        (ProcessPlan(1, "cpu", False, []), True, False, "_run_workers"),
        (ProcessPlan(3, "cpu", False, []), False, False, "_run_workers"),
        (ProcessPlan(3, "cpu", True, []), False, True, "_run_in_place"),
        (ProcessPlan(3, "cpu", True, []), True, False, "_run_in_place"),
        (ProcessPlan(3, "cpu", False, []), False, True, None),
    ],
)
def test_one_process_runs_in_place_and_several_in_children(monkeypatch, plan, in_child, is_pool, called):
    calls = []
    for name in ("_run_in_place", "_run_workers"):
        monkeypatch.setattr(spawn, name, lambda *words, name=name: calls.append((name, *words)))
    monkeypatch.setattr(spawn, "is_pool_worker", lambda: is_pool)
    if called is None:
        with pytest.raises(
            UserError, match=r"^3 processes \(NGPUS\): a worker of a process pool cannot start processes"
        ):
            spawn.launch_workers(work, (1, 2), plan, 30.0)
    elif in_child:
        spawn.launch_workers(work, (1, 2), plan, 30.0, in_child=True)
    else:
        spawn.launch_workers(work, (1, 2), plan, 30.0)
    assert calls == ([] if called is None else [(called, work, (1, 2), plan, 30.0)])


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
    monkeypatch.setattr(spawn.status, "_notes", spawn.status._StatusNotes())
    return Calls(monkeypatch)


@pytest.mark.parametrize("seconds", [None, 30.0])
@pytest.mark.parametrize("total", [1, 3])
def test_a_process_in_place_joins_others_first_if_there_are_any(monkeypatch, calls, total, seconds):
    calls.replace(spawn.tuning, "use_threads")
    calls.replace(paddle, "disable_signal_handler")
    calls.replace(spawn.signals, "install", "poll_in_thread")
    calls.replace(spawn.process_exit, "note_group")
    calls.replace(rendezvous, "join_group")

    def run(join, do, limit) -> None:
        calls.append(("watched", limit))
        join()
        do()

    monkeypatch.setattr(group_watch, "run", run)
    monkeypatch.setenv("PADDLE_TRAINERS_NUM", str(total))
    plan = ProcessPlan(1, "cpu", total > 1, [])
    spawn._run_in_place(lambda *words: calls.append(("work", *words)), (1, 2), plan, seconds)
    joined = [("join_group", "cpu", ("spawned", False))]
    assert calls == [
        *[("use_threads",), ("disable_signal_handler",), ("install",), ("poll_in_thread",)],
        *([("note_group",), *[("watched", 30.0)] * (seconds is not None), *joined] if total > 1 else []),
        ("work", 1, 2),
    ]


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("error, code", [(None, 0), (UserError("no"), 2), (DeviceFailure("no"), 1), (ValueError(), 1)])
def test_a_spawned_process_joins_works_and_records_its_end(tmp_path, monkeypatch, calls, rank, error, code):
    def note_work(*words) -> None:
        calls.append(("work", *words, spawn.status.get_status()[2:]))
        if error is not None:
            raise error

    monkeypatch.setenv("PADDLE_TRAINER_ID", str(rank))
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
        spawn._worker_entry(payload, str(tmp_path), 71, "cpu", b"secret", "pages")
    forwarded = (("forwards_saves", rank > 0), ("exit_now", spawn._exit_now))
    assert calls == [
        *[("ignore_broken_pipe",), ("enable",), ("die_with_parent", 71), ("keep_records", tmp_path, rank)],
        *[("forward_to_parent", 71, *forwarded), ("use", b"secret"), ("dump_stacks_on_request", tmp_path, rank)],
        *[("publish", "pages", rank), ("set_start_method", "fork", ("force", True)), ("use_threads",)],
        *[("disable_signal_handler",), ("disable",), ("enable",), ("install",), ("poll_in_thread",), ("unpack",)],
        ("join", "cpu", {"spawned": True}, (True, "joining the group")),
        ("work", 1, 2, (False, "at work")),
        ("record_only",),
        *([("record_finish",), ("end", 0)] if error is None else []),
        *([("record_failure", error), ("wait_for_parent",), ("_exit", code)] if error is not None else []),
    ]
    assert spawn.status.get_status().text == (spawn.status.AT_END if error is None else "at work")


def test_a_process_that_is_interrupted_records_it_and_ends(calls):
    calls.replace(spawn.failures, "record_interruption")
    calls.replace(spawn.os, "_exit")
    spawn._exit_now(15, True)
    assert calls == [("record_interruption", 15, True), ("_exit", 143)]


@pytest.mark.parametrize("failed", [[], [1], [1, 2]])
def test_workers_that_have_not_failed_are_ended_first_and_the_cause_is_raised(monkeypatch, calls, failed):
    workers, other, helper = ["worker 0", "worker 1", "worker 2"], "an earlier child", "the resource tracker's"
    ends = [{"rank": rank, "kind": failures.EXIT} for rank in failed]
    context, children = SimpleNamespace(processes=workers), iter([[other], [other, *workers, helper]])
    calls.replace(spawn.stale_resources, "require_semaphores")
    calls.replace(spawn.signals, "record_only_as_parent")
    calls.replace(spawn.status, "new_pages", result="pages")
    calls.replace(spawn, "_start", result=context)
    calls.replace(spawn, "Watchdog", result="watchdog")
    calls.replace(spawn, "_wait", result=ends)
    calls.replace(spawn, "_end_all", "_raise")
    calls.replace(failures, "find_root_cause", result="the cause")
    monkeypatch.setattr(spawn.multiprocessing, "active_children", lambda: next(children))
    plan = ProcessPlan(3, "cpu", False, [])
    spawn._run_workers(work, (1, 2), plan, 30.0)
    folder = calls[3][4]
    assert folder.name.startswith("paddlevit_dist_ends_") and not folder.exists()
    assert calls == [
        ("require_semaphores", 12, "the queues of the processes", "lower -ngpus"),
        *[("record_only_as_parent",), ("new_pages", 3), ("_start", work, (1, 2), plan, folder, "pages")],
        *[("Watchdog", "pages", workers, 30.0, folder), ("_wait", workers, folder, "watchdog")],
        ("_end_all", [worker for rank, worker in enumerate(workers) if rank not in failed]),
        ("_end_all", [*workers, helper]),
        *([("find_root_cause", ends), ("_raise", "the cause")] if failed else []),
    ]


@pytest.mark.parametrize("device, variable", [("cpu", None), ("npu", "npu")])
def test_workers_are_started_with_signals_blocked_and_without_lines_of_paddle(monkeypatch, calls, device, variable):
    root = logging.getLogger()
    monkeypatch.setattr(root, "level", logging.DEBUG)
    usual, started = signal.pthread_sigmask(signal.SIG_BLOCK, []), []

    def begin():
        started.append((root.level, signal.pthread_sigmask(signal.SIG_BLOCK, []) - usual))
        started.append(os.environ.get("PADDLE_XCCL_BACKEND"))
        raise ZeroDivisionError  # in place of the processes

    monkeypatch.delenv("PADDLE_XCCL_BACKEND", raising=False)
    monkeypatch.setattr(spawn.plugins, "folders_hidden", begin)
    calls.replace(spawn.WorkerPayload, "pack")
    calls.replace(spawn, "_prepare_rendezvous")
    calls.replace(spawn.tuning, "hide_omp_threads_from_children")
    calls.replace(spawn.multiprocessing.resource_tracker, "ensure_running")
    calls.replace(spawn.signals, "block")
    with pytest.raises(ZeroDivisionError):
        spawn._start(work, (1, 2), ProcessPlan(3, device, False, []), None, None)
    assert started == [(logging.WARNING, set(signals._ALL) - usual), variable] and root.level == logging.DEBUG
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == usual
    names = ["_prepare_rendezvous", "hide_omp_threads_from_children", "ensure_running", "block"]
    assert calls == [("pack", work, (1, 2)), *((name,) for name in names)]
