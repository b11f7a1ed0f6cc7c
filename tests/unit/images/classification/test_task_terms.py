"""The terms of a classifier's training step against a loop over images and classes."""

import math

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.refusals import refusal_of
from support.thread_ranks import acting_as
from support.trainings.small_runs import DIGITS

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.core.tasks.task_factory import build_metrics
from paddlevit_dist.images.classification.task import Classification

LABELS = [3, 9, 0, 3, 5]
WEIGHTS = np.linspace(0.5, 3.2, 10).astype(np.float32)
MIXING = {
    "none": [],
    "mixup": ["TRAIN.MIXUP_ALPHA", "0.8"],
    "cutmix of each image": ["TRAIN.CUTMIX_ALPHA", "1.0", "TRAIN.MIXUP_MODE", "elem"],
}


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("mixing", MIXING)
def test_the_loss_is_that_of_mixed_and_smoothed_labels(mixing, smoothing, is_weighted):
    words = [*DIGITS, *MIXING[mixing], "TRAIN.SMOOTHING", str(smoothing), "TRAIN.RANDOM_ERASE_PROB", "0"]
    task = Classification(settings.load(words).values)
    task.num_classes, task.class_weights = 10, WEIGHTS if is_weighted else None
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, (5, 10)).astype(np.float32)
    logits[[0, 1, 2, 3], [3, 9, 0, 9]] += 9.0  # sure of the own label, and of the partner's
    images = generator.integers(0, 256, (5, 1, 16, 16), dtype=np.uint8)
    batch = {"images": paddle.to_tensor(images), "labels": paddle.to_tensor(LABELS)}
    step = StepPosition(1, 4, 9)
    terms = task.train_step(lambda images: paddle.to_tensor(logits), batch, step)
    mix = task.training_images(batch, step)[1]
    own = np.ones(5) if mix is None else np.broadcast_to(mix.share, 5)
    assert (own < 1).any() == (mixing != "none")
    expected, right = 0.0, 0
    for row, share in enumerate(own):
        logs = logits[row] - math.log(np.exp(logits[row].astype(float)).sum())
        labels = [(LABELS[row], share), (LABELS[4 - row], 1 - share)]
        target = np.full(10, smoothing / 10)
        for label, part in labels:
            target[label] += (1 - smoothing) * part
        weight = sum(part * WEIGHTS[label] for label, part in labels) if is_weighted else 1.0
        expected -= weight * (target * logs).sum()
        right += logits[row].argmax() == labels[0 if share >= 0.5 else 1][0]
    assert right >= 2
    assert float(terms["loss"].sum) == pytest.approx(expected, rel=1e-5)
    assert (terms["loss"].count, terms["loss"].weight) == (5, 1.0)
    shown = terms["top-1"]
    assert (float(shown.sum), shown.count, shown.weight) == (100 * right, 5, 0.0)


@pytest.mark.parametrize("mixing", ["mixup", "cutmix of each image"])
def test_each_rank_micro_batch_update_and_seed_mixes_images_otherwise(mixing):
    def draw(rank=0, micro=0, update=4, seed=1):
        task = Classification(settings.load([*DIGITS, *MIXING[mixing], "SEED", str(seed)]).values)
        task.num_classes = 10
        images = np.random.default_rng(0).integers(0, 256, (6, 1, 16, 16), dtype=np.uint8)
        batch = {"images": paddle.to_tensor(images), "labels": paddle.to_tensor([*LABELS, 1])}
        task.erasing = None
        with acting_as(rank, 2):
            mix = task.training_images(batch, StepPosition(1, update, 9, micro))[1]
        return np.broadcast_to(mix.share, 6).tolist()

    drawn = [draw(), draw(rank=1), draw(micro=1), draw(update=5), draw(seed=2)]
    assert draw() == drawn[0] and len(set(map(tuple, drawn))) == 5


class SquaredErrors(Classification):
    def summed_loss(self, logits, labels, mix):
        return ((F.softmax(logits) - self.soft_targets(labels, mix, smoothing=0.2)) ** 2).sum()


@pytest.mark.parametrize("mixing", MIXING)
def test_a_users_loss_gets_mixed_and_smoothed_labels(mixing):
    task = SquaredErrors(settings.load([*DIGITS, *MIXING[mixing], "TRAIN.RANDOM_ERASE_PROB", "0"]).values)
    task.num_classes = 10
    batch = {"images": paddle.zeros([5, 1, 16, 16], "uint8"), "labels": paddle.to_tensor(LABELS)}
    step = StepPosition(1, 4, 9)
    terms = task.train_step(lambda images: paddle.zeros([5, 10]), batch, step)  # a tenth for each class
    mix = task.training_images(batch, step)[1]
    own = np.ones(5) if mix is None else np.broadcast_to(mix.share, 5)
    targets = np.full((5, 10), 0.02)
    for row, share in enumerate(own):
        targets[row, LABELS[row]] += 0.8 * share
        targets[row, LABELS[4 - row]] += 0.8 * (1 - share)
    assert float(terms["loss"].sum) == pytest.approx(((targets - 0.1) ** 2).sum(), rel=1e-5)


class MeanErrors(Classification):
    def summed_loss(self, logits, labels, mix):
        return F.cross_entropy(logits, labels)  # of the batch, by default the mean


class NoErrors(Classification):
    def summed_loss(self, logits, labels, mix):
        return None


