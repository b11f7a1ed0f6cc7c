"""The task that segments images: batches, terms of the loss, groups of parameters, images, what is refused, and for
what an update waits."""

import math
from dataclasses import replace

import cv2
import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from PIL import Image
from support.refusals import refusal_of
from support.registrations import forgotten
from support.trainings import small_segmenters
from support.trainings.updates import waits_of_an_update

from paddlevit_dist import UserError, register_dataset
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.optimizer import complete_groups
from paddlevit_dist.core.losses import dice_losses, row_lovasz_softmax
from paddlevit_dist.core.tasks.aspects import get_aspect
from paddlevit_dist.core.tasks.opened_dataset import OpenedDataset
from paddlevit_dist.core.tasks.protocols import Checkable, Drawable, ParameterGrouping
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.core.tasks.task_factory import make_task
from paddlevit_dist.images.drawing import fit_in_cell, get_palette, overlay_labels
from paddlevit_dist.images.segmentation.data.segmentation_dataset import (
    IGNORED,
    SegmentationDataset,
    summarize_labels,
)
from paddlevit_dist.images.segmentation.samples import SegmentationSample, collate, split_batch
from paddlevit_dist.images.segmentation.task import ImageSegmentation

UPERNET = ["MODEL.NAME", "upernet_of_tests"]


def build_task(*words: str, opened: bool = True):
    task = make_task(settings.load([*small_segmenters.SHAPES, *words]).values)
    samples = {split: task.build_dataset(split, None) for split in ("train", "val")} if opened else {}
    return task, samples


def training_batch(task, samples, indices=(0, 1, 2)):
    return task.collate([samples["train"].sample(index, np.random.default_rng(index)) for index in indices])


def as_tensors(batch):
    return {name: paddle.to_tensor(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}


# ---- data ----------------------------------------------------------------------------------------------------------


def test_drawn_shapes_have_their_labels_and_a_background():
    task, samples = build_task()
    assert task.class_names == ["background", "circle", "square", "triangle"] and task.num_classes == 4
    for split in ("train", "val"):
        assert any(line.startswith(f"labels of {split}, in all ") for line in samples[split].notices)
    image, labels = samples["val"].dataset.read(3)
    assert labels.shape == (image.height, image.width) and labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, samples["val"].dataset.read_labels(3), strict=True)
    assert len(np.unique(labels)) >= 2 and labels.max() <= 3
    pixels = np.asarray(image).astype(int)
    spread = [
        np.median(np.abs(pixels[labels == one] - np.median(pixels[labels == one], axis=0))) for one in (0, labels.max())
    ]
    assert max(spread) < 30  # each is of about one color


def test_images_of_an_evaluation_come_alone_and_whole():
    _, samples = build_task()
    taken = [samples["val"].sample(index, np.random.default_rng(0)) for index in (4, 0, 7)]
    apart = split_batch(as_tensors(collate(taken)))
    assert [image.index for image in apart] == [4, 0, 7]
    for one, sample in zip(apart, taken):
        np.testing.assert_array_equal(one.image.numpy()[0], sample.image, strict=True)
        np.testing.assert_array_equal(one.labels.numpy(), sample.labels, strict=True)
        assert one.original_size == sample.labels.shape
    nothing = SegmentationSample(taken[0].image, np.zeros((0, 0), np.uint8), 5, (9, 9))  # of a new image
    new, old = split_batch(as_tensors(collate([nothing, taken[1]])))
    assert new.labels.size == 0 and old.labels.shape == list(taken[1].labels.shape)


def test_steps_of_albumentations_change_images_of_training_alone(tmp_path):
    pytest.importorskip("albumentations")
    flip = "{__class_fullname__: VerticalFlip, p: 1.0}"
    (tmp_path / "steps.yaml").write_text(f"transform: {{__class_fullname__: Compose, transforms: [{flip}]}}")
    flipped, plain = build_task("DATA.ALBUMENTATIONS", str(tmp_path / "steps.yaml"))[1], build_task()[1]
    for split, is_equal in (("train", False), ("val", True)):
        pair = [samples[split].sample(0, np.random.default_rng(0)).image for samples in (flipped, plain)]
        assert np.array_equal(*pair) == is_equal, split


def test_held_out_images_keep_their_labels(tmp_path):
    task = make_task(settings.load([*small_segmenters.SHAPES, "DATA.VAL_FRACTION", "0.25"]).values)
    samples = {split: task.build_dataset(split, tmp_path) for split in ("train", "val")}
    assert (len(samples["train"]), len(samples["val"])) == (18, 6)
    whole = samples["val"].dataset.dataset
    for row, index in enumerate(samples["val"].dataset.rows.tolist()):
        np.testing.assert_array_equal(samples["val"].dataset.read_labels(row), whole.read_labels(index), strict=True)


