"""A run's scores against pycocotools on the file of results that the run writes, and what they take."""

import json
import pickle

import numpy as np
import pytest
from PIL import Image
from support.networks.coco_peer import evaluated
from support.samples.drawn_detections import CATEGORY_IDS, NAMES, NOTHING_FOUND, as_coco, drawn

from paddlevit_dist import UserError
from paddlevit_dist.core.inference.evaluation import SavedPredictions
from paddlevit_dist.core.tasks.prediction import InputSamples
from paddlevit_dist.images.detection.data.coco import Coco
from paddlevit_dist.images.detection.data.image_annotations import ImageAnnotations
from paddlevit_dist.images.detection.detections import DetectedObjects, boxes_to_corners
from paddlevit_dist.images.detection.evaluation.matching import CandidateDetections, match, match_detections
from paddlevit_dist.images.detection.metrics import DetectionMetrics
from paddlevit_dist.images.detection.prediction import DetectionWriter
from paddlevit_dist.images.detection.records import match_across_classes
from paddlevit_dist.images.detection.suspicious_labels import find_suspects

IMAGES = 60
TWELVE = "AP AP50 AP75 AP_small AP_medium AP_large AR_1 AR_10 AR_100 AR_small AR_medium AR_large".split()


class Numbered(InputSamples):
    names = [f"{number + 1}.png" for number in range(IMAGES)]


def writer_to(folder) -> SavedPredictions:
    """Images are called by their numbers from 1."""
    return SavedPredictions(DetectionWriter(folder, Numbered(), NAMES, CATEGORY_IDS, 0.5), folder, range(IMAGES))


def scored(images: int, metrics: DetectionMetrics, writer=None) -> dict:
    for number in range(images):
        truth, found = drawn(number)
        metrics.update(number + 1, truth, found)
        if writer is not None:
            writer.add([found])
    return metrics.compute(metrics.state)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predictions")
    writer = writer_to(folder)
    values = scored(IMAGES, DetectionMetrics(NAMES, IMAGES), writer)
    lines = writer.finish()
    return values, json.loads((folder / "results.json").read_text()), lines, sorted(folder.iterdir())


def test_all_numbers_are_those_of_pycocotools_on_the_written_results(run):
    values, results, _, _ = run
    stats = evaluated(as_coco(IMAGES), results).stats
    assert 0.1 < stats[0] < 0.9
    for name, expected in zip(TWELVE, stats.tolist()):
        if expected == -1:
            assert name not in values
        else:
            assert values[name] == pytest.approx(expected, rel=0, abs=1e-12), name


def test_each_category_is_that_of_pycocotools_and_one_without_annotations_has_none(run):
    values, results, _, _ = run
    for name, category in zip(NAMES, CATEGORY_IDS):
        expected = evaluated(as_coco(IMAGES), results, catIds=[category]).stats[0]
        assert values.get(f"AP {name}", -1) == pytest.approx(expected, rel=0, abs=1e-12), name
    assert "AP yak" not in values


def test_each_category_of_one_name_is_that_of_pycocotools_by_its_id(run, tmp_path):
    _, results, _, _ = run
    written = as_coco(IMAGES)
    for category in written["categories"][:3]:
        category["name"] = "bird"
    images = [{**image, "file_name": f"{image['id']}.png"} for image in written["images"]]
    (tmp_path / "train.json").write_text(json.dumps({**written, "images": images}))
    Image.new("RGB", (130, 100)).save(tmp_path / "1.png")
    for number in range(2, IMAGES + 1):
        (tmp_path / f"{number}.png").hardlink_to(tmp_path / "1.png")
    cache = tmp_path / "cache"
    cache.mkdir()
    names = Coco(str(tmp_path), "train", cache).class_names
    values = scored(IMAGES, DetectionMetrics(names, IMAGES))
    aps = {}
    for name, category in zip(names[:3], CATEGORY_IDS):
        assert name == f"bird (id {category})"
        aps[name] = values[f"AP {name}"]
        expected = evaluated(written, results, catIds=[category]).stats[0]
        assert aps[name] == pytest.approx(expected, rel=0, abs=1e-12)
    assert len(set(aps.values())) == 3 and values["AP"] == pytest.approx(np.mean(list(aps.values())))


