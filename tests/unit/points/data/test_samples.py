"""Scenes with their processing: what they say of the scenes they hold, voxels and batches."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.points.data.augment import PointDropout
from paddlevit_dist.points.data.samples import PointSample, SceneSamples, SceneView, collate_samples
from paddlevit_dist.points.data.scene import Scene
from paddlevit_dist.points.data.scenes import SceneDataset


@pytest.mark.parametrize("labeled", [True, False])
def test_samples_have_labels_and_names_if_their_scenes_do(labeled):
    names = ["wall", "floor", "door"] if labeled else None
    samples = SceneSamples(SimpleNamespace(labeled=labeled, class_names=names), (), "first")
    assert samples.labeled is labeled and samples.class_names is names


class Voxelized(SceneSamples):
    """Voxels of a meter, with the channels as features."""

    def voxelize(self, scene):
        voxels = np.floor(scene.xyz).astype(np.int32)
        rows = np.concatenate([*scene.channels.values()], axis=1)
        return PointSample(scene, [self.view(voxels, lambda points: rows[points])])


def make_scene(points, seed=0, **changes):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, points).astype(np.int16)
    channels = {name: generator.random((points, 1), np.float32) for name in ("ring", "time")}
    xyz = generator.uniform(0, 3, (points, 3)).astype(np.float32)
    fields = {"xyz": xyz, "rgb": np.zeros((points, 3), np.uint8), "semantic": labels, "instance": labels}
    return Scene(**{**fields, "name": "room", "channels": channels, **changes})


class Scenes(list, SceneDataset):
    """Scenes whose ``read`` returns what the list has."""

    labeled, class_names = True, None

    def read(self, index):
        return list.__getitem__(self, index)


@pytest.mark.parametrize("kind", ["first", "mean"])
def test_voxels_have_the_features_of_their_first_point_or_the_mean(kind):
    scene = make_scene(80)
    samples = Voxelized(Scenes([scene]), (), kind, features=("time", "ring/2"))
    sample = samples.sample(0, np.random.default_rng(0))
    assert list(sample.scene.channels) == ["time", "ring"]
    (view,) = sample.views
    cells = [tuple(row) for row in np.floor(scene.xyz).astype(int).tolist()]
    order = list(dict.fromkeys(cells))
    assert view.voxels.tolist() == list(map(list, order)) and view.inverse.tolist() == [order.index(c) for c in cells]
    rows = np.concatenate([scene.channels["time"], scene.channels["ring"]], axis=1)
    members = [[number for number, cell in enumerate(cells) if cell == one] for one in order]
    expected = [rows[part[0]] if kind == "first" else rows[part].mean(axis=0) for part in members]
    np.testing.assert_allclose(view.features, expected, rtol=1e-6)


def test_steps_are_applied_and_bad_scenes_refused():
    def make(scene, *steps):
        return Voxelized(OpenedDataset(Scenes([scene])), steps, "first", features=("time",))

    kept = make(make_scene(200), PointDropout(0.5)).sample(0, np.random.default_rng(0)).scene
    assert 70 < len(kept.xyz) < 130
    with pytest.raises(
        UserError, match="POINTS.FEATURES names time, but the points of room have no channels, only rgb"
    ):
        make(make_scene(3, channels={})).sample(0, None)
    xyz = make_scene(3).xyz.copy()
    xyz[1, 2] = np.nan
    with pytest.raises(BadSample):
        make(make_scene(3, xyz=xyz)).sample(0, np.random.default_rng(0))
    for instance, is_bad in (((1 << 24) - 1, False), (1 << 24, True)):
        scene = make_scene(3, instance=np.array([0, instance, -100]))
        if not is_bad:
            make(scene).sample(0, np.random.default_rng(0))
            continue
        with pytest.raises(BadSample, match="instance 16777216 is out of range, expected 0 to 16777215"):
            make(scene).sample(0, np.random.default_rng(0))


def view(voxels, inverse):
    rows = np.asarray(voxels, np.int32).reshape(-1, 3)
    return SceneView(rows, rows[:, :2].astype(np.float32) / 2, np.asarray(inverse, np.int64))


def test_a_batch_has_the_first_views_of_all_scenes_and_then_the_second_ones():
    one = PointSample(make_scene(3), [view([[1, 2, 3], [4, 5, 6]], [0, 1, 1]), view([[7, 8, 9]], [0, 0, 0])])
    two = PointSample(make_scene(0), [view([], []), view([], [])])
    three = PointSample(make_scene(2, 1), [view([[2, 0, 1]], [0, 0]), view([[3, 1, 0], [5, 5, 5]], [1, 0])])
    batch = collate_samples([one, two, three])
    assert batch["coordinates"].tolist() == [
        *([0, 1, 2, 3], [0, 4, 5, 6], [2, 2, 0, 1], [3, 7, 8, 9], [5, 3, 1, 0], [5, 5, 5, 5])
    ]
    assert batch["inverse"].tolist() == [0, 1, 1, 2, 2, 3, 3, 3, 5, 4]
    assert batch["features"].tolist() == (batch["coordinates"][:, 1:3] / 2).tolist()
    assert batch["labels"].tolist() == [*one.scene.semantic, *three.scene.semantic]
    assert batch["offsets"].tolist() == [0, 3, 3, 5] and batch["offsets"].dtype == np.int32
    empty = collate_samples([two, two])
    assert empty["coordinates"].tolist() == [[0, 0, 0, 0], [2, 0, 0, 0]] and empty["labels"].tolist() == [-100]
    assert empty["inverse"].tolist() == [0, 1] and empty["offsets"].tolist() == [0, 0, 0]
    assert empty["features"].tolist() == [[0, 0]] * 2
    assert {name: empty[name].dtype for name in empty} == {name: batch[name].dtype for name in batch}