class OwnSet(SegmentationDataset):
    """As many images as its folder is called, whose labels are only read with them."""

    num_classes, class_names = 2, ["ground", "box"]

    def __init__(self, data_path, split, cache_folder):
        self.number, self.labeled = int(data_path), split == "train"

    def __len__(self):
        return self.number

    def read(self, index):
        labels = np.full((5, 6), index % 2 if self.labeled else IGNORED, np.uint8)
        return Image.new("RGB", (6, 5), (index, 0, 0)), labels

    def describe(self, index):
        return f"own {index}"


def test_own_data_read_labels_with_images_and_may_have_none(tmp_path):
    with forgotten():
        register_dataset("own_maps", OwnSet)
        words = ["-dataset=own_maps", f"-output={tmp_path}"]
        task = make_task(settings.load([*small_segmenters.SHAPES, *words, "-data_path=3"]).values)
        train, val = (task.build_dataset(split, tmp_path) for split in ("train", "val"))
        empty = make_task(settings.load([*small_segmenters.SHAPES, *words, "-data_path=0"]).values)
        with pytest.raises(UserError, match="^dataset own_maps has no val images at 0$"):
            empty.build_dataset("val", tmp_path)
    assert train.dataset.read_labels(1).tolist() == [[1] * 6] * 5
    assert summarize_labels(train.dataset, "train")[0] == (
        "labels of train, in all 3 label maps: ground 66.7 %, box 33.3 %; unlabeled 0 % of all pixels"
    )
    assert summarize_labels(val.dataset, "val") == []


def test_labels_of_another_type_are_the_same_and_of_another_size_a_bad_sample():
    own = OwnSet("3", "train", None)
    plain = own.read(1)[1]
    for change, is_right in ((np.int64, True), (lambda labels: labels[:, :-1], False)):
        kind = type("Changed", (OwnSet,), {"read": lambda self, index: (own.read(index)[0], self.change(plain))})
        kind.change = staticmethod(change if not is_right else lambda labels: labels.astype(np.int64))
        if is_right:
            np.testing.assert_array_equal(OpenedDataset(kind("3", "train", None)).read(1)[1], plain, strict=True)
        else:
            with pytest.raises(BadSample, match=r"its labels are ndarray uint8 \(5, 5\): expected \(5, 6\), like"):
                OpenedDataset(kind("3", "train", None)).read(1)


def test_a_label_that_is_no_class_is_refused():
    task, samples = build_task()
    sample = samples["train"].sample(0, np.random.default_rng(0))
    task.check_sample(sample._replace(labels=np.full((2, 2), IGNORED, np.uint8)))
    labels = np.array([[3, IGNORED], [1, 3]], np.uint8)
    assert get_aspect(task, Checkable).labels_in(sample._replace(labels=labels)).tolist() == [1, 3]
    with pytest.raises(BadSample, match="pixel 0 has class 4, which is out of range"):
        task.check_sample(sample._replace(labels=np.full((2, 2), 4, np.uint8)))


@pytest.mark.parametrize(
    "words, said",
    [
        (["MODEL.NAME", "resnet18"], "resnet18 is not a segmentation model"),
        (["DATA.DATASET", "synthetic_shapes"], "holds images with boxes"),
        (["-num_classes=3"], "has 4 classes but MODEL.NUM_CLASSES"),
        (["SEGMENTATION.CLASS_WEIGHTS", "[1, 2]"], "has 2 numbers; expected one for each of the 4 classes"),
        (["SEGMENTATION.SCALES", "[]"], r"SEGMENTATION.SCALES.*expected at least one, such as \[1.0\]"),
        (["DATA.EVAL_LONGEST_SIDE", "50"], "it limits DATA.EVAL_SHORTEST_SIDE"),
        (["DATA.SCALE_RANGE", "[2, 1]"], r"such as \[1.0, 2.0\]"),
        (["DATA.TRANSFORMS", "unheard_of"], "transform 'unheard_of' is not known"),
    ],
)
def test_what_does_not_fit_is_one_line(words, said):
    with pytest.raises(UserError, match=said) as caught:
        build_task(*words)
    assert "\n" not in str(caught.value)


# ---- losses --------------------------------------------------------------------------------------------------------


