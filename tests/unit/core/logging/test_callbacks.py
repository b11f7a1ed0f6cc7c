"""What callbacks are told, and what becomes of a run whose callback fails."""

from contextlib import nullcontext

import pytest
from support.refusals import refusal_of
from support.registrations import forgotten
from support.trainings.runs import read_events
from support.trainings.small_runs import build

from paddlevit_dist import Callback, UserError, register_callback
from paddlevit_dist.core.logging.callbacks import CallbackList, find_callbacks
from paddlevit_dist.core.runtime.errors import Stopped
from paddlevit_dist.core.tasks.callback import RunFacts, get_interval_ends

RUN = ["-epochs=2", "-batch_size=8", "TRAIN.WARMUP_EPOCHS", "0"]  # 2 x 5 updates


class Notes(Callback):
    def __init__(self):
        self.told = []

    def start(self, run):
        self.told.append(("start", run.update, [(event["kind"], event["update"]) for event in run.history()]))

    def report(self, update, values):
        self.told.append(("report", update, values))
        values.clear()  # its own copy

    def evaluated(self, update, epoch, values):
        self.told.append(("evaluated", update, epoch, values))

    def saved(self, path):
        self.told.append(("saved", path.name))

    def end(self, outcome):
        self.told.append(("end", outcome))


def trained(output, callbacks, *arguments):
    build(str(output), *RUN, *arguments, train_size=40, val_size=16, callbacks=callbacks).train()


def events(output, kind):
    lines = read_events(output)
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.parametrize("seconds, lines", [(3600.0, 0), (0.0, 2 * 4)], ids=["soon", "later"])
def test_a_report_has_a_line_of_its_own_unless_that_of_its_epoch_follows_soon(monkeypatch, tmp_path, seconds, lines):
    monkeypatch.setattr("paddlevit_dist.core.engine.hooks._SOON", seconds)
    trained(tmp_path, [], "REPORT_FREQ", "1")
    said = (tmp_path / "log.txt").read_text().splitlines()
    assert sum(" update " in line for line in said) == lines  # the last of the five updates has the epoch's
    assert sum(" training: " in line for line in said) == 2
    assert [event["update"] for event in events(tmp_path, "training")] == list(range(1, 11))


def test_a_training_is_told_in_order_and_continues_where_it_was_resumed(tmp_path):
    first, again = Notes(), Notes()
    trained(tmp_path, [first, again], "TRAIN.STOP_AFTER_EPOCH", "1")
    assert first.told[0] == ("start", 0, []) and first.told[-1] == ("end", "finished")
    reports = [entry for entry in first.told if entry[0] == "report"]
    assert [entry[1] for entry in reports] == [1, 2, 3, 4, 5]
    assert ("saved", "epoch_0001") in first.told
    told = [entry[2] for entry in again.told if entry[0] == "report"]
    (told_once,) = (entry for entry in first.told if entry[0] == "evaluated")
    (event,) = events(tmp_path, "evaluation")
    assert told_once[1:3] == (5, 1) and get_interval_ends(event) == {
        "top-1 low": event["interval"]["top-1"][0],
        "top-1 high": event["interval"]["top-1"][1],
    }
    assert told_once[3] == {**{name: event[name] for name in told_once[3] if name in event}, **get_interval_ends(event)}
    assert told == [{}] * 5  # it cleared them; the record was not touched
    assert [event["update"] for event in events(tmp_path, "training")] == [1, 2, 3, 4, 5]
    resumed = Notes()
    trained(tmp_path, [resumed], "-resume=auto")
    assert resumed.told[0] == ("start", 5, [("training", update) for update in range(1, 6)] + [("evaluation", 5)])
    assert [entry[1] for entry in resumed.told if entry[0] == "report"] == [6, 7, 8, 9, 10]
    assert [entry[1:3] for entry in resumed.told if entry[0] == "evaluated"] == [(10, 2)]
    assert ("saved", "epoch_0002") in resumed.told


class Fails(Callback):
    def __init__(self, error):
        self.error, self.calls = error, 0

    def report(self, update, values):
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no such column"), OSError(28, "No space left on device")], ids=repr)
def test_a_callback_that_fails_is_left_out_and_the_run_goes_on(tmp_path, error):
    fails, notes = Fails(error), Notes()
    trained(tmp_path, [fails, notes], "TRAIN.STOP_AFTER_EPOCH", "1")
    log = (tmp_path / "log.txt").read_text()
    assert fails.calls == 1 and notes.told[-1] == ("end", "finished")
    assert f"callback Fails is disabled from here on, the run continues: in report, {type(error).__name__}" in log
    assert ("Traceback" in log) == isinstance(error, ValueError)


def test_a_user_error_of_a_callback_ends_the_run(tmp_path):
    notes = Notes()
    with pytest.raises(UserError, match="seen enough"):
        trained(tmp_path, [notes, Fails(UserError("seen enough"))])
    assert notes.told[-1] == ("end", "failed")


def test_all_are_told_and_the_end_once_and_only_after_a_start(tmp_path):
    both = Notes(), Notes()
    callbacks = CallbackList(both)
    for starts in (False, True, False):
        if starts:
            callbacks.start(RunFacts(tmp_path, None, True))
        callbacks.queued_saves.extend([tmp_path / "one", tmp_path / "two"])
        callbacks.end("stopped")
    callbacks.queued_saves.append(tmp_path / "three")
    callbacks.report(7, {"loss": 2.0})
    callbacks.queued_saves.append(tmp_path / "four")
    callbacks.evaluated(8, 3, {"top-1": 4.0}, {"interval": {"top-1": [3.0, 5.0]}})
    expected = [
        ("start", 0, []),
        *[("saved", name) for name in ("one", "two") * 2],
        ("end", "stopped"),
        *[("saved", name) for name in ("one", "two", "three")],
        ("report", 7, {}),  # it clears its copy
        ("saved", "four"),
        ("evaluated", 8, 3, {"top-1": 4.0, "top-1 low": 3.0, "top-1 high": 5.0}),
    ]
    assert [notes.told for notes in both] == [expected] * 2


@pytest.mark.parametrize(
    ("error", "outcome"), [(None, "finished"), (Stopped("signal", "saved"), "stopped"), (OSError(28, "full"), "failed")]
)
def test_the_end_is_told_with_how_the_run_ended(tmp_path, error, outcome):
    notes = Notes()
    callbacks = CallbackList([notes])
    callbacks.start(RunFacts(tmp_path, None, True))
    with pytest.raises(type(error)) if error else nullcontext(), callbacks.notified_of_end():
        if error:
            raise error
    assert notes.told[1:] == [("end", outcome)]


def test_packages_that_a_callback_needs_are_named():
    class Needy(Callback):
        requires = {"json": "a-json", "nobody_has_this": "nobody-has", "nor_this": "nor-this"}

    with forgotten():
        register_callback("needy", Needy)
        message = refusal_of(find_callbacks, ["tensorboard", "needy"])
        del Needy.requires["nobody_has_this"], Needy.requires["nor_this"]
        assert find_callbacks(["needy"]) == {"needy": Needy}
    told = "not installed; python -m pip install nobody-has nor-this, or remove needy from LOG_TO"
    assert message == f"LOG_TO needy: {told}"


def test_what_is_no_callback_is_refused_where_it_is_registered():
    with pytest.raises(
        UserError, match=r"^test_callbacks.py:\d+: register_callback\('three', 3\): expected a name, and a"
    ):
        register_callback("three", 3)
