"""The task of several labels: what its batches hold, which labels count, and what it refuses."""

import math

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.refusals import refusal_of
from support.registrations import forgotten
from support.samples.tagged_images import NAMES, make_task
from support.trainings.updates import waits_of_an_update
from support.waits import counted_waits

from paddlevit_dist import UserError, register_dataset
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.dataset import reading_generator
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import EvaluationStep, StepPosition
from paddlevit_dist.core.tasks.task_factory import build_metrics
from paddlevit_dist.core.tasks.task_factory import make_task as make_any_task
from paddlevit_dist.images import ImageDataset
from paddlevit_dist.images.multi_label.mixing import BOXES, KNOWN, TARGETS, WEIGHTS, apply_mix, mix_labels
from paddlevit_dist.images.multi_label.samples import find_missing_labels
from paddlevit_dist.images.multi_label.task import MultiLabel
from paddlevit_dist.images.transforms.on_device import BatchMixing

MIXED = "TRAIN.MIXUP_ALPHA 0.8 TRAIN.CUTMIX_ALPHA 1.0".split()
STEP = StepPosition(1, 0, 1)


def collate(task, samples, rows):
    return task.collate([samples.sample(row, reading_generator(0, 1, row, 0)) for row in rows])


def tensors(batch):
    return {name: paddle.to_tensor(array) for name, array in batch.items()}


def test_a_batch_has_the_labels_that_the_data_have(tmp_path):
    task, splits = make_task(folder=tmp_path)
    matrix = splits["train"].dataset.label_matrix
    batch = collate(task, splits["train"], range(8))
    assert batch["images"].shape == (8, 3, 16, 16) and batch["labels"].dtype == np.int8
    np.testing.assert_array_equal(batch["labels"], matrix[:8])
    assert task.loss_normalizers(batch) == {"loss": (matrix[:8] >= 0).sum(), "distillation": 24}
    numbers = [int((matrix[:, label] == 1).sum()) for label in range(3)]
    assert len(set(numbers)) > 1
    expected = ", ".join(f"{name} {number}" for name, number in zip(NAMES, numbers))
    assert splits["train"].describe_classes() == f": {expected}; {(matrix < 0).mean():.1%} of the labels are not known"
    assert splits["train"].count_classes() == dict(zip(NAMES, numbers))
    assert splits["val"].eval_protocol == "threshold 0.5"
    facts = splits["train"].identify()
    assert facts["classes"] == NAMES and facts["labels"] != splits["val"].identify()["labels"]


def test_labels_that_no_image_is_known_to_have_or_not_to_have_are_told(tmp_path):
    samples = make_task(folder=tmp_path)[1]["train"]
    assert find_missing_labels(samples, "train") == []
    matrix = samples.dataset.label_matrix
    matrix[:, 0][matrix[:, 0] == 1], matrix[:, 1][matrix[:, 1] == 0], matrix[:, 2] = 0, -1, -1
    known_not, known = find_missing_labels(samples, "train")
    assert known_not == "no image of train is known to have 2 of 3 labels: wing, antenna"
    assert known.startswith("no image of train is known not to have 1 of 3 labels: hull: in a table, 0 says so")