def test_results_have_the_original_ids_and_the_writer_leaves_nothing_else(run):
    values, results, lines, files = run
    assert {entry["category_id"] for entry in results} == set(CATEGORY_IDS)
    assert [entry["image_id"] for entry in results] == sorted(entry["image_id"] for entry in results)
    assert len(results) == values["detections"] and f"{len(results):,} detections" in lines[-1]
    assert [file.name for file in files] == ["results.json"]


def test_without_any_detection_everything_is_zero_and_the_file_is_an_empty_list(tmp_path):
    metrics, writer = DetectionMetrics(NAMES), writer_to(tmp_path)
    for number in range(1, 4):
        metrics.update(number, drawn(number)[0], NOTHING_FOUND)
        writer.add([NOTHING_FOUND])
    values = metrics.compute(metrics.state)
    assert values["AP"] == values["AP50"] == values["AR_100"] == 0.0 and values["detections"] == 0
    writer.finish()
    assert json.loads((tmp_path / "results.json").read_text()) == []


def test_without_any_annotation_no_score_is_defined_and_the_line_says_why():
    metrics = DetectionMetrics(NAMES)
    nothing = ImageAnnotations(np.zeros((0, 4)), np.zeros(0, int), np.zeros(0), np.zeros(0, bool), np.zeros(0, int))
    metrics.update(1, nothing, drawn(1)[1])
    values = metrics.compute(metrics.state)
    assert values == {"images": 1, "detections": len(drawn(1)[1].scores), "not finite": 0}
    assert {"AP", "AP50", "AR_100"} <= {*metrics.find_undefined(values)}
    assert metrics.summary(values).startswith("AP not defined (no annotations: ")


@pytest.mark.parametrize("with_masks", [False, True])
def test_without_any_image_no_score_is_defined(with_masks):
    metrics = DetectionMetrics(NAMES, 0, with_masks)
    assert metrics.compute(metrics.state) == {"images": 0, "detections": 0, "not finite": 0}


def test_an_image_that_is_missing_or_evaluated_twice_is_no_score():
    metrics = DetectionMetrics(NAMES, 4)
    with pytest.raises(RuntimeError, match="3 images were evaluated of 4"):
        scored(3, metrics)
    metrics.is_complete = False  # the first images, which try a user's kind of scores
    assert metrics.compute(metrics.state)["images"] == 3
    metrics = DetectionMetrics(NAMES, 4)
    metrics.update(2, *drawn(1))
    with pytest.raises(UserError, match="image 2 was evaluated twice"):
        scored(3, metrics)


@pytest.mark.parametrize(
    ("number", "error", "message"),
    [(4, RuntimeError, "3 images .* of 4"), (3, UserError, "1 image of 3 evaluated twice")],
)
def test_an_index_that_is_evaluated_twice_is_no_score(number, error, message):
    metrics = DetectionMetrics(NAMES, number)
    metrics.indices = [0, 1, 1, 2]  # of which a table has each once
    for index in metrics.indices:
        metrics.update(index + 1, *drawn(index))
    with pytest.raises(error, match=message):
        metrics.compute(metrics.state)


def test_detections_that_are_not_finite_are_left_out_and_told():
    metrics = DetectionMetrics(NAMES)
    truth, found = drawn(4)
    boxes, scores = found.boxes.copy(), found.scores.copy()
    boxes[0, 2], scores[1] = np.inf, np.nan
    metrics.update(1, truth, found._replace(boxes=boxes, scores=scores))
    rest = DetectionMetrics(NAMES)
    rest.update(1, truth, DetectedObjects(boxes[2:], scores[2:], found.labels[2:]))
    values, expected = metrics.compute(metrics.state), rest.compute(rest.state)
    assert values["not finite"] == 2 and values["AP"] == expected["AP"]
    assert "2 detections are not finite" in metrics.summary(values)


def test_what_a_rank_keeps_and_sends_is_bounded():
    metrics = DetectionMetrics(NAMES)
    truth, found = drawn(4)
    many = DetectedObjects(
        np.tile(found.boxes, (20, 1))[:100], np.linspace(0, 1, 100, dtype=np.float32), np.tile(found.labels, 20)[:100]
    )
    for number in range(300):
        metrics.update(number, truth, many)
    assert len(pickle.dumps(metrics.rows())) < 300 * 3_500


