"""Predicted keypoints: rows, results in COCO's format, drawings, and data sets that are read back."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.networks import keypoint_peer

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.prediction import PredictionRecord
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.images.data.inputs import open_image_inputs
from paddlevit_dist.images.data.reading import ReadConfig
from paddlevit_dist.images.keypoints.data.coco_keypoints import CocoKeypoints
from paddlevit_dist.images.keypoints.data.yolo_pose import YoloPose
from paddlevit_dist.images.keypoints.detected_keypoints import DetectedKeypoints
from paddlevit_dist.images.keypoints.keypoint_set import KeypointSet
from paddlevit_dist.images.keypoints.prediction import KeypointPrediction, build_rows

HAND = KeypointSet(("wrist", "thumb", "index"), ((1, 2),), (0.1, 0.2, 0.3), ((0, 1), (0, 2)))
FISH = KeypointSet(("nose", "tail"), ((0, 0),), (0.05, 0.05), ((0, 1),))


class Predicting(KeypointPrediction):
    """Both tasks' predictions without their networks."""

    def predict_step(self, model, batch):
        raise NotImplementedError

    def open_inputs(self, inputs, cache_folder):
        return open_image_inputs(inputs, cache_folder, lambda image, generator: image, "RGB", ReadConfig(True, 10**6))


def found(*objects):
    """Objects of category, score, and x, y, score of each point."""
    points = np.zeros((len(objects), 3, 3), np.float32)
    for row, (_, _, *own) in zip(points, objects):
        row[: len(own)] = own
    scores = np.array([score for _, score, *_ in objects], np.float32)
    return DetectedKeypoints(points, scores, np.array([label for label, *_ in objects], int))


FOUND = [
    found(
        (0, 0.75, (10, 20, 0.9), (30.5, 40, 0.5), (90, 90, 0.1)),
        (1, 0.875, (40, 40, 0.9), (60, 42, 0.8)),
        (1, 0.25, (4, 4, 0.9), (6, 4, 0.8)),
    ),
    found(),
]


@pytest.fixture
def opened(tmp_path):
    for name, size in (("a.png", (100, 80)), ("b.png", (50, 60))):
        Image.fromarray(np.full((size[1], size[0], 3), 77, np.uint8)).save(tmp_path / name)
    config = SimpleNamespace(DETECTION=SimpleNamespace(SCORE_THRESHOLD=0.5))
    task = SimpleNamespace(class_names=["hand", "fish"], category_ids=[3, 7], keypoint_sets=(HAND, FISH), config=config)
    (tmp_path / "cache").mkdir()
    predicting = Predicting(task)
    return predicting, predicting.open_inputs([str(tmp_path / "a.png"), str(tmp_path / "b.png")], tmp_path / "cache")


def write(predicting, samples, folder):
    writer, entries = predicting.prediction_writer(folder, samples), []
    for index, prediction in enumerate(FOUND):
        row = writer.write(index, prediction)
        rows = [{**one, **row} for one in predicting.prediction_rows(prediction)]
        entries.append(PredictionRecord(index, rows, summary=writer.summarize(index, prediction)))
    return predicting.prediction_writer(folder, samples).finish(entries), entries  # of another process


def test_rows_have_the_points_of_all_categories_best_object_first(opened):
    rows = opened[0].prediction_rows(FOUND[0])
    none = (None, None, None)
    # the boxes are around all three points, of which a fish lacks the last one
    assert [*rows[0].values()] == ["fish", 0.875, 0, 0, 60, 42, *none * 3, 40, 40, 0.9, 60, 42, 0.8]
    points = (10, 20, 0.9, 30.5, 40, 0.5, 90, 90, 0.1)
    assert [*rows[1].values()] == ["hand", 0.75, 10, 20, 80, 70, *points, *none * 2]
    names = [f"{name} {what}" for name in (*HAND.names, *FISH.names) for what in ("x", "y", "score")]
    assert [*rows[0]] == ["category", "score", "x", "y", "width", "height", *names]
    (exact,) = opened[0].prediction_rows(found((1, 0.66666, (1.23456, 2.34567, 0.12347), (4.5678, 9.8765, 0.98764))))
    assert [*exact.values()] == [
        "fish", 0.6667, 0, 0, 4.57, 9.88, *none * 3, 1.23, 2.35, 0.1235, 4.57, 9.88, 0.9876
    ]  # fmt: skip
    alike = opened[0].prediction_rows(found(*((0, 0.5 + place % 2 / 4, (place, 1, 1)) for place in range(200))))
    assert [row["wrist x"] for row in alike] == [*range(1, 200, 2), *range(0, 200, 2)]
    (empty,) = opened[0].prediction_rows(FOUND[1])
    assert list(empty) == list(rows[0]) and set(empty.values()) == {None}
    with pytest.raises(BadSample):
        opened[0].prediction_rows(found((0, 0.5, (np.nan, 0, 0))))