def test_of_many_labels_the_rarest_and_the_most_frequent_are_counted(tmp_path):
    samples, random = make_task(folder=tmp_path)[1]["train"], np.random.default_rng(0)
    matrix = (random.random((50, 21)) < np.linspace(0.1, 0.9, 21)).astype(np.int8)
    numbers, names = matrix.sum(axis=0), [f"n{label}" for label in range(21)]
    samples.dataset.label_matrix, samples.dataset.class_names = matrix, names
    assert samples.describe_classes() == f" with 21 classes, in {numbers.min()} to {numbers.max()} images each"
    samples.dataset.label_matrix = matrix[:, :20]
    assert samples.describe_classes() == ": " + ", ".join(map("{} {}".format, names, numbers[:20]))
    samples.dataset.class_names, samples.dataset.num_classes = None, 20
    assert samples.describe_classes() == ": " + ", ".join(map("{} {}".format, range(20), numbers[:20]))


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
def test_a_mixed_label_counts_only_where_both_are_known(mode):
    labels = np.random.default_rng(0).integers(-1, 2, (7, 5), np.int8)
    mixing = BatchMixing(mixup_alpha=0.8, probability=0.6, mode=mode)
    kinds = set()
    for seed in range(20):
        mix = mixing.draw(np.random.default_rng(seed), (7, 3, 8, 8))
        if mix is None:
            continue
        entries, shares = mix_labels(mix, labels), np.broadcast_to(mix.share, 7)
        for row, share in enumerate(shares):
            own, other = labels[row], labels[6 - row]
            known = (own >= 0) & (other >= 0) if share < 1 else own >= 0
            kinds.add(bool(share < 1))
            np.testing.assert_array_equal(entries[KNOWN][row] > 0, known)
            expected = share * (own == 1) + (1 - share) * (other == 1)
            np.testing.assert_allclose(entries[TARGETS][row][known], expected[known], rtol=1e-6)
    assert kinds == ({True} if mode == "batch" else {True, False})


@pytest.mark.parametrize("words", [MIXED[:2], MIXED[2:], [*MIXED, "TRAIN.MIXUP_MODE", "elem"]])
def test_images_are_mixed_as_their_labels(words, tmp_path):
    """Without labels that are not known, the mean of an image of one value follows the share of its label."""
    task, splits = make_task(*words, folder=tmp_path)
    labels = np.array([[1, 0, 0]] * 3 + [[0, 1, 0]] * 3, np.int8)
    values = np.where(labels[:, 0], 240, 20).astype(np.uint8)
    images = np.broadcast_to(values[:, None, None, None], (6, 3, 16, 16))
    batch = tensors(task.collate([(image, own, seed) for seed, (image, own) in enumerate(zip(images, labels))]))
    assert {WEIGHTS, BOXES} & batch.keys() and TARGETS in batch
    mixed = apply_mix(batch["images"].astype("float32"), batch).numpy().mean(axis=(1, 2, 3))
    np.testing.assert_allclose((mixed - 20) / 220, batch[TARGETS].numpy()[:, 0], atol=1e-4)


def test_the_mix_depends_on_the_first_sample_of_the_batch_alone(tmp_path):
    task, splits = make_task(*MIXED, folder=tmp_path)
    first, again = (collate(task, splits["train"], range(6)) for _ in range(2))
    assert first.keys() == again.keys() and all(np.array_equal(first[name], again[name]) for name in first)
    other = collate(task, splits["train"], range(6, 12))
    assert not np.array_equal(first[TARGETS], other[TARGETS])
    led = collate(task, splits["train"], (0, *range(7, 12)))
    assert all(np.array_equal(first[name], led[name]) for name in {WEIGHTS, BOXES} & first.keys())
    assert "targets" not in collate(task, splits["val"], range(6))  # an evaluation is not mixed


def test_a_batch_that_is_not_mixed_has_its_labels_alone(tmp_path):
    task, splits = make_task(*MIXED, "TRAIN.MIXUP_PROB", "1e-9", folder=tmp_path)
    assert set(collate(task, splits["train"], range(6))) == {"images", "labels"}


def test_unknown_labels_change_no_gradient(tmp_path):
    task, splits = make_task("TRAIN.SMOOTHING", "0.1", folder=tmp_path)
    model, batch = task.build_model(), collate(task, splits["train"], range(8))
    logits = paddle.to_tensor(np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32), stop_gradient=False)
    for loss in ("bce", "asymmetric"):
        task, _ = make_task("MULTI_LABEL.LOSS", loss, "TRAIN.SMOOTHING", "0.1", folder=tmp_path)
        term = task.train_step(lambda images: logits * 1.0, tensors(batch), STEP)["loss"]
        term.sum.backward()
        known = batch["labels"] >= 0
        assert float(term.count) == known.sum() and (logits.grad.numpy()[~known] == 0).all()
        assert (logits.grad.numpy()[known] != 0).mean() > 0.5
        logits.clear_grad()
    assert model.num_classes == 3


