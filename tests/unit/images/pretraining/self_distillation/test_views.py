"""Views follow from seed, epoch and image, have their sizes, and change colors as they are told to."""

import colorsys
import dataclasses

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from paddlevit_dist.core import settings
from paddlevit_dist.core.tasks.dataset import reading_generator
from paddlevit_dist.images.pretraining.self_distillation.task import SelfDistillation
from paddlevit_dist.images.pretraining.self_distillation.views import (
    GlyphAugmentation,
    ViewAugmentation,
    build_views,
    jitter,
)
from paddlevit_dist.images.transforms.crops import GlyphTransform

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
        second = build_views(task.config, samples.dataset.kind).large[0]
        image = samples.dataset.read(3)[0]
        whole = image.resize((16, 16), Image.Resampling.BICUBIC)
        np.testing.assert_array_equal(large[0], np.asarray(whole)[None])
        np.testing.assert_array_equal(large[1], second(image, np.random.default_rng([431, 3])))
    batch = task.collate([first, other])
    assert batch["images"].shape == (4, 1, 16, 16)
    np.testing.assert_array_equal(batch["images"][[0, 2]], large)  # view by view
    assert ("small" in batch) == (split == "train")


def test_photos_are_evaluated_with_the_first_large_view(tmp_path):
    task = build_task()
    dataset = task.build_dataset("val", tmp_path).dataset
    dataset.kind = "photo"
    first, other = build_views(task.config, "photo").large
    assert task.build_samples(dataset, None, False).second == first != other


def test_photos_have_the_augmentation_and_glyphs_are_distorted_as_well_and_not_mirrored():
    config = settings.load(WORDS.split()).values
    photo, glyph = build_views(config, "photo"), build_views(config, "glyph")
    assert [view.augment for view in (*photo.large, photo.small)] == [
        ViewAugmentation(1.0, 0.0), ViewAugmentation(0.1, 0.2), ViewAugmentation(0.5, 0.0)
    ]  # fmt: skip
    of_glyphs = GlyphAugmentation(1.0, ViewAugmentation(0.5, 0.0))
    assert [view.augment for view in (*glyph.large, glyph.small)] == [of_glyphs] * 3
    assert glyph.small.flip_probability == 0
    assert photo.small.flip_probability == 0.5


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


def test_changes_are_pillows_in_the_drawn_order():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (9, 7, 3), np.uint8))
    for seed in range(60):
        found, generator = ViewAugmentation(0.5, 0.4)(image, np.random.default_rng(seed)), np.random.default_rng(seed)
        is_colored, is_gray, is_blurred, is_solarized = generator.random(4) < (0.8, 0.2, 0.5, 0.4)
        order = generator.permutation(4)
        amounts = [generator.uniform(-limit, limit) for limit in (0.4, 0.4, 0.2, 0.1)]
        radius, expected = generator.uniform(0.1, 2.0), image
        for position in order if is_colored else ():
            if position < 3:
                kind = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)[position]
                expected = kind(expected).enhance(1 + amounts[position])
                continue
            hue, saturation, value = expected.convert("HSV").split()
            hue = hue.point([(level + round(255 * amounts[3])) % 256 for level in range(256)])
            expected = Image.merge("HSV", (hue, saturation, value)).convert("RGB")
        expected = ImageOps.grayscale(expected).convert("RGB") if is_gray else expected
        expected = expected.filter(ImageFilter.GaussianBlur(radius)) if is_blurred else expected
        expected = ImageOps.solarize(expected, 128) if is_solarized else expected
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected), strict=True)


def test_an_image_has_no_small_views_where_none_are_asked_for():
    views = build_views(settings.load(WORDS.split()).values, "photo")
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 18), np.uint8))
    large, small = dataclasses.replace(views, number=0)(image, np.random.default_rng(3))
    np.testing.assert_array_equal(large, views(image, np.random.default_rng(3))[0])
    assert small.shape == (0, 1, 16, 16) and small.dtype == np.uint8


def test_gray_images_change_in_brightness_and_contrast_alone():
    image = Image.fromarray(np.arange(0, 250, 10, dtype=np.uint8).reshape(5, 5))
    generator, means, spreads = np.random.default_rng(2), [], []
    for _ in range(200):
        changed = ViewAugmentation(0.0, 0.0)(image, generator)
        assert changed.mode == "L"
        means.append(np.asarray(changed).mean())
        spreads.append(np.asarray(changed).std())
    assert min(means) < 80 and max(means) > 150 and min(spreads) < 45 and max(spreads) > 80  # the image's: 120 and 72
    unchanged = sum(mean == np.asarray(image).mean() for mean in means)
    assert 20 < unchanged < 65  # of 40 expected


def test_glyphs_have_the_map_that_classification_has():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (16, 16), np.uint8))
    quiet = ViewAugmentation(0.0, 0.0)
    mapped = GlyphAugmentation(0.5, lambda given, _: given)(image, np.random.default_rng(3))
    expected = GlyphTransform(16, train=True, distortion=0.5)(image, np.random.default_rng(3))
    np.testing.assert_array_equal(np.asarray(mapped), expected[0])
    assert (np.asarray(GlyphAugmentation(0.0, quiet)(image, np.random.default_rng(3))) != np.asarray(mapped)).any()
