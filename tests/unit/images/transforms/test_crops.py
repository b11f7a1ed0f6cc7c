"""Transforms against Pillow itself, against closed forms, and on images that reveal the mapping."""

import math
import pickle

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.transforms.crops import (
    EvaluationTransform,
    GlyphTransform,
    TrainingTransform,
)

BICUBIC = Image.Resampling.BICUBIC


def noise(width, height, mode="RGB", seed=0):
    shape = (height, width, 3) if mode == "RGB" else (height, width)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def channels_first(image):
    return np.moveaxis(np.asarray(image.convert("RGB")), 2, 0)


def rng(seed=0):
    return np.random.default_rng(seed)


TRAINING = [
    TrainingTransform(32),
    TrainingTransform(32, channels=1),
    GlyphTransform(32, train=True),
    GlyphTransform(32, train=True, channels=3),
]
EVALUATION = [
    EvaluationTransform(32, 0.875),
    EvaluationTransform(32, 0.875, channels=1),
    GlyphTransform(32, train=False),
    GlyphTransform(32, train=False, channels=3),
]
ALL = TRAINING + EVALUATION


@pytest.mark.parametrize("transform", ALL, ids=repr)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_result_is_a_contiguous_uint8_array_of_the_asked_size(transform, mode):
    for width, height in ((41, 57), (57, 41), (8, 8)):
        array = transform(noise(width, height, mode), rng())
        assert array.shape == (transform.channels, 32, 32) and array.dtype == np.uint8
        assert array.flags.c_contiguous and array.flags.writeable


@pytest.mark.parametrize("transform", ALL, ids=repr)
def test_same_generator_gives_the_same_array_whatever_numpys_global_state(transform):
    image = noise(50, 40)
    np.random.seed(1)
    first = transform(image, rng(7))
    np.random.seed(2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(transform))(image, rng(7)), first, strict=True)


@pytest.mark.parametrize("transform", TRAINING, ids=repr)
def test_another_generator_gives_another_array_in_training(transform):
    image = noise(50, 40)
    assert (transform(image, rng(7)) != transform(image, rng(8))).any()


# Sizes and boxes worked out by hand from floor(image_size / crop_pct), int(short * long / short) and round-half-even.
@pytest.mark.parametrize(
    "size, image_size, crop_pct, resized, corner",
    [
        ((500, 375), 224, 0.875, (341, 256), (58, 16)),  # 58.5 to the even number
        ((503, 375), 224, 0.875, (343, 256), (60, 16)),  # 59.5 to the even number
        ((375, 503), 224, 0.875, (256, 343), (16, 60)),
        ((300, 300), 224, 0.9, (248, 248), (12, 12)),  # 248.9 is cut off
        ((100, 61), 64, 1.0, (104, 64), (20, 0)),  # 104.9 is cut off
        ((9, 7), 32, 0.875, (46, 36), (7, 2)),  # enlarged
        ((36, 36), 32, 0.875, (36, 36), (2, 2)),
        ((2000, 16), 32, 1.0, (4000, 32), (1984, 0)),
    ],
)
def test_evaluation_equals_pillows_resize_then_crop(size, image_size, crop_pct, resized, corner):
    image = noise(*size)
    expected = image.resize(resized, BICUBIC).crop((*corner, corner[0] + image_size, corner[1] + image_size))
    array = EvaluationTransform(image_size, crop_pct)(image, rng())
    np.testing.assert_array_equal(array, channels_first(expected), strict=True)


@pytest.mark.parametrize("transform", EVALUATION, ids=repr)
def test_evaluation_draws_nothing(transform):
    generator = rng()
    transform(noise(50, 40), generator)
    assert generator.bit_generator.state == rng().bit_generator.state


@pytest.mark.parametrize("crop_pct", [0, -0.5, 1.01])
def test_evaluation_refuses_a_crop_larger_than_its_image(crop_pct):
    with pytest.raises(ValueError, match="at most 1"):
        EvaluationTransform(32, crop_pct)


def test_color_becomes_gray_as_pillow_does_it():
    image = noise(50, 40)
    expected = np.asarray(image.convert("L").resize((45, 36), BICUBIC).crop((6, 2, 38, 34)))
    np.testing.assert_array_equal(EvaluationTransform(32, 0.875, channels=1)(image, rng())[0], expected, strict=True)


@pytest.mark.parametrize("transform", [t for t in ALL if t.channels == 3], ids=repr)
def test_gray_as_color_is_the_same_three_times(transform):
    gray = noise(50, 40, "L")
    array = transform(gray, rng(3))
    np.testing.assert_array_equal(array, transform(gray.convert("RGB"), rng(3)), strict=True)
    assert (array == array[:1]).all()


def test_training_resizes_the_crop_by_itself():
    image = noise(90, 70)
    transform = TrainingTransform(32, flip_probability=0.0)
    for seed in range(20):
        box = transform.draw_box(image.size, rng(seed))
        expected = image.crop(box).resize((32, 32), BICUBIC)
        np.testing.assert_array_equal(transform(image, rng(seed)), channels_first(expected), strict=True)


