"""Masks of samples, and what an evaluation of a masked autoencoder reads."""

from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from PIL import Image

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.images.pretraining.masked_autoencoder.task import MaskedAutoencoding
from paddlevit_dist.images.pretraining.task import open_labeled

SIZES = {"patch_size": 4, "embed_dim": 16, "depth": 2, "num_heads": 2}


@pytest.fixture
def pool(tmp_path):
    generator = np.random.default_rng(0)
    for name in ("train/a.png", "train/deep/b.png", "val/x/c.png", "val/y/d.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (20, 24, 3), dtype=np.uint8)).save(tmp_path / name)
    return tmp_path


def open_task(pool, *words):
    keys = [word for name, value in SIZES.items() for word in (f"MODEL.{name.upper()}", str(value))]
    decoder = ["MASKED_AUTOENCODER.DECODER_WIDTH", "8", "MASKED_AUTOENCODER.DECODER_HEADS", "2"]
    arguments = [
        "TASK",
        "masked_autoencoder",
        "MODEL.NAME",
        "vit",
        "-dataset=unlabeled",
        f"-data_path={pool}",
        "-image_size=16",
    ]
    (pool / "out").mkdir(exist_ok=True)
    task = MaskedAutoencoding(settings.load([*arguments, *keys, *decoder, f"-output={pool / 'out'}", *words]).values)
    return task, {split: task.build_dataset(split, pool) for split in ("train", "val")}


def test_masks_follow_from_seed_epoch_and_image(pool):
    task, splits = open_task(pool)
    first, again, other = (splits["train"].sample(1, np.random.default_rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first[2], again[2])
    np.testing.assert_array_equal(first[0], again[0])
    assert (first[2] != other[2]).any()
    fixed = [splits["val"].sample(0, np.random.default_rng(seed))[2] for seed in (0, 1)]
    np.testing.assert_array_equal(*fixed)
    assert (splits["val"].sample(1, np.random.default_rng(0))[2] != fixed[0]).any()
    batch = task.collate([first, other])
    np.testing.assert_array_equal(np.take_along_axis(batch["order"], batch["restore"], 1), [np.arange(16)] * 2)
    assert sorted(first[2].tolist()) == list(range(16)) and first[1] == -1
    assert {name: array.dtype for name, array in batch.items()} == {
        "images": np.uint8, "labels": np.int64, "order": np.int64, "restore": np.int64
    }  # fmt: skip


def test_classes_of_validation_images_choose_the_best(pool):
    task, splits = open_task(pool)
    assert (task.best_metric, splits["val"].has_classes) == (("top-1", True), True)
    task, splits = open_task(pool / "train", "DATA.VAL_FRACTION", "0.5")
    assert (task.best_metric, splits["val"].has_classes, len(splits["train"])) == (("loss", False), False, 1)


@pytest.mark.parametrize(("words", "fraction"), [([], 0.25), (["PRETRAINING.LABELED_PATH", "labeled"], None)])
def test_no_image_is_held_out_if_others_are_evaluated(words, fraction):
    common = ["TASK", "masked_autoencoder", "MODEL.NAME", "vit", "-dataset=unlabeled", "-data_path=any"]
    found = settings.load([*common, "DATA.VAL_FRACTION_IF_MISSING", "0.25", *words]).values
    assert found.DATA.VAL_FRACTION_IF_MISSING == fraction


@pytest.mark.parametrize("is_normalized", [False, True])
def test_the_loss_is_the_mean_error_of_hidden_patches(is_normalized):
    keys = {"MASKED_AUTOENCODER.NORMALIZED_PATCHES": is_normalized, "DATA.IMAGE_SIZE": "[16, 24]"}
    words = ["TASK", "masked_autoencoder", "MODEL.NAME", "vit", "MODEL.PATCH_SIZE", "4", "-dataset=digits"]
    task = MaskedAutoencoding(settings.load([*words, *(str(word) for pair in keys.items() for word in pair)]).values)
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (2, 3, 16, 24), dtype=np.uint8)
    prediction = generator.normal(size=(2, 24, 48)).astype(np.float32)
    order = np.stack([generator.permutation(24) for _ in range(2)])
    batch = {"images": images, "order": order, "restore": np.argsort(order, axis=1), "labels": np.array([1, 0])}
    batch = {name: paddle.to_tensor(value) for name, value in batch.items()}

    def model(pixels, order=None, restore=None):
        return paddle.to_tensor(prediction) if order is not None else pixels.mean(axis=[2, 3])

    mean, deviation = (np.array(values)[:, None, None] for values in (task.config.DATA.IMAGENET_MEAN,
                                                                      task.config.DATA.IMAGENET_STD))  # fmt: skip
    normalized = (images / 255 - mean) / deviation
    expected = []
    for row in range(2):
        errors = []
        for patch in order[row, 6:]:  # a quarter of 24 is kept
            top, left = 4 * (patch // 6), 4 * (patch % 6)
            target = normalized[row, :, top : top + 4, left : left + 4].transpose(1, 2, 0).ravel()
            if is_normalized:
                target = (target - target.mean()) / np.sqrt(target.var(ddof=1) + 1e-6)
            errors.append(np.mean((prediction[row, patch] - target) ** 2))
        expected.append(np.mean(errors))
    terms = task.train_step(model, batch, StepPosition(1, 0, 9))
    assert float(terms["loss"].sum) == pytest.approx(sum(expected), rel=1e-5) and terms["loss"].count == 2
    for task.has_classes in (True, False):
        updates = []
        step = SimpleNamespace(
            metrics=SimpleNamespace(update=lambda *given, kept=updates: kept.append(given)), keeps_records=True
        )
        assert task.eval_step(model, batch, step)() == pytest.approx(expected, rel=1e-5)
        ((numbers, features, labels),) = updates
        np.testing.assert_allclose(numbers["loss"].numpy(), expected, rtol=1e-5)
        assert labels is batch["labels"] and (features is not None) == task.has_classes
        if task.has_classes:  # of whole images
            np.testing.assert_allclose(features.numpy(), normalized.mean(axis=(2, 3)), atol=1e-5)


def test_predictions_in_half_precision_are_scored_in_single(pool):
    task, splits = open_task(pool)
    batch = task.collate([splits["val"].sample(k, np.random.default_rng(0)) for k in range(2)])
    batch = {name: paddle.to_tensor(array) for name, array in batch.items()}
    predicted = np.random.default_rng(0).normal(size=(2, 16, 48)).astype(np.float16)
    found = [
        task.predict(lambda *_, own=own: paddle.to_tensor(own), batch) for own in (predicted, predicted.astype("f4"))
    ]
    for losses, (prediction, pixels) in found:
        assert {losses.dtype, prediction.dtype, pixels.dtype} == {paddle.float32}
        np.testing.assert_array_equal(losses.numpy(), found[0][0].numpy())


def test_a_split_is_known_by_its_size_and_weights_by_their_preprocessing(pool):
    (pool / "train" / "notes.odt").touch()
    task, splits = open_task(pool)
    assert [task.signature(splits[split]) for split in ("train", "val")] == [{"samples": 2}] * 2
    assert task.signature()["DATA.IMAGE_SIZE"] == 16
    assert any(".odt" in line for line in splits["train"].notices), splits["train"].notices
    assert not any(".odt" in line for line in splits["val"].notices)


def test_search_knows_what_chooses_the_best_before_images_are_opened(pool):
    for place, words in ((pool, []), (pool / "train", ["DATA.VAL_FRACTION", "0.5"])):
        task, _ = open_task(place, *words)
        assert MaskedAutoencoding(task.config).best_metric == task.best_metric


def test_other_images_with_classes_are_evaluated(pool):
    task, splits = open_task(pool / "train", "PRETRAINING.LABELED_PATH", str(pool / "val"))
    assert [splits["val"].sample(k, np.random.default_rng(0))[1] for k in range(2)] == [0, 1]
    assert (len(splits["train"]), task.class_names) == (2, ["x", "y"])
    metrics = task.build_metrics()
    assert (metrics.class_names, metrics.neighbors) == (["x", "y"], task.config.PRETRAINING.NEIGHBORS)
    for split, number in (("train", 4), ("val", 2)):  # of folders and tables that have validation, only this
        for name in "ab":
            (pool / "both" / split / name).mkdir(parents=True)
            for k in range(number // 2):
                Image.new("RGB", (5, 5)).save(pool / "both" / split / name / f"{k}.png")
    rows = "".join(f"{split}/{name}/{k}.png,{name}\n" for split, k in (("train", 1), ("val", 0)) for name in "ab")
    (pool / "both" / "list.csv").write_text(f"image,label\n{rows}")
    divided = "image,label,split\n" + "".join(f"{row},{row.partition('/')[0]}\n" for row in rows.splitlines())
    (pool / "both" / "divided.csv").write_text(divided)
    for place, images in (("", ["val/a/0.png", "val/b/0.png"]), ("divided.csv", ["val/a/0.png", "val/b/0.png"]),
                          ("list.csv", [row.partition(",")[0] for row in rows.splitlines()])):  # fmt: skip
        opened = open_labeled(str(pool / "both" / place), pool)
        assert [opened.describe(k).partition("both/")[2] for k in range(len(opened))] == images
        assert [opened.class_names[label] for label in opened.labels] == [name.split("/")[1] for name in images]
    with pytest.raises(UserError, match=r"LABELED_PATH http://127.0.0.1/x: expected class folders or a table"):
        open_labeled("http://127.0.0.1/x", pool)
    with pytest.raises(UserError, match=r"LABELED_PATH .*one has only one class"):
        (pool / "one" / "x").mkdir(parents=True)
        Image.new("RGB", (5, 5)).save(pool / "one" / "x" / "e.png")
        open_task(pool / "train", "PRETRAINING.LABELED_PATH", str(pool / "one"))
    with pytest.raises(UserError, match=r"PRETRAINING.LABELED_PATH: .*nowhere does not exist"):
        open_task(pool / "train", "PRETRAINING.LABELED_PATH", str(pool / "nowhere"))
    with pytest.raises(UserError, match=r"LABELED_PATH.*DATA.VAL_FRACTION"):
        open_task(pool, "PRETRAINING.LABELED_PATH", str(pool / "val"), "DATA.VAL_FRACTION", "0.5")
