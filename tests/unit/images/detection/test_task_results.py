"""Detection's task: predictions, figures, exports and records."""

import json

import numpy as np
import paddle
import pytest
from PIL import Image
from support.filled_cells import to_dense
from support.networks import coco_peer
from support.samples.drawn_detections import CATEGORY_IDS, NAMES, drawn

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from paddlevit_dist.core.tasks.prediction import CheckpointMeta, PredictionRecord
from paddlevit_dist.core.tasks.protocols import (
    Checkable,
    CheckpointMatching,
    Exportable,
    LogContributor,
    Predictable,
    Reportable,
    describe_samples,
)
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.data.formats import stems
from paddlevit_dist.images.detection.data.indexed_images import number_images
from paddlevit_dist.images.detection.detections import DetectedObjects
from paddlevit_dist.images.detection.drawing import draw_boxes, enlargement_factor
from paddlevit_dist.images.detection.evaluation.match_tables import MatchTable
from paddlevit_dist.images.detection.evaluation.operating_points import split_by_class
from paddlevit_dist.images.detection.figures import detection_figures, join_tables
from paddlevit_dist.images.detection.metrics import DetectionMetrics
from paddlevit_dist.images.detection.prediction import DetectionWriter, build_rows
from paddlevit_dist.images.detection.records import DetectionRecord

from . import test_task
from .test_task import as_tensors, settings

trainer = test_task.trainer  # a fixture

FOUND = DetectedObjects(
    np.array([[1, 2, 5, 9], [0, 0, 3, 3], [4, 4, 6, 8]], np.float32),
    np.array([0.9, 0.6, 0.2], np.float32),
    np.array([2, 0, 1]),
)


# ---- predictions ---------------------------------------------------------------------------------------------------


def test_a_row_for_each_box_from_the_least_score_on_and_one_without_values():
    assert build_rows(FOUND, NAMES, 0.5) == [
        {"category": "dog", "score": 0.9, "x": 1.0, "y": 2.0, "width": 4.0, "height": 7.0},
        {"category": "owl", "score": 0.6, "x": 0.0, "y": 0.0, "width": 3.0, "height": 3.0},
    ]
    assert build_rows(FOUND, NAMES, 0.95) == [dict.fromkeys(("category", "score", "x", "y", "width", "height"))]
    with pytest.raises(BadSample, match="not finite"):
        build_rows(FOUND._replace(scores=np.array([0.9, np.nan, 0.1])), NAMES, 0.5)


@pytest.mark.parametrize(
    "names, ids",
    [
        (["a/000000000139.jpg", "7.png"], [139, 7]),
        (["a/9.jpg", "cat.jpg"], [1, 2]),
        (["a/1.jpg", "b/1.jpg"], [1, 2]),
        (["²³.jpg"], [1]),
        (["2008_000008.jpg"], [2008000008]),
    ],
)
def test_images_have_the_numbers_of_their_files(names, ids):
    assert number_images(stems(names)).tolist() == ids


def test_category_ids_come_from_the_checkpoint():
    task = make_task(settings("-eval", "-pretrained=x"))
    task.load_meta(
        CheckpointMeta(3, ("cat", "dog", "owl"), {}, {"classes": ["cat", "dog", "owl"], "category ids": [3, 7, 8]})
    )
    assert task.category_ids == [3, 7, 8] and task.class_names == ["cat", "dog", "owl"]
    with pytest.raises(
        UserError, match=r"^about.yaml: Expected `int`, got `str` - at `\$.category ids\[1\]`; remove the"
    ):
        task.load_meta(CheckpointMeta(3, None, {}, {"category ids": [3, "x"]}))
    task.load_meta(CheckpointMeta(3, None))
    assert task.category_ids == [1, 2, 3] and task.class_names == ["0", "1", "2"]