def test_training_sees_nothing_outside_its_crop():
    image = noise(90, 70)
    transform = TrainingTransform(32)
    for seed in range(20):
        box = transform.draw_box(image.size, rng(seed))
        disturbed = noise(90, 70, seed=1)
        disturbed.paste(image.crop(box), box)
        np.testing.assert_array_equal(transform(image, rng(seed)), transform(disturbed, rng(seed)), strict=True)


def drawn_boxes(count, size, **options):
    transform = TrainingTransform(32, **options)
    generator = rng(5)
    return np.array([transform.draw_box(size, generator) for _ in range(count)])


def test_area_ratio_and_place_of_crops_are_distributed_as_stated():
    size, count = (4000, 3000), 4000
    low, high = 0.1, 0.5  # with these a crop always fits, so the closed forms are exact
    left, top, right, bottom = drawn_boxes(count, size, crop_scale=(low, high), crop_ratio=(3 / 4, 4 / 3)).T
    width, height = right - left, bottom - top
    area, log_ratio = width * height / math.prod(size), np.log(width / height)
    limit = math.log(4 / 3)

    assert low - 1e-3 < area.min() and area.max() < high + 1e-3
    assert np.abs(log_ratio).max() < limit + 1e-2
    uniform = {"area": (area - low) / (high - low), "ratio": (log_ratio + limit) / (2 * limit)}
    uniform.update(x=left / (size[0] - width), y=top / (size[1] - height))
    for name, values in uniform.items():  # each uniform on 0..1: mean 1/2, variance 1/12
        assert abs(values.mean() - 0.5) < 4 * math.sqrt(1 / 12 / count), name
        assert abs(values.var() - 1 / 12) < 4 * math.sqrt(1 / 180 / count), name
    assert abs(np.corrcoef(area, log_ratio)[0, 1]) < 4 / math.sqrt(count)


def test_crops_stay_inside_and_reach_the_borders():
    left, top, right, bottom = drawn_boxes(3000, (7, 5)).T
    assert left.min() == 0 and top.min() == 0 and right.max() == 7 and bottom.max() == 5
    assert (right > left).all() and (bottom > top).all()
    assert ((left > 0) & (right == 7)).any() and ((top > 0) & (bottom == 5)).any()


@pytest.mark.parametrize(
    "size, box",
    [
        ((10, 1000), (0, 493, 10, 506)),  # height 10 / 0.75
        ((1000, 10), (493, 0, 506, 10)),  # width 10 * 4 / 3
        ((1, 4), (0, 1, 1, 2)),
    ],
)
def test_crop_that_never_fits_is_central(size, box):
    assert {tuple(found) for found in drawn_boxes(20, size, crop_scale=(0.9, 1.0)).tolist()} == {box}


def test_ten_crops_are_tried():
    generator, expected = rng(), rng()
    TrainingTransform(32, crop_scale=(1.0, 1.0), crop_ratio=(2.0, 2.0)).draw_box((50, 50), generator)
    expected.random(20)  # area and ratio of each
    assert generator.random() == expected.random()


@pytest.mark.parametrize("scale, target", [(1.0, 199), (2.0, 400)])  # 7 / 0.035 is below 200 by a rounding error
def test_only_a_scaled_size_is_rounded_before_it_is_cut_off(scale, target):
    assert EvaluationTransform(7, 0.035, scale=scale).target == (target, target)


def test_flip_mirrors_the_same_crop_left_to_right():
    image = noise(50, 40)
    for seed in range(5):
        straight = TrainingTransform(32, flip_probability=0.0)(image, rng(seed))
        mirrored = TrainingTransform(32, flip_probability=1.0)(image, rng(seed))
        np.testing.assert_array_equal(mirrored, straight[:, :, ::-1], strict=True)


def test_flip_happens_as_often_as_asked():
    ramp = Image.fromarray(np.tile(np.arange(0, 250, 5, dtype=np.uint8), (50, 1)))
    transform, generator = TrainingTransform(8, flip_probability=0.3, channels=1), rng(1)
    flips = [array[0, 0, 0] > array[0, 0, -1] for array in (transform(ramp, generator) for _ in range(2000))]
    assert abs(np.mean(flips) - 0.3) < 4 * math.sqrt(0.3 * 0.7 / 2000)


def test_whole_glyph_is_enlarged_for_evaluation():
    glyph = noise(8, 8, "L")
    array = GlyphTransform(32, train=False)(glyph, rng())
    np.testing.assert_array_equal(array[0], np.asarray(glyph.resize((32, 32), BICUBIC)), strict=True)


def letter_f():
    pixels = np.zeros((28, 28), np.uint8)
    pixels[5:23, 9:12] = pixels[5:8, 9:20] = pixels[12:15, 9:17] = 255
    return Image.fromarray(pixels)


