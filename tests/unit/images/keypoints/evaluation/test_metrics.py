"""Metrics of keypoints: COCO's numbers of a run's images, and errors of one object an image in closed form."""

import numpy as np
import pytest
from support.networks import keypoint_peer
from support.own_scores import SIX, check_own_scores
from support.thread_ranks import ThreadRanks

from paddlevit_dist import UserError, all_gather
from paddlevit_dist.core.intervals import bootstrap
from paddlevit_dist.core.tasks.score_kind import require_score_kind
from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.evaluation.matching import PointTable, match_image
from paddlevit_dist.images.keypoints.evaluation.metrics import KeypointMetrics, PointMetrics
from paddlevit_dist.images.keypoints.evaluation.point_scores import find_side, measure_points
from paddlevit_dist.images.keypoints.evaluation.score_kind import TEN
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet
from paddlevit_dist.images.keypoints.records import KeypointRecord

HAND = KeypointSet(("wrist", "thumb", "index"), (), (0.1,) * 3, ())


def split(seed, num_images=12):
    """A random case as a run has it: sigmas, categories' names, and annotations and objects of each image by id."""
    dataset, results, sigmas = keypoint_peer.random_case(seed, num_images)
    for entry in dataset["annotations"]:  # datasets count the labeled points themselves
        entry["num_keypoints"] = sum(seen > 0 for seen in entry["keypoints"][2::3])
    image_ids, truth, found, _ = keypoint_peer.inputs(dataset, [r for r in results if r["category_id"] != 999], sigmas)
    images = {}
    for position, image_id in enumerate(image_ids.tolist()):
        own, shown = truth.images == position, found.images == position
        columns = (column[own] for column in (truth.boxes, truth.labels, truth.areas, truth.is_crowd))
        annotations = ImageAnnotations(*columns, np.arange(own.sum()), points=truth.points[own])
        images[image_id] = (
            annotations,
            DetectedKeypoints(
                found.points[shown].astype(np.float32), found.scores[shown].astype(np.float32), found.labels[shown]
            ),
        )
    names = [entry["name"] for entry in sorted(dataset["categories"], key=lambda entry: entry["id"])]
    return dataset, images, names, sigmas


def as_results(images, dataset):
    """The objects as a file of results has them."""
    ids = sorted(entry["id"] for entry in dataset["categories"])
    sizes = {entry["category_id"]: len(entry["keypoints"]) for entry in dataset["annotations"]}
    return [
        {"image_id": image_id, "category_id": ids[label], "score": score,
         "keypoints": points.ravel().tolist()[: sizes.get(ids[label])]}
        for image_id, (_, found) in images.items()
        for points, score, label in zip(found.points, found.scores.tolist(), found.labels.tolist())
    ]  # fmt: skip


def evaluate(pairs, names, sigmas, **options):
    metrics = KeypointMetrics(names, keypoint_peer.build_sets(sigmas), **options)
    for image_id, pair in pairs.items():
        metrics.update(image_id, *pair)
    metrics.indices = [*pairs]
    return metrics, metrics.compute(metrics.state)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_runs_numbers_are_those_of_pycocotools_on_its_results(seed):
    dataset, images, names, sigmas = split(seed)
    metrics, values = evaluate(images, names, sigmas, images=len(images))
    expected = keypoint_peer.averaged(dataset, as_results(images, dataset), sigmas)
    for name in TEN:
        assert values.get(name, -1) == pytest.approx(expected[name], abs=1e-12)
    summary = metrics.summary(values)
    assert summary.startswith(f"AP {values['AP']:.4f} AP50 ") and "COCO uses" not in summary  # its 20 objects
    assert values["images"] == len(images)


def test_draws_are_the_scores_of_so_many_copies_of_each_image():
    _, images, names, sigmas = split(3)
    rng = np.random.default_rng(0)  # copies of equal scores may be ordered otherwise
    images = {
        one: (truth, found._replace(scores=rng.random(len(found.scores)))) for one, (truth, found) in images.items()
    }
    metrics, _ = evaluate(images, names, sigmas)
    weights = np.array([[2, 0, 1, 3] * 3], float)
    drawn = metrics.bootstrap_values(list(metrics.gathered[1].values()), weights)
    pairs = zip([images[image_id] for image_id in sorted(images)], weights[0].astype(int))
    copies = {10 * number + copy: pair for number, (pair, times) in enumerate(pairs) for copy in range(times)}
    _, expected = evaluate(copies, names, sigmas)
    assert expected["AP"] > 0
    for name, column in drawn.items():
        assert column[0] == pytest.approx(expected.get(name, np.nan), abs=1e-12, nan_ok=True), name


