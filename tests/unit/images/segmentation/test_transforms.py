"""Images and their labels stay together through resizing, cropping and mirroring, and colors change as published."""

import colorsys
import random

import cv2
import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.registry.register import register_transform
from paddlevit_dist.core.settings import load
from paddlevit_dist.core.tasks.sample_checks import BadSample
from paddlevit_dist.images.segmentation.data.segmentation_dataset import IGNORED
from paddlevit_dist.images.segmentation.transforms import (
    SegmentationEvaluationTransform,
    SegmentationTrainingTransform,
    apply_user_transform,
    distort_colors,
    training_transform,
)
from paddlevit_dist.images.transforms.resizing import find_nearest_pixels, fitted_scale, resize_image, scaled_size

PADDING = (1, 2, 3)


def transform(**options) -> SegmentationTrainingTransform:
    plain = {
        "custom_transforms": (),
        "shortest": None,
        "longest": None,
        "scales": (1.0, 1.0),
        "interpolation": "pillow",
        "crop": (20, 24),
        "largest_share": 1.0,
        "flip_probability": 0.0,
        "is_photometric": False,
        "padding": PADDING,
    }
    return SegmentationTrainingTransform(**{**plain, **options})


def drawn_images(height=30, width=40, seed=0):
    """Noise, and labels that its first channel tells."""
    pixels = np.random.default_rng(seed).integers(10, 200, (height, width, 3)).astype(np.uint8)
    return Image.fromarray(pixels), pixels[:, :, 0] % 7