def rectangle(top, left, bottom, right):
    """A mask of a 6 x 10 image as corners of a polygon."""
    return [[left, top, right, top, right, bottom, left, bottom]]


@pytest.mark.parametrize(("right", "expected"), [(8, 1.0), (6, 0.4), (5, 0.1)])  # an IoU of 1, 2 / 3 and 1 / 2
def test_masks_are_matched_by_their_own_overlap(right, expected):
    metrics = DetectionMetrics(["cow", "ant"], 1, with_masks=True)
    truth = ImageAnnotations(
        np.array([[2.0, 1, 6, 4]]), np.array([1]), np.array([24.0]), np.zeros(1, bool), np.zeros(1, np.int64),
        [rectangle(1, 2, 5, 8)],
    )  # fmt: skip
    found = DetectedObjects(
        np.array([[2, 1, 8, 5]], np.float32), np.array([0.9], np.float32), np.array([1]), [rectangle(1, 2, 5, right)]
    )
    metrics.update(7, truth, found, (6, 10))
    values = metrics.compute(metrics.state)
    assert values["AP"] == pytest.approx(1) and values["mask AP"] == pytest.approx(expected)


@pytest.mark.parametrize("wrong", ["a detection", "an annotation"])
def test_a_mask_of_another_size_is_refused_with_its_image(wrong):
    metrics = DetectionMetrics(["cow"], 1, with_masks=True)
    good, bad = {"size": [6, 10], "counts": [10, 50]}, {"size": [10, 6], "counts": [10, 50]}
    truth = ImageAnnotations(
        np.array([[2.0, 1, 6, 4]]), np.array([0]), np.array([24.0]), np.zeros(1, bool), np.zeros(1, np.int64),
        [bad if wrong == "an annotation" else good],
    )  # fmt: skip
    found = DetectedObjects(
        np.array([[2, 1, 8, 5]], np.float32), np.array([0.9], np.float32), np.array([0]),
        [bad if wrong == "a detection" else good],
    )  # fmt: skip
    with pytest.raises(UserError, match=f"image 7: {wrong} cannot be compared: its segmentation "):
        metrics.update(7, truth, found, (6, 10))


@pytest.mark.parametrize("column", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("is_crowd", [False, True])
def test_a_box_that_is_not_finite_is_never_found_and_finds_nothing(value, column, is_crowd):
    """As an object it is missed, as a crowd it excuses nothing; as a detection it is wrong."""
    box, columns = np.array([[2.0, 1, 6, 4]]), slice(None) if column is None else column
    bad = box.copy()
    bad[:, columns] = value
    truth = ImageAnnotations(bad, np.array([0]), np.array([24.0]), np.array([is_crowd]), np.array([1]))
    found = DetectedObjects(boxes_to_corners(box), np.array([0.9]), np.array([0]))
    table = match(1, truth, found, 1)
    assert not table.true_positives.any() and table.annotated.size == (0 if is_crowd else 6)
    assert not (table.ignored & np.uint64(0x3FF)).any()  # of all areas
    candidates = CandidateDetections(bad, np.array([0.9]), np.array([0]), np.array([24.0]))
    assert not match_detections(1, truth._replace(boxes=box), candidates, 1).true_positives.any()
    if np.isnan(value):
        assert len(find_suspects(truth, found, 0.5)) == 1 + (not is_crowd)  # a box without a label, and the object
        pairs = [[1, 0]] if is_crowd else [[0, 1], [1, 0]]
        assert match_across_classes(truth, found, 1, 0.5).tolist() == pairs


def test_an_object_whose_area_is_not_a_number_counts_as_none():
    truth = ImageAnnotations(
        np.array([[2.0, 1, 6, 4]]), np.array([0]), np.array([np.nan]), np.zeros(1, bool), np.ones(1)
    )
    metrics = DetectionMetrics(["cow"], 1)
    metrics.update(1, truth, DetectedObjects(boxes_to_corners(truth.boxes), np.array([0.9]), np.array([0])))
    values = metrics.compute(metrics.state)
    assert "AP" not in values and "AR_100" not in values