@pytest.mark.parametrize("gammas", [(4.0, 1.0), (0.0, 1.0), (2.0, 0.0)])
def test_the_keys_of_the_asymmetric_loss_are_those_of_its_formula(gammas, tmp_path):
    keys = {"LOSS": "asymmetric", "GAMMA_NEGATIVE": gammas[0], "GAMMA_POSITIVE": gammas[1], "MARGIN": 0.05}
    words = [word for name, value in keys.items() for word in (f"MULTI_LABEL.{name}", str(value))]
    task, splits = make_task(*words, folder=tmp_path)
    batch = collate(task, splits["train"], range(8))
    logits, labels = np.random.default_rng(0).normal(size=(8, 3)), batch["labels"]
    found = task.train_step(lambda images: paddle.to_tensor(logits, "float32"), tensors(batch), STEP)["loss"]
    share = 1 / (1 + np.exp(-logits))
    lowered = np.maximum(share - 0.05, 0)
    losses = np.where(
        labels == 1, -((1 - share) ** gammas[1]) * np.log(share), -(lowered ** gammas[0]) * np.log(1 - lowered)
    )
    assert float(found.sum) == pytest.approx(losses[labels >= 0].sum(), rel=1e-5)


def test_positive_weights_are_counted_or_given(tmp_path):
    task, splits = make_task("MULTI_LABEL.POSITIVE_WEIGHTS", "balanced", folder=tmp_path)
    matrix = splits["train"].dataset.label_matrix
    np.testing.assert_allclose(task.positive_weights, (matrix == 0).sum(axis=0) / (matrix == 1).sum(axis=0))
    batch, logits = tensors(collate(task, splits["train"], range(8))), paddle.full([8, 3], 0.3)
    loss = float(task.train_step(lambda images: logits, batch, STEP)["loss"].sum)
    given, _ = make_task("MULTI_LABEL.POSITIVE_WEIGHTS", str(list(task.positive_weights)), folder=tmp_path)
    assert loss == pytest.approx(float(given.train_step(lambda images: logits, batch, STEP)["loss"].sum), rel=1e-6)
    with pytest.raises(
        UserError, match=r"POSITIVE_WEIGHTS \[1.0, 2.0\] .*: expected a number for each of the 3 classes"
    ):
        make_task("MULTI_LABEL.POSITIVE_WEIGHTS", "[1.0,2.0]", "-num_classes=3", folder=tmp_path)
    with pytest.raises(UserError, match="POSITIVE_WEIGHTS has 2 numbers, expected 3, one per class"):
        make_task("MULTI_LABEL.POSITIVE_WEIGHTS", "[1.0,2.0]", folder=tmp_path)
    more, _ = make_task("MULTI_LABEL.POSITIVE_WEIGHTS", "balanced", "-num_classes=5", folder=tmp_path)
    assert more.positive_weights == (*task.positive_weights, 1.0, 1.0)


def test_more_outputs_than_classes_have_no_known_labels(tmp_path):
    task, splits = make_task("-num_classes=5", folder=tmp_path)
    batch = collate(task, splits["val"], range(4))
    assert (batch["labels"][:, 3:] == -1).all() and task.outputs.names == [*NAMES, "3", "4"]
    metrics = task.build_metrics()
    task.eval_step(lambda images: paddle.zeros([4, 5]), tensors(batch), EvaluationStep(metrics))
    values = metrics.compute({})
    assert "AP wing" in values and "AP 3" not in values and values["known labels"] == (batch["labels"] >= 0).sum()
    task.evaluated_classes = ("2", "4", "10")  # numbers of other outputs
    assert task.outputs.names == ["2", "4", "10", "3", "output 4"]
    metrics = task.build_metrics()
    task.eval_step(lambda images: paddle.zeros([4, 5]), tensors(batch), EvaluationStep(metrics))
    renamed = metrics.compute({})
    assert renamed["mAP"] == values["mAP"] and renamed["AP 4"] == values["AP hull"]


