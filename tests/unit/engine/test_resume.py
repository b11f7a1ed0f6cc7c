"""What a resumed run tells, what it takes over, and what it refuses before anything is lost."""

import json
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import yaml

from paddlevit_dist.checkpoint.paddlevit_training import PaddleViTTraining
from paddlevit_dist.engine import resume
from paddlevit_dist.engine.compatibility import FactDifference
from paddlevit_dist.engine.resume import ResumeState, StateLoader, epochs_by_size, log_resumption, read_resumed_section
from paddlevit_dist.logging.record import RunLog
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.runtime.metrics_file import recorded_events
from paddlevit_dist.settings import load


def config_of(folder, *words):
    return load([f"-output={folder}", *words]).values


def checkpoint(folder, settings, name="epoch_0003"):
    directory = folder / "checkpoints" / name
    directory.mkdir(parents=True)
    (directory / "state.json").write_text("{}")
    if settings is not None:
        (directory / "about.yaml").write_text(yaml.safe_dump({"settings": settings}))
    return directory


@pytest.mark.parametrize(
    "train, epochs",
    [
        ({"NUM_EPOCHS": 7, "NUM_SAMPLES": 500, "EPOCH_LIMITS": [2, 90]}, 7),
        ({"NUM_EPOCHS": 7, "NUM_SAMPLES": 501, "EPOCH_LIMITS": [2, 90]}, None),
        ({"NUM_EPOCHS": 7, "NUM_SAMPLES": 500, "EPOCH_LIMITS": [2, 91]}, None),
        ({"NUM_EPOCHS": 0, "NUM_SAMPLES": 500, "EPOCH_LIMITS": [2, 90]}, None),
        ({"NUM_EPOCHS": 1, "NUM_SAMPLES": 500, "EPOCH_LIMITS": [2, 90]}, 1),
        ({"NUM_EPOCHS": "7", "NUM_SAMPLES": 500, "EPOCH_LIMITS": [2, 90]}, None),
        ([7], None),
        (None, None),
    ],
)
def test_a_resumed_run_keeps_the_epochs_that_its_size_gave_it(tmp_path, train, epochs):
    directory = checkpoint(tmp_path, {"TRAIN": train})
    sized = ["TRAIN.NUM_SAMPLES", "500", "TRAIN.EPOCH_LIMITS", "[2,90]"]
    for source in ("auto", directory):
        assert epochs_by_size(config_of(tmp_path, *sized, f"-resume={source}")) == epochs
    assert epochs_by_size(config_of(tmp_path, *sized)) is None
    assert epochs_by_size(config_of(tmp_path, f"-resume={directory}")) is None


def test_a_section_is_that_of_the_resumed_run(tmp_path):
    directory = checkpoint(tmp_path, {"DATA": {"A": 1}})
    config = config_of(tmp_path / "other", f"-resume={directory}")
    assert (read_resumed_section(config, "DATA"), read_resumed_section(config, "MODEL")) == ({"A": 1}, {})
    assert read_resumed_section(config_of(tmp_path), "DATA") == {}


@pytest.mark.parametrize(
    "before, now, names",
    [
        ([], [], None),
        (["a", "b"], ["b", "a"], None),
        (["a", "b"], ["b", "c"], "a, c"),
        (["a"], ["d", "c", "b"], "a, b, c and 1 more"),
        (["e", "f"], ["d", "c", "b", "a"], "a, b, c and 3 more"),
    ],
)
def test_weight_decay_that_is_applied_otherwise_is_told(before, now, names):
    rule = "from here on this run's rule applies"
    told = [] if names is None else [f"note: /c applied weight decay differently to {names}; {rule}"]
    assert resume._changed_decay("/c", before, now) == told


EVENTS = [("training", 1, 4), ("epoch", 1, 8), ("evaluation", 1, 8), ("training", 2, 12), ("evaluation", 2, 16)]


def resumed(folder, state, events=EVENTS, more=(), writes=True):
    """Return the printed lines and the new events of a start from this state."""
    lines = [{"kind": kind, "epoch": epoch, "update": update} for kind, epoch, update in events]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, *more]))
    printed, log = [], RunLog(folder, writes)
    log.log_and_print = printed.append
    log_resumption(state, log)
    added = list(recorded_events(folder))[len(lines) + len(more) :]
    return printed, [{name: value for name, value in event.items() if name != "time"} for event in added]


def test_what_a_killed_run_lost_is_told_and_recorded(tmp_path):
    directory = checkpoint(tmp_path, None, "epoch_0001")
    changes = [FactDifference(*(None,) * len(FactDifference._fields))._replace(name="SEED", before=1, now=2)]
    state = ResumeState({"epoch": 1, "consumed": 0, "update": 8}, directory, changes)
    printed, added = resumed(tmp_path, state)
    assert printed == [
        "the previous run ended without a message in epoch 2: what it did after epoch 1 is done again",
        "earlier evaluations of epoch(s) 2 are marked as superseded in metrics.jsonl",
    ]
    assert added == [
        {"kind": "interruption", "epoch": 1, "reason": "found when resuming", "lost_updates": 8},
        {"kind": "resume", "epoch": 1, "update": 8, "from": str(directory), "changes": {"SEED": [1, 2]}},
    ]