def test_counts_of_the_loader_are_those_of_the_step():
    words = [*UPERNET, "TRAIN.DICE_WEIGHT", "1", "TRAIN.LOVASZ_WEIGHT", "1"]
    for more in ([], ["SEGMENTATION.CLASS_WEIGHTS", "[0.5, 1, 2, 3]"], ["SEGMENTATION.OHEM_THRESHOLD", "0.7"]):
        task, samples = build_task(*words, *more)
        model, batch = task.build_model(), training_batch(task, samples)
        assert (batch["labels"] == IGNORED).any()
        counts = task.loss_normalizers(batch)
        terms = task.train_step(model, as_tensors(batch), StepPosition(1, 0, 1))
        assert set(terms) == {"loss", "auxiliary", "dice", "lovasz"}
        assert set(counts) == set(terms) - ({"loss"} if more[:1] == ["SEGMENTATION.OHEM_THRESHOLD"] else set())
        for name, count in counts.items():
            assert float(terms[name].count) == pytest.approx(count)
        assert terms["auxiliary"].weight == 0.4
    assert 0 < float(terms["loss"].count) <= counts["auxiliary"] and terms["loss"].is_local  # of the hard pixels
    task.traits = replace(task.traits, normalizer_names=("loss", "brier"))  # a derived class adds the other's number
    assert set(task.loss_normalizers(batch)) == {"loss"}


def test_the_loss_of_a_network_that_knows_nothing_is_the_expected_one():
    task, samples = build_task()
    model = task.build_model()
    model.decode_head.linear_pred.weight.set_value(paddle.zeros_like(model.decode_head.linear_pred.weight))
    term = task.train_step(model, as_tensors(training_batch(task, samples)), StepPosition(1, 0, 1))["loss"]
    assert float(term.sum) / float(term.count) == pytest.approx(
        get_aspect(task, Checkable).expected_losses()["loss"], rel=1e-4
    )
    assert get_aspect(task, Checkable).expected_losses()["loss"] == math.log(4)


@pytest.mark.parametrize(
    "threshold, dice, lovasz",
    [(None, 0.7, 0.3), (0.3, 0.7, 0.3), (None, 0.7, 0), (None, 0, 0.3), (0.3, 0, 0), (None, 0, 0)],
)
def test_terms_of_a_step_are_weighted_sums_over_pixels(threshold, dice, lovasz):
    words = ["SEGMENTATION.CLASS_WEIGHTS", "[0.5, 1, 2, 3]", "TRAIN.DICE_WEIGHT", str(dice)]
    words += ["TRAIN.LOVASZ_WEIGHT", str(lovasz), "SEGMENTATION.OHEM_MIN_KEPT", "200"]
    words += [] if threshold is None else ["SEGMENTATION.OHEM_THRESHOLD", str(threshold)]
    task, samples = build_task(*UPERNET, *words)
    task.auxiliary_weight = 0.4
    batch, generator = as_tensors(training_batch(task, samples)), np.random.default_rng(0)
    small = generator.normal(size=(2, 3, 4, 12, 20)).astype("float32")  # of half the resolution
    outputs = tuple(map(paddle.to_tensor, small))
    logits, other = np.stack(
        [
            [[cv2.resize(one, (40, 24), interpolation=cv2.INTER_LINEAR) for one in image] for image in part]
            for part in small
        ]
    )
    terms = task.train_step(lambda images: outputs, batch, StepPosition(1, 0, 1))
    labels = batch["labels"].numpy().astype(int)
    is_known = labels != IGNORED
    known = np.where(is_known, labels, 0)

    def losses(scores):
        shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return -np.log(np.take_along_axis(shares, known[:, None], axis=1)[:, 0])  # (3, 24, 40)

    weights = np.array([0.5, 1, 2, 3])[known] * is_known
    expected = {"auxiliary": ((weights * losses(other)).sum(), weights.sum(), 0.4)}
    if threshold is not None:  # what is predicted with less, and in each image at least so many of the least
        own = np.where(is_known, losses(logits), -1)
        least = np.sort(own.reshape(3, -1), axis=1)[:, -200, None, None]
        weights = weights * (own >= np.minimum(least, -math.log(threshold)))
        assert 600 < np.count_nonzero(weights) < np.count_nonzero(is_known)
    expected["loss"] = (weights * losses(logits)).sum(), weights.sum(), 1.0
    rows = paddle.to_tensor(logits).flatten(2), paddle.to_tensor(labels).flatten(1), IGNORED
    for name, weight, function in (("dice", dice, dice_losses), ("lovasz", lovasz, row_lovasz_softmax)):
        if weight:
            total, count = function(*rows)
            expected[name] = float(total), float(count), weight
    assert terms.keys() == expected.keys()
    for name, numbers in expected.items():
        found = float(terms[name].sum), float(terms[name].count), terms[name].weight
        assert found == pytest.approx(numbers, rel=1e-4), name


