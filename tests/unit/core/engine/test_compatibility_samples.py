"""What a checkpoint's lists of samples say of the samples of the run that loads it: compared with sets of names."""

import json
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from PIL import Image
from support.trainings import small_runs

from paddlevit_dist import UserError
from paddlevit_dist.core.checkpoint import store
from paddlevit_dist.core.engine.compatibility import CheckpointDiff, compare_files, list_samples
from paddlevit_dist.core.tasks.dataset import TransformedDataset, digests
from paddlevit_dist.core.tasks.task import Task

STRICT, LOOSE = SimpleNamespace(ALLOW_CHANGES=False), SimpleNamespace(ALLOW_CHANGES=True)
TASK = Task(STRICT)
TRAINED, HELD_OUT = [f"ant/{number}" for number in range(20)], [f"bee/{number}" for number in range(5)]


class Listed(TransformedDataset):
    is_random_split = True

    def __init__(self, names):
        self.listing = list(names)

    def __len__(self):
        return len(self.listing)

    def describe(self, index):
        return self.listing[index]

    def identities(self):
        return digests(self.listing)


class Unlisted(TransformedDataset):
    """Such as scenes of points, which are not divided."""

    def __len__(self):
        return 4


@pytest.fixture
def source(tmp_path):
    """A checkpoint that lists what it was trained on."""
    lists = list_samples({"train": Listed(TRAINED), "val": Listed(HELD_OUT)}, {})
    state = store.RunState({"epoch": 1, "consumed": 0, "update": 2}, {}, {"best": None, "scaler": {}})
    weights = paddle.nn.Linear(1, 1).state_dict()
    return str(store.save(tmp_path, store.epoch_name(1), weights, state, about={"input": {}}, samples=lists))


def checked(source, names, config=STRICT, split="val", use="evaluate"):
    return CheckpointDiff(use, source, config, TASK).files(split, Listed(names))


def resumed(source):
    return CheckpointDiff("resume", source, STRICT, TASK)


def test_counts_are_those_of_sets():
    generator = np.random.default_rng(0)
    names = [f"{number}.png" for number in range(400)]
    lists = {"train": set(generator.choice(names, 200, False)), "val": set()}
    lists["val"] = set(names[:100]) - lists["train"]
    for split, other, side in (("train", "val", "held out there"), ("val", "train", "trained on")):
        here = generator.choice(names, 150, False).tolist()
        crossed, said = compare_files({name: digests(sorted(one)) for name, one in lists.items()}, split, digests(here))
        assert {here[index] for index in crossed} == set(here) & lists[other]
        new, gone = len(set(here) - lists["train"] - lists["val"]), len(lists[split] - set(here))
        assert said.endswith(f"{len(crossed)} {side}, {new} new, {gone} gone")


def test_the_run_s_own_files_are_silent_and_other_ones_are_counted(source):
    assert checked(source, HELD_OUT[::-1]) == []
    others = ["fly/0", *HELD_OUT[2:]]
    (note,) = checked(source, others)  # another hospital's, another camera's
    assert "for example, bee/0 is gone: the score is for different files" in note and [note] == checked(
        source, others, LOOSE
    )
    assert note.startswith("note: 4 samples of val") and "1 new, 2 gone" in note

    class Nameless(Listed):
        """Such as images of a table in memory: nothing tells which ones they are."""

        def identities(self):
            return None

    assert CheckpointDiff("evaluate", source, STRICT, TASK).files("val", Nameless(others)) == []
    assert checked(source, others, split="test") == []  # which is not listed


def test_of_a_split_that_is_not_listed_what_was_trained_on_counts(source):
    with pytest.raises(UserError, match=r"of test, .*held out: 1 trained on; for example, ant/3 was trained on"):
        checked(source, ["fly/0", "ant/3"], split="test")


def test_what_a_run_had_on_both_sides_is_its_own(tmp_path):
    lists = list_samples({"train": Listed(TRAINED), "val": Listed(TRAINED[:3])}, {})
    assert (
        compare_files(lists, "val", digests(TRAINED[:3]))[1] == compare_files(lists, "train", digests(TRAINED))[1] == ""
    )
    assert compare_files(lists, "val", digests(TRAINED[:4]))[1] == "1 trained on"


def test_an_evaluation_of_what_was_trained_on_stops_unless_allowed(source):
    names = [*HELD_OUT[1:], "ant/3", "ant/4", "fly/0"]
    with pytest.raises(UserError, match="1 new, 1 gone; for example, ant/3 was trained on: .*-allow_changes"):
        checked(source, names)
    assert "2 trained on, 1 new, 1 gone" in checked(source, names, LOOSE)[0]
    assert checked(source, TRAINED, split="train") == []  # asked for by name


def test_a_training_that_starts_from_the_weights_is_told_what_they_have_seen(source):
    assert "1 trained on" in checked(source, [*HELD_OUT, "ant/3"], use="start")[0]
    assert checked(source, ["fly/0"], use="start") == []