@pytest.mark.parametrize(
    ("owner", "words"),
    [
        (MeanErrors, "MeanErrors.summed_loss returns a mean over samples as 'loss': expected the sum"),
        (NoErrors, "NoErrors.summed_loss: the loss term 'loss' is of type NoneType"),
    ],
)
@pytest.mark.parametrize("mixing", MIXING)
def test_a_users_loss_is_the_sum_of_images(mixing, owner, words):
    task = owner(settings.load([*DIGITS, *MIXING[mixing], "TRAIN.RANDOM_ERASE_PROB", "0"]).values)
    task.num_classes = 10
    batch = {"images": paddle.zeros([5, 1, 16, 16], "uint8"), "labels": paddle.to_tensor(LABELS)}
    refusal = refusal_of(task.train_step, lambda images: paddle.zeros([5, 10]), batch, StepPosition(1, 4, 9))
    assert refusal.startswith(words)


class OwnStep(Classification):
    def train_step(self, model, batch, step):
        return super().train_step(model, batch, step)


def evaluate(owner, logits, *words):
    """Evaluate five images in two batches of unequal sizes; return metrics and values."""
    task = owner(settings.load([*DIGITS, *words]).values)
    task.num_classes = 10
    metrics = build_metrics(task)
    for rows in (slice(0, 3), slice(3, 5)):
        batch = {"images": paddle.zeros([len(LABELS[rows]), 1, 16, 16], "uint8")}
        batch["labels"] = paddle.to_tensor(LABELS[rows])
        task.eval_step(lambda images, rows=rows: paddle.to_tensor(logits[rows]), batch, EvaluationStep(metrics))
    return metrics, metrics.compute(metrics.state)


def test_the_loss_of_an_evaluation_is_the_users():
    logits = np.random.default_rng(0).standard_normal((5, 10)).astype(np.float32)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    entropies = -np.log(shares[np.arange(5), LABELS])
    targets = np.full((5, 10), 0.02)
    targets[np.arange(5), LABELS] += 0.8
    metrics, values = evaluate(SquaredErrors, logits)
    assert values["loss"] == pytest.approx(((shares - targets) ** 2).sum() / 5, rel=1e-5)
    assert values["cross_entropy"] == pytest.approx(entropies.mean(), rel=1e-5)
    assert f"loss {values['loss']:.4f} cross_entropy {values['cross_entropy']:.4f}" in metrics.summary(values)
    table = metrics.per_sample()
    columns, stored = metrics.columns(table), metrics.to_sample_table(table)
    assert "loss" not in columns and columns["cross_entropy"] == pytest.approx(entropies, rel=1e-5)
    again = metrics.scores.compute(stored.arrays, np.array([[1.0, 0, 0, 0, 0]]))  # as compare does
    assert "loss" not in again and again["cross_entropy"] == pytest.approx(entropies[:1], rel=1e-5)
    _, of_step = evaluate(OwnStep, logits)
    assert "loss" not in of_step and of_step["cross_entropy"] == values["cross_entropy"]
    _, ours = evaluate(Classification, logits, "TRAIN.SMOOTHING", "0.3")  # ours stays what it is
    assert ours["loss"] == values["cross_entropy"] and "cross_entropy" not in ours


@pytest.mark.parametrize("owner", [MeanErrors, NoErrors])
def test_a_users_loss_is_checked_in_an_evaluation(owner):
    assert f"{owner.__name__}.summed_loss" in refusal_of(evaluate, owner, np.eye(5, 10, dtype=np.float32))


class MissedShares(Classification):
    """The share that a network does not give to an image's class."""

    def losses(self, outputs, batch):
        return 1 - (F.softmax(outputs) * F.one_hot(batch["labels"], 10)).sum(axis=1)


class MeanShares(MissedShares):
    def losses(self, outputs, batch):
        return super().losses(outputs, batch).mean()


@pytest.mark.parametrize("mixing", MIXING)
def test_unreduced_losses_are_summed_with_the_shares_of_mixed_labels_and_evaluated_alike(mixing):
    words = [*DIGITS, *MIXING[mixing], "TRAIN.RANDOM_ERASE_PROB", "0"]
    task = MissedShares(settings.load(words).values)
    task.num_classes = 10
    logits = np.random.default_rng(0).standard_normal((5, 10)).astype(np.float32)
    missed = 1 - np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    batch = {"images": paddle.zeros([5, 1, 16, 16], "uint8"), "labels": paddle.to_tensor(LABELS)}
    step = StepPosition(1, 4, 9)
    term = task.train_step(lambda images: paddle.to_tensor(logits), batch, step)["loss"]
    mix = task.training_images(batch, step)[1]
    own = np.ones(5) if mix is None else np.broadcast_to(mix.share, 5)
    rows = np.arange(5)
    expected = own * missed[rows, LABELS] + (1 - own) * missed[rows, LABELS[::-1]]
    assert (float(term.sum), term.count) == (pytest.approx(expected.sum(), rel=1e-5), 5)
    _, values = evaluate(MissedShares, logits, *words[len(DIGITS) :])
    assert values["loss"] == pytest.approx(missed[rows, LABELS].mean(), rel=1e-5) and "cross_entropy" in values


def test_losses_that_are_reduced_are_refused():
    said = refusal_of(evaluate, MeanShares, np.eye(5, 10, dtype=np.float32))
    assert said.startswith("MeanShares.losses returns ") and "reduction='none'" in said