class PixelErrors(ImageSegmentation):
    """The share that a network does not give to the class of each pixel."""

    def losses(self, outputs, batch):
        labels = paddle.where(batch["labels"] == IGNORED, paddle.zeros_like(batch["labels"]), batch["labels"])
        return 1 - paddle.take_along_axis(F.softmax(outputs, axis=1), labels.unsqueeze(1), axis=1)[:, 0]


class ImageErrors(PixelErrors):
    """The largest of them in each image."""

    def losses(self, outputs, batch):
        return super().losses(outputs, batch).max(axis=[1, 2])


@pytest.mark.parametrize("owner", [PixelErrors, ImageErrors])
def test_a_users_losses_are_of_labeled_pixels_or_of_images_and_of_each_map(owner):
    words = ["SEGMENTATION.CLASS_WEIGHTS", "[0.5, 1, 2, 3]", "TRAIN.DICE_WEIGHT", "0.5"]
    _, samples = build_task(*UPERNET)
    task = owner(settings.load([*small_segmenters.SHAPES, *UPERNET, *words]).values)
    task.num_classes, task.auxiliary_weight = 4, 0.4
    arrays = training_batch(task, samples)
    arrays["labels"][1, :5] = IGNORED
    maps = np.random.default_rng(0).normal(size=(3, 3, 4, 24, 40)).astype("float32")
    outputs = tuple(map(paddle.to_tensor, maps))
    terms = task.train_step(lambda images: outputs, as_tensors(arrays), StepPosition(1, 0, 1))
    labels = arrays["labels"].astype(int)
    shares = np.exp(maps) / np.exp(maps).sum(axis=2, keepdims=True)
    index = np.broadcast_to(np.where(labels == IGNORED, 0, labels)[None, :, None], (3, 3, 1, 24, 40))
    errors = 1 - np.take_along_axis(shares, index, axis=2)[:, :, 0]  # (maps, images, rows, columns)
    is_known, is_of_pixels = labels != IGNORED, owner is PixelErrors
    sums = (errors * is_known).sum(axis=(1, 2, 3)) if is_of_pixels else errors.max(axis=(2, 3)).sum(axis=1)
    count = is_known.sum() if is_of_pixels else 3
    assert task.loss_normalizers(arrays)["loss"] == is_known.sum() and "dice" in terms
    for name, total, weight in (("loss", sums[0], 1.0), ("auxiliary", sums[1] + sums[2], 0.4)):
        term = terms[name]
        assert (float(term.sum), term.weight) == (pytest.approx(total, rel=1e-5), weight)
        assert (int(term.count), term.is_local) == (count, not is_of_pixels)


def test_other_losses_than_those_of_a_key_or_a_network_are_refused():
    words = [*small_segmenters.SHAPES, "SEGMENTATION.OHEM_THRESHOLD", "0.7"]
    assert refusal_of(PixelErrors, settings.load(words).values).startswith("SEGMENTATION.OHEM_THRESHOLD 0.7")


def test_outputs_that_no_loss_reads_are_refused():
    task, samples = build_task()
    batch, maps = as_tensors(training_batch(task, samples)), paddle.zeros([3, 4, 6, 10])
    task.train_step(lambda images: maps, batch, StepPosition(1, 0, 1))
    for outputs in ((maps, maps), {"out": maps}, maps[:, :2], maps[:, 0]):
        with pytest.raises(
            UserError, match=r"^function returns .*, expected logits \(images, classes, rows, columns\)"
        ):
            task.train_step(lambda images, outputs=outputs: outputs, batch, StepPosition(1, 0, 1))


def test_hard_pixels_alone_have_gradients():
    words = ["SEGMENTATION.OHEM_MIN_KEPT", "10", "SEGMENTATION.OHEM_THRESHOLD", "1e-6"]
    task, samples = build_task(*words)
    batch = as_tensors(training_batch(task, samples))
    logits = paddle.randn([3, 4, 24, 40])
    logits.stop_gradient = False
    term = task.train_step(lambda images: logits, batch, StepPosition(1, 0, 1))["loss"]
    term.sum.backward()
    learned = np.abs(logits.grad.numpy()).sum(axis=1) > 1e-9
    assert learned.sum(axis=(1, 2)).tolist() == [10, 10, 10] and float(term.count) == 30