def blocks(height=30, width=40):
    """An image whose gray levels are 10 times its labels, which change every few pixels."""
    labels = (np.arange(height)[:, None] // 7 + np.arange(width)[None] // 9).astype(np.uint8)
    return Image.fromarray(np.repeat(10 * labels[:, :, None], 3, axis=2)), labels


# ---- what keys say ---


@pytest.mark.parametrize("height, width", [(16, 28), (40, 12)])
def test_the_crop_of_the_keys_is_height_by_width(height, width):
    config = load(["-cfg=segformer_b0_shapes", "DATA.CROP_SIZE", f"[{height}, {width}]"]).values
    image, labels = blocks(60, 70)
    pixels, found = training_transform(config.DATA)(image, labels, np.random.default_rng(0))
    assert pixels.shape == (3, height, width) and found.shape == (height, width)


def test_a_crop_is_drawn_again_until_its_own_labels_have_no_class_that_fills_it():
    """Against drawing by a loop, with the labels of the crop itself."""
    labels = np.repeat(np.arange(9, dtype=np.uint8) // 3, 10)[:, None] + np.zeros((1, 70), np.uint8)  # bands of 30 rows
    image, tries = Image.fromarray(np.repeat(10 * labels[:, :, None], 3, axis=2)), [0] * 40
    for seed in range(40):
        found = transform(crop=(12, 44), largest_share=0.7)(image, labels, np.random.default_rng(seed))[1]
        generator = np.random.default_rng(seed)
        generator.uniform(1.0, 1.0)
        for _ in range(11):
            tries[seed] += 1
            top, left = (int(generator.integers(0, room, endpoint=True)) for room in (90 - 12, 70 - 44))
            crop = labels[top : top + 12, left : left + 44]
            if np.bincount(crop.ravel()).max() < 0.7 * crop.size:
                break
        np.testing.assert_array_equal(found, crop, strict=True)
    assert max(tries) > 3 and min(tries) == 1


# ---- where pixels go -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_each_pixel_keeps_its_label_and_what_is_beside_the_image_has_none(flip):
    drawn_image, labels = drawn_images()
    image, found = transform(flip_probability=flip, crop=(36, 24))(drawn_image, labels, np.random.default_rng(3))
    assert image.shape == (3, 36, 24) and found.shape == (36, 24)
    np.testing.assert_array_equal(image[0, :30] % 7, found[:30], strict=True)
    assert (found[30:] == IGNORED).all() and (image[:, 30:].reshape(3, -1).T == PADDING).all()
    pixels = np.asarray(drawn_image).transpose(2, 0, 1)
    kept = image[:, :30, ::-1] if flip else image[:, :30]
    assert any(np.array_equal(kept, pixels[:, :, left : left + 24]) for left in range(17))


def test_crops_reach_all_places_and_no_sample_depends_on_another():
    drawn_image, labels = drawn_images(8, 6)
    cut = transform(crop=(5, 4))
    seen = {cut(drawn_image, labels, np.random.default_rng(seed))[0].tobytes() for seed in range(200)}
    pixels = np.asarray(drawn_image).transpose(2, 0, 1)
    corners = [(top, left) for top in range(4) for left in range(3)]
    assert seen == {pixels[:, top : top + 5, left : left + 4].tobytes() for top, left in corners}


@pytest.mark.parametrize("how", ["pillow", "opencv"])
@pytest.mark.parametrize("scale", [0.5, 0.83, 1.0, 1.7, 3.1])
def test_labels_lie_where_pixels_do_at_any_scale(how, scale):
    drawn_image, labels = blocks(60, 80)
    size = scaled_size((60, 80), scale)
    image, found = transform(scales=(scale, scale), crop=size, interpolation=how)(
        drawn_image, labels, np.random.default_rng(0)
    )
    gray = image[0].astype(float) / 10

    def away(down, right):
        moved = found[max(-down, 0) : size[0] - max(down, 0), max(-right, 0) : size[1] - max(right, 0)]
        return np.abs(gray[max(down, 0) : size[0] + min(down, 0), max(right, 0) : size[1] + min(right, 0)] - moved)

    assert (away(0, 0) < 0.55).mean() > 0.93  # between two blocks pixels are in between
    besides = [away(*step).mean() for step in ((0, 1), (0, -1), (1, 0), (-1, 0))]
    assert away(0, 0).mean() < 0.9 * min(besides)


def test_the_nearest_pixel_is_that_of_opencvs_exact_rule():
    labels = np.random.default_rng(0).integers(0, 200, (37, 53)).astype(np.uint8)
    for size in ((20, 31), (37, 53), (64, 90), (111, 159)):
        rows, columns = find_nearest_pixels(labels.shape, size)
        exact = cv2.resize(labels, size[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
        np.testing.assert_array_equal(labels[rows][:, columns], exact, strict=True)


def test_the_size_is_mmcvs():
    """mmcv.rescale_size for the scale (2048, 512): one factor, sides rounded."""
    for height, width in ((256, 341), (683, 512), (300, 4000), (1, 1)):
        factor = min(2048 / max(height, width), 512 / min(height, width))
        expected = int(height * factor + 0.5), int(width * factor + 0.5)
        assert scaled_size((height, width), fitted_scale((height, width), 512, 2048)) == expected
    assert scaled_size((3, 1000), fitted_scale((3, 1000), 4, 100)) == (1, 100)


@pytest.mark.parametrize("size", [(30, 40), (21, 77), (90, 61)])
def test_a_part_is_that_of_the_whole_resized_image(size):
    drawn_image, _ = drawn_images()
    part = (5, 7, 12, 11)
    for how in ("pillow", "opencv"):
        whole, own = resize_image(drawn_image, size, how), resize_image(drawn_image, size, how, part)
        assert whole.shape[:2] == size and np.abs(whole[5:17, 7:18].astype(int) - own).max() <= 1
    cvs = cv2.resize(np.asarray(drawn_image), size[::-1], interpolation=cv2.INTER_LINEAR)
    assert np.abs(cvs.astype(int) - resize_image(drawn_image, size, "opencv")).max() <= 1
    pillows = drawn_image.resize(size[::-1], Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(np.asarray(pillows), resize_image(drawn_image, size, "pillow"), strict=True)


# ---- which crop ----------------------------------------------------------------------------------------------------


def test_a_crop_of_one_class_is_drawn_again_and_at_most_ten_times():
    labels = np.zeros((40, 48), np.uint8)
    labels[:12, :14] = 1
    drawn_image = Image.fromarray(np.zeros((40, 48, 3), np.uint8))

    def mixed(share, seed):
        found = transform(crop=(14, 18), largest_share=share)(drawn_image, labels, np.random.default_rng(seed))[1]
        return 0.25 < found.mean() < 0.75

    free, limited = (np.mean([mixed(share, seed) for seed in range(150)]) for share in (1.0, 0.75))
    assert free < 0.2 and limited > 3 * free
    uniform = np.zeros((40, 48), np.uint8)  # nothing to be found: the last one is taken
    assert not transform(crop=(14, 18), largest_share=0.75)(drawn_image, uniform, np.random.default_rng(0))[1].any()


def test_unlabeled_pixels_do_not_count_in_the_share():
    labels = np.full((14, 18), IGNORED, np.uint8)
    labels[0, :2], labels[1, :2] = 1, 2
    draws = np.random.default_rng(0)
    transform(crop=(14, 18), largest_share=0.75)(Image.new("RGB", (18, 14)), labels, draws)
    once = np.random.default_rng(0)
    once.uniform(1.0, 1.0), once.integers(0, 0, endpoint=True), once.integers(0, 0, endpoint=True), once.random()
    assert draws.random() == once.random()  # the first crop was taken


# ---- colors -------------------------------------------------------------------------------------------------------


def test_colors_change_within_the_published_ranges():
    gray = np.full((4, 4, 3), 100, np.uint8)
    levels = np.array([distort_colors(gray, np.random.default_rng(seed)) for seed in range(400)])
    assert np.ptp(levels.reshape(400, -1), axis=1).max() == 0  # gray stays gray: hue and saturation do nothing
    means = levels.mean(axis=(1, 2, 3))
    assert 34 <= means.min() < 60 and 150 < means.max() <= 198  # (100 - 32) x 0.5 and (100 + 32) x 1.5
    assert (means == 100).mean() == pytest.approx(0.25, abs=0.08)  # neither brightness nor contrast
    red = np.full((1, 1, 3), (200, 50, 50), np.uint8)
    hues = [
        cv2.cvtColor(distort_colors(red, np.random.default_rng(seed)), cv2.COLOR_RGB2HSV)[0, 0, 0]
        for seed in range(300)
    ]
    turned = np.where(np.array(hues) > 90, np.array(hues) - 180.0, hues)
    assert -20 <= turned.min() < -14 and 14 < turned.max() <= 20  # 18 of 180 half degrees


def distorted(pixels, generator):
    """Change the colors of each pixel alone, in mmsegmentation's order: contrast is the second or the last step."""
    steps, is_early = [], generator.random() < 0.5

    def scaled(factor, shift):
        return lambda red, green, blue: [
            min(max(round(level * factor + shift), 0), 255) for level in (red, green, blue)
        ]

    def contrast():
        if generator.random() < 0.5:
            steps.append(scaled(generator.uniform(0.5, 1.5), 0))

    if generator.random() < 0.5:
        steps.append(scaled(1, generator.uniform(-32, 32)))
    if is_early:
        contrast()
    factor = generator.uniform(0.5, 1.5) if generator.random() < 0.5 else 1.0
    turn = generator.uniform(-0.1, 0.1) if generator.random() < 0.5 else 0.0

    def colored(*levels):
        hue, saturation, value = colorsys.rgb_to_hsv(*(level / 255 for level in levels))
        return [255 * level for level in colorsys.hsv_to_rgb((hue + turn) % 1, min(saturation * factor, 1), value)]

    steps.append(colored)
    if not is_early:
        contrast()
    result = np.empty(pixels.shape)
    for place in np.ndindex(pixels.shape[:2]):
        levels = pixels[place].tolist()
        for step in steps:
            levels = step(*levels)
        result[place] = levels
    return result


def test_colors_are_those_of_a_loop_over_pixels_in_a_training_crop():
    image = Image.fromarray(np.random.default_rng(1).integers(40, 256, (6, 5, 3)).astype(np.uint8))
    for seed in range(40):
        plain, colored = (np.random.default_rng(seed) for _ in range(2))
        crop = transform(crop=(4, 3))(image, np.zeros((6, 5), np.uint8), plain)[0].transpose(1, 2, 0)
        labels = np.arange(30, dtype=np.uint8).reshape(6, 5)
        found = transform(crop=(4, 3), is_photometric=True)(image, labels, colored)[0].transpose(1, 2, 0)
        assert np.abs(found - distorted(crop, plain)).max() < 7  # Pillow's hues have 256 steps
        assert plain.random() == colored.random()


# ---- evaluation ----------------------------------------------------------------------------------------------------


def test_an_evaluation_sees_the_fitted_size_in_multiples():
    drawn_image, _ = drawn_images(30, 50)
    assert SegmentationEvaluationTransform()(drawn_image).shape == (3, 30, 50)
    np.testing.assert_array_equal(
        SegmentationEvaluationTransform()(drawn_image), np.asarray(drawn_image).transpose(2, 0, 1), strict=True
    )
    assert SegmentationEvaluationTransform(60, 90)(drawn_image).shape == (3, 54, 90)
    assert SegmentationEvaluationTransform(60, 90, 32)(drawn_image).shape == (3, 64, 96)
    twice = cv2.resize(cv2.resize(np.asarray(drawn_image), (90, 54)), (96, 64))  # as AlignedResize: two steps
    found = SegmentationEvaluationTransform(60, 90, 32, "opencv")(drawn_image).transpose(1, 2, 0)
    assert np.abs(found.astype(int) - twice).max() <= 2


# ---- users' own ----------------------------------------------------------------------------------------------------


class Seeded:
    """Called as albumentations' objects are: seeded, then with names, for a dictionary."""

    def set_random_seed(self, seed):
        self.random = np.random.default_rng(seed)

    def __call__(self, *, image, mask):
        turns = int(self.random.integers(4))
        return {"image": np.rot90(image, turns), "mask": np.rot90(mask, turns)}


class Stated(Seeded):
    """Called as albumentations' newer objects are: with a state of both libraries."""

    def set_random_state(self, generator, draws):
        assert isinstance(draws, random.Random)
        self.random = np.random.default_rng(draws.randrange(2**40) + int(generator.integers(2**40)))


def turned(image, mask, generator):
    turns = int(generator.integers(4))
    return {"image": np.rot90(image, turns), "mask": np.rot90(mask, turns)}


@pytest.fixture
def registered():
    made = {
        "seeded": Seeded(),
        "stated": Stated(),
        "turned": turned,
        "gray": lambda image, mask, generator: {"image": image[:, :, 0], "mask": mask},
    }
    for name, one in made.items():
        register_transform(name, one)
    yield
    for name in made:
        del REGISTRY.kinds["transform"][name]


@pytest.mark.parametrize("name", ["seeded", "stated", "turned"])
def test_own_transforms_change_both_and_draw_from_the_samples_generator(registered, name):
    drawn_image, labels = drawn_images()
    shapes = set()
    for seed in range(12):
        images = [
            transform(custom_transforms=(name,), crop=(40, 40))(drawn_image, labels, np.random.default_rng(seed))
            for _ in range(2)
        ]
        np.testing.assert_array_equal(images[0][0], images[1][0], strict=True)
        image, found = images[0]
        known = found != IGNORED
        np.testing.assert_array_equal(image[0][known] % 7, found[known], strict=True)
        shapes.add(known[:, -1].any())
    assert shapes == {True, False}  # it lies or stands


def test_an_own_transform_that_returns_something_else_is_named(registered):
    drawn_image, labels = drawn_images()
    with pytest.raises(BadSample, match="transform gray returns an image uint8 .30, 40.*expected uint8"):
        apply_user_transform("gray", drawn_image, labels, np.random.default_rng(0))
    for made, message in (
        (None, "transform odd returns NoneType: expected a dictionary"),
        (
            {"image": np.zeros((0, 9, 3), np.uint8), "mask": np.zeros((0, 9), np.uint8)},
            "transform odd returns an image",
        ),
    ):
        REGISTRY.kinds["transform"]["odd"] = lambda made=made, **_: made
        with pytest.raises(BadSample, match=message):
            apply_user_transform("odd", drawn_image, labels, np.random.default_rng(0))
    del REGISTRY.kinds["transform"]["odd"]
