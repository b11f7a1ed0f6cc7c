"""Keys of the configuration reach the transforms, the mixing and the samples of a training."""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from support.trainings.runs import IMAGES, write_single_folder

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.images.classification.augmentation import build_augmentation, build_mixing
from paddlevit_dist.images.classification.samples import ClassificationSamples, evaluation_transform
from paddlevit_dist.images.classification.training_samples import build_training_samples, build_training_transform
from paddlevit_dist.images.data.class_folders import ClassFolders
from paddlevit_dist.images.data.parts import PartReader
from paddlevit_dist.images.data.quarantine import ReplacementReader
from paddlevit_dist.images.transforms.crops import GlyphTransform
from paddlevit_dist.images.transforms.decoding_opencv import FastReader, FastTransform
from paddlevit_dist.images.transforms.policies import AutoAugment, ColorJitter, RandAugment, TransformChain

MEAN = [0.25, 0.5, 0.75]
KEYS = "DATA.CROP_SCALE [0.25,0.5] DATA.CROP_RATIO [0.5,3.0] DATA.HORIZONTAL_FLIP 0.125 DATA.IMAGE_CHANNELS 1".split()


def load(*words):
    return settings.load([*IMAGES, "-data_path=.", "DATA.IMAGE_SIZE", "24", *words]).values


def test_photographs_are_cropped_and_mirrored_as_the_keys_say():
    transform = build_training_transform(load(*KEYS, "TRAIN.COLOR_JITTER", "0.3"), "photo")
    assert (transform.image_size, transform.channels, transform.flip_probability) == (24, 1, 0.125)
    assert (transform.crop_scale, transform.crop_ratio) == ((0.25, 0.5), (0.5, 3.0))
    assert transform.augment == ColorJitter(0.3)
    plain = build_training_transform(load("TRAIN.COLOR_JITTER", "0.0"), "photo")
    assert plain.augment is None and plain.channels == 3


def test_glyphs_are_distorted_and_never_cropped():
    assert evaluation_transform(load().DATA, "glyph").channels == 3
    words = ["DATA.GLYPH_DISTORTION", "0.375", "DATA.IMAGE_CHANNELS", "1", "TRAIN.COLOR_JITTER", "0.3"]
    transform = build_training_transform(load(*words), "glyph")
    assert transform == GlyphTransform(24, True, 1, distortion=0.375, augment=ColorJitter(0.3))
    assert evaluation_transform(load(*words).DATA, "glyph") == GlyphTransform(24, False, 1)
    words = ["DATA.CROP_PCT", "0.75", "DATA.INTERPOLATION", "bilinear", "DATA.CROP_MODE", "squash"]
    photo = evaluation_transform(load(*words).DATA, "photo")
    assert (photo.image_size, photo.crop_pct, photo.channels) == (24, 0.75, 3)
    assert (photo.interpolation, photo.crop_mode) == ("bilinear", "squash")


def augment(**keys):
    off = {"RAND_AUGMENT": False, "AUTO_AUGMENT": False, "COLOR_JITTER": 0.0}
    numbers = {"RAND_AUGMENT_MAGNITUDE": 7, "RAND_AUGMENT_LAYERS": 3}
    return build_augmentation(SimpleNamespace(**{**off, **numbers, **keys}), MEAN)


def test_the_first_augmentation_that_is_on_is_used_and_color_jitter_follows_three_augment():
    assert augment() is None and augment(COLOR_JITTER=0.5) == ColorJitter(0.5)
    chosen = augment(RAND_AUGMENT=True, AUTO_AUGMENT=True, COLOR_JITTER=0.5)
    assert isinstance(chosen, RandAugment) and (chosen.magnitude, chosen.layers) == (7, 3)
    assert chosen == augment(RAND_AUGMENT="rand-m7-n3-mstd0.5-inc1")
    assert chosen != augment(RAND_AUGMENT="rand-m7-n3") and chosen.fill == (64, 128, 191)
    original = augment(AUTO_AUGMENT=True, COLOR_JITTER=0.5)
    assert isinstance(original, AutoAugment) and original == augment(AUTO_AUGMENT="original")
    three = augment(AUTO_AUGMENT="3a", COLOR_JITTER=0.5)
    assert isinstance(three, TransformChain) and three.steps[1] == ColorJitter(0.5)
    assert augment(AUTO_AUGMENT="3a") == three.steps[0]


def mix(**keys):
    off = {"MIXUP_ALPHA": 0.0, "CUTMIX_ALPHA": 0.0, "CUTMIX_MINMAX": None, "MIXUP_PROB": 0.5, "MIXUP_MODE": "pair"}
    return build_mixing(SimpleNamespace(**{**off, "MIXUP_SWITCH_PROB": 0.25, **keys}))


