"""Volumes whose axes are not at right angles: milliliters and distances are those of the world."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist.volumes.geometry import VolumeGeometry, step_lengths, turned_spacing
from paddlevit_dist.volumes.segmentation.metrics import surface_distances
from paddlevit_dist.volumes.segmentation.prediction import VolumeLabelPrediction
from paddlevit_dist.volumes.segmentation.samples import SegmentedVolume

TILT = np.deg2rad(25)
TILTED = np.eye(4)
TILTED[:3, 2] = [0, 2 * np.tan(TILT), 2]  # slices 2 mm apart, each shifted
TURNED = TILTED[:, [2, 0, 1, 3]] * [1, -1, 1, 1]  # the same axes in another order, one backwards
SHAPE = (8, 10, 12)


@pytest.mark.parametrize("affine", [TILTED, TURNED], ids=["tilted", "tilted and turned"])
def test_a_voxel_is_as_large_as_the_determinant_says(affine):
    geometry = VolumeGeometry(SHAPE, affine)
    steps = turned_spacing(geometry)
    np.testing.assert_allclose(step_lengths(steps), [2 / np.cos(TILT), 1, 1])
    assert geometry.voxel_ml == pytest.approx(0.002)
    task = SimpleNamespace(class_names=["background", "organ"], regions=[])
    predicted = SegmentedVolume(0, np.ones(SHAPE, np.uint8), np.zeros(SHAPE, np.float32), steps)
    assert VolumeLabelPrediction(task).prediction_rows(predicted) == [{"ml organ": pytest.approx(1.92)}]


@pytest.mark.parametrize("affine", [TILTED, TURNED, np.diag([0.7, 1.0, 2.5, 1.0])], ids=["tilted", "turned", "right"])
def test_distances_are_those_of_the_world_over_all_pairs(affine):
    steps = turned_spacing(VolumeGeometry(SHAPE, affine))
    generator = np.random.default_rng(3)
    masks = [np.zeros(SHAPE, bool), np.zeros(SHAPE, bool)]
    for mask in masks:
        mask[tuple(generator.integers(0, np.array(SHAPE)[:, None], (3, 12)))] = True  # single voxels are all surface
    places = [np.argwhere(mask) @ steps for mask in masks]
    pairs = np.linalg.norm(places[0][:, None] - places[1][None], axis=2)
    there, back = pairs.min(axis=1), pairs.min(axis=0)
    expected = np.concatenate([there, back]).mean(), max(np.percentile(there, 95), np.percentile(back, 95))
    assert surface_distances(*masks, steps) == pytest.approx(expected)
