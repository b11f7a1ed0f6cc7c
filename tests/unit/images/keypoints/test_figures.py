"""Figures of keypoints: from records, with values in closed form, and skeletons of the hardest images."""

from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.detection.data.detection_dataset import ImageAnnotations
from paddlevit_dist.images.keypoints.data.keypoint_dataset import KeypointDataset
from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.evaluation.matching import PointTable, match_image
from paddlevit_dist.images.keypoints.evaluation.point_scores import measure_points
from paddlevit_dist.images.keypoints.figures import ShownImages, build_error_figures, build_keypoint_figures
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet
from paddlevit_dist.images.keypoints.records import KeypointRecord, PointRecord

HAND = KeypointSet(("wrist", "thumb"), (), (0.1, 0.1), ((0, 1),))
FISH = KeypointSet(("nose",), (), (0.1,), ())
OFF = [0.0, 3.0, 200.0]  # pixels by which the wrist of each image is found too far right


class ThreeImages(KeypointDataset):
    class_names, keypoint_sets, category_ids = ("hand", "fish"), (HAND, FISH), (1, 2)

    def __init__(self):
        pass  # nothing is opened

    def __len__(self):
        return len(OFF)

    def annotations(self, index):
        points = np.array([[[20, 20, 2], [40, 40, 1]]], float)
        return ImageAnnotations(
            np.array([[10, 10, 40, 40]], float), np.zeros(1, int), np.full(1, 1600.0), np.zeros(1, bool),
            np.ones(1, int), points=points,
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
        records.append((index, KeypointRecord.from_matches(match_image(index, truth, predict(index), table), truth)))
    return {figure.title: figure for figure in build_keypoint_figures(SHOWN, records, 0.5)}


def test_points_have_the_errors_of_found_objects(figures):
    # at 200 pixels the wrist adds nothing to OKS, and the thumb alone gives 0.5, which is found
    rows = {row[0]: row[1:] for row in figures["Points"].rows}
    assert rows["hand wrist"][:2] == (3, 3) and rows["fish nose"] == (0, 0, *[None] * 6)
    similarities = [1, np.exp(-9 / (2 * 1600 * 0.04)), 0]
    assert rows["hand wrist"][2:] == pytest.approx(
        [np.mean(similarities), np.mean(OFF), 3, np.percentile(OFF, 95), 100 * np.mean(OFF) / 40, 0], rel=1e-5
    )
    x, y = figures["Distribution of the errors"].lines["hand wrist"]
    assert x == pytest.approx([0, 0, 7.5, 500]) and y == pytest.approx([0, 100 / 3, 200 / 3, 100])
    assert list(figures["Distribution of the errors"].lines) == ["all", "hand wrist", "hand thumb"]


def test_curves_have_the_scores_of_each_threshold(figures):
    lines = figures["Scores by similarity"].lines
    assert lines["recall"][1] == pytest.approx([1, *[2 / 3] * 9])
    assert len(lines["AP"][1]) == 10 and np.mean(lines["AP"][1]) == pytest.approx(
        figures["Categories"].rows[0][1] / 100, abs=1e-4
    )
    assert list(figures["Precision and recall"].lines) == ["OKS 0.50", "OKS 0.75", "OKS 0.90"]
    assert figures["Categories"].rows[0][4:] == (3, 3) and figures["Categories"].rows[1][1:] == (None,) * 3 + (0, 0)
    assert "with objects from a score of" in figures["Choice of the score threshold"].note


def test_the_hardest_images_are_drawn_with_their_skeletons():
    def miss(index):
        return predict(index) if index else predict(index).only(np.zeros(1, bool))

    images, table = SHOWN._replace(predict=miss), PointTable.from_sets((HAND, FISH))
    records = []
    for index in range(2):
        truth = DATASET.annotations(index)
        records.append((index, KeypointRecord.from_matches(match_image(index, truth, miss(index), table), truth)))
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
    record = KeypointRecord.from_matches(match_image(0, truth, found, PointTable.from_sets((mirrored,))), truth)
    images = SHOWN._replace(keypoint_sets=(mirrored,), names=("hand",), predict=lambda index: found)
    figures = {figure.title: figure for figure in build_keypoint_figures(images, [(0, record)], 0.5)}
    assert [row[-1] for row in figures["Points"].rows] == [100, 0]


def test_nothing_found_and_nothing_annotated_have_figures():
    none = DetectedKeypoints(np.zeros((0, 2, 3), np.float32), np.zeros(0, np.float32), np.zeros(0, int))
    truth = ImageAnnotations(np.zeros((0, 4)), *(np.zeros(0, int),) * 2, np.zeros(0, bool), np.zeros(0, int))
    matches = match_image(1, truth, none, PointTable.from_sets((HAND, FISH)))
    titles = [
        figure.title
        for figure in build_keypoint_figures(SHOWN, [(0, KeypointRecord.from_matches(matches, truth))], 0.5)
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
