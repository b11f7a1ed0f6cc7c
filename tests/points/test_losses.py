"""Losses over points: sums over labelled ones, and the Lovasz extension against its definition."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.points.segmentation.metrics import lovasz_softmax, summed_cross_entropy

CLASSES = 5


def points(number=40, unlabelled=0.3, seed=0):
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 2, (number, CLASSES)).astype(np.float32)
    labels = generator.integers(0, CLASSES - 1, number)  # the last class does not occur
    labels[generator.random(number) < unlabelled] = -100
    return paddle.to_tensor(logits, stop_gradient=False), paddle.to_tensor(labels)


def shares_of(logits):
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def test_cross_entropy_is_the_sum_over_labelled_points():
    logits, labels = points()
    shares, known = shares_of(logits.numpy().astype(np.float64)), labels.numpy() != -100
    expected = -np.log(shares[known, labels.numpy()[known]]).sum()
    assert summed_cross_entropy(logits, labels).item() == pytest.approx(expected, rel=1e-5)


def test_without_a_labelled_point_losses_are_zero_with_zero_gradients():
    logits, _ = points(number=7)
    labels = paddle.full([7], -100, dtype="int64")
    total, present = lovasz_softmax(logits, labels)
    (summed_cross_entropy(logits, labels) + total).backward()
    assert present.item() == 0 and not logits.grad.numpy().any()


def test_lovasz_is_the_extension_of_the_jaccard_loss():
    """Equation 8 of the paper by its definition: sets of points that grow in the order of their errors."""
    logits, labels = points()
    shares, known = shares_of(logits.numpy().astype(np.float64)), labels.numpy() != -100
    shares, truth = shares[known], labels.numpy()[known]
    expected, present = 0.0, 0
    for number in range(CLASSES):
        positive = truth == number
        if not positive.any():
            continue
        present += 1
        errors = np.abs(positive - shares[:, number])
        wrong, before = np.zeros(len(truth), bool), 0.0
        for point in np.argsort(-errors):
            wrong[point] = True
            jaccard = 1.0 - (positive & ~wrong).sum() / (positive | wrong).sum()
            expected += errors[point] * (jaccard - before)
            before = jaccard
    total, number = lovasz_softmax(logits, labels)
    assert number.item() == present == CLASSES - 1
    assert total.item() == pytest.approx(expected, rel=1e-5)


def test_gradient_of_lovasz_is_its_slope():
    logits, labels = points(number=12)
    lovasz_softmax(logits, labels)[0].backward()
    start = logits.numpy().copy()
    for row, column in ((0, 0), (3, 2), (7, 4)):
        values = []
        for step in (-1e-2, 1e-2):
            moved = start.copy()
            moved[row, column] += step
            values.append(lovasz_softmax(paddle.to_tensor(moved), labels)[0].item())
        assert logits.grad.numpy()[row, column] == pytest.approx((values[1] - values[0]) / 2e-2, abs=2e-3)
