"""Samples with everything enabled: the same arrays whatever reads them, and what a training step does with them."""

import pickle

import numpy as np
import paddle
import pytest
from support.samples.augmented_samples import EVERYTHING, Images, drawn, make_samples, make_task
from support.thread_ranks import acting_as

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.step_types import StepPosition
from paddlevit_dist.images.classification.augmentation import build_augmentation
from paddlevit_dist.images.classification.task import ClassificationSamples
from paddlevit_dist.images.transforms.crops import GlyphTransform, TrainingTransform
from paddlevit_dist.images.transforms.on_device import BOXES, COLORS, ROWS, RandomErasing


@pytest.fixture(scope="module")
def expected_samples():
    samples = drawn(1, 12)
    assert len(set(samples)) == 48  # also the repeats of a sample differ
    assert {len(sample) for sample in samples} == {3, 5}
    return samples


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_samples_do_not_depend_on_the_world_size(world_size, expected_samples):
    assert drawn(world_size, 12 // world_size) == expected_samples


def test_gray_images_of_a_colored_set_are_augmented_like_colored_ones():
    augment = build_augmentation(make_task(*EVERYTHING).config.TRAIN, [0.485, 0.456, 0.406])
    transform = TrainingTransform(16, augment=augment)
    image, _ = Images().read(0)
    for seed in range(30):
        generators = [np.random.default_rng(seed) for _ in range(2)]
        np.testing.assert_array_equal(
            transform(image, generators[0]), transform(image.convert("RGB"), generators[1]), strict=True
        )


@pytest.mark.parametrize("channels", [1, 3])
def test_signs_and_single_channels_are_augmented_too(channels):
    words = [*EVERYTHING, "DATA.IMAGE_CHANNELS", str(channels)]
    for name in ("MEAN", "STD"):
        words += [f"DATA.IMAGENET_{name}", str([0.5] * channels)]
    task = make_task(*words)
    augment = build_augmentation(task.config.TRAIN, task.config.DATA.IMAGENET_MEAN)
    for transform in (
        TrainingTransform(16, channels=channels, augment=augment),
        GlyphTransform(16, train=True, channels=channels, augment=augment),
    ):
        plain = pickle.loads(pickle.dumps(transform))
        object.__setattr__(plain, "augment", None)
        changed = 0
        for index in range(24):
            image = transform(Images().read(index)[0], np.random.default_rng(index))
            assert image.shape == (channels, 16, 16) and image.dtype == np.uint8
            changed += (image != plain(Images().read(index)[0], np.random.default_rng(index))).any()
        assert changed > 12


def test_a_sample_without_augmentation_is_what_it_was():
    transform = TrainingTransform(16)
    augmented = TrainingTransform(16, augment=lambda image, generator: image)
    original, _ = Images().read(1)
    for seed in range(5):
        np.testing.assert_array_equal(
            transform(original, np.random.default_rng(seed)),
            augmented(original, np.random.default_rng(seed)),
            strict=True,
        )
    assert len(ClassificationSamples(Images(), transform).sample(1, np.random.default_rng(0))) == 2


def test_evaluation_is_never_augmented(tmp_path):
    task = make_task(*EVERYTHING)
    plain = make_task().build_dataset("val", tmp_path)
    samples = task.build_dataset("val", tmp_path)
    for index in range(3):
        image, label = samples.sample(index, np.random.default_rng(0))
        np.testing.assert_array_equal(image, plain.sample(index, np.random.default_rng(1))[0], strict=True)
    assert samples.erasing is None and task.build_dataset("train", tmp_path).erasing == task.erasing


def test_a_text_that_is_not_understood_is_told_before_training(tmp_path):
    with pytest.raises(UserError, match="TRAIN.RAND_AUGMENT is 'rand-q9'"):
        make_task("TRAIN.RAND_AUGMENT", "rand-q9").build_dataset("train", tmp_path)


def make_batch(task, count=12):
    samples = make_samples(task)
    batch = task.collate([samples.sample(index, np.random.default_rng(index)) for index in range(count)])
    return {name: paddle.to_tensor(array) for name, array in batch.items()}


class Recorder(paddle.nn.Layer):
    """Keeps its input; its logits say the class of the first pixel."""

    def forward(self, images):
        self.seen = images
        return images[:, 0, 0, :10] * 3.0


def stepped(task, step):
    model = Recorder()
    paddle.seed(1)
    terms = task.train_step(model, make_batch(task), step)
    return model.seen.numpy(), {name: term.sum.item() for name, term in terms.items()}


def test_steps_are_repeatable_and_differ_by_update_micro_batch_and_rank():
    task = make_task(*EVERYTHING, "TRAIN.MIXUP_MODE", "elem", "-num_classes=10")
    first, terms = stepped(task, StepPosition(1, 5, 9))
    again, same = stepped(task, StepPosition(1, 5, 9))
    np.testing.assert_array_equal(first, again, strict=True)
    assert terms == same
    assert (stepped(task, StepPosition(1, 6, 9))[0] != first).any()
    assert (stepped(task, StepPosition(1, 5, 9, 1))[0] != first).any()
    with acting_as(1, 2):
        assert (stepped(task, StepPosition(1, 5, 9))[0] != first).any()


def test_a_step_erases_then_mixes_and_takes_the_loss_of_the_mixed_labels():
    task = make_task(*EVERYTHING)
    task.num_classes = 10
    step = StepPosition(1, 5, 9)
    seen, terms = stepped(task, step)
    batch = make_batch(task)
    images = task.normalize(batch["images"]).numpy()
    for image, boxes, colors in zip(*(batch[name].numpy() for name in (ROWS, BOXES, COLORS))):
        for (top, left, bottom, right), color in zip(boxes, colors):
            images[image, :, top:bottom, left:right] = color[:, None, None]
    mix = task.mixing.draw(np.random.default_rng([0, 5, 0, 0]), images.shape)
    top, left, bottom, right = mix.boxes[0]
    expected = mix.weight[0] * images + (1 - mix.weight[0]) * images[::-1]
    expected[:, :, top:bottom, left:right] = images[::-1, :, top:bottom, left:right]
    np.testing.assert_allclose(seen, expected, atol=1e-5)

    logits = 3.0 * seen[:, 0, 0, :10].astype(np.float64)
    log_softmax = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    labels = batch["labels"].numpy()
    one_hot = np.eye(10)[labels] * 0.9 + 0.01
    targets = mix.share[0] * one_hot + (1 - mix.share[0]) * one_hot[::-1]
    assert terms["loss"] == pytest.approx(-(targets * log_softmax).sum(), rel=1e-4)
    dominant = labels if mix.share[0] >= 0.5 else labels[::-1]
    assert terms["top-1"] == pytest.approx(100.0 * (logits.argmax(axis=1) == dominant).sum())


def test_without_these_keys_a_step_sees_the_normalized_pixels():
    task = make_task()
    assert task.erasing is None and task.mixing is None
    seen, _ = stepped(task, StepPosition(1, 5, 9))
    np.testing.assert_array_equal(seen, task.normalize(make_batch(task)["images"]).numpy(), strict=True)


def test_erasing_keys_reach_the_samples():
    task = make_task("TRAIN.RANDOM_ERASE_PROB", "0.25", "TRAIN.RANDOM_ERASE_MODE", "const")
    assert task.erasing == RandomErasing(0.25, "const", 1)
