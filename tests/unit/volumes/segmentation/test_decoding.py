"""Labels by several networks: numpy's mean of the single probabilities, at the stored grid."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.protocols import Ensembling
from paddlevit_dist.volumes.segmentation.dataset import IGNORED
from paddlevit_dist.volumes.segmentation.decoding import MeanProbabilities, resample_maps
from paddlevit_dist.volumes.segmentation.regions import LabelRegion
from paddlevit_dist.volumes.segmentation.samples import HOST, VolumeRecord
from paddlevit_dist.volumes.segmentation.task import VolumeSegmentation

REGIONS = [LabelRegion((1, 2, 3), 1), LabelRegion((2, 3), 2), LabelRegion((3,), 3)]


def interpolated(maps):
    """The maps (3, 4, 2, 2) at every half voxel of the depth, float64 (3, 7, 2, 2)."""
    lines = maps.transpose(0, 2, 3, 1).reshape(-1, 4)
    line = np.stack([np.interp(np.arange(7) / 2, np.arange(4), each) for each in lines.astype(np.float64)])
    return line.reshape(3, 2, 2, 7).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("regions", [[], REGIONS], ids=["classes", "regions"])
def test_labels_are_those_of_numpys_mean(regions, monkeypatch):
    monkeypatch.setattr("paddlevit_dist.volumes.segmentation.decoding._VALUES_AT_ONCE", 3 * 2 * 2 * 3)
    maps = 2 * np.random.default_rng(0).standard_normal((5, 3, 4, 2, 2)).astype("float32")
    maps[2, 1, 3, 1, 1] = np.inf
    mean, shares = MeanProbabilities(3, (7, 2, 2), regions), []
    for each in maps:
        mean.add(paddle.to_tensor(each), np.array([0.5, 1.0, 1.0]))
        with np.errstate(invalid="ignore", over="ignore"):
            outputs = interpolated(each)
            shares.append(1 / (1 + np.exp(-outputs)) if regions else np.exp(outputs) / np.exp(outputs).sum(axis=0))
    expected = np.mean(shares, axis=0)
    if regions:
        labels = np.select([expected[2] > 0.5, expected[1] > 0.5, expected[0] > 0.5], [3, 2, 1], 0)
    else:
        labels = expected.argmax(axis=0)
    labels[4:, 1, 1] = IGNORED
    found = mean.choose_labels()
    np.testing.assert_array_equal(found, labels)
    single = (interpolated(maps[0]).argmax(axis=0), interpolated(maps[1]).argmax(axis=0))
    assert regions or ((found != single[0]).any() and (found != single[1]).any())  # not one member's alone


@pytest.mark.parametrize("steps", [(1.0, 1.0, 1.0), (0.5, 1.7, 1.0), (1.0, 0.8, 1.1)])
@pytest.mark.parametrize("shape", [(4, 3, 5), (6, 2, 7)])
def test_maps_are_resampled_along_each_axis_as_numpy_does(shape, steps):
    maps = np.random.default_rng(0).standard_normal((2, 4, 3, 5)).astype("float32")
    expected = maps
    for axis, (count, step) in enumerate(zip(shape, steps), 1):
        places = np.arange(count) * step, np.arange(maps.shape[axis])
        expected = np.apply_along_axis(lambda line, places=places: np.interp(*places, line), axis, expected)
    for planes in (slice(None), slice(1, 3)):
        found = resample_maps(paddle.to_tensor(maps), shape, np.array(steps), planes)
        np.testing.assert_allclose(found.numpy(), expected[:, planes], rtol=1e-5, atol=1e-6)


def test_each_member_predicts_with_its_own_windows():
    """A network that says how deep its windows are: the mean is over members with different settings."""
    record = VolumeRecord(0, (8, 4, 4), ((1.0, 0, 0), (0, 1.0, 0), (0, 0, 1.0)), (1.0, 1.0, 1.0))
    batch = {HOST: [tuple(record)], "volume 0": paddle.zeros([1, 8, 4, 4]), "labels 0": np.zeros(0)}
    members = []
    for depth in (2, 8, 8):
        volumes = load(["-cfg=configs/volume_unet3d_phantoms.yaml", "VOLUMES.CROP_SIZE", f"[{depth}, 4, 4]"]).values
        task = VolumeSegmentation.__new__(VolumeSegmentation)
        task.config, task.class_names, task.regions = volumes, ["background", "deep"], []
        members.append((task, lambda windows: paddle.concat([windows, windows + windows.shape[2] - 4.0], axis=1)))
    (votes,) = get_aspect(members[0][0], Ensembling).predict_mean(members, batch)
    assert votes.labels.dtype == np.uint8 and (votes.labels == 1).all()  # -2, 4, 4
    (votes,) = get_aspect(members[0][0], Ensembling).predict_mean(members[:1], batch)
    assert (votes.labels == 0).all()
