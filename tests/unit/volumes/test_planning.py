"""Plans of networks: nnU-Net's own for several spacings and sizes, and what has no plan."""

import json
import math
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


def find_levels(spacing, size):
    """Strides, kernels and the padded size by nnU-Net's rule: lists and floats, an axis at a time."""
    lengths, voxels, halvings = list(spacing), list(map(float, size)), [0, 0, 0]
    strides, kernels, kernel = [], [], [1, 1, 1]
    while True:
        axes = [axis for axis in range(3) if voxels[axis] >= 8]
        axes = [axis for axis in axes if lengths[axis] / min(lengths[other] for other in axes) < 2]
        if not axes or (len(axes) == 1 and voxels[axes[0]] < 12):
            break
        kernel = [3 if lengths[axis] / min(lengths) < 2 else kernel[axis] for axis in range(3)]
        for axis in axes:
            halvings[axis], lengths[axis] = halvings[axis] + 1, 2 * lengths[axis]
            voxels[axis] = math.ceil(voxels[axis] / 2)
        strides.append([2 if axis in axes else 1 for axis in range(3)])
        kernels.append(kernel)
    steps = [2**number for number in halvings]
    padded = [length if length % step == 0 else length + step - length % step for length, step in zip(size, steps)]
    return strides, [*kernels, [3, 3, 3]], [int(length) for length in padded], steps


def plan_by_rule(spacings, shapes, labels, memory_gb, volumes):
    """Spacing, patch, batch, strides and kernels by nnU-Net's published rule, with the coarsest axis in front."""
    target = np.percentile(spacings, 50, axis=0)
    middle = np.percentile(shapes, 50, axis=0)
    worst = int(np.argmax(target))
    others = [axis for axis in range(3) if axis != worst]
    if target[worst] > 3 * max(target[others]) and middle[worst] * 3 < min(middle[others]):
        target[worst] = max(np.percentile(spacings[:, worst], 10), 0)
        if target[worst] < max(target[others]):
            target[worst] = max(target[others]) + 1e-5
    resampled = [[int(round(a / b * n)) for a, b, n in zip(*each, strict=True)] for each in zip(
        spacings, [target] * len(spacings), shapes)]  # fmt: skip
    order = [worst, *others]
    spacing, median = target[order], np.median(resampled, axis=0)[order]
    shares = 1 / spacing
    first = [round(side) for side in shares * (256**3 / np.prod(shares)) ** (1 / 3)]
    patch = np.minimum(first, median)
    while True:
        strides, kernels, patch, steps = find_levels(spacing, patch)
        sides, features = list(patch), []
        for level, stride in enumerate([[1, 1, 1], *strides]):
            sides = [side // step for side, step in zip(sides, stride)]
            features.append(math.prod(sides) * min(320, 32 * 2**level))
        estimate = 2 * sum(features) + 3 * sum(features[:-1]) + labels * math.prod(patch)
        if estimate <= 70_000_000 * memory_gb:
            break
        axis = int(np.argsort([side / whole for side, whole in zip(patch, median)], kind="stable")[-1])
        tried = list(patch)
        tried[axis] -= steps[axis]
        patch[axis] -= find_levels(spacing, tried)[3][axis]
    batch = min(round(70_000_000 * memory_gb / estimate * 2), round(np.prod(median) * volumes * 0.05 / np.prod(patch)))
    back = [order.index(axis) for axis in range(3)]
    turned = [[tuple(row[axis] for axis in back) for row in rows] for rows in (strides, kernels, [patch])]
    return target, turned[2][0], max(batch, 2), turned[0], turned[1]


@pytest.mark.parametrize("memory_gb", [2, 8, 24])
@pytest.mark.parametrize("volumes", [4, 5, 10, 11])  # of even numbers, the median may end in half a voxel
def test_plans_follow_nnunets_rule_for_even_and_odd_numbers_of_volumes(volumes, memory_gb):
    generator, halves, turned = np.random.default_rng([volumes, memory_gb]), 0, 0
    for spacing, size in (
        ((1.0, 1.0, 1.0), (64, 65, 64)),
        ((1.0, 1.0, 1.0), (150, 170, 140)),
        ((0.8, 0.8, 5.0), (500, 480, 40)),
        ((0.7, 3.0, 0.7), (300, 60, 300)),
        ((1.5, 0.8, 0.8), (300, 512, 512)),
    ):
        for changes in (False, True):
            scales = generator.uniform(0.8, 1.25, (volumes, 3)).round(3) if changes else np.ones((volumes, 3))
            shapes = np.array(size) + generator.integers(0, 2 + 20 * changes, (volumes, 3))
            spacings = np.array(spacing) * scales
            plan = plan_network(spacings, shapes, 3, memory_gb, volumes)
            target, patch, batch, strides, kernels = plan_by_rule(spacings, shapes, 3, memory_gb, volumes)
            assert plan.spacing_mm == pytest.approx(target) and plan.batch_size == batch
            assert (plan.levels.size, plan.levels.strides, plan.levels.kernels) == (patch, strides, kernels)
            halves += bool((np.median(np.rint(spacings / target * shapes), axis=0) % 1).any())
            turned += int(target.argmax()) > 0
    assert turned and (halves > 0) == (volumes % 2 == 0)


def test_a_median_of_half_a_voxel_is_padded_up():
    shapes = np.array([[64, 64, 64], [64, 64, 64], [64, 64, 65], [64, 64, 65]])
    plan = plan_network(np.ones((4, 3)), shapes, 2, 12, 4)
    assert plan.levels.size == (64, 64, 80) and plan.levels.multiple.tolist() == [16, 16, 16]


def test_equal_shares_are_cut_along_nnunets_last_axis():
    """Of nnU-Net's axes (2, 0, 1), the last is 1."""
    spacings, shapes = np.array([[1.0, 1.0, 1.5]] * 3), np.array([[256, 256, 160]] * 3)
    whole = plan_network(spacings, shapes, 2, 1000, 3).levels.size
    less = plan_network(spacings, shapes, 2, plan_network(spacings, shapes, 2, 1000, 3).features / 7.1e7, 3).levels.size
    assert less[0] == whole[0] and less[1] < whole[1] and less[2] == whole[2]


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


@pytest.mark.parametrize(
    ("spacing", "size", "strides", "first_kernel"),
    [
        ((1.0, 1.0, 1.0), (8, 8, 8), [(2, 2, 2)], (3, 3, 3)),  # the fewest voxels that are halved
        ((1.0, 1.0, 1.0), (7, 8, 8), [(1, 2, 2)], (3, 3, 3)),
        ((1.0, 1.0, 1.0), (4, 4, 12), [(1, 1, 2)], (3, 3, 3)),  # along a single axis
        ((1.0, 1.0, 1.0), (4, 4, 11), [], (3, 3, 3)),
        ((2.0, 1.0, 1.0), (8, 8, 8), [(1, 2, 2)], (1, 3, 3)),  # twice the shortest
        ((1.99, 1.0, 1.0), (8, 8, 8), [(2, 2, 2)], (3, 3, 3)),
        ((2.0, 1.0, 1.0), (8, 12, 7), [(1, 2, 1)], (1, 3, 3)),
        ((1.0, 2.0, 2.0), (7, 8, 8), [(1, 2, 2)], (3, 1, 1)),  # the shortest of those that are halved decides
    ],
)
def test_axes_at_the_limits_of_being_halved(spacing, size, strides, first_kernel):
    levels = plan_levels(spacing, size)
    assert levels.strides == strides and levels.kernels[0] == first_kernel


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
