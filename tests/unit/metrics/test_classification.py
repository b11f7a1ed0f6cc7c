"""The metrics of a classifier's evaluation."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.metrics.classification import ClassificationMetrics
from paddlevit_dist.metrics.classifier_prediction import ClassifierPrediction
from paddlevit_dist.tasks import EnsembleMember


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
    if num_classes < 6:
        assert list(values) == ["top-1", "loss", "balanced accuracy", "top-1 count", "samples"]
        assert metrics.summary(values) == f"top-1 {top1:.2f} loss {values['loss']:.4f}"
    else:
        assert list(values) == ["top-1", "top-5", "loss", "balanced accuracy", "top-1 count", "top-5 count", "samples"]
        assert values["top-5"] == pytest.approx(top5) and values["top-5 count"] == (position < 5).sum()
        assert metrics.summary(values) == f"top-1 {top1:.2f} top-5 {top5:.2f} loss {values['loss']:.4f}"
    assert values["top-1"] == pytest.approx(top1) and values["samples"] == 50
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


class Prediction(ClassifierPrediction):
    """Of inputs that are open."""

    open_inputs = None


class Linear:
    """Logits of a product with the model, which is a matrix."""

    def logits(self, model, batch):
        return batch["samples"] @ model