def test_the_table_of_a_file_gives_the_scores_again_and_a_damaged_one_is_refused():
    _, images, names, sigmas = split(5)
    metrics, values = evaluate(images, names, sigmas)
    table = list(metrics.gathered[1].values())
    saved = metrics.to_sample_table(table)
    kind = require_score_kind(saved.kind, saved.classes)
    assert kind.is_valid(saved.arrays, len(images), len(names))
    again = kind.recompute([saved.arrays], names)(np.ones((1, len(images))))
    for name in TEN:
        assert again[name][0] == pytest.approx(values.get(name, np.nan), abs=1e-15, nan_ok=True)
    assert not kind.is_valid({**saved.arrays, "points": saved.arrays["points"][:, 1:]}, len(images), len(names))
    for limits, is_valid in (([1, 10, 100], False), ([1 << 31], False), ([-1], False), ([2.0], False), ([7], True)):
        assert kind.is_valid({**saved.arrays, "limits": np.array(limits)}, len(images), len(names)) is is_valid
    for name in ("points", "ids", "num_true", "counts"):
        assert not kind.is_valid({**saved.arrays, name: saved.arrays[name][1:]}, len(images), len(names)), name
    with pytest.raises(ValueError, match="expected a list of names"):
        kind.is_valid({**saved.arrays, "point_names": np.frombuffer(b"{}", np.uint8)}, len(images), len(names))
    with pytest.raises(UserError, match="10 and 20"):
        kind.recompute([saved.arrays, {**saved.arrays, "limits": np.array([10])}], names)


def test_three_ranks_with_other_images_give_the_same_bits():
    _, images, names, sigmas = split(6, 11)
    _, expected = evaluate(images, names, sigmas)
    ranks, ids = ThreadRanks(3), [*images]

    def evaluate_share(rank):
        metrics = KeypointMetrics(names, keypoint_peer.build_sets(sigmas))
        metrics.indices = [*range(rank, len(ids), 3)][::-1]
        for index in metrics.indices:
            metrics.update(ids[index], *images[ids[index]])
        own = metrics.state
        return metrics.compute({name: sum(all_gather(number)) for name, number in own.items()})

    assert ranks.run(evaluate_share) == [expected] * 3 and expected["AP"] > 0


def test_rows_of_images_have_each_point():
    boxes, none = np.array([[0, 0, 20, 20]], float), np.zeros(1, bool)
    points = np.array([[[0, 0, 2], [20, 20, 1], [5, 5, 0]]], float)
    truth = ImageAnnotations(boxes, np.zeros(1, int), np.full(1, 400.0), none, np.ones(1, int), points=points)
    nothing = ImageAnnotations(*(column[:0] for column in truth[:5]), points=points[:0])
    places = np.array([[[9, 9, 1], [90, 90, 1], [0, 0, 0]], [[0, 1, 1], [23, 24, 1], [0, 0, 0]]], np.float32)
    shown = DetectedKeypoints(places, np.array([0.25, 1], np.float32), np.zeros(2, int))
    metrics = KeypointMetrics(["hand"], keypoint_peer.build_sets([HAND.sigmas]), least_score=0.5)
    for image_id, own in ((8, truth), (2, nothing)):
        metrics.update(image_id, own, shown)
    metrics.indices = [0, 1]  # not the order of the ids
    values = metrics.compute(metrics.state)
    rows = metrics.columns(list(metrics.gathered[1].values()))
    assert rows["p0 error_px"][0] == pytest.approx(1) and rows["p1 error_px"][0] == pytest.approx(5)
    assert np.isnan(rows["p2 error_px"][0]) and np.isnan(rows["p0 error_px"][1])
    assert [list(rows[name]) for name in ("true positives", "false positives", "missed")] == [[1, 0], [0, 1], [0, 0]]
    parts = np.exp([-1 / (2 * 400 * 0.04), -25 / (2 * 400 * 0.04)])
    assert values["OKS p1"] == rows["OKS p1"][0] == pytest.approx(parts[1])
    assert rows["AR"][0] == pytest.approx(np.mean(parts.mean() >= np.linspace(0.5, 0.95, 10)))
    assert "OKS p2" not in values and "AP hand" in values


