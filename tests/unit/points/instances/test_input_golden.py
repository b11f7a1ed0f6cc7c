"""PointGroup's crop, labels without gaps and instance information, reproduced with its random numbers."""

import numpy as np
import pytest
from support.networks.golden import arrays, description

from paddlevit_dist.points.instances.input import compute_instance_table, crop, remove_gaps

ABOUT = description("pointgroup_data")
GOLDEN = arrays("pointgroup_data")
RELABELED = sorted(name[8:-3] for name in GOLDEN if name.startswith("relabel_") and name.endswith("_in"))


class ConfigView:
    """Hands out stored numbers in place of random ones."""

    def __init__(self, rows):
        self.rows = list(rows)

    def random(self, size):
        assert size == 3
        return self.rows.pop(0).astype(np.float64)


@pytest.mark.parametrize("case", ["crop", "nocrop"])
def test_golden_crop(case):
    uniform = ConfigView(GOLDEN[f"{case}_uniform"])
    given = GOLDEN["crop_input"].astype(np.float64)
    moved, kept = crop(given, int(GOLDEN[f"{case}_max_npoint"]), ABOUT["full_scale"][1], uniform)
    assert not uniform.rows
    np.testing.assert_array_equal(kept, GOLDEN[f"{case}_valid"].astype(bool), strict=True)
    np.testing.assert_allclose(moved[kept], GOLDEN[f"{case}_xyz"], atol=1e-4)
    np.testing.assert_allclose((moved - given)[0], GOLDEN[f"{case}_offset"], atol=1e-4)
    if case == "crop":
        assert np.count_nonzero(kept) == ABOUT["crop_kept"]


@pytest.mark.parametrize("case", RELABELED)
def test_golden_labels_without_gaps(case):
    assert len(RELABELED) == 9
    kept = GOLDEN[f"relabel_{case}_in"][GOLDEN[f"relabel_{case}_valid"].astype(bool)]
    np.testing.assert_array_equal(remove_gaps(kept), GOLDEN[f"relabel_{case}_out"], strict=True)


@pytest.mark.parametrize("case", ["room", "cropped"])
def test_golden_instance_information(case):
    xyz, labels = GOLDEN["room_xyz"], GOLDEN["room_instance_label"]
    if case == "cropped":
        xyz, labels = xyz[GOLDEN["crop_valid"].astype(bool)], GOLDEN["relabel_room_out"]
    table = compute_instance_table(xyz, labels)
    info = table.gather_for_points(labels)
    assert info.dtype == np.float32 and info.shape == (len(xyz), 9)
    expected = np.full((len(xyz), 9), -100.0)
    expected[labels >= 0] = GOLDEN[f"info_{case}_table"][labels[labels >= 0]]
    np.testing.assert_allclose(info, expected, atol=1e-5)
    np.testing.assert_array_equal(table.sizes, GOLDEN[f"info_{case}_pointnum"], strict=True)
    assert len(table.sizes) == int(GOLDEN[f"info_{case}_num"])


def test_instances_on_both_sides_of_the_origin_have_mean_and_corners():
    xyz = np.random.default_rng(0).normal(0, 1, (60, 3)) + np.repeat([[-9, 7, -5], [6, -8, 11], [0, 0, 0]], 20, axis=0)
    labels = np.repeat([1, 0, -100], 20)
    table = compute_instance_table(
        xyz.astype(GOLDEN["room_xyz"].dtype), labels.astype(GOLDEN["room_instance_label"].dtype)
    )
    for instance, points in ((1, xyz[:20]), (0, xyz[20:40])):
        expected = np.concatenate([points.mean(axis=0), points.min(axis=0), points.max(axis=0)])
        np.testing.assert_allclose(table.gather_for_points(np.array([instance]))[0], expected, rtol=1e-6)
    assert table.sizes.tolist() == [20, 20]
