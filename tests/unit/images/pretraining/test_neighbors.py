"""Votes of the nearest other images against a loop over all pairs, and the means of an evaluation."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.images.classification.probes import find_nearest
from paddlevit_dist.images.pretraining.metrics import PretrainingMetrics
from paddlevit_dist.images.pretraining.neighbors import predict_by_others


def _vote(features, labels, number):
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    predictions = []
    for row in unit:
        similarity = unit @ row
        similarity[len(predictions)] = -np.inf
        votes = np.zeros(labels.max() + 1)
        for other in np.argsort(-similarity)[:number]:
            votes[labels[other]] += np.exp(similarity[other] / 0.07)
        predictions.append(int(votes.argmax()))
    return predictions


@pytest.fixture
def images():
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 4, 300)
    features = generator.standard_normal((300, 6)).astype(np.float32)
    features[:, 0] += 2 * labels
    features[7], labels[7] = features[8], labels[8]  # equal images are each other's neighbors
    return features, labels


@pytest.mark.parametrize("number", [1, 5, 1000])
def test_neighbors_vote_as_in_a_loop(images, number):
    features, labels = images
    assert predict_by_others(features, labels, number).tolist() == _vote(features, labels, min(number, 299))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_of_many_equal_images_the_first_that_are_found_vote(number):
    features, labels = np.ones((9, 2), np.float32), np.array([3, 1, 0, 2, 2, 0, 3, 1, 0])
    unit = paddle.to_tensor(features / np.float32(np.sqrt(2)))
    found = find_nearest(unit, unit, number + 1)[1].numpy()
    expected = []
    for image, places in enumerate(found):
        votes = [labels[place] for place in places if place != image][:number]
        expected.append(np.bincount(votes, minlength=4).argmax())
    assert predict_by_others(features, labels, number).tolist() == expected and len(set(expected)) > 1


def test_a_single_image_has_no_neighbors():
    found = predict_by_others(np.ones((1, 2), np.float32), np.array([3]), 5)
    assert found.tolist() == [-1] and found.dtype == np.int32


def test_features_that_are_not_finite_have_no_class(images):
    features, labels = images
    features[5] = np.nan
    found = predict_by_others(features, labels, 5)
    assert found[5] == -1 and (found[np.arange(300) != 5] >= 0).all()


@pytest.mark.parametrize("is_divided", [False, True])  # over ranks, which know the place of each image
def test_evaluations_do_not_depend_on_the_order_of_images(images, is_divided):
    features, labels = images
    losses = np.arange(300.0, dtype=np.float32)

    def evaluate(order):
        metrics = PretrainingMetrics(list("abcd"), 5)
        metrics.indices = order.tolist() if is_divided else None
        for part in np.array_split(order, 3):
            numbers = {"loss": paddle.to_tensor(losses[part], "float64")}
            metrics.update(numbers, paddle.to_tensor(features[part]), paddle.to_tensor(labels[part]))
        assert {name: column.dtype for name, column in metrics.rows().items()} == {
            "labels": np.int32, "features": np.float32, "loss": np.float32
        }  # fmt: skip
        values = metrics.compute(metrics.state)
        rows = metrics.rows()
        assert list(rows) == ["labels", "loss", "predictions"] and rows["loss"].tolist() == order.tolist()
        np.testing.assert_array_equal(rows["predictions"], np.array(_vote(features, labels, 5))[order])
        return values

    values = evaluate(np.arange(300))
    assert values == evaluate(np.random.default_rng(0).permutation(300))
    expected = 100 * np.mean(np.array(_vote(features, labels, 5)) == labels)
    assert values == {"top-1": pytest.approx(expected), "loss": pytest.approx(149.5), "images": 300}


def test_images_without_classes_have_means_only():
    metrics = PretrainingMetrics((), 5)
    metrics.update({"loss": paddle.to_tensor([1.0, np.inf])}, None, paddle.to_tensor([-1, -1]))
    values = metrics.compute(metrics.state)
    assert values["loss"] == np.inf and "top-1" not in values
