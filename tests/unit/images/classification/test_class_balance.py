"""Class-balanced reading and class weights."""

import numpy as np
import paddle
import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.data.sampler import TrainingSampler
from paddlevit_dist.core.tasks.dataset import TransformedDataset
from paddlevit_dist.images.classification.class_balance import (
    compute_class_weights,
    draw_balanced_order,
    format_imbalance,
    weighted_cross_entropy,
)

LABELS = np.random.default_rng(0).permutation(np.repeat([0, 1, 4], [700, 290, 10]))


def test_every_class_is_read_equally_often_and_its_samples_too():
    order = draw_balanced_order(LABELS, np.random.default_rng(1))
    assert len(order) == 1000 and sorted(np.bincount(LABELS[order])[[0, 1, 4]]) == [333, 333, 334]
    readings = np.bincount(order, minlength=1000)
    for label in (0, 1, 4):
        own = readings[LABELS == label]
        assert own.max() - own.min() <= 1
    assert abs(np.flatnonzero(LABELS[order] == 4).mean() - 500) < 60  # spread over the epoch


def test_samples_of_a_class_and_the_class_with_one_more_are_drawn():
    read, largest = [], set()
    for seed in range(12):
        order = draw_balanced_order(LABELS, np.random.default_rng(seed))
        read.append(np.bincount(order, minlength=1000))
        largest.add(int(np.bincount(LABELS[order]).argmax()))
    assert largest == {0, 1, 4}
    often = np.sum(read, axis=0)  # in 12 epochs each of 700 samples is read 5.7 times, of 10 400 times
    assert often[LABELS == 0].min() > 0 and often[LABELS == 0].max() < 12
    assert len(set(often[LABELS == 4].tolist())) > 1


class Balanced(TransformedDataset):
    def __len__(self):
        return len(LABELS)

    def draw_order(self, generator):
        return draw_balanced_order(LABELS, generator)


def keys(world_size, batch_size, epoch=3, consumed=0, repeats=1):
    """What all ranks read, update by update."""
    ranks = []
    for rank in range(world_size):
        sampler = TrainingSampler(Balanced(), batch_size, rank=rank, world_size=world_size, seed=5, repeats=repeats)
        sampler.set_position(epoch, consumed)
        ranks.append(list(sampler))
    return [[key for batch in update for key in batch] for update in zip(*ranks)]


def test_the_order_is_the_same_for_any_number_of_processes_and_after_a_resume():
    alone = keys(1, 24)
    assert keys(2, 12) == alone and keys(3, 8) == alone
    assert keys(2, 12, consumed=240) == alone[10:]
    assert keys(1, 24, epoch=4) != alone
    for repeats in (1, 3):  # no two readings of an epoch have the same randomness
        found = [key for update in keys(1, 24, repeats=repeats) for key in update]
        assert len({key.index for key in found}) < len(found) == len(set(found))


def test_balanced_weights_have_mean_one_and_equal_sums():
    weights = compute_class_weights("balanced", LABELS, 6)
    assert weights.dtype == np.float32 and weights[[2, 3, 5]].tolist() == [0, 0, 0]
    per_sample = weights[LABELS].astype(np.float64)
    assert per_sample.mean() == pytest.approx(1, abs=1e-6)
    assert [per_sample[LABELS == label].sum() for label in (0, 1, 4)] == pytest.approx([1000 / 3] * 3)


def test_given_weights_are_scaled_to_mean_one():
    labels = np.array([0, 0, 0, 1])
    assert compute_class_weights([1, 3], labels, 2).tolist() == pytest.approx([1 / 1.5, 3 / 1.5])
    assert compute_class_weights("balanced", labels, 3).tolist() == pytest.approx([4 / 6, 2, 0])
    assert compute_class_weights(None, labels, 2) is None
    with pytest.raises(UserError, match="CLASS_WEIGHTS has 3 weights, expected 2"):
        compute_class_weights([1, 2, 3], labels, 2)
    with pytest.raises(UserError, match="all training samples weight 0"):
        compute_class_weights([0, 0], labels, 2)


def test_the_loss_is_the_weighted_sum():
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4, 3)).astype(np.float32)
    labels, weights = np.array([0, 2, 2, 1]), np.array([0.5, 1.0, 4.0], np.float32)
    log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = -(weights[labels] * log_probabilities[np.arange(4), labels]).sum()
    hot = paddle.to_tensor(np.eye(3, dtype=np.float32)[labels])
    found = weighted_cross_entropy(paddle.to_tensor(logits), hot, hot, paddle.to_tensor(weights))
    assert found.item() == pytest.approx(expected, rel=1e-6)
    shares = paddle.to_tensor([[0.25, 0.75]])  # of a mixed image
    found = weighted_cross_entropy(paddle.to_tensor([[0.0, 0.0]]), shares, shares, paddle.to_tensor([1.0, 3.0]))
    assert found.item() == pytest.approx(np.log(2) * (0.25 + 0.75 * 3), rel=1e-6)


def test_classes_of_very_different_size_are_pointed_out_unless_something_makes_up_for_it():
    labels = np.repeat([0, 2, 3], [40, 200, 30])  # none of class 1
    (line,) = format_imbalance(labels, ["cat", "cow", "dog", "hen"], False)
    assert line.startswith("note: classes differ in size, 200 of dog, 30 of hen; DATA.CLASS_BALANCED true")
    assert "200 of 2, 30 of 3" in format_imbalance(labels, None, False)[0]
    assert format_imbalance(labels, None, True) == [] == format_imbalance(np.repeat([0, 1], [49, 10]), None, False)
    (line,) = format_imbalance(np.repeat([1, 0], [50, 10]), ["rat", "owl"], False)  # two classes, just so different
    assert "50 of owl, 10 of rat" in line
    assert format_imbalance(np.repeat(1, 9), None, False) == []
