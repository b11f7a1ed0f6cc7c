"""What a run takes over from the checkpoint or the weights that it starts from, and what it refuses."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.thread_ranks import ThreadRanks

from paddlevit_dist import UserError
from paddlevit_dist.checkpoint.paddlevit_training import PaddleViTTraining
from paddlevit_dist.engine import resume
from paddlevit_dist.engine.compatibility import FactDifference
from paddlevit_dist.engine.resume import ResumeState, StateLoader
from paddlevit_dist.settings import load


def config_of(folder, *words):
    return load([f"-output={folder}", *words]).values


def checkpoint(folder, name="epoch_0003"):
    directory = folder / "checkpoints" / name
    directory.mkdir(parents=True)
    (directory / "state.json").write_text("{}")
    return directory


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


def loader_of(tmp_path, *words, datasets=None, files=None, **state):
    """A loader, and the lines that it prints; ``files`` gets name and content of those that it writes."""
    printed = []
    log = SimpleNamespace(log_and_print=printed.append, writes=True, file=lambda *words: files.append(words))
    state = SimpleNamespace(**{"ema": None, "own": None, "model": Weights(), **state})
    return StateLoader(config_of(tmp_path, *words), None, datasets or {}, state, log), printed


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
    average = Average() if has_average else None
    loader, printed = loader_of(tmp_path, *words, ema=average)
    loader._continue_average("/c", given)
    assert printed == lines
    assert calls is None or average.calls == calls


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
        checkpoint(tmp_path)
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
    parts = {"sampler": SimpleNamespace(global_batch_size=32), "datasets": {"val": "val"}}
    loader, printed = loader_of(tmp_path, **parts)
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
    assert required(loader_of(tmp_path, "-allow_changes", **parts)[0], CHANGES) == CHANGES


def test_a_checkpoint_of_paddlevit_gives_moments_by_name(tmp_path, monkeypatch):
    taken = []
    take = {
        name: SimpleNamespace(load_state_dict=lambda values, name=name: taken.append((name, values)))
        for name in ("o", "p")
    }
    average = Average()
    loader, printed = loader_of(
        tmp_path,
        ema=average,
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
    assert taken == [("o", moments), ("p", {"scale": 8}), (7,)] and average.calls == ["restart"]
    assert state == ResumeState({"epoch": 7, "consumed": 0, "update": 77}, samples=None, base="base")
    assert printed[1].startswith("resumed PaddleViT's /v.pdparams after epoch 7: 2 of 2, moments; the learning rate")
    monkeypatch.setattr(resume, "rename_for", lambda model, weights: weights)
    loader._continue_paddlevit(PaddleViTTraining(**{**fields, "average": BOTH}))
    assert average.calls[1:] == [{"a": [1.0], "b": [2.0]}] and "2 of 2, moments, its average; the" in printed[2]


class Diff:
    """A stand-in for the comparison with weights."""

    def __init__(self, *words):
        self.words = words

    def settings(self):
        return ["settings"]

    def input(self):
        return ["input"]

    def files(self, split, samples):
        return [f"files {split} {samples}"]

    def classes(self, samples):
        return [f"classes {samples}"]


@pytest.fixture
def loads(monkeypatch):
    """Calls of ``load_weights``, which returns ``report``."""
    calls = SimpleNamespace(calls=[], trained=[])
    calls.report = SimpleNamespace(
        base="base", summary=lambda: "5 of 6", json=lambda: "{}", reinitialized=[], classes_by_name=None
    )
    monkeypatch.setattr(
        resume, "load_weights", lambda *words, **more: calls.calls.append((words, more)) or calls.report
    )
    monkeypatch.setattr(resume, "find_class_names", lambda *words: ("names", *words))
    monkeypatch.setattr(resume, "require_trained", calls.trained.append)
    monkeypatch.setattr(resume, "CheckpointDiff", Diff)
    return calls


@pytest.mark.parametrize(
    "reinitialized, by_name, has_classes", [([], None, True), (["head"], None, False), ([], (3, 3), False)]
)
@pytest.mark.parametrize("allows", [False, True])
def test_pretrained_weights_are_loaded_with_their_settings_and_compared(
    tmp_path, loads, reinitialized, by_name, has_classes, allows
):
    words = ["-pretrained=w", "MODEL.MIN_LOADED_FRACTION", "0.25", "MODEL.PRETRAINED_PART", "encoder."]
    files, model, datasets = [], Weights(), {"train": "T", "val": "V"}
    words += ["-allow_changes"] * allows
    loader, printed = loader_of(tmp_path, *words, datasets=datasets, files=files, model=model, begin_after=print)
    loads.report.reinitialized, loads.report.classes_by_name = reinitialized, by_name
    assert loader.load().base == "base"
    ((given, options),) = loads.calls
    assert given == (model, "w")
    names = ("names", None, "T", "w")
    assert options == {"minimum_loaded": 0.25, "part": "encoder.", "class_names": names}
    assert loads.trained == ([] if allows else [loads.report]) and files == [("load_report.json", "{}")]
    classes = ["classes T"] if has_classes else []
    lines = ["pretrained weights w: 5 of 6", "settings", "input", "files train T", "files val V", *classes]
    assert printed == lines


def test_a_file_of_weights_alone_restarts_the_moments(tmp_path):
    begun, path = [], tmp_path / "w.npz"
    np.savez(path, **BOTH)
    loader, printed = loader_of(tmp_path, f"-resume={path}", "TRAIN.LAST_EPOCH", "4", begin_after=begun.append)
    assert loader.load() == ResumeState({"epoch": 0, "consumed": 0, "update": 0}) and begun == [4]
    assert len(printed) == 1 and printed[0].startswith(f"resumed weights only from {path} (loaded 2 of 2 ")
    assert "so moments restart at epoch 5 (-last_epoch)" in printed[0]


def test_other_ranks_follow_the_main_process(tmp_path):
    """Each rank has a folder of its own here: that of rank 0 counts."""
    checkpoint(tmp_path / "1")

    def load(words):
        def load_of_rank(rank):
            loader, printed = loader_of(tmp_path / str(rank), *words, begin_after=lambda epoch: None)
            try:
                loader.load()
            except UserError as error:
                return str(error)
            return printed

        return load_of_rank

    (tmp_path / "0").mkdir()
    assert all("starting from scratch" in printed[0] for printed in ThreadRanks(2).run(load(["-resume=auto"])))
    assert ThreadRanks(2).run(load([])) == [[], []]
    gone = ThreadRanks(2).run(load([f"-resume={tmp_path / 'gone'}"]))
    assert gone[0] == gone[1] and "gone" in gone[0]
    checkpoint(tmp_path / "0")
    assert all("already holds" in told for told in ThreadRanks(2).run(load([])))


EXTRA = {"scaler": {"scale": 4.0}, "skipped_updates": {"total": 3}, "best": {"epoch": 2}, "evaluation_due": True}
EXTRA |= {"training_means": None, "undecayed": ["a", "x"], "global_batch_size": 64, "evaluations": [(2, 5.0)]}


@pytest.mark.parametrize("last_epoch, is_told", [(0, False), (3, False), (2, True)])
@pytest.mark.parametrize("consumed", [0, 16])
def test_a_checkpoint_restores_every_part(tmp_path, loads, monkeypatch, last_epoch, is_told, consumed):
    taken = []

    def part(name):
        return SimpleNamespace(load_state_dict=lambda values: taken.append((name, values)))

    directory = checkpoint(tmp_path)
    best = checkpoint(tmp_path, "epoch_0002")
    position = {"epoch": 3, "consumed": consumed, "update": 33}
    content = SimpleNamespace(position=position, optimizer=BOTH, extra=EXTRA)
    monkeypatch.setattr(resume.checkpoint_store, "read", lambda path: content)
    monkeypatch.setattr(Diff, "lists", "lists", raising=False)
    monkeypatch.setattr(StateLoader, "_require_same_run", lambda self, diff, size: [size])
    loader, printed = loader_of(
        tmp_path,
        "TRAIN.LAST_EPOCH",
        str(last_epoch),
        model=(model := Weights()),
        undecayed=["a"],
        optimizer_state=part("moments"),
        precision=part("precision"),
        nan_guard=part("guard"),
        begin_after=lambda **words: taken.append(words),
        sampler=SimpleNamespace(consumed=consumed, epoch=4),
    )
    state = loader._load_checkpoint(directory)
    assert state == ResumeState(position, directory, [64], True, "lists", None, {"epoch": 2}, "base", [(2, 5.0)])
    expected = [("moments", BOTH), ("precision", {"scale": 4.0}), ("guard", {"total": 3})]
    assert taken == [*expected, {"epoch": 3, "consumed": consumed}]
    assert loads.calls == [((model, str(directory / "model.pdparams")), {"strict": True})]
    assert (tmp_path / "checkpoints" / "best").resolve() == best.resolve()
    place = "update 33, 16 samples into epoch 4" if consumed else "epoch 3"
    lines = [f"resumed from {directory} after {place}: 5 of 6"]
    lines += [f"TRAIN.LAST_EPOCH 2: no effect: {directory} knows its epoch"] if is_told else []
    lines += resume.describe_changed_decay(directory, ["a", "x"], ["a"])
    rest = f"note: {directory} has no training means: the means of epoch 4 cover the rest of it only"
    assert printed == [*lines, *([rest] if consumed else [])]


def test_a_state_of_the_task_that_does_not_fit_is_refused(tmp_path, loads):
    none = SimpleNamespace(load_state_dict=lambda values: None)
    loader, _ = loader_of(tmp_path, own=Average(), optimizer_state=none)
    content = SimpleNamespace(optimizer={}, own=A, extra=EXTRA)
    with pytest.raises(UserError, match="^-resume=/c: b is missing; use the settings it was saved with$"):
        loader._restore(Path("/c"), content)


def test_an_average_that_is_off_now_is_kept_in_its_file(tmp_path, loads):
    directory = checkpoint(tmp_path)
    (directory / resume.AVERAGED).write_bytes(b"x")
    none = SimpleNamespace(load_state_dict=lambda values: None)
    parts = {"optimizer_state": none, "precision": none, "nan_guard": none, "begin_after": lambda **words: None}
    loader, printed = loader_of(tmp_path, **parts)
    content = SimpleNamespace(position={"epoch": 3, "consumed": 0}, optimizer={}, extra={**EXTRA, "best": None})
    loader._restore(directory, content)
    assert printed == [f"note: {directory / resume.AVERAGED} is kept unchanged: TRAIN.MODEL_EMA is now off"]
