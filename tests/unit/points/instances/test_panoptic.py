"""Panoptic quality equals semantic-kitti-api's, and a search of all pairs; instances and stuff make one map."""

import numpy as np
import paddle
import pytest
from support.networks.golden import description
from support.samples.instance_scenes import NAMES as SCENE_NAMES
from support.samples.instance_scenes import scene

from paddlevit_dist.core.intervals import panoptic_scores
from paddlevit_dist.core.tasks.score_kind import find_score_kind
from paddlevit_dist.points.instances.matching import InstancePrediction
from paddlevit_dist.points.instances.metrics import InstanceMetrics
from paddlevit_dist.points.instances.panoptic import combine_segments, count_segments

CASES = description("panoptic_quality")["cases"]
NAMES = ["car", "person", "truck", "road", "grass", "sky"]
THINGS = [0, 1, 2]
IS_THING = np.isin(np.arange(len(NAMES)), THINGS)


def draw_scene(number, points=2000):
    """A scene of segments and an imperfect prediction of it.

    True class and instance, then predicted class and instance, int64 (points,) each, -100 for none.
    """
    generator = np.random.default_rng(number)
    cuts = np.sort(generator.choice(np.arange(1, points), 17, replace=False))
    cuts[:3] = 50, 99, 149  # segments of 50, 49 and 50 points
    piece = np.searchsorted(np.sort(cuts), np.arange(points), side="right")
    true_class = generator.integers(-1, len(NAMES), 18)[piece]
    true_instance = np.where(generator.random(18) < 0.8, np.arange(18) // 2, -1)[piece]
    shift = generator.integers(0, 60)
    moved = np.roll(np.arange(points), shift)
    classes, instances = true_class[moved].copy(), true_instance[moved].copy()
    wrong = generator.random(18) < 0.3
    classes = np.where(wrong[piece], generator.integers(-1, len(NAMES), 18)[piece], classes)
    instances = np.where(generator.random(18)[piece] < 0.2, 17, instances)
    return tuple(np.where(values < 0, -100, values) for values in (true_class, true_instance, classes, instances))


def add_scene(metrics, number, true_class, true_instance, classes, predictions, min_points=30):
    losses = np.random.default_rng(number).random(len(true_class))
    metrics.update(*map(paddle.to_tensor, (classes, true_class, np.where(true_class >= 0, losses, 0))))
    metrics.update_instances(true_class, true_instance, predictions)
    metrics.update_panoptic(true_class, true_instance, classes, predictions, min_points)


def scored(numbers):
    metrics = InstanceMetrics(SCENE_NAMES, [1, 2, 3])
    for number in numbers:
        true_class, true_instance, predictions = scene(number)
        add_scene(metrics, number, true_class, true_instance, np.roll(true_class, 40), predictions)
    return metrics


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['min_points']} points")
def test_quality_is_the_apis(case):
    scenes = [count_segments(*draw_scene(number), IS_THING, case["min_points"]) for number in case["scenes"]]
    counts, ious = map(np.stack, zip(*scenes))
    assert counts.sum(axis=0)[:3].tolist() == [case["matched"], case["false"], case["missed"]]
    columns = panoptic_scores(counts, ious, NAMES, IS_THING)(np.ones((1, len(counts))))
    values = {name: column[0] for name, column in columns.items() if not np.isnan(column[0])}
    has_segments = counts[:, :3].sum(axis=(0, 1)) > 0
    per_class = dict(zip(NAMES, case["PQ of classes"]))
    assert {name for name in NAMES if f"PQ {name}" in values} == set(np.array(NAMES)[has_segments])
    for name in np.array(NAMES)[has_segments]:
        assert values[f"PQ {name}"] == pytest.approx(per_class[name], abs=1e-12)
    if has_segments.all():
        means = {kind.replace(" ", "_"): value for kind, value in case["means"].items()}
        assert {kind: values[kind] for kind in means} == pytest.approx(means, abs=1e-12)
    else:  # where a class occurs nowhere, the API's mean counts it as 0
        expected = case["means"]["PQ"] * len(NAMES) / has_segments.sum()
        assert values["PQ"] == pytest.approx(expected, abs=1e-12)


def find_matches(scene, min_points):
    """Matched, false and missed segments of each class by comparing all pairs of sets of points."""
    true_class, true_instance, classes, instances = scene
    keys = []
    for kinds, numbers in ((true_class, true_instance), (classes, instances)):
        things = np.isin(kinds, THINGS)
        keys.append([(k, n if thing else -100) for k, n, thing in zip(kinds.tolist(), numbers.tolist(), things)])
    points = [point for point in range(len(true_class)) if true_class[point] >= 0]
    truth, found = ({key: {p for p in points if side[p] == key} for key in {side[p] for p in points}} for side in keys)
    found = {key: members for key, members in found.items() if key[0] >= 0}
    matches = [
        (one, other)
        for one, members in truth.items()
        for other, others in found.items()
        if one[0] == other[0] and len(members & others) / len(members | others) > 0.5
    ]
    result = np.zeros((3, len(NAMES)), int)
    for one, _ in matches:
        result[0, one[0]] += 1
    for row, segments, side in ((1, found, 1), (2, truth, 0)):
        matched = {match[side] for match in matches}
        for key, members in segments.items():
            result[row, key[0]] += key not in matched and len(members) >= min_points
    return result