@pytest.mark.parametrize(
    "names, ids, message",
    [
        (["5", "6"], [5, 6], "ids are the numbers in the names of their files"),
        (["b", "a"], [1, 2], "ids are 1, 2 in the order of the inputs"),
    ],
)
def test_images_and_results_of_a_prediction(tmp_path, names, ids, message):
    for name in names:
        Image.new("RGB", (12, 10)).save(tmp_path / f"{name}.png")
    task = make_task(settings("-eval", "-pretrained=x"))
    samples = get_aspect(task, Predictable).open_inputs([str(tmp_path / f"{name}.png") for name in names], tmp_path)
    writer = DetectionWriter(tmp_path, samples, NAMES, CATEGORY_IDS, 0.5)
    rows = [writer.write(index, FOUND) for index in (0, 1)]
    assert rows == [{"picture": f"pictures/{name}.jpg"} for name in names]
    lines = writer.finish(
        [PredictionRecord(index, [{"category": None}], summary=writer.summarize(index, FOUND)) for index in (0, 1)]
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert [entry["image_id"] for entry in results] == [ids[0]] * 3 + [ids[1]] * 3
    assert [entry["category_id"] for entry in results[:3]] == [8, 3, 7] and results[0]["bbox"] == [1, 2, 4, 7]
    assert message in lines[1] and "there are no boxes" in lines[0]


# ---- drawing and figures -------------------------------------------------------------------------------------------


def test_boxes_outside_or_not_finite_or_empty_are_drawn_without_harm():
    image = np.zeros((20, 30, 3), np.uint8)
    boxes = np.array([[-50, -50, 5, 5], [28, 18, 300, 200], [np.nan, 0, 1, 1], [7, 7, 7, 7], [9, 9, 2, 2]], np.float32)
    drawn_on = draw_boxes(image, boxes, np.array([0, 1, 2, -1, 9]), ["a", "猫", "c"], np.linspace(0, 1, 5))
    factor = enlargement_factor(image.shape[:2])
    assert drawn_on.shape == (20 * factor, 30 * factor, 3) and drawn_on.any() and not image.any()


def test_a_box_encloses_its_object():
    image = np.full((400, 600, 3), 255, np.uint8)
    drawn_on = draw_boxes(image, np.array([[100.0, 200.0, 300.0, 350.0]]), np.array([0]), ["x"])
    changed = np.argwhere((drawn_on != 255).any(axis=2))
    inside = (drawn_on[210:340, 110:290] == 255).all()
    assert inside and changed[:, 1].min() >= 97 and changed[:, 1].max() <= 303 and changed[:, 0].max() <= 353


@pytest.fixture(scope="module")
def records():
    metrics, found = DetectionMetrics(NAMES), []
    tables = []
    for number in range(40):
        truth, detections = drawn(number)
        tables.append(metrics.update(number, truth, detections))
        found.append((3 * number, DetectionRecord.from_table(tables[-1], truth, detections, 0.5)))
    return tables, found


def test_records_give_the_curves_of_the_whole_tables_and_are_small(records):
    tables, found = records
    whole, part = MatchTable.joined(tables), join_tables([record for _, record in found], len(NAMES))
    for ours, expected in zip(split_by_class(part), split_by_class(whole)):
        assert not expected.annotated.any() or (ours.sample_precision() == expected.sample_precision()).all()
    np.testing.assert_array_equal(coco_peer.score(part)[1], coco_peer.score(whole)[1], strict=True)
    np.testing.assert_array_equal(
        coco_peer.score(part)[0][[0, 1, 2, 6, 7, 8]], coco_peer.score(whole)[0][[0, 1, 2, 6, 7, 8]], strict=True
    )
    number = sum(len(table.scores) for table in tables) + sum(len(drawn(n)[0].labels) for n in range(40))
    assert sum(part.nbytes for _, record in found for part in record[:6]) <= 14 * number
    assert all(record.suspects.nbytes <= 800 for _, record in found)


class Shown:
    """The part of samples, and of the dataset behind them, that figures read."""

    def __init__(self):
        self.dataset = self

    def read(self, index):
        return Image.new("RGB", (100, 100)), drawn(index // 3)[0]

    def describe(self, index):
        return f"image {index}"


def test_figures_count_what_is_annotated_and_show_the_worst_images(records):
    _, found = records
    figures = {
        figure.title: figure
        for figure in detection_figures(Shown(), found, NAMES, 0.5, lambda index: drawn(index // 3)[1])
    }
    assert {"Hardest images", "Precision and recall", "Categories", "Confusion"} <= set(figures)
    annotated = np.zeros(4, int)
    for number in range(40):
        truth = drawn(number)[0]
        annotated += np.bincount(truth.labels[~truth.is_crowd], minlength=4)
    rows = {row[0]: row for row in figures["Categories"].rows}
    assert [rows[name][4] for name in NAMES] == annotated.tolist() and rows["yak"][1] is None
    matrix = to_dense(figures["Confusion"].values, 5)
    assert matrix[:4].sum(axis=1).tolist() == annotated.tolist()
    assert len(figures["Hardest images"].images) == 12 and "lowest F1" in figures["Hardest images"].note


def test_an_evaluation_without_a_single_annotation_has_figures_too():
    truth, found = drawn(0)
    table = DetectionMetrics(NAMES).update(1, truth, found)
    record = DetectionRecord.from_table(table, truth, found, 0.0)
    figures = detection_figures(Shown(), [(0, record)], NAMES, 0.0, lambda index: found)
    assert "Categories" in [figure.title for figure in figures]


def test_what_was_exported_is_evaluated_as_the_network_itself_on_images_of_one_size(trainer):
    task, model = trainer.task, trainer.model
    with pytest.raises(UserError, match="DETECTION.EVAL_BATCHING single keeps their aspect ratio: set it to one_size"):
        get_aspect(task, Exportable).evaluated_model(get_aspect(task, Exportable).exported_model(model))
    model.eval()
    again = get_aspect(make_task(settings("DETECTION.EVAL_BATCHING", "one_size")), Exportable).evaluated_model(
        get_aspect(task, Exportable).exported_model(model)
    )
    images, sizes = (
        paddle.to_tensor(get_aspect(task, Exportable).export_parts().example["input"]),
        np.array([[100, 200]]),
    )
    (expected,), (found,) = (one.decode(one(images), np.array([[32, 32]]), sizes) for one in (model, again))
    model.train()
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    np.testing.assert_allclose(found.boxes, expected.boxes, rtol=1e-5)
    np.testing.assert_array_equal(found.labels, expected.labels, strict=True)


@pytest.mark.parametrize("how, words", [("pillow", "PIL"), ("torchvision", "four nearest pixels")])
def test_an_export_resizes_as_the_evaluation_did(how, words):
    pixels_alone = ["DATA.IMAGENET_MEAN", "[0,0,0]", "DATA.IMAGENET_STD", "[1,1,1]"]
    values = settings("DATA.EVAL_RESIZE", how, *pixels_alone, "DETECTION.EXPORT_SIZE", "[60,80]")
    parts = get_aspect(make_task(values), Exportable).export_parts()
    assert words in parts.about["preprocessing"]["interpolation"]
    scored = np.zeros((1, 2), np.int64), np.zeros((1, 2, 4)), np.array([[0.75, 0.5]])
    assert parts.difference(scored, (*scored[:2], scored[2] - 0.25))[0] == pytest.approx(0.25)
    pixels = parts.example["picture"].astype(float)
    if how == "pillow":
        expected = np.asarray(Image.fromarray(parts.example["picture"]).resize((80, 60), Image.Resampling.BILINEAR))
    else:  # two thirds: each is between a pixel and the next, at a quarter or three quarters of the way
        rows = pixels[0::3], pixels[1::3], pixels[2::3]
        expected = np.stack([rows[0] * 0.75 + rows[1] * 0.25, rows[1] * 0.25 + rows[2] * 0.75], 1).reshape(60, 120, 3)
        columns = expected[:, 0::3], expected[:, 1::3], expected[:, 2::3]
        expected = np.stack([columns[0] * 0.75 + columns[1] * 0.25, columns[1] * 0.25 + columns[2] * 0.75], 2)
        expected = expected.reshape(60, 80, 3)
    np.testing.assert_allclose(parts.example["input"][0].transpose(1, 2, 0) * 255, expected, atol=1e-3)


def test_an_evaluation_step_keeps_a_record_of_each_image(trainer):
    task, samples = trainer.task, trainer.datasets["val"]
    batch = task.collate([samples.sample(index, np.random.default_rng(0)) for index in range(3)])
    step = EvaluationStep(task.build_metrics(), keeps_records=True)
    with paddle.no_grad():
        records = task.eval_step(trainer.model, as_tensors(batch), step)()
    assert len(records) == 3 and step.metrics.state["images"] == 3
    figures = get_aspect(task, Reportable).figures(samples, list(enumerate(records)), trainer.model)
    shown = {figure.title: figure for figure in figures}["Hardest images"].images
    described = {samples.describe(index) for index in range(3)}
    assert shown and {caption.splitlines()[1] for _, caption in shown} <= described
    assert get_aspect(task, Reportable).figures(samples, [], trainer.model) == []
    # samples of a user's task have no boxes to draw
    assert get_aspect(task, Reportable).figures(TransformedDataset(), list(enumerate(records)), trainer.model) == []


@pytest.mark.parametrize(("threshold", "found"), [(0.25, ["circle 1"]), (0.3, ["circle 1"]), (0.35, [""])])
def test_rates_of_an_image_count_its_results_from_the_threshold_of_the_settings(trainer, threshold, found):
    """Of one object, which a result of score 0.3 covers."""
    task, dataset = make_task(settings("DETECTION.SCORE_THRESHOLD", str(threshold))), trainer.datasets["val"].dataset
    task.class_names, task.evaluated = trainer.task.class_names, dataset
    truth = dataset.annotations(0)
    truth = truth._replace(
        **{name: getattr(truth, name)[:1] for name in ("boxes", "labels", "areas", "is_crowd", "ids")}
    )
    metrics = task.build_metrics()
    metrics.images = None
    metrics.update(0, truth, DetectedObjects(truth.boxes, np.array([0.3], np.float32), truth.labels))
    columns = metrics.scores.columns(metrics.to_arrays(metrics.per_sample()))
    assert columns["truth"] == ["circle 1"] and columns["prediction"] == found


def test_what_the_log_and_checks_of_labels_take_from_samples(trainer):
    task, samples = trainer.task, trainer.datasets["train"]
    assert describe_samples(task, samples) == samples.dataset.summary()
    assert describe_samples(task, range(1234)) == "1,234 images"  # of a user
    log = get_aspect(task, LogContributor)
    assert log.count_classes(samples) is log.count_classes(range(1234)) is None  # drawn: counting draws every image
    taken = samples.sample(0, np.random.default_rng(0))
    np.testing.assert_array_equal(get_aspect(task, Checkable).labels_in(taken), taken.labels)
    matching = get_aspect(task, CheckpointMatching)
    assert matching.mismatch_hint("train turned by EXIF", False) == (
        "set DATA.EXIF_ROTATE false to read images as in training"
    )
    assert matching.mismatch_hint("DATA.IMAGENET_MEAN", [0, 0, 0]) == "use the same settings"
    regions = make_task(settings("MODEL.NAME", "mask_rcnn_small", "MODEL.MASK_PADDING", "False"))
    regions.build_dataset("train", None)
    log = get_aspect(regions, LogContributor)
    assert log.finish_epoch() == []  # it has a region for any number of objects
    assert log.evaluation_lines() == []
    for _ in range(2):  # the first compiles
        regions.speed.add(1, 0.5, 0.25, 0.125)
    assert log.evaluation_lines() == [regions.speed.line()] != [""]