@pytest.mark.parametrize(
    "position, due, more, kinds, number",
    [
        ((2, 0, 16), False, [], ["resume"], 0),  # nothing is lost
        ((2, 0, 16), True, [], ["interruption", "resume"], 2),  # its evaluation is due
        ((1, 0, 8), False, [{"kind": "interruption", "epoch": 1}], ["resume"], 1),  # it was recorded
        ((1, 20, 12), False, [], ["interruption", "resume"], 2),
    ],
)
def test_a_stop_is_told_once(tmp_path, position, due, more, kinds, number):
    directory = checkpoint(tmp_path, None)
    state = ResumeState(dict(zip(("epoch", "consumed", "update"), position)), directory, evaluation_due=due)
    printed, added = resumed(tmp_path, state, more=more)
    assert [event["kind"] for event in added] == kinds and len(printed) == number
    if position[1]:
        assert printed[0].endswith("what it did after update 12, 20 samples into epoch 2 is done again")


def test_a_start_from_an_older_checkpoint_is_no_interruption(tmp_path):
    older = checkpoint(tmp_path, None, "epoch_0001")
    checkpoint(tmp_path, None, "epoch_0002")
    _, added = resumed(tmp_path, ResumeState({"epoch": 1, "consumed": 0, "update": 8}, older))
    assert [event["kind"] for event in added] == ["resume"]


def test_a_new_run_tells_nothing_and_a_restart_does(tmp_path):
    new = ResumeState({"epoch": 0, "consumed": 0, "update": 0})
    assert resumed(tmp_path, new, []) == ([], [])
    assert resumed(tmp_path, new, writes=False) == ([], [])
    printed, added = resumed(tmp_path, new)
    assert [event["kind"] for event in added] == ["interruption", "resume"] and added[1]["from"] is None
    assert printed[1] == "earlier evaluations of epoch(s) 1, 2 are marked as superseded in metrics.jsonl"


# ---- the loader -------------------------------------------------------------------------------------------------


class Average:
    """An average that takes names of two weights."""

    def __init__(self):
        self.calls = []

    def load_state_dict(self, values):
        if set(values) != {"a", "b"}:
            raise ValueError("b is missing")
        self.calls.append({name: value.tolist() for name, value in values.items()})

    def restart(self):
        self.calls.append("restart")


class Weights(paddle.nn.Layer):
    """Two weights."""

    def __init__(self):
        super().__init__()
        self.a = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(5.0))
        self.b = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(6.0))


def loader_of(tmp_path, *words, **state):
    printed = []
    log = SimpleNamespace(log_and_print=printed.append, writes=True)
    state = SimpleNamespace(**{"ema": None, "model": Weights(), **state})
    return StateLoader(config_of(tmp_path, *words), None, {}, state, log), printed


A = {"a": np.array([1.0], "float32")}
BOTH = {**A, "b": np.array([2.0], "float32")}


@pytest.mark.parametrize(
    "has_average, words, given, calls, lines",
    [
        (False, [], None, None, []),
        (False, [], BOTH, None, ["note: the average in /c is not used: TRAIN.MODEL_EMA is off"]),
        (True, [], None, ["restart"], ["note: /c has no averaged weights; the average starts with the resumed ones"]),
        (True, [], BOTH, [{"a": [1.0], "b": [2.0]}], []),
        (True, ["TRAIN.LORA.RANK", "2", "-pretrained=x"], A, [{"a": [1.0], "b": [6.0]}], []),
    ],
)
def test_an_average_continues_or_starts_afresh(tmp_path, has_average, words, given, calls, lines):
    loader, printed = loader_of(tmp_path, *words, ema=Average() if has_average else None)
    loader._continue_average("/c", given)
    assert printed == lines
    assert calls is None or loader._state.ema.calls == calls


def test_an_average_or_moments_that_do_not_fit_are_refused(tmp_path):
    loader, _ = loader_of(tmp_path, ema=Average(), optimizer_state=Average())
    with pytest.raises(UserError, match="^-resume=/c: b is missing$"):
        loader._continue_average("/c", A)
    with pytest.raises(UserError) as refused:
        loader._load_moments("-resume=/c", A)
    expected = "-resume=/c: b is missing; use the TRAIN.OPTIMIZER it was saved with, or -pretrained"
    assert str(refused.value) == expected