def standardized(rows):
    """Each row with mean 0 and length 1."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_training_glyph_is_never_mirrored():
    upright = GlyphTransform(28, train=False)(letter_f(), rng())[0].astype(float)
    images = {
        "upright": upright,
        "left-right": upright[:, ::-1],
        "top-bottom": upright[::-1],
        "turned": upright[::-1, ::-1],
    }
    # The best match over small shifts: a shift of 8 % alone may move thin strokes beside each other.
    shifts = [(dy, dx) for dy in range(-3, 4) for dx in range(-3, 4)]
    shifted = {
        name: standardized(np.stack([np.roll(image, shift, (0, 1)).ravel() for shift in shifts]))
        for name, image in images.items()
    }
    transform = GlyphTransform(28, train=True)
    for seed in range(200):
        found = standardized(transform(letter_f(), rng(seed))[0].astype(float).reshape(1, -1))
        match = {name: (rows @ found[0]).max() for name, rows in shifted.items()}  # correlations
        assert max(match, key=match.get) == "upright", (seed, match)


SOURCE_SIDE, TARGET_SIDE = 64, 96
BLOBS = np.array([[26.0, 26.0], [40.0, 27.0], [27.0, 40.0]])  # (x, y) of one blob in each channel


def blob_image():
    y, x = np.mgrid[:SOURCE_SIDE, :SOURCE_SIDE] + 0.5
    channels = [250 * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / (2 * 2.5**2)) for cx, cy in BLOBS]
    return Image.fromarray(np.stack(channels, axis=2).round().astype(np.uint8))


def centroids(array):
    y, x = np.mgrid[: array.shape[1], : array.shape[2]] + 0.5
    weights = array.astype(float)
    total = weights.sum(axis=(1, 2))
    return np.stack([(weights * x).sum(axis=(1, 2)) / total, (weights * y).sum(axis=(1, 2)) / total], axis=1)


def measured_maps(count):
    """Rotation in degrees, scale, shear and shift (of the side) read off from where the blobs went, one row per map."""
    image, transform = blob_image(), GlyphTransform(TARGET_SIDE, train=True, channels=3)
    rows = []
    for seed in range(count):
        homogeneous = np.column_stack([BLOBS, np.ones(3)])
        solved = np.linalg.solve(homogeneous, centroids(transform(image, rng(seed)))).T  # (2, 3)
        linear = solved[:, :2] / (TARGET_SIDE / SOURCE_SIDE)
        angle = math.atan2(linear[1, 0], linear[0, 0])
        scale = math.hypot(*linear[:, 0])
        turn_back = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        upper = turn_back @ linear / scale
        center = solved @ [SOURCE_SIDE / 2, SOURCE_SIDE / 2, 1]
        shift = (center - TARGET_SIDE / 2) / TARGET_SIDE
        rows.append([math.degrees(angle), scale, upper[0, 1], *shift, upper[1, 1]])
    return np.array(rows)


def test_training_glyph_map_keeps_to_its_ranges_and_uses_them():
    rotation, scale, shear, shift_x, shift_y, stretch = measured_maps(200).T
    for name, values, low, high, tolerance in (
        ("rotation", rotation, -12, 12, 0.3),
        ("scale", scale, 0.9, 1.1, 0.005),
        ("shear", shear, -0.1, 0.1, 0.005),
        ("shift to the right", shift_x, -0.08, 0.08, 0.002),
        ("shift down", shift_y, -0.08, 0.08, 0.002),
    ):
        assert low - tolerance < values.min() < low + 0.05 * (high - low), name
        assert high + tolerance > values.max() > high - 0.05 * (high - low), name
        assert abs(values.mean() - (low + high) / 2) < 4 * (high - low) / math.sqrt(12 * len(values)), name
    np.testing.assert_allclose(stretch, 1, atol=0.01)  # the same scale along both axes, and no mirror


def test_training_glyph_without_randomness_equals_a_plain_enlargement_of_the_whole_image():
    still = GlyphTransform(
        96, train=True, channels=3, largest_rotation_degrees=0, scale=(1, 1), largest_shear=0, largest_shift=0
    )
    np.testing.assert_allclose(centroids(still(blob_image(), rng())), BLOBS * 1.5, atol=0.02)


def test_a_glyph_without_distortion_is_the_evaluation_image_up_to_interpolation():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (28, 28), dtype=np.uint8))
    generator = np.random.default_rng(0)
    still = GlyphTransform(28, train=True, distortion=0.0)(image, generator)
    moved = GlyphTransform(28, train=True, distortion=1.0)(image, generator)
    np.testing.assert_array_equal(still[0], np.asarray(image), strict=True)
    assert not np.array_equal(moved[0], np.asarray(image))


@pytest.mark.parametrize("transform", [TrainingTransform(32), EvaluationTransform(32, 0.875)])
def test_pillows_limit_for_files_is_not_for_crops(transform, monkeypatch):
    expected = transform(noise(40, 40), rng())
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    assert (transform(noise(40, 40), rng()) == expected).all()
