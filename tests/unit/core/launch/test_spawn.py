"""What a parent does for its workers: it packs their work, forwards requests, and finds the failure to report."""

import contextlib
import signal
import time

import pytest
from support.children import SimulatedChild, record
from support.refusals import refusal_of
from support.registrations import forgotten

from paddlevit_dist import Stopped, UserError
from paddlevit_dist.core.launch import failures, spawn
from paddlevit_dist.core.registry import lookup, register
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.runtime import signals
from paddlevit_dist.core.runtime.errors import DeviceFailure, OwnCodeError, WorkerFailure
from paddlevit_dist.core.settings.key import Key
from paddlevit_dist.core.tasks import Model


class StandInWatchdog:
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
def killed(signals_sent):
    """The signals that this process sends to others."""
    return signals_sent


def receive(*numbers):
    """Receive signals as a parent of workers does."""
    signals.record_only_as_parent()
    for number in numbers:
        signal.raise_signal(number)


def wait(folder, children, stuck=None):
    return spawn.wait_for_workers(children, folder, StandInWatchdog(stuck))


def test_all_that_finish_leave_no_failure(tmp_path):
    for rank in range(3):
        record(tmp_path, rank, None)
    assert wait(tmp_path, [SimulatedChild(exitcode=0) for _ in range(3)]) == []
    (end,) = wait(tmp_path, [SimulatedChild(exitcode=code) for code in (0, 5, 0)])
    assert (end["rank"], end["kind"]) == (1, failures.EXIT) and abs(end["time"] - time.time()) < 60
    (end,) = wait(tmp_path / "without records", [SimulatedChild(exitcode=0)])
    assert (end["rank"], end["message"]) == (0, "ended with exit code 0 before its work was complete")


def test_a_record_of_failure_counts_while_its_process_waits(tmp_path):
    record(tmp_path, 1, ValueError("why"))
    record(tmp_path, 2, None)
    first, *others = wait(tmp_path, [SimulatedChild(), SimulatedChild(), SimulatedChild()])
    assert (first["rank"], first["message"]) == (1, "ValueError: why")
    assert others == [{"explained": 0}, {"explained": 2}]  # what has finished still runs


@pytest.mark.parametrize("error, waits", [(UserError("no"), 1), (ValueError("no"), 3)])
def test_others_have_time_to_fail_unless_the_cause_is_known(tmp_path, simulated_time, error, waits):
    record(tmp_path, 0, error)
    other = SimulatedChild()
    simulated_time.meanwhile = lambda number: other.end(1) if number == 3 else None
    first, second = wait(tmp_path, [SimulatedChild(), other])
    assert first["rank"] == 0 and simulated_time.waits == [0.2] * waits
    assert second == {"explained": 1} if waits == 1 else second["kind"] == failures.EXIT


def test_others_have_three_seconds_to_fail(tmp_path, simulated_time):
    record(tmp_path, 0, ValueError("no"))
    assert len(wait(tmp_path, [SimulatedChild(), SimulatedChild()])) == 2
    assert sum(simulated_time.waits) == pytest.approx(3.2)  # it is seen after the first


def test_a_rank_that_stands_still_is_the_only_failure(tmp_path):
    assert wait(tmp_path, [SimulatedChild(), SimulatedChild()], stuck=1) == [{"kind": failures.STANDSTILL, "rank": 1}]


def test_requests_are_forwarded_once(killed):
    children = [SimulatedChild(71), SimulatedChild(72)]
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
    relay = spawn.SignalRelay([SimulatedChild(71)])
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
    relay = spawn.SignalRelay([SimulatedChild(71)])
    with pytest.raises(signals.ProcessInterrupted) if interrupts == 2 else contextlib.nullcontext() as raised:
        relay.forward()
    if interrupts == 2:
        assert (raised.value.number, raised.value.again) == (signal.SIGINT, True)


@pytest.mark.parametrize(
    "error, number, expected",
    [
        (UserError("no file"), None, UserError("no file")),
        (DeviceFailure("no GPU"), None, DeviceFailure("no GPU")),
        (OwnCodeError("MODEL.OPTIONS", "own.py"), None, OwnCodeError("MODEL.OPTIONS", "own.py")),
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
    if isinstance(found, OwnCodeError):
        assert found.traceback == "own.py"
    if isinstance(found, WorkerFailure):
        assert found.traceback.endswith("ValueError: why\n")


def work(a, b):
    """Run as the function of a worker."""


class Mine(Model):
    """A registered class that workers can import."""

    def __init__(self, depth=1, width=1):
        super().__init__()

    def forward(self): ...


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
        register.register_dataset("own_lambda", lambda: None)
        payload = spawn.WorkerPayload.pack(work, (1, [2, "three"]))
    assert {(entry.kind, entry.name) for entry in payload.registered if entry.pickled} >= {
        (kind, f"own_{kind}") for kind in KINDS
    }
    assert [entry.pickled for entry in payload.registered if entry.name == "own_lambda"] == [None]
    with forgotten():
        register.register_dataset("own_dataset", dict)  # an imported module has done so
        assert payload.unpack() == (work, (1, [2, "three"]))
        found = {kind: REGISTRY.registrations.get((kind, f"own_{kind}")) for kind in KINDS}
        assert {kind: found[kind].target for kind in KINDS} == {**dict.fromkeys(KINDS, Mine), "dataset": dict}
        keys = {kind: [row.name for table in found[kind].keys for row in table.keys] for kind in KINDS}
        assert keys == {**dict.fromkeys(KINDS, []), **KEYS, "dataset": []}
        assert "own_lambda" not in lookup.list_names("dataset")


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
    message = refusal_of(payload.unpack)
    assert message.endswith(f": {told}") and "Gone" in message and " on <" not in message
    other = spawn.WorkerPayload(payload.imports, [], name_missing("os"), program)
    with pytest.raises(AttributeError, match="Gone"):
        other.unpack()