@pytest.mark.parametrize("words, told", [
    (["TRAIN.LORA.RANK", "2", "-resume=auto"], "TRAIN.LORA.RANK: nothing is there to resume: name the frozen weights"),
    ([], "already holds a run's checkpoints; continue with -resume=auto"),
])  # fmt: skip
def test_a_start_that_would_replace_or_lacks_weights_is_refused(tmp_path, words, told):
    loader, _ = loader_of(tmp_path, *words)
    if not words:
        checkpoint(tmp_path, None)
    with pytest.raises(UserError, match=told):
        loader.load()


@pytest.mark.parametrize("words, last, lines", [
    ([], 0, []),
    (
        ["TRAIN.LAST_EPOCH", "4", "-resume=auto"],
        4,
        ["-resume=auto: no checkpoint in {}/checkpoints, starting from scratch"],
    ),
])  # fmt: skip
def test_a_new_run_begins_after_its_last_epoch(tmp_path, words, last, lines):
    begun, average = [], Average()
    loader, printed = loader_of(tmp_path, *words, ema=average, begin_after=lambda *words: begun.append(words))
    state = loader.load()
    assert state == ResumeState({"epoch": 0, "consumed": 0, "update": 0}) and not state.changes
    assert begun == [(last,)] and average.calls == ["restart"]
    assert printed == [line.format(tmp_path) for line in lines]


def required(loader, changes):
    """Compare with a stand-in for a checkpoint whose settings differ like this."""
    diff = SimpleNamespace(
        source="/c",
        input=lambda: ["input"],
        log_unlisted=lambda samples: [f"unlisted {samples}"],
        changes=lambda datasets, sizes: changes if sizes == (64, 32) and set(datasets) == {"val"} else None,
    )
    return loader._require_same_run(diff, 64)


CHANGES = [
    FactDifference("TRAIN.BASE_LR", 0.1, 0.25, "course"),
    FactDifference("X", "a value", None, "neutral"),
    FactDifference("SEED", 1, 2, "score"),
]


def test_settings_that_alter_a_resumed_run_are_a_table_and_refused(tmp_path):
    loader, printed = loader_of(tmp_path, sampler=SimpleNamespace(global_batch_size=32))
    loader._datasets = {"val": "val"}
    assert required(loader, []) == [] and printed == ["input", "unlisted val"]
    printed.clear()
    assert required(loader, CHANGES[1:2]) == CHANGES[1:2] and len(printed) == 5
    printed.clear()
    with pytest.raises(UserError) as refused:
        required(loader, CHANGES)
    assert printed[2:] == [
        "settings that differ from /c:",
        "  setting        before   now",
        "  TRAIN.BASE_LR  0.1      0.25  alters the run",
        "  X              a value  None",
        "  SEED           1        2     alters the run",
    ]
    assert str(refused.value) == (
        "-resume=/c: TRAIN.BASE_LR 0.1 -> 0.25; SEED 1 -> 2: the resumed training would run differently; set these "
        "back, or add -allow_changes"
    )
    loader._config = config_of(tmp_path, "-allow_changes")
    assert required(loader, CHANGES) == CHANGES


def test_a_checkpoint_of_paddlevit_gives_moments_by_name(tmp_path, monkeypatch):
    taken = []
    take = {
        name: SimpleNamespace(load_state_dict=lambda values, name=name: taken.append((name, values)))
        for name in ("o", "p")
    }
    loader, printed = loader_of(
        tmp_path,
        ema=Average(),
        optimizer_state=take["o"],
        precision=take["p"],
        schedule=SimpleNamespace(update=77),
        begin_after=lambda *words: taken.append(words),
    )
    report = SimpleNamespace(summary=lambda: "2 of 2", base="base")
    monkeypatch.setattr(resume, "load_weights", lambda model, weights, strict: strict and report)
    monkeypatch.setattr(
        resume, "rename_for", lambda model, weights: {f"new.{name}": value for name, value in weights.items()}
    )
    fields = {
        "weights": SimpleNamespace(name="/v.pdparams"),
        "accumulators": {"moment1": {"a": 1}, "moment2": {"a": 2, "b": 3}},
    }
    fields |= {"scaler": {"scale": 8}, "epoch": 7, "average": None}
    state = loader._continue_paddlevit(PaddleViTTraining(**fields))
    moments = {"moment1/new.a": 1, "moment2/new.a": 2, "moment2/new.b": 3}
    assert taken == [("o", moments), ("p", {"scale": 8}), (7,)] and loader._state.ema.calls == ["restart"]
    assert state == ResumeState({"epoch": 7, "consumed": 0, "update": 77}, samples=None, base="base")
    assert printed[1].startswith("resumed PaddleViT's /v.pdparams after epoch 7: 2 of 2, moments; the learning rate")
    monkeypatch.setattr(resume, "rename_for", lambda model, weights: weights)
    loader._continue_paddlevit(PaddleViTTraining(**{**fields, "average": BOTH}))
    assert (
        loader._state.ema.calls[1:] == [{"a": [1.0], "b": [2.0]}] and "2 of 2, moments, its average; the" in printed[2]
    )