def test_an_object_that_no_score_counts_is_not_missed():
    points = np.array([[[0, 0, 2], [20, 20, 1], [5, 5, 0]]] * 2, float)
    boxes, areas = np.array([[0, 0, 20, 20]] * 2, float), np.array([400.0, -400.0])
    truth = ImageAnnotations(boxes, np.zeros(2, int), areas, np.zeros(2, bool), np.arange(2), points=points)
    nothing = DetectedKeypoints(np.zeros((0, 3, 3), np.float32), np.zeros(0, np.float32), np.zeros(0, int))
    metrics = KeypointMetrics(["hand"], keypoint_peer.build_sets([HAND.sigmas]))
    matches = metrics.update(8, truth, nothing)
    metrics.compute(metrics.state)
    rows = metrics.columns(list(metrics.gathered[1].values()))
    assert list(rows["truth"]) == ["hand 1"] and list(rows["missed"]) == [1]
    assert KeypointRecord.from_matches(matches).true_labels.tolist() == [0]


def test_objects_that_are_not_finite_and_images_twice_are_told():
    _, images, names, sigmas = split(2)
    image_id, (truth, found) = next((one, pair) for one, pair in images.items() if len(pair[1].scores) > 1)
    points = found.points.copy()
    points[0] = np.nan
    metrics, values = evaluate({**images, image_id: (truth, found._replace(points=points))}, names, sigmas)
    assert values["not finite"] == 1 and "(1 objects are not finite)" in metrics.summary(values)
    metrics.update(image_id, truth, found)
    metrics.indices = [*images, image_id]
    with pytest.raises(UserError, match="twice"):
        metrics.compute(metrics.state)


def test_nothing_annotated_is_told():
    truth = ImageAnnotations(np.zeros((0, 4)), *(np.zeros(0, int),) * 2, np.zeros(0, bool), np.zeros(0, int))
    empty = DetectedKeypoints(np.zeros((0, 3, 3), np.float32), np.zeros(0, np.float32), np.zeros(0, int))
    metrics, values = evaluate({1: (truth, empty)}, ["hand"], [HAND.sigmas], max_detections=5)
    assert "AP" not in values and {"AP", "AP50"} <= {*metrics.find_undefined(values)}
    limited = "(5 objects per image and category, COCO uses 20)"
    assert metrics.summary(values) == f"AP not defined {limited} (no annotations: -1 in COCO's tools)"


def one_object(places, seen=(2, 2, 2)):
    points = np.array([[(*place, visibility) for place, visibility in zip(places, seen)]], float)
    return ImageAnnotations(
        np.array([[0, 0, 500, 800]], float), np.zeros(1, int), np.ones(1), np.zeros(1, bool), np.ones(1, int),
        points=points,
    )  # fmt: skip


def shown_at(places, scores=(0.9,)):
    points = np.array([[(*place, 0.5) for place in own] for own in places], np.float32).reshape(-1, 3, 3)
    return DetectedKeypoints(points, np.array(scores, np.float32), np.zeros(len(points), int))


PLACES = [(10, 10), (20, 110), (30, 30)]


