"""What a checkpoint's lists of samples say of the samples of the run that loads it: compared with sets of names."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.checkpoint import store
from paddlevit_dist.contracts.dataset import Samples
from paddlevit_dist.contracts.task import Task
from paddlevit_dist.engine.samples_check import changed_samples, known, listed, require_not_trained_on, tell_unlisted
from paddlevit_dist.images.data.image_dataset import digests

STRICT, LOOSE = SimpleNamespace(ALLOW_CHANGES=False), SimpleNamespace(ALLOW_CHANGES=True)
TASK = Task(STRICT)
TRAINED, HELD_OUT = [f"ant/{number}" for number in range(20)], [f"bee/{number}" for number in range(5)]


class Listed(Samples):
    is_share = True

    def __init__(self, names):
        self.names = list(names)

    def __len__(self):
        return len(self.names)

    def describe(self, index):
        return self.names[index]

    def identities(self):
        return digests(self.names)


class Unlisted(Samples):
    """Such as scenes of points, which are not divided."""

    def __len__(self):
        return 4


@pytest.fixture
def source(tmp_path):
    """A checkpoint that lists what it was trained on."""
    lists = listed({"train": Listed(TRAINED), "val": Listed(HELD_OUT)})
    state = store.RunState({"epoch": 1, "consumed": 0, "update": 2}, {}, {"best": None, "scaler": {}})
    weights = paddle.nn.Linear(1, 1).state_dict()
    return str(store.save(tmp_path, store.epoch_name(1), weights, state, about={"input": {}}, samples=lists))


def checked(source, names, config=STRICT, **options):
    return require_not_trained_on(source, config, TASK, options.pop("split", "val"), Listed(names), **options)


def test_counts_are_those_of_sets():
    generator = np.random.default_rng(0)
    names = [f"{number}.png" for number in range(400)]
    lists = {"train": set(generator.choice(names, 200, False)), "val": set()}
    lists["val"] = set(names[:100]) - lists["train"]
    for split, other in (("train", "val"), ("val", "train")):
        here = generator.choice(names, 150, False).tolist()
        found = known({name: digests(sorted(one)) for name, one in lists.items()}, split, digests(here))
        assert {here[index] for index in found.crossed} == set(here) & lists[other]
        assert found.new == len(set(here) - lists["train"] - lists["val"])
        assert found.gone == len(lists[split] - set(here))


def test_the_run_s_own_files_are_silent_and_other_ones_are_counted(source):
    assert checked(source, HELD_OUT[::-1]) == []
    (note,) = checked(source, ["fly/0", *HELD_OUT[2:]])
    assert note.startswith("note: 4 samples of val") and note.endswith("held out: 1 new, 2 gone")


def test_an_evaluation_of_what_was_trained_on_stops_unless_allowed(source):
    names = [*HELD_OUT[1:], "ant/3", "ant/4", "fly/0"]
    with pytest.raises(UserError, match=r"2 trained on, 1 new, 1 gone; trained on is ant/3: .*-allow_changes"):
        checked(source, names)
    assert "2 trained on, 1 new, 1 gone" in checked(source, names, LOOSE)[0]
    assert checked(source, TRAINED, split="train") == []  # asked for by name


def test_a_training_that_starts_from_the_weights_is_told_what_they_have_seen(source):
    assert "1 trained on" in checked(source, [*HELD_OUT, "ant/3"], must_match=False)[0]
    assert checked(source, ["fly/0"], must_match=False) == []


def test_a_resumed_training_has_changed_where_its_files_have(source):
    datasets = {"train": Listed([*TRAINED[1:], "bee/0"]), "val": Listed([*HELD_OUT[1:], "ant/0"])}
    changes = {change.name: (change.before, change.now, change.alters) for change in changed_samples(source, datasets)}
    assert changes == {
        "train files": (20, "1 held out there, 1 gone", True),
        "val files": (5, "1 trained on, 1 gone", True),
    }
    assert changed_samples(source, {"train": Listed(TRAINED), "val": Unlisted()}) == []


def test_a_checkpoint_without_lists_is_told_where_the_data_are_divided(source, tmp_path):
    (tmp_path / "epoch_0001" / "samples.npz").unlink()
    (note,) = checked(source, HELD_OUT)
    assert "does not list what it was trained on: how many of these 5 samples" in note
    assert [note] == tell_unlisted(source, TASK, Listed(HELD_OUT))
    assert tell_unlisted(source, TASK, Unlisted()) == [] and changed_samples(source, {"val": Listed(HELD_OUT)}) == []
    assert checked(str(tmp_path / "weights.pth"), HELD_OUT) == []  # anybody's weights


def test_a_run_that_divides_nothing_lists_nothing():
    whole = Listed(TRAINED)
    whole.is_share = False
    assert listed({"train": whole, "val": whole}) == {} == listed({"train": Unlisted(), "val": Unlisted()})
