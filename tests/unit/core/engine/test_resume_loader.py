"""What a run takes over from the checkpoint or the weights that it starts from, and what it refuses."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
import yaml
from support.refusals import refusal_of
from support.thread_ranks import ThreadRanks
from support.trainings.runs import STATE

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import store as checkpoint_store
from paddlevit_dist.core.engine import resume
from paddlevit_dist.core.engine.compatibility import FactDifference, to_plain_settings
from paddlevit_dist.core.engine.precision import LossScale
from paddlevit_dist.core.engine.resume import ResumeState, StateLoader
from paddlevit_dist.core.settings import load


def config_of(folder, *words):
    return load([f"-output={folder}", *words]).values


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

    def __init__(self, a=5.0, b=6.0):
        super().__init__()
        self.a = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(a))
        self.b = self.create_parameter([1], default_initializer=paddle.nn.initializer.Constant(b))


class DrawnSamples:
    """Samples of a split that was drawn at random, of which two are known."""

    is_random_split = True

    def __init__(self, *numbers):
        self.numbers = np.array(numbers, np.uint64)

    def __len__(self):
        return len(self.numbers)

    def identities(self):
        return self.numbers

    def describe(self, index):
        return f"sample {self.numbers[index]}"


class PlainTask:
    """A task that says nothing of itself."""

    traits = SimpleNamespace(sample_name="images")

    def signature(self, samples=None):
        return {}


class SignedTask(PlainTask):
    """A task with classes of its data and an input."""

    def signature(self, samples=None):
        return {"size": 3} if samples is None else {"classes": ["owl", "tit"]}


def loader_of(tmp_path, *words, task=None, datasets=None, files=None, taken=None, **state):
    """A loader, and the lines that it prints.

    ``files`` gets name and content of those that it writes, ``taken`` the state that is restored, by part.
    """
    printed, taken = [], [] if taken is None else taken
    log = SimpleNamespace(log_and_print=printed.append, writes=True, file=lambda *words: files.append(words))

    def take(name):
        return SimpleNamespace(load_state_dict=lambda values: taken.append((name, values)))

    parts = {name: take(name) for name in ("optimizer_state", "precision", "nan_guard")}
    parts |= {"sampler": SimpleNamespace(consumed=0, epoch=4, global_batch_size=8), "undecayed": [], "choices": {}}
    parts |= {"begin_after": lambda *words, **more: taken.append(words or more), "schedule": SimpleNamespace(update=77)}
    state = SimpleNamespace(**{"ema": None, "own": None, "model": Weights(), **parts, **state})
    datasets = {"val": SimpleNamespace(is_random_split=False)} if datasets is None else datasets
    return StateLoader(config_of(tmp_path, *words), task or PlainTask(), datasets, state, log), printed


A = {"a": np.array([1.0], "float32")}
BOTH = {**A, "b": np.array([2.0], "float32")}


def save(folder, average=None, *, moments=BOTH, own=None, position=None, name="epoch_0003", extra=STATE, **facts):
    """Save a checkpoint of a run in this folder."""
    averaged = average and {name: paddle.to_tensor(value) for name, value in average.items()}
    position, facts = position or {"epoch": 3, "consumed": 0, "update": 33}, {"about": {"input": {}}, **facts}
    state = checkpoint_store.RunState(position, moments, extra, own or {})
    return checkpoint_store.save(folder / "checkpoints", name, Weights(7.0, 8.0).state_dict(), state, averaged, **facts)


@pytest.mark.parametrize(
    "has_average, words, given, calls, lines",
    [
        (False, [], None, None, []),
        (False, [], BOTH, None, ["note: {}/model_ema.pdparams is kept unchanged: TRAIN.MODEL_EMA is now off"]),
        (True, [], None, ["restart"], ["note: {} has no averaged weights; the average starts with the resumed ones"]),
        (True, [], BOTH, [{"a": [1.0], "b": [2.0]}], []),
        (True, ["TRAIN.LORA.RANK", "2", "-pretrained=x"], A, [{"a": [1.0], "b": [8.0]}], []),
    ],
)
def test_an_average_continues_or_starts_afresh(tmp_path, has_average, words, given, calls, lines):
    average, directory = Average() if has_average else None, save(tmp_path, given)
    loader, printed = loader_of(tmp_path, *words, f"-resume={directory}", ema=average, model=(model := Weights()))
    loader.load()
    assert (model.a.item(), model.b.item()) == (7.0, 8.0)  # not those of the average
    assert printed[:-1] == [line.format(directory) for line in lines]
    assert calls is None or average.calls == calls


@pytest.mark.parametrize(
    "part, saved, said",
    [
        ("ema", {"average": A}, ""),
        ("own", {"own": A}, "; use the settings it was saved with"),
        ("optimizer_state", {"moments": A}, "; use the TRAIN.OPTIMIZER it was saved with, or -pretrained"),
    ],
)
def test_state_that_does_not_fit_is_refused(tmp_path, part, saved, said):
    directory = save(tmp_path, **saved)
    loader, _ = loader_of(tmp_path, f"-resume={directory}", **{part: Average()})
    assert refusal_of(loader.load) == f"-resume={directory}: b is missing{said}"


@pytest.mark.parametrize("words, told", [
    (["TRAIN.LORA.RANK", "2", "-resume=auto"], "TRAIN.LORA.RANK: nothing is there to resume: name the frozen weights"),
    ([], "already holds a run's checkpoints; continue with -resume=auto"),
])  # fmt: skip
def test_a_start_that_would_replace_or_lacks_weights_is_refused(tmp_path, words, told):
    loader, _ = loader_of(tmp_path, *words)
    if not words:
        save(tmp_path)
    with pytest.raises(UserError, match=told):
        loader.load()


@pytest.mark.parametrize("words, last, lines", [
    (["SEED", "7"], 0, ["weights: random (SEED 7)"]),
    (
        ["TRAIN.LAST_EPOCH", "4", "-resume=auto"],
        4,
        ["-resume=auto: no checkpoint in {}/checkpoints, starting from scratch", "weights: random (SEED 0)"],
    ),
])  # fmt: skip
def test_a_new_run_begins_after_its_last_epoch(tmp_path, words, last, lines):
    begun, average = [], Average()
    loader, printed = loader_of(tmp_path, *words, ema=average, begin_after=lambda *words: begun.append(words))
    state = loader.load()
    assert state == ResumeState({"epoch": 0, "consumed": 0, "update": 0}) and not state.changes
    assert begun == [(last,)] and average.calls == ["restart"]
    assert printed == [line.format(tmp_path) for line in lines]


@pytest.fixture
def resumed(tmp_path):
    """Return a function that resumes a run of other settings: its lines, and the differences or the message."""
    before = config_of(tmp_path, "TRAIN.BASE_LR=0.1", "SEED=1", "TRAIN.STOP_AFTER_EPOCH=9")
    directory = save(tmp_path, about={"settings": to_plain_settings(before), "input": {"size": 3}, "data": {}})

    def load_from(*words, batch=8):
        sampler = SimpleNamespace(consumed=0, epoch=4, global_batch_size=batch)
        options = {"datasets": {"val": DrawnSamples(1)}, "sampler": sampler, "task": SignedTask()}
        loader, printed = loader_of(tmp_path, f"-resume={directory}", *words, **options)
        try:
            return printed, loader.load().changes, directory
        except UserError as error:
            return printed, str(error), directory

    return load_from


SAME = ("TRAIN.BASE_LR=0.1", "SEED=1", "TRAIN.STOP_AFTER_EPOCH=9")


def test_settings_that_alter_a_resumed_run_are_a_table_and_refused(resumed):
    printed, said, directory = resumed("TRAIN.BASE_LR=0.25", "SEED=2")
    unlisted = f"note: {directory} does not list its training samples"
    assert printed[0].startswith(unlisted)
    files = "split again: val may contain training samples"
    rows = [line.split("  ") for line in printed[2:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert (
        printed[1] == f"settings that differ from {directory}:" and len({line.find("before") for line in printed}) < 3
    )
    assert sorted(cells) == sorted(
        [
            ["setting", "before", "now"],
            ["TRAIN.STOP_AFTER_EPOCH", "9", "None"],
            ["TRAIN.BASE_LR", "0.1", "0.25", "alters the run"],
            ["SEED", "1", "2", "alters the run"],
            ["train and val files", "not listed", files, "alters the run"],
        ]
    )
    assert said.startswith(f"-resume={directory}: ") and "TRAIN.BASE_LR 0.1 -> 0.25" in said and "SEED 1 -> 2" in said
    assert f"files not listed -> {files}: the resumed training would run differently; set these back" in said
    assert "STOP_AFTER_EPOCH" not in said and "or add -allow_changes" in said
    _, changes, _ = resumed("TRAIN.BASE_LR=0.25", "SEED=2", "-allow_changes")
    assert {change.name for change in changes} == {row[0] for row in cells[1:]}
    assert ("SEED", 1, 2) in [change[:3] for change in changes]


def test_another_effective_batch_alters_a_run_as_well(resumed):
    _, (files,), _ = resumed(*SAME, "-allow_changes")
    assert files.name == "train and val files"
    _, changes, _ = resumed(*SAME, "-allow_changes", batch=16)
    assert FactDifference("effective batch", 8, 16, "course") in changes


@pytest.mark.parametrize("average", [None, BOTH])
@pytest.mark.parametrize("has_average", [False, True])
def test_a_checkpoint_of_paddlevit_gives_moments_by_name(tmp_path, average, has_average):
    model, taken, ema = Weights(), [], Average() if has_average else None
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    (model.a.sum() + 2 * model.b.sum()).backward()
    optimizer.step()
    content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "model_ema": average}
    scaler = {"scale": np.array([8.0], "float32"), "incr_count": 3}
    path = tmp_path / "v.pdparams"
    paddle.save({**content, "amp_grad_scaler": scaler}, str(path))
    loader, printed = loader_of(tmp_path, f"-resume={path}", ema=ema, taken=taken)
    state = loader.load()
    (first, moments), (second, scale), begun = taken
    assert (first, second, begun) == ("optimizer_state", "precision", (7,)) and scale["incr_count"] == 3
    kinds = ("moment1", "moment2", "beta1_pow_acc", "beta2_pow_acc")
    assert moments.keys() == {f"{kind}/{name}" for kind in kinds for name in "ab"}
    assert moments["moment1/b"].item() == pytest.approx(0.2)
    assert state == ResumeState({"epoch": 7, "consumed": 0, "update": 77}, samples=None)
    has_both = has_average and average is not None
    told = f"resumed PaddleViT's {path} after epoch 7: loaded 2 of 2 (100.0 % of parameters), moments"
    assert printed[-1].startswith(f"{told}{', its average' if has_both else ''}; the learning rate")
    if has_average:
        assert ema.calls == ([{"a": [1.0], "b": [2.0]}] if has_both else ["restart"])
    elif average is not None:
        assert printed[0] == f"note: the average in {path} is not used: TRAIN.MODEL_EMA is off"


@pytest.fixture
def pretrained(tmp_path):
    """Return a function that starts from weights that are stored with facts and lists of samples, and its results."""

    def start(*words, weights=BOTH, classes=("owl", "kite")):
        folder = tmp_path / "weights"
        settings = to_plain_settings(config_of(tmp_path, "MODEL.NAME=resnet18"))
        about = {"settings": settings, "input": {"size": 4}, "data": {"train": {"classes": list(classes)}}}
        lists = {"train": np.array([1, 2], np.uint64), "val": np.array([3], np.uint64)}
        state = checkpoint_store.RunState({"epoch": 3, "consumed": 0, "update": 33}, {}, STATE)
        tensors = {name: paddle.to_tensor(value) for name, value in weights.items()}
        directory = checkpoint_store.save(folder, "epoch_0003", tensors, state, None, about, lists)
        files, model, datasets = [], Weights(), {"train": DrawnSamples(1, 3), "val": DrawnSamples(2)}
        options = {"datasets": datasets, "files": files, "model": model, "task": SignedTask()}
        loader, printed = loader_of(tmp_path, f"-pretrained={directory}", *words, **options)
        return loader.load(), printed, files, model, directory

    return start


def test_pretrained_weights_are_loaded_with_their_settings_and_compared(pretrained):
    state, printed, files, model, source = pretrained()
    assert state == ResumeState({"epoch": 0, "consumed": 0, "update": 0}) and model.b.item() == 2.0
    ((name, content),) = files
    assert name == "load_report.json" and yaml.safe_load(content)["loaded"] == ["a", "b"]
    starts = [
        f"pretrained weights {source}: loaded 2 of 2 (100.0 % of parameters)",
        f"note: {source} is of another network: MODEL.NAME resnet18 there",
        f"note: {source} was trained with different preprocessing: size 4 there, 3 here",
        "note: 1 images of val, compared with the samples that",
        f"note: {source} was trained on other classes, and this classifier starts from its rows",
    ]
    assert [line[: len(start)] for line, start in zip(printed, starts, strict=True)] == starts


def test_pretrained_weights_may_lack_what_the_keys_allow(pretrained):
    with pytest.raises(UserError, match="lacks 1 of this model's 2 tensors"):
        pretrained("MODEL.MIN_LOADED_FRACTION", "0.25", weights=A)
    with pytest.raises(UserError, match="MODEL.MIN_LOADED_FRACTION"):
        pretrained("MODEL.MIN_LOADED_FRACTION", "0.75", "-allow_changes", weights=A)
    *_, model, _ = pretrained("MODEL.MIN_LOADED_FRACTION", "0.25", "-allow_changes", weights=A)
    assert (model.a.item(), model.b.item()) == (1.0, 6.0)


def test_a_part_of_the_weights_is_loaded_and_facts_that_are_not_stored_are_not_compared(tmp_path):
    path, model = tmp_path / "w.pdparams", Weights()
    state = {name: paddle.to_tensor(value) for name, value in BOTH.items()}
    paddle.save({"encoder": state, "decoder": {"b": state["a"]}}, str(path))
    words = [f"-pretrained={path}", "MODEL.PRETRAINED_PART=encoder"]
    datasets = {"train": DrawnSamples(1), "val": DrawnSamples(2)}
    loader, printed = loader_of(tmp_path, *words, datasets=datasets, files=[], model=model, task=SignedTask())
    loader.load()
    assert (model.a.item(), model.b.item()) == (1.0, 2.0)
    assert printed[0].startswith(f"pretrained weights {path}: loaded 2 of 2")
    assert printed[1:] == [
        f"note: {path} has no class names to match with the data: its classifier's rows keep their places (owl, tit)"
    ]


def test_a_file_of_weights_alone_restarts_the_moments(tmp_path):
    begun, path = [], tmp_path / "w.npz"
    np.savez(path, **BOTH)
    loader, printed = loader_of(tmp_path, f"-resume={path}", "TRAIN.LAST_EPOCH", "4", begin_after=begun.append)
    assert loader.load() == ResumeState({"epoch": 0, "consumed": 0, "update": 0}) and begun == [4]
    assert len(printed) == 1 and printed[0].startswith(f"resumed weights only from {path} (loaded 2 of 2 ")
    assert "so moments restart at epoch 5 (-last_epoch)" in printed[0]


def test_other_ranks_follow_the_main_process(tmp_path):
    """Each rank has a folder of its own here: that of rank 0 counts."""
    save(tmp_path / "1")

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
    assert ThreadRanks(2).run(load([])) == [["weights: random (SEED 0)"]] * 2
    gone = ThreadRanks(2).run(load([f"-resume={tmp_path / 'gone'}"]))
    assert gone[0] == gone[1] and "gone" in gone[0]
    save(tmp_path / "0")
    assert all("already holds" in told for told in ThreadRanks(2).run(load([])))


BEST = {"name": "top-1", "value": 5.0, "epoch": 2, "line": "top-1 5"}
EXTRA = {"scaler": LossScale().state_dict(), "skipped_updates": {"total": 3, "in_a_row": 1}, "best": BEST}
EXTRA |= {"training_means": None, "undecayed": ["a", "x"], "global_batch_size": 8, "evaluations": [[2, 5.0]]}
EXTRA["evaluation_due"] = True


@pytest.mark.parametrize("last_epoch, is_told", [(0, False), (3, False), (2, True)])
@pytest.mark.parametrize("consumed", [0, 16])
def test_a_checkpoint_restores_every_part(tmp_path, last_epoch, is_told, consumed):
    taken, model, position = [], Weights(), {"epoch": 3, "consumed": consumed, "update": 33}
    best = save(tmp_path, name="epoch_0002", position={"epoch": 2, "consumed": 0, "update": 22})
    name = checkpoint_store.update_name(33) if consumed else checkpoint_store.epoch_name(3)
    directory = save(tmp_path, position=position, name=name, extra=EXTRA, samples={"val": np.array([4], np.uint64)})
    loader, printed = loader_of(
        tmp_path,
        f"-resume={directory}",
        f"-last_epoch={last_epoch}",
        datasets={"val": DrawnSamples(4)},
        model=model,
        undecayed=["a"],
        sampler=SimpleNamespace(consumed=consumed, epoch=4, global_batch_size=8),
        taken=taken,
    )
    state = loader.load()
    assert state.samples["val"].tolist() == [4]
    expected = ResumeState(position, directory, [], True, state.samples, None, BEST, None, [(2, 5.0)])
    assert state._replace(evaluations=[tuple(each) for each in state.evaluations]) == expected
    (name, moments), *others = taken
    assert (name, moments.keys()) == ("optimizer_state", BOTH.keys()) and moments["b"].item() == 2.0
    begun = {"epoch": 3, "consumed": consumed}
    assert others == [("precision", EXTRA["scaler"]), ("nan_guard", EXTRA["skipped_updates"]), begun]
    assert (model.a.item(), model.b.item()) == (7.0, 8.0)
    assert (tmp_path / "checkpoints" / "best").resolve() == best.resolve()
    place = "update 33, 16 samples into epoch 4" if consumed else "epoch 3"
    lines = [f"resumed from {directory} after {place}: loaded 2 of 2 (100.0 % of parameters)"]
    lines += [f"TRAIN.LAST_EPOCH 2: no effect: {directory} knows its epoch"] if is_told else []
    lines += resume.describe_changed_decay(directory, ["a", "x"], ["a"])
    rest = f"note: {directory} has no training means: the means of epoch 4 cover the rest of it only"
    assert printed == [*lines, *([rest] if consumed else [])]
