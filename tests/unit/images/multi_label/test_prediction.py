"""Rows of new images, exports and figures of several labels."""

import csv

import numpy as np
import paddle
import pytest
from PIL import Image
from support.samples.tagged_images import NAMES, make_task

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.figures import Chart, ConfusionMatrix, FigureTable, Gallery
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.protocols import Checkable, Drawable, Ensembling, Exportable, Predictable, Reportable
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep
from paddlevit_dist.images.classification.prediction import draw_classes
from paddlevit_dist.images.multi_label.curves import sigmoid
from paddlevit_dist.images.multi_label.figures import EvaluatedLabels, format_shares
from paddlevit_dist.images.multi_label.metrics import read_records, record_later
from paddlevit_dist.images.multi_label.thresholds import LabelThresholds

LEVELS = {"wing": 0.9, "hull": 0.2}


@pytest.fixture
def trained(tmp_path):
    """A task of trained weights with thresholds of two classes."""
    task, _ = make_task("-eval", "-pretrained=x", folder=tmp_path)
    task.load_meta(CheckpointMeta(3, tuple(NAMES)))
    task.outputs.thresholds = LabelThresholds(0.5, LEVELS, "for recall 0.8 of the weights' run")
    return task


def test_a_row_has_the_chosen_labels_and_a_column_a_class(trained):
    aspect = get_aspect(trained, Predictable)
    assert aspect.prediction_rows(np.array([0.9, 0.21, 0.6])) == [
        {"labels": "hull;antenna", "wing": 0.9, "hull": 0.21, "antenna": 0.6}
    ]
    assert aspect.prediction_rows(np.array([0.1, 0.2, 0.5]))[0]["labels"] == ""
    trained.evaluated_classes = ("labels", "hull", "antenna")
    assert list(aspect.prediction_rows(np.zeros(3))[0]) == ["labels", "probability labels", "hull", "antenna"]
    with pytest.raises(BadSample, match="not finite"):
        aspect.prediction_rows(np.array([0.1, np.nan, 0.5]))


def test_labels_that_a_table_would_split_are_a_list(trained):
    trained.evaluated_classes = ("é;b", "hull", "b|c")
    aspect = get_aspect(trained, Predictable)
    labels = [aspect.prediction_rows(np.array(row))[0]["labels"] for row in ([0.9, 0.9, 0.9], [0.1, 0.9, 0.1])]
    assert labels == ['["é;b", "hull", "b|c"]', "hull"]


def test_probabilities_of_several_networks_are_averaged(trained):
    logits = [np.array([[40.0, -1.0, 0.0]], np.float32), np.array([[41.0, 3.0, 0.5]], np.float32)]
    models = [lambda images, own=own: paddle.to_tensor(own) for own in logits]
    batch = {"images": paddle.zeros([1, 3, 16, 16], "uint8")}
    with pytest.raises(UserError, match="chosen for one network, not for the mean of 2: set MULTI_LABEL.THRESHOLDS"):
        get_aspect(trained, Ensembling).predict_mean([(trained, model) for model in models], batch)
    trained.outputs.thresholds = LabelThresholds(0.5)
    (found,) = get_aspect(trained, Ensembling).predict_mean([(trained, model) for model in models], batch)
    np.testing.assert_allclose(found, (sigmoid(logits[0]) + sigmoid(logits[1]))[0] / 2, rtol=1e-12)
    (alone,) = get_aspect(trained, Predictable).predict_step(models[1], batch)
    np.testing.assert_array_equal(alone, sigmoid(logits[1])[0], strict=True)


def test_new_images_are_read_and_drawn_without_labels(trained, tmp_path):
    aspect = get_aspect(trained, Predictable)
    Image.new("RGB", (20, 30), "navy").save(tmp_path / "new.png")
    samples = aspect.open_inputs([str(tmp_path / "new.png")], tmp_path)
    batch = trained.collate([samples.sample(0, np.random.default_rng(0))])
    assert batch["images"].shape == (1, 3, 16, 16)
    writer = aspect.prediction_writer(tmp_path / "out", samples)
    (tmp_path / "out").mkdir()
    assert writer.finish([]) == []  # nothing is drawn yet
    assert writer.write(0, np.array([0.1, 0.9, 0.3])) == {}
    assert writer.write(500, np.array([0.1, 0.9, 0.3])) == {}  # is not drawn
    (line,) = writer.finish([])
    assert line == f"the labels are drawn next to the images in {tmp_path}/out/pictures; * marks the chosen ones"
    (file,) = (tmp_path / "out" / "pictures").iterdir()
    with Image.open(tmp_path / "new.png") as image, Image.open(file) as drawn:
        expected = draw_classes(image, ["* hull", "antenna", "wing"], [0.9, 0.3, 0.1])
        assert np.abs(np.asarray(drawn, int) - np.asarray(expected, int)).mean() < 0.5  # but for the loss of a JPEG