def test_results_are_coco_s_with_names_and_all_objects_and_drawings_have_the_sure_ones(opened, tmp_path):
    lines, entries = write(*opened, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert [set(entry) for entry in results] == [
        {"image_id", "category_id", "keypoints", "score", "file_name", "category_name"}
    ] * 3
    assert results == [
        {
            "image_id": results[0]["image_id"], "category_id": [3, 7][label], "file_name": results[0]["file_name"],
            "keypoints": points[: 3 - label].ravel().tolist(), "score": score, "category_name": ["hand", "fish"][label],
        }
        for points, score, label in zip(FOUND[0].points, FOUND[0].scores.tolist(), FOUND[0].labels.tolist())
    ]  # fmt: skip
    assert results[0]["file_name"].endswith("a.png")
    assert lines[0].startswith("objects with a score of at least 0.5 (-least_score) are in the tables and drawn on")
    assert lines[1].startswith("3 detections are in")
    drawn = np.asarray(Image.open(tmp_path / "pictures" / entries[0].rows[0]["picture"].split("/")[-1]))
    assert (drawn != 77).any()
    keypoint_peer.evaluated(  # pycocotools reads it
        {"images": [{"id": results[0]["image_id"]}], "categories": [{"id": 3}], "annotations": []},
        results, HAND.sigmas, 3,
    )  # fmt: skip


EXPECTED = [  # label, labeled points and the box, of objects of at least the score
    (0, [[10, 20, 2], [30.5, 40, 2], [0, 0, 0]]),
    (1, [[40, 40, 2], [60, 42, 2], [0, 0, 0]]),
]


@pytest.mark.parametrize("layout", ["coco", "yolo"])
def test_the_reader_of_the_layout_reads_the_same_points(opened, tmp_path, layout):
    predicting, samples = opened
    predicting.save_predictions_as(layout)
    lines, _ = write(predicting, samples, tmp_path / "out")
    name = {"coco": "coco_keypoints", "yolo": "yolo_pose"}[layout]
    folder = tmp_path / "out" / "dataset"
    expected = (
        f"2 images with 2 objects of a score of at least 0.5 are in {folder}: -dataset={name} -data_path={folder}"
    )
    assert lines[-1] == expected
    read = {"coco": CocoKeypoints, "yolo": YoloPose}[layout](str(folder), "train", tmp_path / "cache")
    assert read.class_names == ["hand", "fish"] or tuple(read.class_names) == ("hand", "fish")
    annotations = read.annotations(0)
    assert len(read) == 2 and not len(read.annotations(1).labels)
    assert annotations.labels.tolist() == [label for label, _ in EXPECTED]
    np.testing.assert_allclose(annotations.points, [points for _, points in EXPECTED], atol=1e-4)
    boxes = [[10 - 2.05, 20 - 2.05, 20.5 + 4.1, 20 + 4.1], [38, 38, 24, 6]]
    np.testing.assert_allclose(annotations.boxes, boxes, atol=1e-3)
    if layout == "coco":
        assert read.keypoint_sets == (HAND, FISH) and tuple(read.category_ids) == (3, 7)
    else:
        assert [points.names for points in read.keypoint_sets] == [HAND.names, (*FISH.names, "unused 3")]


def test_objects_without_boxes_have_them_around_their_sure_points_or_all(opened, tmp_path):
    predicting, samples = opened
    predicting.save_predictions_as("coco")
    writer = predicting.prediction_writer(tmp_path / "out", samples)
    unsure = found(
        (0, 0.9, (40, 20, 0.25), (60, 30, 0.125), (0, 0, 0)),
        (0, 0.75, (0, 0, 0), (1, 1, 0), (2, 2, 0)),
        (1, 0.5, (60, 30, 0.5), (30, 75, 0.25)),
    )
    writer.write(0, unsure)
    writer.finish([PredictionRecord(0, [{"category": "hand"}], summary=writer.summarize(0, unsure))])
    content = json.loads(next((tmp_path / "out" / "dataset" / "annotations").iterdir()).read_text())
    rows = [(one["category_id"], one["bbox"], one["keypoints"], one["num_keypoints"]) for one in content["annotations"]]
    assert rows == [(3, [38, 18, 24, 14], [0] * 9, 0), (7, [59, 29, 2, 2], [60, 30, 2, 0, 0, 0], 1)]


def test_ids_of_results_may_be_of_annotations(opened, tmp_path):
    predicting, samples = opened
    content = {
        "images": [{"id": 8, "file_name": "b.png"}, {"id": 9, "file_name": "a.png"}],
        "categories": [{"id": 30, "name": "fish"}, {"id": 40, "name": "hand"}],
    }
    (tmp_path / "annotations.json").write_text(json.dumps(content), encoding="utf-8")
    lines = predicting.load_annotation_ids(str(tmp_path / "annotations.json"), samples)
    assert len(lines) == 1 and lines[0].endswith("2 images and 2 of 2 categories matched by name")
    write(predicting, samples, tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(one["image_id"], one["category_id"]) for one in results] == [(9, 40), (9, 30), (9, 30)]


def test_voc_has_no_keypoints(opened):
    with pytest.raises(UserError, match="-save_as=voc has no keypoints: choose coco or yolo"):
        opened[0].save_predictions_as("voc")


@pytest.mark.parametrize("is_described", [False, True])
def test_flip_idx_is_not_written_if_a_category_has_no_pairs(opened, tmp_path, is_described):
    predicting, samples = opened
    predicting.task.keypoint_sets = (FISH, FISH._replace(pairs=FISH.pairs if is_described else ()))
    predicting.save_predictions_as("yolo")
    write(predicting, samples, tmp_path / "out")
    assert ("flip_idx: [0, 1]\n" in (tmp_path / "out" / "dataset" / "data.yaml").read_text()) == is_described


def test_flip_idx_is_written_if_all_categories_agree(opened, tmp_path):
    predicting, samples = opened
    predicting.task.keypoint_sets, predicting.task.class_names = (HAND,), ["hand"]
    predicting.task.category_ids = [3]
    predicting.save_predictions_as("yolo")
    writer = predicting.prediction_writer(tmp_path / "out", samples)
    boxed = found((0, 0.9, (1, 1, 1), (2, 2, 1), (3, 3, 1)))._replace(boxes=np.array([[-5, 5, 20, 30]], np.float32))
    writer.write(1, boxed)
    writer.finish([PredictionRecord(1, [{"category": "hand"}], summary=writer.summarize(1, boxed))])
    text = (tmp_path / "out" / "dataset" / "data.yaml").read_text()
    assert "kpt_shape: [3, 3]\nflip_idx: [0, 2, 1]\nkpt_names:\n  0: [" in text
    (line,) = (tmp_path / "out" / "dataset" / "labels" / "train" / "b.txt").read_text().splitlines()
    assert [float(word) for word in line.split()] == pytest.approx(
        [0, 0.2, 17.5 / 60, 0.4, 25 / 60, 1 / 50, 1 / 60, 2, 2 / 50, 2 / 60, 2, 3 / 50, 3 / 60, 2], abs=1e-6
    )


def test_rows_of_equal_scores_stay_in_their_order():
    scores = np.random.default_rng(0).integers(1, 4, 60) / 4
    detected = found(*((1, score, (place, 4, 0.9), (place + 6, 4, 0.8)) for place, score in enumerate(scores)))
    rows = build_rows(detected, ["hand", "fish"], [HAND, FISH], 0.5)
    expected = sorted(np.flatnonzero(scores >= 0.5).tolist(), key=lambda place: -scores[place])
    assert [row["nose x"] for row in rows] == expected