def test_shares_and_radial_errors_of_points():
    metrics = PointMetrics(HAND)
    moved = [(13, 14), (20, 119), (30, 30)]  # 5, 9 and 0 pixels off, within 5, 10 and 20 % of 100 pixels
    metrics.update(1, one_object(PLACES, (2, 1, 0)), shown_at([PLACES, moved], (0.1, 0.9)), None, (1.0, 0.25))
    metrics.update(2, one_object(PLACES), shown_at([], ()))
    metrics.indices = [0, 1]
    values = metrics.compute(metrics.state)
    assert values["PCK"] == pytest.approx(100 / 5) and values["PCK@0.1"] == pytest.approx(200 / 5)
    assert values["mre_px"] == pytest.approx(7) and values["sd_px"] == pytest.approx(2)
    millimeters = [np.hypot(3, 1), 2.25]
    assert values["mre_mm"] == pytest.approx(np.mean(millimeters)) and values["sdr_2.5mm"] == 50
    assert values["wrist mre_px"] == pytest.approx(5) and values["thumb PCK"] == 0 and "index mre_px" not in values
    assert (values["images"], values["points"], values["points not detected"]) == (2, 5, 3)
    assert metrics.summary(values) == (
        f"PCK 20.00% PCK@0.1 40.00% PCK@0.2 40.00% mre 7.0000 px sd 2.0000 px mre {np.mean(millimeters):.4f} mm "
        f"sd {np.std(millimeters):.4f} mm sdr 2 mm 0.00 2.5 mm 50.00 3 mm 50.00 4 mm 100.00 "
        "(3 points of objects that are not detected)"
    )
    rows = metrics.columns(list(metrics.gathered[1].values()))
    assert rows["mre_px"][0] == pytest.approx(7) and np.isnan(rows["mre_px"][1]) and [*rows["PCK"]] == [50, 0]
    assert rows["mre_mm"][0] == pytest.approx(np.mean(millimeters)) and rows["thumb error_mm"][0] == 2.25
    assert rows["wrist x"][0] == 13 and rows["wrist true_y"][0] == 10 and np.isnan(rows["index true_x"][0])
    assert (rows["thumb true_x"][0], rows["thumb y"][0], rows["wrist score"][0]) == (20, 119, 0.5)
    saved = metrics.to_sample_table(list(metrics.gathered[1].values()))
    kind = require_score_kind(saved.kind, saved.classes)
    hits = kind.hits(saved.arrays, saved.classes)
    assert {name: hits[name].tolist() for name in ("PCK", "PCK@0.1", "sdr_2mm", "sdr_2.5mm", "sdr_4mm")} == {
        "PCK": [True] + [False] * 4, "PCK@0.1": [True] * 2 + [False] * 3, "sdr_2mm": [False] * 2,
        "sdr_2.5mm": [False, True], "sdr_4mm": [True] * 2,
    }  # fmt: skip
    assert [hits[name].tolist() for name in ("wrist PCK", "index PCK", "thumb PCK@0.2")] == [
        [True, False], [False], [True, False]
    ]  # fmt: skip
    assert [hits[f"{point} sdr_2.5mm"].tolist() for point in HAND.names] == [[False], [True], []]
    assert kind.truth(saved.arrays).tolist() == [[1, 1, 0], [1, 1, 1]]


def test_points_are_measured_from_the_best_finite_object_as_far_as_both_have_them():
    truth, nan, inf = one_object(PLACES, (2, 0, 1)), np.nan, np.inf
    shown = shown_at([PLACES, [(13, 14), (20, 110), (30, 26)], [(nan, 0), (0, 0), (0, 0)]], (0.1, 0.5, 0.9))
    errors, places = measure_points(truth, shown, 3)
    np.testing.assert_array_equal(errors, [5, nan, 4])
    expected = [[13, 14, 0.5, 10, 10], [20, 110, 0.5, nan, nan], [30, 26, 0.5, 30, 30]]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(measure_points(truth, shown, 3, (2.0, 0.25))[0], [np.hypot(6, 1), nan, 1])
    np.testing.assert_array_equal(measure_points(truth, shown, 1)[1], expected[:1])
    fewer = shown._replace(points=shown.points[:, :2])
    np.testing.assert_array_equal(measure_points(truth, fewer, 3)[0], [5, nan, inf])
    np.testing.assert_array_equal(measure_points(truth, fewer, 3)[1][2], [nan, nan, nan, 30, 30])
    for empty in (truth._replace(points=None), truth._replace(points=truth.points[:0])):
        np.testing.assert_array_equal(measure_points(empty, shown, 3)[0], [nan] * 3)
        np.testing.assert_array_equal(measure_points(empty, shown, 3)[1][:, :3], np.array(expected)[:, :3])


def test_the_size_of_an_object_is_the_extent_of_its_points_or_else_its_box():
    assert find_side(one_object(PLACES), 3) == 100 and find_side(one_object(PLACES, (2, 0, 1)), 3) == 20
    assert find_side(one_object(np.array(PLACES) / 400, (2, 1, 0)), 3) == 0.25  # below a pixel
    assert find_side(one_object(PLACES), 1) == find_side(one_object(PLACES)._replace(points=None), 3) == 800
    assert np.isnan(find_side(ImageAnnotations(*(column[:0] for column in one_object(PLACES)[:5])), 3))