def test_a_teacher_teaches_all_labels(tmp_path):
    task, splits = make_task("TRAIN.DISTILLATION_ALPHA", "0.3", "TRAIN.DISTILLATION_TYPE", "soft", folder=tmp_path)
    batch, logits = tensors(collate(task, splits["train"], range(6))), paddle.full([6, 3], 0.4)
    task.teacher = lambda images: paddle.full([6, 3], 0.4)
    terms = task.train_step(lambda images: (logits, logits), batch, STEP)
    assert [terms[name].weight for name in ("loss", "distillation")] == [0.7, 0.3]
    assert float(terms["distillation"].sum) == pytest.approx(0.0, abs=1e-5) and terms["distillation"].count == 18


def test_data_without_a_known_label_are_refused(tmp_path):
    class Unknown(ImageDataset):
        num_classes, class_names, label_matrix = 3, NAMES, np.full((4, 3), -1, np.int8)
        read = None

        def __init__(self, *where):
            pass

        def __len__(self):
            return 4

    with forgotten():
        register_dataset("unknown_labels", Unknown)
        task = make_any_task(load(["-cfg=multi_digits", "-dataset=unknown_labels", f"-output={tmp_path}"]).values)
        with pytest.raises(UserError, match=r"unknown_labels \(val\): no label of any image is known"):
            task.build_dataset("val", tmp_path)


def test_labels_out_of_range_and_data_of_one_class_are_refused(tmp_path):
    task, _ = make_task(folder=tmp_path)
    image = np.zeros((3, 4, 4), np.uint8)
    task.check_sample((image, np.array([1, 0, -1])))
    with pytest.raises(BadSample, match=r"its labels are \[2, 0, 1\], expected 1, 0, or -1"):
        task.check_sample((image, np.array([2, 0, 1])))
    with pytest.raises(BadSample, match=r"image\[1, 0, 2\] is nan; 1 of its 48 numbers are not finite"):
        task.check_sample((np.where(np.arange(48) == 18, np.nan, 0).reshape(3, 4, 4), np.array([1, 0, -1])))

    class OneClass(ImageDataset):
        num_classes, class_names, labels = 3, NAMES, np.array([0, 1, 2])
        read = None

        def __init__(self, *where):
            pass

        def __len__(self):
            return 3

    with forgotten():
        register_dataset("one_class", OneClass)
        task = make_any_task(load(["-cfg=multi_digits", "-dataset=one_class", f"-output={tmp_path}"]).values)
        with pytest.raises(UserError, match="one_class has one class for each image, but TASK multi_label reads"):
            task.build_dataset("val", tmp_path)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("TRAIN.CLASS_WEIGHTS balanced", "it is for images of one class"),
        ("MULTI_LABEL.MARGIN 0.1", "it is for the other loss"),
        ("MULTI_LABEL.LOSS asymmetric MULTI_LABEL.POSITIVE_WEIGHTS balanced", "it is for the other loss"),
        ("MULTI_LABEL.WISHED 0.8", "nothing has to be reached"),
    ],
)
def test_keys_that_nothing_reads_are_told(words, reason):
    notices = load(["-cfg=multi_digits", *words.split()]).notices
    assert [notice for notice in notices if f"no effect: {reason}" in notice], notices