def test_batches_are_mixed_if_one_kind_is_on():
    assert mix() is None and mix(MIXUP_ALPHA=0.8, MIXUP_PROB=0.0) is None
    mixing = mix(MIXUP_ALPHA=0.8, CUTMIX_ALPHA=1.5, CUTMIX_MINMAX=[0.2, 0.6])
    assert (mixing.mixup_alpha, mixing.cutmix_alpha, mixing.cutmix_minmax) == (0.8, 1.5, (0.2, 0.6))
    assert (mixing.probability, mixing.switch_probability, mixing.mode) == (0.5, 0.25, "pair")
    assert mix(CUTMIX_ALPHA=1.0).mixup_alpha == 0.0 and mix(CUTMIX_MINMAX=[0.1, 0.2]).cutmix_alpha == 0.0


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """A folder of 12 images of ant, 2 of bee and 5 of cow."""
    folder = tmp_path_factory.mktemp("images")
    write_single_folder(folder / "train", {"ant": 12, "bee": 2, "cow": 5})
    return ClassFolders(folder, "train", folder)


def build(dataset, *words):
    config = load(*words)
    transform = build_training_transform(config, "photo")
    return build_training_samples(config, ClassificationSamples(dataset, transform, "erasing"), 3)


def test_samples_are_read_weighted_and_replaced_as_the_keys_say(images, tmp_path):
    samples, weights = build(images, "DATA.ON_INVALID_SAMPLE", "stop")
    assert weights is None and samples.erasing == "erasing" and samples.replacements is None and not samples.is_balanced
    assert isinstance(samples.reader, PartReader) and samples.reading_advice[0] == "DATA.DECODER fast"
    assert "12 of ant, 2 of bee; DATA.CLASS_BALANCED true" in " ".join(samples.notices)
    samples, _ = build(images, "DATA.ON_INVALID_SAMPLE", "skip", f"-output={tmp_path}")
    assert isinstance(samples.replacements, ReplacementReader) and not isinstance(samples.reader, PartReader)
    assert samples.replacements.folder == str(tmp_path)
    samples, _ = build(images, "DATA.CLASS_BALANCED", "True")
    assert samples.is_balanced and not samples.notices
    order = samples.draw_order(np.random.default_rng(0))
    assert sorted(np.bincount(images.labels[order]).tolist()) == [6, 6, 7]
    samples, weights = build(images, "TRAIN.CLASS_WEIGHTS", "balanced")
    assert len(weights) == 3 and weights[1] > weights[2] > weights[0] and not samples.notices
    words = ["DATA.IMAGE_CHANNELS", "1", "DATA.CLASS_BALANCED", "True"]
    samples, _ = build(images, "DATA.DECODER", "fast", *words)
    plain = build_training_transform(load(*words), "photo")
    assert samples.reader == FastReader(images, 1) and samples.transform == FastTransform(plain)
    assert samples.notices == [f"training images are read with OpenCV {cv2.__version__} (DATA.DECODER fast)"]


@pytest.mark.parametrize("words", [["DATA.CLASS_BALANCED", "True"], ["TRAIN.CLASS_WEIGHTS", "balanced"]])
def test_what_needs_labels_is_refused_without_them(words):
    dataset = SimpleNamespace(labels=None, skipped_files=None, read=None)
    with pytest.raises(UserError, match="dataset folder does not expose its labels: give it an attribute 'labels'"):
        build(dataset, *words)


def test_classes_are_described_with_their_numbers(images):
    samples = ClassificationSamples(images, None)
    assert samples.describe_classes() == ": ant 12, bee 2, cow 5" and samples.draw_order(None) is None
    many = SimpleNamespace(labels=np.arange(44) % 21, num_classes=21, skipped_files=None, read=None, class_names=None)
    assert ClassificationSamples(many, None).describe_classes() == " of 21 classes, 2 to 3 each"
    many.labels = None
    assert ClassificationSamples(many, None).describe_classes() == ""
    many.skipped_files = SimpleNamespace(num_images=1)
    assert ClassificationSamples(many, None).exclusions == "without 1 image not opened here"
    facts = samples.identify()
    assert facts["number of classes"] == 3 and facts["classes"] == ["ant", "bee", "cow"] and len(facts["labels"]) == 16
    turned = SimpleNamespace(**{**vars(many), "labels": images.labels[::-1], "class_names": None, "num_classes": 3})
    assert ClassificationSamples(turned, None).identify()["labels"] != facts["labels"]