def test_rates_of_points_have_intervals_of_proportions():
    metrics = PointMetrics(HAND, share=0.1)
    for number in range(40):
        metrics.update(number, one_object(PLACES), shown_at([[(10 + number % 8 * 3, 10), *PLACES[1:]]]))
    metrics.indices = range(40)
    values = metrics.compute(metrics.state)
    table = list(metrics.gathered[1].values())
    saved = metrics.to_sample_table(table)
    kind = require_score_kind(saved.kind, saved.classes)
    assert kind.is_valid(saved.arrays, 40, 3) and not kind.is_valid(saved.arrays, 40, 2)
    for name in saved.arrays:
        assert not kind.is_valid({**saved.arrays, name: np.zeros((40, 4))}, 40, 3), name
    assert not kind.is_valid({**saved.arrays, "errors_mm": np.zeros((40, 3), int)}, 40, 3)
    hits = kind.hits(saved.arrays, saved.classes)
    assert hits["PCK"].mean() == pytest.approx(values["PCK"] / 100)
    assert [hits[f"{point} PCK"].mean() for point in HAND.names] == [0.5, 1, 1]
    assert metrics.declare(table).rates["PCK"] == 120 and metrics.declare(table).rates["wrist PCK"] == 40
    intervals = bootstrap(kind.recompute([saved.arrays], saved.classes), 40)
    assert values["PCK"] == pytest.approx(100 * (80 + 20) / 120)  # wrists within 10 pixels: 0, 3, 6 and 9
    assert intervals["PCK"].low < values["PCK"] < intervals["PCK"].high
    assert intervals["mre_px"].value == pytest.approx(np.mean([3 * step for step in range(8)]) / 3)
    assert "mre_mm" not in values and "sdr_2mm" not in values


def test_scores_that_a_subclass_adds_have_no_bounds_and_all_others_have():
    _, images, names, sigmas = split(7, SIX)
    of_objects, _ = evaluate(images, names, sigmas)
    of_points = PointMetrics(HAND)
    for number in range(SIX):
        of_points.update(number, one_object(PLACES), shown_at([[(10 + number, 10), *PLACES[1:]]]), None, (1.0, 0.5))
    of_points.indices = range(SIX)
    of_points.compute(of_points.state)
    for metrics in (of_objects, of_points):
        saved = metrics.to_sample_table(list(metrics.gathered[1].values()))
        check_own_scores(require_score_kind(saved.kind, saved.classes), saved)


@pytest.mark.parametrize("what", ["points", "x", "area", "box", "predicted", "nowhere"])
def test_what_is_not_a_number_is_never_found(what):
    """An object without labeled points is found by its box, which excuses a prediction."""
    places = np.array([[0.0, 0], [20, 20], [5, 5]])
    truth, found = one_object(places)._replace(areas=np.full(1, 400.0)), shown_at([places])
    table = PointTable.from_sets([HAND])
    unlabeled = truth._replace(points=np.zeros((1, 3, 3)))
    assert match_image(1, truth, found, table).table.true_positives.any()
    assert match_image(1, unlabeled, found, table).table.ignored.any()
    if what in ("points", "x"):
        truth.points[0, :, : 1 if what == "x" else 2] = np.nan
    elif what == "area":
        truth = truth._replace(areas=truth.areas * np.nan)
    elif what == "box":
        truth = unlabeled._replace(boxes=truth.boxes + np.nan)
    else:
        found.points[:, :, :2] = np.nan
        truth = unlabeled if what == "nowhere" else truth
    matches = match_image(1, truth, found, table).table
    assert not matches.true_positives.any()
    if what in ("box", "nowhere"):
        assert not (matches.ignored & np.uint64(0x3FF)).any()  # of all areas
    values = evaluate({1: (truth, found)}, ["hand"], [HAND.sigmas])[1]
    assert values.get("AP") == (0 if what in ("points", "x", "predicted") else None)  # without an object, undefined
    if what not in ("area", "box"):  # which the error of a point does not need
        errors = PointMetrics(HAND).update(1, truth, found)
        assert not (errors < np.inf).any()