@pytest.mark.parametrize(
    "words", [[], [*MIXED, "TRAIN.RANDOM_ERASE_PROB", "0.9"], ["MULTI_LABEL.POSITIVE_WEIGHTS", "balanced"]]
)
def test_an_update_waits_for_the_counts_and_the_norm_alone(words, tmp_path):
    task, splits = make_task(*words, folder=tmp_path)
    batch = collate(task, splits["train"], range(6))
    waits = waits_of_an_update(task, task.build_model(), batch, 6)
    assert len(waits) == 1 and waits.transfers == 0, str(waits)


def test_an_evaluated_batch_waits_for_nothing(tmp_path):
    task, splits = make_task(folder=tmp_path)
    model, metrics, batch = task.build_model(), task.build_metrics(), tensors(collate(task, splits["val"], range(6)))
    with paddle.no_grad(), counted_waits() as waits:
        task.eval_step(model, batch, EvaluationStep(metrics, keeps_records=True))
    assert not len(waits), str(waits)


class SquaredErrors(MultiLabel):
    def losses(self, outputs, batch):
        return (F.sigmoid(outputs) - batch["labels"]) ** 2


class LargestErrors(SquaredErrors):
    def losses(self, outputs, batch):
        return (super().losses(outputs, batch) * batch["known"]).max(axis=1)


@pytest.mark.parametrize("owner", [SquaredErrors, LargestErrors])
@pytest.mark.parametrize("words", [[], [*MIXED, "TRAIN.MIXUP_PROB", "1"]])
def test_a_users_losses_are_of_known_labels_or_of_images_and_evaluated_alike(owner, words, tmp_path):
    plain_task, splits = make_task(*words, folder=tmp_path)
    task = owner(plain_task.config)
    task.num_classes, task.evaluated_classes = 3, NAMES
    logits = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    batch = collate(task, splits["train"], range(8))
    assert (TARGETS in batch) == bool(words)
    mixed, plain = dict(batch), {name: batch[name] for name in ("images", "labels")}
    labels = batch["labels"]
    known, targets = batch.get(KNOWN, labels >= 0), batch.get(TARGETS, labels == 1)

    def compute(targets, known):
        errors = (1 / (1 + np.exp(-logits)) - targets) ** 2 * known
        return (errors.sum(), known.sum()) if owner is SquaredErrors else (errors.max(axis=1).sum(), 8)

    term = task.train_step(lambda images: paddle.to_tensor(logits), tensors(mixed), STEP)["loss"]
    assert (float(term.sum), int(term.count)) == pytest.approx(compute(targets, known), rel=1e-5)
    metrics = build_metrics(task)
    for rows in (slice(0, 5), slice(5, 8)):
        part = tensors({name: array[rows] for name, array in plain.items()})
        task.eval_step(lambda images, rows=rows: paddle.to_tensor(logits[rows]), part, EvaluationStep(metrics))
    total, count = compute(labels == 1, labels >= 0)
    values = metrics.compute(metrics.state)
    assert values["loss"] == pytest.approx(total / count, rel=1e-5) and "cross_entropy" in values


def test_a_loss_that_is_never_called_is_refused():
    own = type("Own", (MultiLabel,), {"summed_loss": lambda self, *given: given[0].sum()})
    assert refusal_of(own, load(["-cfg=multi_digits"]).values).startswith("Own.summed_loss is never called")


def test_the_cross_entropy_of_a_users_step_is_not_called_its_loss():
    own = type("Own", (MultiLabel,), {"train_step": lambda self, model, batch, step: {}})
    found = {}
    for task in (own, MultiLabel):
        opened = task(load(["-cfg=multi_digits", "MODEL.NUM_CLASSES", "2"]).values)
        opened.evaluated_classes = ["a", "b"]
        metrics = build_metrics(opened)
        metrics.update(paddle.zeros([3, 2]), paddle.ones([3, 2], "int8"))
        found[task] = metrics.compute(metrics.state)
    assert found[own]["cross_entropy"] == found[MultiLabel]["loss"] == pytest.approx(math.log(2))
    assert "loss" not in found[own] and "cross_entropy" not in found[MultiLabel]
