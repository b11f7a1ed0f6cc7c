"""Figures of keypoints: from records, with values in closed form, and skeletons of the hardest images."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.drawing import join_cells
from paddlevit_dist.images.keypoints.data.keypoint_dataset import KeypointDataset
from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.drawing import DrawnObjects, fit_in_cell
from paddlevit_dist.images.keypoints.evaluation.matching import PointTable, match_image
from paddlevit_dist.images.keypoints.evaluation.point_scores import measure_points
from paddlevit_dist.images.keypoints.figures import (
    ShownImages,
    build_error_figures,
    build_keypoint_figures,
    chart_errors,
    tabulate_points,
)
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet
from paddlevit_dist.images.keypoints.records import KeypointRecord, PointRecord

HAND = KeypointSet(("wrist", "thumb"), (), (0.1, 0.1), ((0, 1),))
FISH = KeypointSet(("nose",), (), (0.1,), ())
OFF = [0.0, 3.0, 200.0]  # pixels by which the wrist of each image is found too far right


class ThreeImages(KeypointDataset):
    class_names, keypoint_sets, category_ids = ("hand", "fish"), (HAND, FISH), (1, 2)

    def __init__(self, has_fish=False):
        self.has_fish = has_fish  # in the first image and the last one

    def __len__(self):
        return len(OFF)

    def annotations(self, index):
        points = np.array([[[20, 20, 2], [40, 40, 1]], [[60, 30, 2], [0, 0, 0]]], float)
        number = 2 if self.has_fish and index != 1 else 1
        return ImageAnnotations(
            np.full((number, 4), [10.0, 10, 40, 40]), np.arange(number), np.full(number, 1600.0),
            np.zeros(number, bool), np.ones(number, int), points=points[:number],
        )  # fmt: skip

    def read(self, index):
        return Image.fromarray(np.full((80, 100, 3), 90, np.uint8)), self.annotations(index)


def predict(index):
    points = np.array([[[20 + OFF[index], 20, 0.9], [40, 40, 0.9]]], np.float32)
    return DetectedKeypoints(points, np.array([0.9], np.float32), np.zeros(1, int))


DATASET = ThreeImages()
SHOWN = ShownImages(
    SimpleNamespace(dataset=DATASET, describe=lambda index: f"image {index}"), (HAND, FISH), ("hand", "fish"), predict
)


@pytest.fixture(scope="module")
def figures():
    table = PointTable.from_sets((HAND, FISH))
    records = []
    for index in range(len(OFF)):
        truth = DATASET.annotations(index)
        records.append((index, KeypointRecord.from_matches(match_image(index, truth, predict(index), table))))
    return {figure.title: figure for figure in build_keypoint_figures(SHOWN, records, 0.5)}


def test_points_have_the_errors_of_found_objects(figures):
    # at 200 pixels the wrist adds nothing to OKS, and the thumb alone gives 0.5, which is found
    rows = {row[0]: row[1:] for row in figures["Points"].rows}
    assert rows["hand wrist"][6:] == (3, 3) and rows["fish nose"] == (*[None] * 6, 0, 0)
    similarities = [1, np.exp(-9 / (2 * 1600 * 0.04)), 0]
    assert rows["hand wrist"][:6] == pytest.approx(
        [np.mean(similarities), np.mean(OFF), 3, np.percentile(OFF, 95), 100 * np.mean(OFF) / 40, 0], rel=1e-5
    )
    x, y = figures["Distribution of the errors"].lines["hand wrist"]
    assert x == pytest.approx([0, 0, 7.5, 500]) and y == pytest.approx([0, 100 / 3, 200 / 3, 100])
    assert list(figures["Distribution of the errors"].lines) == ["all", "hand wrist", "hand thumb"]


def test_curves_have_the_scores_of_each_threshold(figures):
    lines = figures["Scores by similarity"].lines
    assert lines["recall"][1] == pytest.approx([1, *[2 / 3] * 9])
    assert len(lines["AP"][1]) == 10 and np.mean(lines["AP"][1]) == pytest.approx(
        figures["Categories"].rows[0][1], abs=1e-4
    )
    assert list(figures["Precision and recall"].lines) == ["OKS 0.50", "OKS 0.75", "OKS 0.90"]
    assert figures["Categories"].rows[0][4:] == (3, 3) and figures["Categories"].rows[1][1:] == (None,) * 3 + (0, 0)
    assert "with objects from a score of" in figures["Choice of the score threshold"].note


def test_scores_of_two_categories_are_shown_and_averaged():
    """A fish is found at OKS up to 0.6, with a low score, and another one is not found."""

    def find(index):
        hand = predict(index)
        if index:
            return hand
        fish = np.array([[[60, 38, 0.9], [0, 0, 0]]], np.float32)  # OKS: exp(-8^2 / (2 * 1600 * 0.2^2)) = 0.607
        return DetectedKeypoints(
            np.concatenate([hand.points, fish]), np.array([0.9, 0.4], np.float32), np.array([0, 1])
        )

    images, table = SHOWN._replace(predict=find), PointTable.from_sets((HAND, FISH))
    records, dataset = [], ThreeImages(has_fish=True)
    for index in range(3):
        truth = dataset.annotations(index)
        matches = match_image(index, truth, find(index), table)
        records.append((index + 5, KeypointRecord.from_matches(matches)))
    images = images._replace(dataset=SimpleNamespace(dataset=dataset, describe=lambda index: f"image {index}"))
    images = images._replace(predict=lambda index: find(index - 5))
    gallery, points, _, precision, similarity, categories, *_ = build_keypoint_figures(images, records, 0.5)
    assert [caption for _, caption in gallery.images] == [
        "1 right, 0 wrong, 1 missed\nimage 5", "1 right, 0 wrong, 1 missed\nimage 7"
    ]  # fmt: skip
    assert [(row[0], *row[7:]) for row in points.rows] == [
        ("hand wrist", 3, 3),
        ("hand thumb", 3, 3),
        ("fish nose", 2, 1),
    ]
    ap, recall = np.full((2, 10), 67 / 101), np.full((2, 10), 2 / 3)  # equal scores: the image far off is the last
    ap[0, 0] = recall[0, 0] = 1
    ap[1], recall[1] = [51 / 101] * 3 + [0] * 7, [1 / 2] * 3 + [0] * 7
    thresholds = np.arange(0.5, 1, 0.05)
    for name, values in (("AP", ap), ("recall", recall)):
        np.testing.assert_allclose(similarity.lines[name], [thresholds, values.mean(axis=0)], atol=1e-12)
    levels = np.linspace(0, 1, 101)
    assert list(precision.lines) == ["OKS 0.50", "OKS 0.75", "OKS 0.90"]
    for (x, y), expected in zip(
        precision.lines.values(), ((1 + (levels <= 0.5)) / 2, (levels <= 2 / 3) / 2, (levels <= 2 / 3) / 2)
    ):
        np.testing.assert_allclose([x, y], [levels, expected], atol=1e-12)
    shares = np.round(np.stack([ap.mean(axis=1), ap[:, 0], ap[:, 5]], axis=1), 4)
    assert categories.rows == [("hand", *shares[0], 3, 3), ("fish", *shares[1], 2, 0)]
    assert categories.note == "Empty: no annotations. Found: at an OKS of 0.5 with a score of at least 0.5."


def test_the_distribution_of_errors_has_the_worst_points_and_at_most_200_steps():
    names = [f"p{number}" for number in range(9)]
    points = np.array([4, 0, 1, 2, 3, 3, 5, 6, 7, 7], np.uint16)  # none of p8; the mean of p7 is the largest
    errors = np.array([5.0, 8, 1, 2, 3, 3, 6, 7, 0.5, 19.5])
    (chart,) = chart_errors(names, points, errors, "error, px")
    assert list(chart.lines) == ["all", "p7", "p0", "p6", "p5", "p4", "p3", "p2"]
    assert chart.lines["p7"] == ([0, 0.5, 19.5], [0, 50, 100]) and chart.lines["p3"] == ([0, 3, 3], [0, 50, 100])
    assert chart.lines["all"] == ([0, 0.5, 1, 2, 3, 3, 5, 6, 7, 8, 19.5], [10.0 * step for step in range(11)])
    assert chart.note == "Percent of points with an error up to a value, of the 7 worst of 9 points and of all."
    assert (chart.x_label, chart.y_label) == ("error, px", "points, %")
    (chart,) = chart_errors(names[:7], np.zeros(401, int), np.arange(400.0, -1, -1), "")
    x, y = chart.lines["p0"]
    expected = np.arange(200) * 400 // 199
    assert chart.lines == {"all": (x, y), "p0": (x, y)} and x == [0, *expected]
    np.testing.assert_allclose(y, [0, *(100 * (expected + 1) / 401)], rtol=1e-12)
    assert chart.note == "Percent of points with an error up to a value." and chart_errors(names, [], [], "") == []


def test_the_table_of_points_has_their_errors():
    points, is_exchanged = np.array([2, 0, 2, 2]), np.array([True, True, False, False])
    distances, shares = np.array([1.0, 7, 2, 6]), np.array([0.5, 0.25, 0.125, 0.25])
    table = tabulate_points(
        ["a", "b", "c"], np.array([5, 6, 7]), points, distances, shares, np.array([0.5, 0.25, 1, 0.75]), is_exchanged
    )
    assert table.rows[:2] == [("a", 0.25, 7, 7, 7, 25, 100, 5, 1), ("b", *[None] * 6, 6, 0)]
    assert table.rows[2] == pytest.approx(("c", 0.75, 3, 2, 5.6, 100 * 0.875 / 3, 100 / 3, 7, 3))
    assert table.columns == (
        "point", "OKS", "mean px", "median px", "95 % below px", "mean % of size", "exchanged %", "labeled", "found"
    )  # fmt: skip


def test_the_hardest_images_are_drawn_with_their_skeletons():
    def miss(index):
        return predict(index) if index else predict(index).only(np.zeros(1, bool))

    images, table = SHOWN._replace(predict=miss), PointTable.from_sets((HAND, FISH))
    records = []
    for index in range(2):
        truth = DATASET.annotations(index)
        records.append((index, KeypointRecord.from_matches(match_image(index, truth, miss(index), table))))
    gallery = build_keypoint_figures(images, records, 0.5)[0]
    ((image, caption),) = gallery.images
    assert gallery.note.startswith("Images with the lowest F1") and "of at least 0.5, uncertain" in gallery.note
    assert caption == "0 right, 0 wrong, 1 missed\nimage 0"
    left, right = image[:250, :300], image[:250, 330:630]
    assert (left != 90).any() and (right == 90).all()


def test_exchanged_points_are_counted():
    mirrored = HAND._replace(pairs=((0, 1),), sigmas=(0.5, 0.5))
    truth = DATASET.annotations(0)
    points = np.array([[[39, 40, 0.9], [38, 38, 0.9]]], np.float32)  # the first is where the second one is
    found = DetectedKeypoints(points, np.ones(1, np.float32), np.zeros(1, int))
    record = KeypointRecord.from_matches(match_image(0, truth, found, PointTable.from_sets((mirrored,))))
    images = SHOWN._replace(keypoint_sets=(mirrored,), names=("hand",), predict=lambda index: found)
    figures = {figure.title: figure for figure in build_keypoint_figures(images, [(0, record)], 0.5)}
    assert [row[6] for row in figures["Points"].rows] == [100, 0]


def test_nothing_found_and_nothing_annotated_have_figures():
    none = DetectedKeypoints(np.zeros((0, 2, 3), np.float32), np.zeros(0, np.float32), np.zeros(0, int))
    truth = ImageAnnotations(np.zeros((0, 4)), *(np.zeros(0, int),) * 2, np.zeros(0, bool), np.zeros(0, int))
    matches = match_image(1, truth, none, PointTable.from_sets((HAND, FISH)))
    titles = [
        figure.title for figure in build_keypoint_figures(SHOWN, [(0, KeypointRecord.from_matches(matches))], 0.5)
    ]
    assert titles == ["Points", "Scores by similarity", "Categories"]


@pytest.mark.parametrize("spacing", [None, (0.5, 0.5)])
def test_errors_of_one_object_an_image(spacing):
    records, missing = [], DetectedKeypoints(np.zeros((0, 2, 3), np.float32), np.zeros(0, np.float32), np.zeros(0, int))
    for index in range(3):
        found = missing if index == 2 else predict(index)
        truth = DATASET.annotations(index)
        errors = measure_points(truth, found, 2)[0]
        errors_mm = np.full(2, np.nan) if spacing is None else measure_points(truth, found, 2, spacing)[0]
        records.append((index, PointRecord(errors.astype(np.float32), errors_mm.astype(np.float32), 40.0)))
    unit, factor = ("px", 1.0) if spacing is None else ("mm", 0.5)
    images = SHOWN._replace(predict=lambda index: missing if index == 2 else predict(index))
    gallery, table, chart = build_error_figures(images, records)
    assert [caption.split("\n")[0] for _, caption in gallery.images] == [
        "nothing is detected", f"mean {1.5 * factor:.2f} {unit}, worst wrist {3 * factor:.2f} {unit}",
        f"mean 0.00 {unit}, worst wrist 0.00 {unit}",
    ]  # fmt: skip
    assert table.columns[1] == f"mean {unit}" and table.rows[0][1:] == pytest.approx(
        (1.5 * factor, 1.5 * factor, 1.5 * factor, 2.85 * factor, 3 * factor, 100 / 3, 3)
    )
    assert table.rows[-1][0] == "all" and table.rows[-1][-2:] == (pytest.approx(50), 6)
    assert chart.x_label == f"error, {unit}"


def test_the_worst_images_of_one_object_are_drawn_with_the_best_object():
    """Of the last two images one has no label and the other one no detection."""
    wrists = [2.0, 0.5, 9, 4, 1, 5, 0, 8, 6, 3, 12, 7, np.nan, np.inf]
    thumbs = [np.nan, 1.5, 3, 2, 5, np.nan, 1, 8, 2, 3, 2, 9, np.nan, np.inf]
    errors, sides = np.array([wrists, thumbs], np.float32).T, np.tile([40.0, 20.0], 7)
    records = [
        (20 + place, PointRecord(own, np.full(2, np.nan, np.float32), side))
        for place, (own, side) in enumerate(zip(errors, sides))
    ]

    def find(index):
        far = np.full((2, 2, 3), 70, np.float32)
        far[1] = [[50, 3, 0.9], [60, 3, 0.9]]
        return DetectedKeypoints(far, np.array([0.3, 0.4], np.float32), np.zeros(2, int))

    gallery, table, chart = build_error_figures(SHOWN._replace(predict=find), records)
    captions = [caption.split("\n") for _, caption in gallery.images]
    assert [line for _, line in captions] == [f"image {20 + n}" for n in (13, 7, 11, 10, 2, 5, 8, 3, 4, 9, 0, 1)]
    assert [line for line, _ in captions[:7]] == [
        "nothing is detected", "mean 8.00 px, worst wrist 8.00 px", "mean 8.00 px, worst thumb 9.00 px",
        "mean 7.00 px, worst wrist 12.00 px", "mean 6.00 px, worst wrist 9.00 px", "mean 5.00 px, worst wrist 5.00 px",
        "mean 4.00 px, worst wrist 6.00 px",
    ]  # fmt: skip
    shown = DrawnObjects.from_annotations(DATASET.annotations(0)), DrawnObjects.from_detected(find(0).only([1]))
    cells = [fit_in_cell(np.asarray(DATASET.read(0)[0]), objects, (HAND, FISH), ("hand", "fish")) for objects in shown]
    assert (cells[0] != cells[1]).any()
    np.testing.assert_array_equal(gallery.images[-1][0], join_cells(cells))
    assert [row[0] for row in table.rows] == ["wrist", "thumb", "all"]
    shares = errors / sides[:, None]
    for row, own, share in zip(table.rows, [*errors.T, errors.ravel()], [*shares.T, shares.ravel()]):
        finite = own[np.isfinite(own)]
        values = finite.mean(), finite.std(), np.median(finite), np.percentile(finite, 95), finite.max()
        labeled = int((~np.isnan(own)).sum())
        assert row[1:] == pytest.approx((*values, 100 * (share <= 0.05).sum() / labeled, labeled), rel=1e-6)
    assert table.columns[1:6] == ("mean px", "deviation px", "median px", "95 % below px", "largest px")
    assert {name: len(x) for name, (x, _) in chart.lines.items()} == {"all": 23, "wrist": 13, "thumb": 11}
    assert list(chart.lines) == ["all", "wrist", "thumb"] and chart.x_label == "error, px"
    fewer = build_error_figures(SHOWN._replace(predict=find), records[-3:])[0]
    assert [caption.split("\n")[1] for _, caption in fewer.images] == ["image 33", "image 31"]