def test_a_resumed_training_has_changed_where_its_files_have(source):
    datasets = {"train": Listed([*TRAINED[1:], "bee/0"]), "val": Listed([*HELD_OUT[1:], "ant/0"])}
    changes = {
        change.name: (change.before, change.now, change.alters) for change in resumed(source).changed_files(datasets)
    }
    assert changes == {
        "train files": (20, "1 held out there, 1 gone", True),
        "val files": (5, "1 trained on, 1 gone", True),
    }
    assert resumed(source).changed_files({"train": Listed(TRAINED), "val": Unlisted()}) == []


def test_a_checkpoint_without_lists_is_told_where_the_data_are_divided(source, tmp_path):
    (tmp_path / "epoch_0001" / "samples.npz").unlink()
    (note,) = checked(source, HELD_OUT)
    assert "does not list its training samples: some of these 5 samples" in note
    assert [note] == resumed(source).log_unlisted(Listed(HELD_OUT))
    assert resumed(source).log_unlisted(Unlisted()) == [] == resumed(source).changed_files({"val": Unlisted()})
    (change,) = resumed(source).changed_files({"train": Listed(TRAINED), "val": Listed(HELD_OUT)})
    assert change.alters and change.before == "not listed" and len(change.now) <= 60  # where messages cut it
    assert "does not list" in checked(str(tmp_path / "weights.pth"), HELD_OUT)[0]  # nothing but weights
    assert checked(str(tmp_path / "weights.pth"), HELD_OUT, use="start") == []


def test_a_run_lists_what_is_known_by_a_name(tmp_path):
    lists = list_samples({"train": Listed(TRAINED), "val": Listed(HELD_OUT)}, {})
    assert lists["val names"].tobytes().decode().split("\0") == HELD_OUT
    assert np.array_equal(lists["val"], digests(HELD_OUT)) and np.array_equal(lists["train"], digests(TRAINED))
    assert list_samples({"train": Unlisted(), "val": Unlisted()}, {}) == {}


def test_what_earlier_sessions_were_trained_on_stays_listed_apart_from_this_one_s_sides():
    lists, seen = {}, set()
    for first in (0, 4, 8, 0):
        train = [f"ant/{number}" for number in range(first, first + 6)]
        lists = list_samples({"train": Listed(train), "val": Listed(HELD_OUT)}, lists)
        seen |= set(train)
        assert set(lists["train"]) == set(digests(train)) and set(lists["val"]) == set(digests(HELD_OUT))
        assert set(lists["train"]) | set(lists.get("trained on earlier", ())) == set(digests(sorted(seen)))
    assert (
        list_samples({"train": Listed(TRAINED), "val": Listed(HELD_OUT)}, None) == {}
    )  # not known, so nothing is claimed


RUN = (
    *small_runs.DIGITS,
    *small_runs.TINY,
    "-dataset=folder",
    "-batch_size=4",
    "-epochs=3",
    "DATA.VAL_FRACTION",
    "0.3",
)


@pytest.fixture
def start(tmp_path):
    """``start(*words)`` makes a training on images that are divided; its first epoch is done."""
    for number in range(12):
        file = tmp_path / "data" / ("ant", "bee")[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (16, 16), number).save(file)

    def build(*words):
        return small_runs.make_trainer(tmp_path / "run", [*RUN, f"-data_path={tmp_path / 'data'}", *words])

    build("-stop_after_epoch=1").train()
    return build


def evaluate(trainer, tmp_path, epoch):
    source = str(tmp_path / "run" / "checkpoints" / f"epoch_{epoch:04d}")
    return CheckpointDiff("evaluate", source, STRICT, TASK).files("val", trainer.datasets["val"])


def test_resuming_with_another_seed_does_not_hide_what_was_trained_on(start, tmp_path):
    other = ("DATA.VAL_SEED", "5")
    trainer = start(*other, "-resume=auto", "-allow_changes", "-stop_after_epoch=2")
    trainer.train()
    with pytest.raises(UserError, match=" was trained on: "):
        evaluate(trainer, tmp_path, 2)
    trainer = start(*other, "-resume=auto")  # as the checkpoint has it: nothing is altered
    trainer.train()
    with pytest.raises(UserError, match=" was trained on: "):
        evaluate(trainer, tmp_path, 3)


def test_resuming_a_divided_run_without_lists_has_to_be_allowed_and_lists_nothing(start, tmp_path):
    directory = tmp_path / "run" / "checkpoints" / "epoch_0001"
    (directory / "samples.npz").unlink()
    manifest = json.loads((directory / "manifest.json").read_text())
    del manifest["files"]["samples.npz"]
    (directory / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="files not listed -> split again: val may contain training samples.*-allow_ch"):
        start("-resume=auto").train()
    trainer = start("-resume=auto", "-allow_changes", "-stop_after_epoch=2")
    trainer.train()
    assert "does not list its training samples" in evaluate(trainer, tmp_path, 2)[0]
