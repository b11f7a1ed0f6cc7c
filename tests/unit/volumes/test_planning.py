"""Plans of networks: nnU-Net's own for several spacings and sizes, and what has no plan."""

import json
from pathlib import Path

import numpy as np
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.volumes.planning import choose_spacing, plan_levels, plan_network

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "nnunet_plans.json").read_text())


@pytest.mark.parametrize("name", GOLDEN)
def test_plans_are_nnunets(name):
    case = GOLDEN[name]
    spacings, shapes = np.array(case["spacings"]), np.array(case["shapes"])
    plan = plan_network(spacings, shapes, case["labels"], case["memory_gb"], case["volumes"])
    assert list(plan.levels.size) == case["patch_size"] and plan.batch_size == case["batch_size"]
    assert [[1, 1, 1], *map(list, plan.levels.strides)] == case["strides"]
    assert list(map(list, plan.levels.kernels)) == case["kernels"] and plan.features == case["estimate"]
    assert plan.spacing_mm == pytest.approx(case["spacing"])


def test_thick_slices_are_halved_after_the_others():
    levels = plan_levels((5.0, 0.8, 0.8), (24, 256, 256))
    assert levels.strides[:3] == [(1, 2, 2), (1, 2, 2), (2, 2, 2)] and levels.kernels[:3] == [(1, 3, 3)] * 2 + [
        (3, 3, 3)
    ]
    assert plan_levels((0.8, 0.8, 5.0), (256, 256, 24)).strides == [stride[::-1] for stride in levels.strides]


@pytest.mark.parametrize(
    ("low", "thick", "size", "expected"),
    [
        (1.0, 4.0, 30, 1.0),  # no shorter than the other axes
        (0.999, 4.0, 30, 1.00001),
        (1.5, 4.0, 30, 1.5),
        (1.0, 3.0, 30, 3.0),  # not more than three times as thick
        (1.0, 3.01, 33, 1.0),
        (1.0, 4.0, 34, 4.0),  # a third of the shortest other axis, or more
    ],
)
def test_thick_slices_have_the_tenth_percentile(low, thick, size, expected):
    spacings = np.array([[0.8, 1.0, low]] * 2 + [[0.8, 1.0, thick]] * 9)  # percentile 10 of 11 is the second
    shapes = np.array([[100, 120, size]] * 11)
    np.testing.assert_allclose(choose_spacing(spacings, shapes), [0.8, 1.0, expected], rtol=1e-9)


def test_the_first_patch_is_of_the_nearest_whole_size():
    spacing = (320.7 / 256) ** 3, 1.0, 1.0  # 256 ** 3 voxels of these proportions are 163.1 x 320.7 x 320.7
    plan = plan_network(np.array([spacing]), np.array([[2000] * 3]), 3, 1e5, 2)
    assert plan.levels.size == (192, 384, 384)  # 163 and 321, up to the next multiples of 32 and 64


def test_volumes_have_the_nearest_whole_size_at_the_common_spacing():
    spacings, shapes = np.array([[1.0, 1, 1], [2, 1, 1]]), np.array([[5, 4, 4]] * 2)
    with pytest.raises(UserError, match=r"volumes of 5 x 4 x 4 voxels at 1.5 x 1 x 1 mm are too small"):  # of 3 and 7
        plan_network(spacings, shapes, 3, 8, 2)


def test_a_patch_may_fill_the_memory():
    """8 GB hold 560,000,000 values."""
    volumes = np.array([[2.0, 1.0, 1.0]] * 4), np.array([[40, 96, 100]] * 4)
    whole = plan_network(*volumes, 3, 100, 4)
    memory = whole.features / 70_000_000
    assert 70_000_000 * memory == whole.features
    assert plan_network(*volumes, 3, memory, 4).levels == whole.levels
    less = plan_network(*volumes, 3, (whole.features - 1) / 70_000_000, 4)
    assert less.features < whole.features and np.prod(less.levels.size) < np.prod(whole.levels.size)


@pytest.mark.parametrize(
    "shape, memory, said", [((3, 5, 7), 8, "3 x 5 x 7 voxels"), ((90, 90, 90), 1e-4, "-memory_gb")]
)
def test_no_plan_is_one_line(shape, memory, said):
    with pytest.raises(UserError, match=said) as error:
        plan_network(np.ones((2, 3)), np.array([shape] * 2), 3, memory, 2)
    assert "\n" not in str(error.value)