def test_an_export_says_what_its_outputs_mean_and_where_labels_are_chosen(trained):
    parts = get_aspect(trained, Exportable).export_parts()
    assert parts.about["output"] == "logits of the labels; their sigmoid is the probability of each"
    assert parts.about["threshold"] == 0.5 and parts.about["thresholds"] == LEVELS and parts.paddlex is None
    assert parts.output_shape == (3,) and "note" not in parts.about and not parts.is_exclusive
    levels = np.array([LEVELS.get(name, 0.5) for name in NAMES])
    logits = np.log(levels / (1 - levels))
    assert parts.choose(np.array([logits + 1e-4, logits - 1e-4])).tolist() == [[True] * 3, [False] * 3]


def test_a_first_loss_is_that_of_even_odds(tmp_path):
    task, splits = make_task(folder=tmp_path)
    assert get_aspect(task, Checkable).expected_losses() == {"loss": pytest.approx(np.log(2))}
    sample = splits["val"].sample(0, np.random.default_rng(0))
    assert get_aspect(task, Checkable).labels_in(sample).tolist() == np.flatnonzero(sample[1] == 1).tolist()
    task, _ = make_task("MULTI_LABEL.LOSS", "asymmetric", folder=tmp_path)
    assert get_aspect(task, Checkable).expected_losses() == {}


def test_images_are_drawn_with_their_labels_and_shares(tmp_path):
    task, splits = make_task("TRAIN.MIXUP_ALPHA", "0.8", folder=tmp_path)
    drawable, samples = get_aspect(task, Drawable), splits["train"]
    batch = task.collate([samples.sample(row, np.random.default_rng(row)) for row in range(5)])
    drawn = drawable.visualize_batch(samples, batch, 1)
    assert len(drawn) == 5 and drawn[0][0].shape == (16, 16, 3) and any("%" in caption for _, caption in drawn)
    (_, caption), (_, unknown) = drawable.visualize_eval_samples(splits["val"], [0, 2])
    matrix = splits["val"].label_matrix
    assert caption == format_shares(matrix[0].astype(float), NAMES) and unknown == "no label; 3 not known"
    assert format_shares(np.array([1.0, 0.3, -1.0]), NAMES) == "wing, hull 30%; 1 not known"


def test_the_report_shows_scores_pairs_and_contradicted_labels(tmp_path):
    task, splits = make_task(folder=tmp_path)
    logits = paddle.to_tensor(np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32))
    labels = splits["val"].label_matrix
    metrics = task.build_metrics()
    batch = {"images": paddle.zeros([11, 3, 16, 16], "uint8"), "labels": paddle.to_tensor(labels)}
    records = task.eval_step(lambda images: logits, batch, EvaluationStep(metrics, keeps_records=True))()
    figures = get_aspect(task, Reportable).figures(splits["val"], list(enumerate(records)), None)
    kinds = [type(figure) for figure in figures]
    assert kinds == [FigureTable, FigureTable, Gallery, Chart, ConfusionMatrix]
    classes, contradicted, hardest, _, pairs = figures
    values = metrics.compute({})
    assert [row[1] for row in classes.rows] == [round(values[f"AP {name}"], 4) for name in NAMES]
    true = (labels == 1).astype(int)
    np.testing.assert_array_equal(pairs.values, true.T @ true, strict=True)
    probabilities = sigmoid(logits.numpy())
    wrong = [
        (abs(float(probabilities[row, column]) - labels[row, column]), row, column)
        for row, column in np.ndindex(labels.shape)
        if labels[row, column] >= 0 and (probabilities[row, column] > 0.5) != labels[row, column]
    ]
    expected = [(splits["val"].name(row), NAMES[column]) for _, row, column in sorted(wrong, reverse=True)]
    assert [row[:2] for row in contradicted.rows] == expected
    with (tmp_path / "contradicted_labels.csv").open(newline="") as file:
        assert [tuple(row[:2]) for row in list(csv.reader(file))[1:]] == expected
    assert len(hardest.images) == 11 and not pairs.is_confusion


def test_a_file_of_contradicted_labels_ends_with_the_ten_thousandth():
    labels = np.ones((4000, 3), np.int8)
    labels[0, 0] = -1
    evaluated = EvaluatedLabels(range(4000), labels, np.zeros((4000, 3)), np.full(3, 0.5), NAMES)
    assert evaluated.count_contradicted() == 11_999 and len(evaluated.list_contradicted(str)) == 10_000


def test_records_hold_labels_and_logits():
    labels, logits = np.array([[1, -1, 0], [0, 0, 1]], np.int8), np.arange(6, dtype=np.float32).reshape(2, 3)
    records = record_later(paddle.to_tensor(logits), paddle.to_tensor(labels))()
    found = read_records(records, 3)
    np.testing.assert_array_equal(found[0], labels)
    np.testing.assert_array_equal(found[1], logits)
    evaluated = EvaluatedLabels([0, 1], labels, sigmoid(logits), np.full(3, 0.5), NAMES)
    assert evaluated.caption(0, "a.png") == "missed: wing (50%)\nwrong: antenna (88%)\na.png"
