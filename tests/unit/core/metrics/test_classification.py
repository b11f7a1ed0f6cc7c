"""The metrics of a classifier's evaluation."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.metrics.classification import (
    ClassificationMetrics,
    ClassifierTask,
    join_records,
    require_num_classes,
)
from paddlevit_dist.core.metrics.classification_scores import SENSITIVITY
from paddlevit_dist.core.metrics.classifier_prediction import ClassifierPrediction, best_classes, probabilities
from paddlevit_dist.core.tasks import EnsembleMember
from paddlevit_dist.core.tasks.prediction import CheckpointMeta
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep


@pytest.mark.parametrize("num_classes", [2, 4, 5, 6, 10])
def test_top5_is_told_where_five_classes_are_not_all_or_nearly_all(num_classes):
    generator = np.random.default_rng(num_classes)
    logits = generator.normal(size=(50, num_classes)).astype("float32")
    labels = generator.integers(0, num_classes, 50)
    metrics = ClassificationMetrics(num_classes)
    metrics.update(paddle.to_tensor(logits), paddle.to_tensor(labels))
    values = metrics.compute(metrics.state)
    position = (logits > logits[np.arange(50), labels][:, None]).sum(axis=1)
    top1, top5 = (100.0 * np.mean(position < k) for k in (1, 5))
    own = ["balanced accuracy", "macro precision", "MCC", "kappa"]
    own += ["precision 0", "precision 1", "AUC", SENSITIVITY, "Brier score"] if num_classes == 2 else []
    if num_classes < 6:
        assert list(values) == ["top-1", "loss", *own, "top-1 count", "samples"]
        assert metrics.summary(values) == f"top-1 {top1:.2f} loss {values['loss']:.4f}"
    else:
        assert list(values) == ["top-1", "top-5", "loss", *own, "top-1 count", "top-5 count", "samples"]
        assert values["top-5"] == pytest.approx(top5) and values["top-5 count"] == (position < 5).sum()
        assert metrics.summary(values) == f"top-1 {top1:.2f} top-5 {top5:.2f} loss {values['loss']:.4f}"
    assert values["top-1"] == pytest.approx(top1) and values["samples"] == 50
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert values["loss"] == pytest.approx(-np.log(shares[np.arange(50), labels]).mean(), rel=1e-5)
    recalls = [np.mean(position[labels == label] < 1) for label in np.unique(labels)]
    assert values["balanced accuracy"] == pytest.approx(100 * np.mean(recalls))


def test_several_models_predict_the_mean_of_their_probabilities():
    """Of three linear models whose single probabilities numpy averages."""
    task, generator = Linear(), np.random.default_rng(0)
    samples, models = generator.normal(size=(5, 4)), generator.normal(size=(3, 4, 6))
    outputs = np.einsum("nf,mfc->mnc", samples, models)
    shares = np.exp(outputs) / np.exp(outputs).sum(axis=2, keepdims=True)
    members = [EnsembleMember(task, paddle.to_tensor(model)) for model in models]
    found = Prediction(task).predict_mean(members, {"samples": paddle.to_tensor(samples)})
    np.testing.assert_allclose(found, shares.mean(axis=0), rtol=1e-5)


LOGITS = np.array(
    [[0, 3, 3, 1], [2, 2, 2, 2], [5, 1, 0, 0], [1, np.nan, 9, 0], [0, 1, 2, 3], [np.inf, 0, 0, 0]], np.float32
)
LABELS = np.array([2, 0, 3, 2, 3, 0])


def make_metrics(*names, batches=((0, 1), (2, 3, 4, 5))):
    metrics = ClassificationMetrics(4, names or None)
    for rows in batches:
        metrics.update(paddle.to_tensor(LOGITS[list(rows)]), paddle.to_tensor(LABELS[list(rows)]))
    return metrics


def test_equal_scores_count_once_and_scores_that_are_no_numbers_as_wrong():
    metrics = make_metrics("bee", "ant")
    labels, places, losses, best, confidences = metrics.per_sample()
    assert labels.tolist() == LABELS.tolist() and places.tolist() == [1, 0, 3, 4, 0, 4]
    assert best.tolist() == [1, 0, 0, -1, 3, -1]
    shares = np.exp(LOGITS.astype(np.float64)) / np.exp(LOGITS.astype(np.float64)).sum(axis=1, keepdims=True)
    known = [0, 1, 2, 4]
    np.testing.assert_allclose(losses[known], -np.log(shares[known, LABELS[known]]), rtol=1e-5)
    np.testing.assert_allclose(confidences[known], shares[known].max(axis=1), rtol=1e-5)
    assert [column.dtype for column in (labels, places, losses, best, confidences)] == ["i4", "i4", "f4", "i4", "f4"]
    assert metrics.state["of classes"].tolist() == [[1, 0, 0, 1], [2, 0, 2, 2]]
    values = metrics.compute(metrics.state)
    assert values["balanced accuracy"] == pytest.approx(100 * (1 / 2 + 0 + 1 / 2) / 3)
    assert (values["top-1 count"], values["samples"]) == (2, 6)
    assert ClassificationMetrics(4).per_sample() == [] and metrics.state["of classes"].numpy().dtype == "i8"


def test_columns_name_the_classes_and_leave_empty_what_is_unknown():
    metrics = make_metrics("bee", "ant")
    columns = metrics.columns(metrics.per_sample())
    assert columns["truth"] == ["2", "bee", "3", "2", "3", "bee"]
    assert columns["prediction"] == ["ant", "bee", "bee", None, "3", None]
    assert columns["correct"].tolist() == [False, True, False, False, True, False]
    assert columns["rank"] == [2, 1, 4, None, 1, None]
    assert np.isnan(columns["confidence"]).tolist() == [False, False, False, True, False, True]
    assert len(columns["loss"]) == 6 and metrics.class_names == ["bee", "ant", "2", "3"]
    assert ClassificationMetrics(2, list("abc")).class_names == ["a", "b"]


def test_scores_are_recomputed_for_drawn_samples():
    metrics = make_metrics(batches=((0, 1, 2, 4),))
    table = metrics.per_sample()
    values = metrics.bootstrap_values(table, np.array([[1.0, 1, 1, 1], [0, 3, 1, 0]]))
    assert values["top-1"].tolist() == [50.0, 75.0] and "top-5" not in values
    assert values["loss"] == pytest.approx([table[2].mean(), (3 * table[2][1] + table[2][2]) / 4])
    assert metrics.declare(table).rates == {"top-1": 4, "recall 0": 1, "recall 2": 1, "recall 3": 2}
    kept = metrics.to_sample_table(table)
    assert (kept.kind, list(kept.classes), kept.arrays["top"].tolist()) == ("classes", list("0123"), [1])
    assert [kept.arrays[name] is column for name, column in zip(kept.arrays, table[:4])] == [True] * 4
    wide = ClassificationMetrics(6)
    wide.update(paddle.to_tensor(np.eye(6, dtype="float32")[[0, 1]]), paddle.to_tensor([0, 5]))
    table = wide.per_sample()
    assert wide.to_sample_table(table).arrays["top"].tolist() == [1, 5]
    assert wide.bootstrap_values(table, np.ones((1, 2)))["top-5"].tolist() == [50.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_outputs_are_scored_in_single_precision(dtype):
    generator = np.random.default_rng(5)
    labels = paddle.to_tensor(generator.integers(0, 7, 40))
    half = paddle.to_tensor(generator.normal(size=(40, 7)).astype("float32") * 4).astype(dtype)
    found, expected = ClassificationMetrics(7), ClassificationMetrics(7)
    found.update(half, labels)
    expected.update(half.astype("float32"), labels)
    assert found.compute({}) == expected.compute({}) and found.per_sample()[2].dtype == "f4"


def test_two_ranks_add_their_counts():
    whole, parts = make_metrics(), [make_metrics(batches=(rows,)) for rows in ((4, 1), (0, 5, 3, 2))]
    parts[0].merge(parts[1])
    assert parts[0].state["of classes"].tolist() == whole.state["of classes"].tolist()
    assert parts[0].compute({})["top-1 count"] == whole.compute({})["top-1 count"] == 2
    assert sorted(parts[0].per_sample()[1].tolist()) == sorted(whole.per_sample()[1].tolist())


def test_a_record_is_kept_of_each_sample_on_request():
    class Rows(ClassifierTask):
        def logits(self, model, batch):
            return model(batch["rows"])

    task, metrics = Rows(None), ClassificationMetrics(4)
    batch = {"rows": paddle.to_tensor(LOGITS[[0, 2, 4]]), "labels": paddle.to_tensor(LABELS[[0, 2, 4]])}
    asked = [
        task.eval_step(lambda rows: 2 * rows, batch, EvaluationStep(metrics, keeps_records=kept))
        for kept in (False, True)
    ]
    assert asked[0] is None and len(metrics.per_sample()[0]) == 6
    indices, rows = join_records(list(zip((7, 3, 5), asked[1]())))
    assert indices.tolist() == [7, 3, 5] and rows["label"].tolist() == LABELS[[0, 2, 4]].tolist()
    shares = np.exp(2.0 * LOGITS[[0, 2, 4]]) / np.exp(2.0 * LOGITS[[0, 2, 4]]).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(rows["true"], shares[[0, 1, 2], LABELS[[0, 2, 4]]], rtol=1e-5)
    np.testing.assert_allclose(rows["scores"][:, :4], -np.sort(-shares), rtol=1e-5)
    assert rows["classes"][2].tolist() == [3, 2, 1, 0, -1] and not rows["scores"][:, 4].any()
    assert Rows.best_metric == ("top-1", True)
    task.load_meta(CheckpointMeta(3, ("a", "b", "c")))
    assert (task.num_classes, task.class_names) == (3, ("a", "b", "c"))
    assert require_num_classes(3) == 3
    with pytest.raises(ValueError, match="^the number of classes is not known: open a dataset, or load"):
        require_num_classes(None)


def test_a_row_has_the_five_best_classes_and_the_first_of_equal_ones_first():
    shares = np.array([0.05, 0.3, 0.3, 0.1234567891, 0.01, 0.2, 0.0165432109])
    row = best_classes(shares, ["ant", "bee", "cow"])
    assert list(row.items())[:6] == [
        *(("class", "bee"), ("score", 0.3), ("class_2", "cow"), ("score_2", 0.3), ("class_3", "5"), ("score_3", 0.2))
    ]
    assert [row["class_4"], row["score_4"], row["class_5"]] == ["3", 0.1234568, "ant"] and len(row) == 10
    assert best_classes(np.array([0.25, 0.75]), None)["class"] == "1"
    for bad in (np.nan, np.inf):
        with pytest.raises(BadSample, match="^the model's outputs for it are not finite$"):
            best_classes(np.array([0.5, bad]), None)
    large = probabilities(np.array([[1e4, 1e4 - 1], [3, 3]], np.float32))
    assert probabilities(np.array([[2000, 0]], np.float32)).tolist() == [[1.0, 0.0]]
    np.testing.assert_allclose(large, [[1 / (1 + np.exp(-1)), 1 / (1 + np.e)], [0.5, 0.5]], rtol=1e-12)


def test_a_predicted_class_has_the_name_at_its_place():
    task = Linear()
    task.class_names = ["wasp", "ant", "cow"]
    (row,) = Prediction(task).prediction_rows(np.array([0.2, 0.7, 0.1]))
    assert [row[name] for name in ("class", "class_2", "class_3")] == ["ant", "wasp", "cow"]


class Prediction(ClassifierPrediction):
    """Of inputs that are open."""

    open_inputs = None


class Linear:
    """Logits of a product with the model, which is a matrix."""

    def logits(self, model, batch):
        return batch["samples"] @ model