@pytest.mark.parametrize("words", [[], UPERNET, ["SEGMENTATION.OHEM_THRESHOLD", "0.7", "TRAIN.DICE_WEIGHT", "1"]])
def test_an_update_waits_for_the_norm_of_its_gradients_alone(words):
    task, samples = build_task(*words)
    waits = waits_of_an_update(task, task.build_model(), training_batch(task, samples), 3)
    assert len(waits) == 1, str(waits)


# ---- model ---------------------------------------------------------------------------------------------------------


def test_the_backbone_learns_at_its_rate_and_norms_do_not_decay():
    task, _ = build_task("TRAIN.BACKBONE_LR_FACTOR", "0.1", "TRAIN.WEIGHT_DECAY", "0.02")
    model = task.build_model()
    groups = get_aspect(task, ParameterGrouping).parameter_groups(model)
    groups, _ = complete_groups(groups, model, task.config.TRAIN.WEIGHT_DECAY, set(), None, print)
    rates = {name: (group["learning_rate"], group["weight_decay"]) for group in groups for name in group["names"]}
    learning = {name: parameter for name, parameter in model.named_parameters() if not parameter.stop_gradient}
    assert set(rates) == set(learning)
    for name, parameter in learning.items():
        rate, decay = rates[name]
        assert rate == (0.1 if name.startswith("backbone.") else 1.0)
        assert decay == (0.02 if len(parameter.shape) > 1 else 0.0)


def test_a_training_starts_from_a_classifiers_backbone_and_an_evaluation_does_not(tmp_path):
    from paddlevit_dist import create_model

    options = small_segmenters.TinySegFormer.variants["segformer_of_tests"]["backbone_options"]
    classifier = create_model("mit_b0", num_classes=7, **options)
    paddle.save(classifier.state_dict(), str(tmp_path / "classifier.pdparams"))
    words = ["MODEL.BACKBONE_PRETRAINED", str(tmp_path / "classifier.pdparams")]
    task, _ = build_task(*words)
    built = task.build_model().backbone
    for name, value in built.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), classifier.state_dict()[name].numpy(), strict=True)
    assert any(notice.startswith("backbone from") for notice in task.notices)
    evaluated, _ = build_task("-eval", "-pretrained=x", *words, opened=False)
    evaluated.build_model(4)
    assert not any(notice.startswith("backbone from") for notice in evaluated.notices)


def test_a_backbone_whose_weights_lack_a_tensor_is_refused_unless_it_is_allowed(tmp_path):
    from paddlevit_dist import create_model

    options = small_segmenters.TinySegFormer.variants["segformer_of_tests"]["backbone_options"]
    state = dict(create_model("mit_b0", num_classes=7, **options).state_dict())
    lacking = next(name for name in state if name.endswith("norm1.bias"))
    del state[lacking]
    paddle.save(state, str(tmp_path / "classifier.pdparams"))
    words = ["MODEL.BACKBONE_PRETRAINED", str(tmp_path / "classifier.pdparams")]
    with pytest.raises(UserError, match=f"would stay random: {lacking}"):
        build_task(*words)[0].build_model()
    task, _ = build_task(*words, "-allow_changes")
    task.build_model()
    assert any(f"1 missing, which stay random: {lacking}" in notice for notice in task.notices)


# ---- images ------------------------------------------------------------------------------------------------------


def test_images_show_labels_in_the_colors_of_the_legend():
    task, samples = build_task()
    batch = training_batch(task, samples)
    shown = get_aspect(task, Drawable).visualize_batch(samples["train"], batch, 1)
    assert len(shown) == 3 and all(image.dtype == np.uint8 and image.ndim == 3 for image, _ in shown)
    share = np.count_nonzero(batch["labels"][0] != IGNORED) / batch["labels"][0].size
    assert shown[0][1] == f"40 x 24, {share:.0%} labeled"
    palette = get_palette(samples["train"].dataset, 4)
    for (image, _), pixels, labels in zip(shown, batch["images"], batch["labels"]):
        np.testing.assert_array_equal(image, fit_in_cell(overlay_labels(pixels.transpose(1, 2, 0), labels, palette)))
    names, colors = zip(*get_aspect(task, Drawable).image_legend())
    assert list(names) == task.class_names and colors == tuple(map(tuple, palette.tolist()))
    (image, caption), *_ = get_aspect(task, Drawable).visualize_eval_samples(samples["val"], [2])
    stored, labels = samples["val"].dataset.read(2)
    assert caption == f"{stored.width} x {stored.height}, 100% labeled"
    np.testing.assert_array_equal(image, fit_in_cell(overlay_labels(np.asarray(stored), labels, palette)))
