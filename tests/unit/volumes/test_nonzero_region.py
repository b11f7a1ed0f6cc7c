"""Which region z_score uses: that of the weights, else that of the training volumes, of which some are read."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist.volumes import nonzero
from paddlevit_dist.volumes.nonzero import BOX, MASK, VOLUME


class Volumes:
    """Volumes (4, 5, 6) of two channels: that of number n has values in the first of its n planes."""

    def __init__(self, planes):
        self.planes, self.within, self.read = planes, ["unset"], []

    def __len__(self):
        return len(self.planes)

    def stored(self, index):
        self.read.append(index)
        channels = np.zeros((2, 4, 5, 6), np.int16)
        channels[1, : self.planes[index]] = -3
        return list(channels)


def make_task(within=None):
    return SimpleNamespace(within=within, config="the configuration")


@pytest.fixture
def stored_region(monkeypatch):
    """What a checkpoint is said to record, for each kind of run."""
    regions: dict[bool, str | None] = {True: None, False: None}

    def read(config, is_training):
        assert config == "the configuration"
        return regions[is_training]

    monkeypatch.setattr(nonzero, "read_checkpoint_region", read)
    return regions


def test_volumes_are_chosen_evenly_and_at_most_fifty():
    assert nonzero.choose_evenly(3) == [0, 1, 2] and nonzero.choose_evenly(50) == list(range(50))
    chosen = nonzero.choose_evenly(1001)
    assert len(chosen) == 50 and (chosen[0], chosen[-1]) == (0, 1000) and set(np.diff(chosen)) == {20, 21}


def test_the_share_of_the_box_is_that_of_its_voxels():
    mask = np.zeros((4, 5, 6), np.bool_)
    mask[1, 2, 3] = mask[2, 2, 5] = True
    assert nonzero.compute_box(mask) == (slice(1, 3), slice(2, 3), slice(3, 6))
    assert nonzero.compute_box_share(mask) == 2 * 1 * 3 / 120
    assert nonzero.compute_box_shares(Volumes([1, 4, 2, 3])) == [0.25, 1.0, 0.5, 0.75]


@pytest.mark.parametrize(("planes", "within", "percent"), [([1, 2, 4], MASK, "50"), ([3, 3, 1], BOX, "75")])
def test_the_volumes_decide_where_weights_do_not(stored_region, planes, within, percent):
    task, data = make_task(), Volumes(planes)
    (line,) = nonzero.set_region(task, data, ["none", "z_score"], True)
    assert task.within == within and data.within == [VOLUME, within] and data.read == [0, 1, 2]
    assert line.endswith(f"(boxes around nonzero voxels have a median of {percent} % of a volume)")
    used = {MASK: "the nonzero voxels with holes filled, before resampling; all", BOX: "the box around nonzero voxels"}
    assert line.startswith(f"z_score uses {used[within]}")


def test_weights_decide_before_volumes(stored_region):
    stored_region[False] = VOLUME
    task, data = make_task(), Volumes([1, 2, 4])
    lines = nonzero.set_region(task, data, ["z_score"], False)
    assert lines == ["z_score uses the whole volume, after resampling (setting of the weights)"]
    assert (task.within, data.within, data.read) == (VOLUME, [VOLUME], [])
    task = make_task(BOX)
    (line,) = nonzero.set_region(task, data, ["z_score", "z_score", "window"], False)
    assert line == "z_score uses the box around nonzero voxels, before resampling (setting of the weights)"
    assert (task.within, data.within, data.read) == (BOX, [BOX, BOX, VOLUME], [])


@pytest.mark.parametrize(("kinds", "within"), [(["window", "none"], ["unset"]), (["z_score"], None)])
def test_other_kinds_and_other_data_use_whole_volumes(stored_region, kinds, within):
    task, data = make_task(), Volumes([1])
    data.within = within
    assert nonzero.set_region(task, data, kinds, True) == []
    assert task.within == VOLUME and data.within == within and data.read == []


@pytest.mark.parametrize(
    ("resume", "pretrained", "is_training", "source"),
    [
        (None, "w", True, None),
        ("auto", "w", True, "auto"),
        ("auto", "w", False, "best of w"),
        ("r", None, False, "r"),
        (None, None, False, None),
    ],
)
@pytest.mark.parametrize(
    ("about", "region"),
    [
        ({"input": {"normalize": ["none", "z_score"], "z_score": BOX}}, BOX),
        ({"input": {"normalize": ["z_score"]}}, VOLUME),
        ({"input": {"normalize": ["window"], "z_score": BOX}}, None),
        ({"input": {}}, None),
        (None, None),
    ],
)
def test_a_checkpoint_that_is_resumed_or_evaluated_records_its_region(
    monkeypatch, resume, pretrained, is_training, source, about, region
):
    def resolve(name, checkpoints, log):
        assert (name, checkpoints) == (source, Path("out/checkpoints"))
        return Path("found")

    monkeypatch.setattr(nonzero, "evaluated_weights", lambda name: f"best of {name}")
    monkeypatch.setattr(nonzero, "resolve", resolve)
    monkeypatch.setattr(nonzero, "read_about", {"found": about}.__getitem__)
    config = SimpleNamespace(MODEL=SimpleNamespace(RESUME=resume, PRETRAINED=pretrained), SAVE="out")
    assert nonzero.read_checkpoint_region(config, is_training) == (None if source is None else region)
    monkeypatch.setattr(nonzero, "resolve", lambda *_: None)
    assert nonzero.read_checkpoint_region(config, is_training) is None