@pytest.mark.parametrize("number", range(3))
def test_all_pairs_give_the_same_segments(number):
    drawn = draw_scene(number, 600)
    counts, _ = count_segments(*drawn, IS_THING, 20)
    assert counts[:3].tolist() == find_matches(drawn, 20).tolist()


def test_the_largest_number_of_an_instance_is_a_number_like_any_other():
    true_class, true_instance, classes, instances = draw_scene(0, 600)
    chosen = np.bincount(true_instance[np.isin(true_class, THINGS) & (true_instance >= 0)]).argmax()  # of most points
    renamed = np.where(true_instance == chosen, np.iinfo(np.int32).max, true_instance).astype(np.int32)
    one, other = (
        count_segments(true_class, numbers, classes, instances, IS_THING, 20) for numbers in (true_instance, renamed)
    )
    for found, expected in zip(other, one, strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


def test_instances_take_free_points_and_stuff_the_rest():
    classes = np.array([3, 3, 3, 0, 0, 0, 1, 1, 4, 4])
    predictions = [
        InstancePrediction(1, 0.6, np.array([2, 5, 6, 7])),  # one of its points is taken
        InstancePrediction(0, 0.9, np.array([3, 4, 5])),
        InstancePrediction(0, 0.5, np.array([1, 5, 6])),  # two of three are taken
        InstancePrediction(3, 0.8, np.array([0, 1])),  # stuff
        InstancePrediction(2, 0.4, np.array([7, 9])),  # half of it is taken
    ]
    combined, instances = combine_segments(classes, predictions, IS_THING)
    assert combined.tolist() == [3, 3, 1, 0, 0, 0, 1, 1, 4, 2]
    assert instances.tolist() == [-100, -100, 0, 1, 1, 1, 0, 0, -100, 4]
    assert combine_segments(classes, [], IS_THING)[0].tolist() == [3, 3, 3, -100, -100, -100, -100, -100, 4, 4]


def test_the_order_of_scenes_changes_no_bit():
    orders = range(12), [3, *range(11, 3, -1), 1, 0, 2]
    found = []
    for order in orders:
        metrics, other = scored(order[:5]), scored(order[5:])
        metrics.merge(other)
        metrics.indices = order
        found.append(metrics.compute({}))
    assert found[0] == found[1] and {"PQ", "AP", "loss"} < set(found[0])


def test_means_without_a_segment_are_omitted():
    means = "PQ", "SQ", "RQ", "PQ_dagger"
    metrics, unlabeled = InstanceMetrics(SCENE_NAMES, [1, 2, 3]), np.full(2000, -100)
    add_scene(metrics, 0, unlabeled, unlabeled, np.zeros(2000, int), [])
    values = metrics.compute({})
    assert not [name for name in values if "Q" in name] and {*means} <= {*metrics.find_undefined(values)}
    assert metrics.summary(values).startswith("AP not defined (no instance is large enough) mIoU nan ")
    metrics = InstanceMetrics(["car", "person"], [0, 1])
    add_scene(metrics, 0, *np.array([[0, 0], [4, 4], [0, 0]]), [InstancePrediction(0, 0.9, np.arange(2))], min_points=1)
    values = {name: value for name, value in metrics.compute({}).items() if "Q" in name}
    assert values == {**dict.fromkeys(means, 1.0), "PQ_things": 1.0, "PQ car": 1.0}


def test_scores_of_a_draw_are_those_of_repeated_scenes():
    metrics = scored(range(4))
    weights = np.array([[1.0, 1, 1, 1], [0, 2, 1, 0], [3, 0, 1, 2]])
    table = metrics.per_sample()
    found = metrics.bootstrap_values(table, weights)
    for draw, counts in enumerate(weights.astype(int)):
        expected = scored(np.repeat(np.arange(4), counts)).compute({})
        names = {name for name in found if not np.isnan(found[name][draw])}
        assert names >= {"PQ", "SQ", "RQ", "PQ_dagger", "PQ_things", "PQ_stuff", "PQ table", "AP"}
        assert {name: found[name][draw] for name in names} == pytest.approx({name: expected[name] for name in names})
    columns = metrics.columns(table)
    assert [len(columns[name]) for name in ("PQ", "AP", "instances")] == [4, 4, 4]
    assert "PQ 0." in metrics.summary(metrics.compute({}))
    saved = metrics.to_sample_table(table)
    kind = find_score_kind("instances")
    assert kind.is_valid(saved.arrays, 4, len(SCENE_NAMES))
    for name in ("segment_ious", "missed", "thresholds"):
        assert not kind.is_valid({**saved.arrays, name: saved.arrays[name][..., :-1]}, 4, len(SCENE_NAMES))
    recomputed = kind.recompute([saved.arrays], SCENE_NAMES)(weights)
    for name, column in found.items():
        np.testing.assert_array_equal(recomputed[name], column, strict=True)


def test_scenes_of_other_metrics_are_merged_with_both_kinds_of_scores():
    whole, *parts = scored(range(4)), scored(range(2)), scored(range(2, 4))
    parts[0].merge(parts[1])
    expected, found = whole.compute({}), parts[0].compute({})
    assert list(found) == list(expected)
    np.testing.assert_equal(found, expected)
