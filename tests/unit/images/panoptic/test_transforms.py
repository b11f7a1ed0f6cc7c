"""Images and their segments are resized, mirrored, cropped and padded alike."""

from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.panoptic.data.segments import number_segments
from paddlevit_dist.images.panoptic.transforms import (
    PanopticEvaluationTransform,
    PanopticTrainingTransform,
    fit_size,
)


def painted(height=30, width=40):
    """An image whose red levels tell its segments, 80 and 160; a crowd is as black as void."""
    numbers = np.zeros((height, width), np.int64)
    numbers[:, 10:20], numbers[5:15, 22:38], numbers[20:, 30:] = 1, 2, 3
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, :, 0] = numbers % 3 * 80
    return Image.fromarray(pixels), number_segments(numbers, [3, 1, 2], [1, 0, 2], [True, False, False])


def test_sides_are_rounded_to_the_nearest_pixel():
    for stored in [(480, 640), (427, 640), (640, 428), (333, 500), (1, 1000), (375, 500), (640, 640)]:
        for square in [(640, 640), (512, 1024)]:
            factor = min(Fraction(side, own) for side, own in zip(square, stored))
            for found, own in zip(fit_size(stored, square), stored):
                assert abs(found - own * factor) <= Fraction(1, 2) or found == 1
            assert any(found == side for found, side in zip(fit_size(stored, square), square))


@pytest.mark.parametrize("size", [(30, 40), (40, 30), (1, 90), (64, 64)])
def test_an_evaluated_image_is_in_the_upper_left_corner_and_the_rest_is_black(size):
    image = Image.new("RGB", size[::-1], (200, 100, 50))
    pixels, (height, width) = PanopticEvaluationTransform((64, 64))(image)
    assert pixels.shape == (3, 64, 64) and max(height, width) == 64
    assert abs(height / width - size[0] / size[1]) < 0.05 * size[0] / size[1] or min(height, width) == 1
    assert (pixels[:, :height, :width] == np.array([200, 100, 50])[:, None, None]).all()
    assert not pixels[:, height:].any() and not pixels[:, :, width:].any()


@pytest.mark.parametrize("seed", range(12))
def test_segments_stay_on_their_pixels(seed):
    image, segments = painted()
    transform = PanopticTrainingTransform((48, 32), (0.5, 3.0), 0.5)
    pixels, found = transform(image, segments, np.random.default_rng(seed))
    assert pixels.shape == (3, 48, 32) and found.places.shape == (48, 32)
    assert not found.is_crowd.any() and sorted(np.unique(found.places[found.places >= 0])) == [
        *range(len(found.labels))
    ]
    red = np.append(80 * found.ids, 0)[found.places]
    inner = np.ones((48, 32), bool)
    for axis in (0, 1):  # where neighbors agree, the resized color is that of the segment
        for step in (-2, -1, 1, 2):
            inner &= np.roll(found.places, step, axis) == found.places
    inner[[0, 1, -2, -1]], inner[:, [0, 1, -2, -1]] = False, False
    np.testing.assert_allclose(pixels[0][inner], red[inner], atol=60)
    assert (np.abs(pixels[0].astype(int) - red)[inner] <= 2).mean() > 0.9


def test_each_scale_and_half_of_mirrors_occur():
    image, segments = painted()
    transform = PanopticTrainingTransform((40, 40), (0.5, 2.0), 0.5)
    generator = np.random.default_rng(0)
    drawn = [transform._draw((30, 40), generator) for _ in range(400)]
    widths = np.array([crop.size[1] for crop in drawn])
    assert 20 <= widths.min() < 24 and 76 < widths.max() <= 80 and 0.4 < np.mean([c.is_mirrored for c in drawn]) < 0.6
    assert all(0 <= crop.left <= max(crop.size[1] - 40, 0) for crop in drawn)
    assert len({crop.left for crop in drawn}) > 20


def test_a_crop_without_an_object_is_drawn_again():
    numbers = np.zeros((200, 200), np.int64)
    numbers[:60, :60] = 1
    segments = number_segments(numbers, [1], [0], [False])
    transform = PanopticTrainingTransform((100, 100), (2.0, 2.0), 0.0)
    image = Image.new("RGB", (200, 200))
    found = [len(transform(image, segments, np.random.default_rng(seed))[1].labels) for seed in range(60)]
    once = [
        (transform._cut(segments.places, transform._draw((200, 200), np.random.default_rng(s))) >= 0).any()
        for s in range(60)
    ]
    assert np.mean(once) < 0.6 and np.mean(found) > 0.9


def test_an_image_without_objects_is_taken_as_it_is():
    empty = number_segments(np.zeros((9, 9), np.int64), [], [], [])
    pixels, found = PanopticTrainingTransform((16, 16), (0.1, 2.0), 0.5)(
        Image.new("RGB", (9, 9), "white"), empty, np.random.default_rng(0)
    )
    assert not len(found.labels) and (found.places == -1).all() and pixels.any()
