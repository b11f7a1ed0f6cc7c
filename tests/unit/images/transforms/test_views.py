"""Views of a test image against Pillow."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.transforms.crops import EvaluationTransform
from paddlevit_dist.images.transforms.views import ViewsTransform


def noise(width, height, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def crop(image, left, top, width, height):
    return np.asarray(image.crop((left, top, left + width, top + height)).convert("RGB")).transpose(2, 0, 1)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_crops_are_the_center_and_the_corners_of_each_scale_then_their_mirror_images(mode):
    """60 x 40 pixels for a crop 24 high and 30 wide: at CROP_PCT 0.8 they cover 30 x 37, at 1.5 times that 45 x 56."""
    image = noise(60, 40, mode)
    transform = ViewsTransform.build(EvaluationTransform((24, 30), 0.8), ["mirrored", "five_crops"], [1.0, 1.5])
    views = transform(image, None)
    assert views.shape == (20, 3, 24, 30) and views.dtype == np.uint8
    expected = []
    for resized in (image.resize((45, 30), Image.Resampling.BICUBIC), image.resize((68, 45), Image.Resampling.BICUBIC)):
        right, lower = resized.width - 30, resized.height - 24
        places = [(round(right / 2), round(lower / 2)), (0, 0), (right, 0), (0, lower), (right, lower)]
        expected += [crop(resized, left, top, 30, 24) for left, top in places]
    np.testing.assert_array_equal(views[:10], expected)
    np.testing.assert_array_equal(views[10:], np.stack(expected)[:, :, :, ::-1])


def test_the_first_view_is_that_of_an_evaluation_without_views():
    plain = EvaluationTransform(24, 0.875, 1, "lanczos", "squash")
    views = ViewsTransform.build(plain, ["mirrored"], [1.0])(noise(60, 40), None)
    np.testing.assert_array_equal(views[0], plain(noise(60, 40), None))
    np.testing.assert_array_equal(views[1], views[0][:, :, ::-1])
    assert len(views) == 2


def test_smaller_scales_have_borders():
    plain = EvaluationTransform(20, 1.0, 3, "bicubic", "border", (1, 2, 3))
    views = ViewsTransform.build(plain, [], [0.5, 1.0])(noise(20, 20), None)
    assert views.shape == (2, 3, 20, 20)
    np.testing.assert_array_equal(views[1], np.asarray(noise(20, 20)).transpose(2, 0, 1))
    assert (views[0][:, :5] == np.array([1, 2, 3])[:, None, None]).all()
    small = noise(20, 20).resize((10, 10), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(views[0][:, 5:15, 5:15], np.asarray(small).transpose(2, 0, 1))
    with pytest.raises(ValueError, match="a crop cannot exceed its image"):
        ViewsTransform.build(EvaluationTransform(20, 1.0), [], [0.5])(noise(20, 20), None)


@pytest.mark.parametrize("crop_pct, scale, side", [(0.8, 1.15, 92), (0.8, 1.2, 96), (0.9, 1.15, 81), (1.0, 2.0, 128)])
def test_a_scaled_side_is_not_a_pixel_short(crop_pct, scale, side):
    assert math.floor(Fraction(64) * Fraction(str(scale)) / Fraction(str(crop_pct))) == side
    plain = EvaluationTransform(64, crop_pct, interpolation="bilinear")
    resized = noise(50, 50).resize((side, side), Image.Resampling.BILINEAR)
    (view,) = ViewsTransform.build(plain, [], [scale])(noise(50, 50), None)
    start = round((side - 64) / 2)
    np.testing.assert_array_equal(view.transpose(1, 2, 0), np.asarray(resized)[start : start + 64, start : start + 64])


def test_words_for_the_line_of_the_score_and_the_largest_size():
    plain = EvaluationTransform(24, 0.8)
    every = ViewsTransform.build(plain, ["five_crops", "mirrored"], (1.0, 1.25))
    assert every.describe() == "mean of 20 views: five crops, mirrored, scales 1, 1.25"
    assert ViewsTransform.build(plain, ["mirrored"], (1.0,)).describe() == "mean of 2 views: mirrored"
    assert ViewsTransform.build(plain, [], (1.15,)).describe() == "mean of 1 view: scales 1.15"
    assert every.resized((40, 20)) == (74, 37)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(every))(noise(9, 8), None), every(noise(9, 8), None))
