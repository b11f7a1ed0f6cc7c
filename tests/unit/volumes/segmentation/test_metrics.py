"""Dice and surface distances of segmented volumes, against loops over voxels."""

import math

import numpy as np
import pytest

from paddlevit_dist.volumes.segmentation.dataset import IGNORED
from paddlevit_dist.volumes.segmentation.metrics import VolumeMetrics, surface_distances


def make_surface(mask):
    """Voxels with a face to a voxel outside of the mask, or outside of the volume, by asking each."""
    found = []
    for place in np.argwhere(mask):
        for axis in range(3):
            for step in (-1, 1):
                other = place.copy()
                other[axis] += step
                if not 0 <= other[axis] < mask.shape[axis] or not mask[tuple(other)]:
                    found.append(tuple(place))
    return np.array(sorted(set(found)))


def test_surface_distances_are_those_of_all_pairs_of_surface_voxels():
    """MONAI's two definitions, each distance by looking at every pair."""
    generator, spacing = np.random.default_rng(3), np.array([2.5, 1.0, 0.7])
    for _ in range(5):
        centers = generator.uniform(3, 7, (2, 3))
        grid = np.indices((9, 11, 12)).transpose(1, 2, 3, 0)
        masks = [(((grid - center) / (3.5, 4, 4)) ** 2).sum(axis=-1) < 1 for center in centers]
        masks[0] |= generator.random(masks[0].shape) < 0.02
        surfaces = [make_surface(mask) * spacing for mask in masks]
        pairs = np.linalg.norm(surfaces[0][:, None] - surfaces[1][None], axis=-1)
        nearest = [pairs.min(axis=1), pairs.min(axis=0)]
        average = sum(map(float, np.concatenate(nearest))) / (len(surfaces[0]) + len(surfaces[1]))
        worst = max(np.percentile(own, 95) for own in nearest)
        assert surface_distances(*masks, spacing) == pytest.approx((average, worst), abs=1e-9)


def one_voxel(*place):
    mask = np.zeros((5, 6, 7), bool)
    mask[place] = True
    return mask


@pytest.mark.parametrize(
    "true, predicted, expected",
    [
        (one_voxel(0, 0, 0), one_voxel(0, 0, 0), (0, 0)),
        (one_voxel(0, 0, 0), one_voxel(4, 0, 6), (math.hypot(4 * 2.5, 6 * 0.7),) * 2),  # both at the border
        (one_voxel(2, 1, 3), one_voxel(2, slice(1, 3), 3), (1 / 3, 0.95)),  # 0; 0 and 1
        (np.ones((5, 6, 7), bool), np.ones((5, 6, 7), bool), (0, 0)),  # the end of the volume is a surface
    ],
)
def test_surfaces_of_one_voxel_and_at_the_border(true, predicted, expected):
    assert surface_distances(true, predicted, np.array([2.5, 1.0, 0.7])) == pytest.approx(expected)


def test_dice_per_case_pooled_and_where_labeled():
    """Three volumes of a line of voxels: a class that is missed, one that is only predicted, one in no volume."""
    names = ["background", "a", "b", "c"]
    true = [[0, 1, 1, 1], [1, 1, 0, IGNORED], [0, 0, 2, 2]]
    found = [[0, 1, 1, 0], [0, 0, 0, 1], [1, 0, 2, 1]]
    metrics = VolumeMetrics(names)
    for labels, predicted in zip(true, found):
        shape = (1, 1, 4)
        metrics.update(
            np.array(predicted, np.uint8).reshape(shape), np.array(labels, np.uint8).reshape(shape), np.ones(3)
        )
    values = metrics.compute(metrics.state)
    of_a = [2 * 2 / (3 + 2), 0.0, 0.0]  # missed in the second, only predicted in the third
    of_b = [2 * 1 / (2 + 1)]
    assert values["Dice a"] == pytest.approx(np.mean(of_a)) and values["Dice b"] == pytest.approx(np.mean(of_b))
    assert values["labeled Dice a"] == pytest.approx(np.mean(of_a[:2])) and "Dice c" not in values
    assert values["Dice"] == pytest.approx((np.mean(of_a) + np.mean(of_b)) / 2)
    assert values["pooled Dice a"] == pytest.approx(2 * 2 / (5 + 4)) and values["missed"] == 2
    assert values["assd_mm a"] == pytest.approx((0 + 0 + 1 + 0 + 0) / 5)
    table = metrics.per_sample()
    drawn = metrics.bootstrap_values(table, np.array([[1.0, 1, 1], [2, 0, 1]]))
    assert drawn["Dice"][0] == pytest.approx(values["Dice"])
    assert drawn["Dice a"][1] == pytest.approx((2 * of_a[0] + of_a[2]) / 3)
    assert metrics.summary(values).startswith("Dice 0.46")
    assert metrics.to_sample_table(table).arrays["sums"].shape == (3, 3, 11)
