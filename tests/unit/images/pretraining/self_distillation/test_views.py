"""Views follow from seed, epoch and image, have their sizes, and change colors as they are told to."""

import colorsys

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import settings
from paddlevit_dist.images.pretraining.self_distillation.task import SelfDistillation
from paddlevit_dist.images.pretraining.self_distillation.views import ViewAugmentation, build_views, jitter
from paddlevit_dist.tasks.dataset import reading_generator

WORDS = "TASK self_distillation -dataset=digits -image_size=16 DATA.IMAGE_CHANNELS 1 SELF_DISTILLATION.SMALL_VIEWS 3"
WORDS += " SELF_DISTILLATION.SMALL_SIZE 8 MODEL.NAME vit MODEL.PATCH_SIZE 4"


def build_task():
    return SelfDistillation(settings.load(WORDS.split()).values)


@pytest.mark.parametrize("split", ["train", "val"])
def test_views_are_equal_for_the_same_draws_and_labels_of_training_images_are_not_read(tmp_path, split):
    task = build_task()
    samples = task.build_dataset(split, tmp_path)
    again, other = (samples.sample(3, reading_generator(0, epoch, 3, 0)) for epoch in (1, 2))
    first = samples.sample(3, reading_generator(0, 1, 3, 0))
    for left, right in zip(first, again):
        np.testing.assert_array_equal(left, right)
    large, small, label = first
    assert large.shape == (2, 1, 16, 16) and large.dtype == np.uint8
    if split == "train":
        assert small.shape == (3, 1, 8, 8) and label == -1 and (large[0] != large[1]).any()
        assert (large != other[0]).any()
    else:
        assert len(small) == 0 and label >= 0
        np.testing.assert_array_equal(large, other[0])
    batch = task.collate([first, other])
    assert batch["images"].shape == (4, 1, 16, 16)
    np.testing.assert_array_equal(batch["images"][[0, 2]], large)  # view by view
    assert ("small" in batch) == (split == "train")


def test_photos_have_the_augmentation_and_glyphs_the_crops_alone():
    config = settings.load(WORDS.split()).values
    photo, glyph = build_views(config, "photo"), build_views(config, "glyph")
    assert [view.augment for view in (*photo.large, photo.small)] == [
        ViewAugmentation(1.0, 0.0), ViewAugmentation(0.1, 0.2), ViewAugmentation(0.5, 0.0)
    ]  # fmt: skip
    assert [view.augment for view in (*glyph.large, glyph.small)] == [None] * 3 and glyph.small.flip_probability == 0


def test_the_hue_turns_by_its_part_of_a_circle():
    image = Image.new("RGB", (2, 2), (200, 40, 40))
    red, green, blue = (value / 255 for value in jitter(image, 3, 0.1).getpixel((0, 0)))
    hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
    assert hue == pytest.approx(0.1, abs=0.01) and saturation == pytest.approx(0.8, abs=0.02)
    assert value == pytest.approx(200 / 255, abs=0.01)


def test_each_change_has_its_probability():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (12, 12, 3), np.uint8))
    always = ViewAugmentation(0.0, 1.0)
    generator = np.random.default_rng(1)
    gray = 0
    for _ in range(400):
        pixels = np.asarray(always(image, generator)).astype(int)
        gray += bool((np.ptp(pixels, axis=2) == 0).all())
    assert 50 < gray < 115  # of 80 expected
    plain = ViewAugmentation(0.0, 0.0)(image.convert("L"), generator)
    np.testing.assert_array_equal(np.asarray(plain), np.asarray(image.convert("L")))
