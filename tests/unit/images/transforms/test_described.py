"""What users of an exported detector or segmenter are told of its input, and the example image."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist.images.transforms.described import describe_input, draw_image, normalize

DATA = SimpleNamespace(IMAGENET_MEAN=(0.1, 0.2, 0.3), IMAGENET_STD=(0.4, 0.5, 0.6))


@pytest.mark.parametrize("turned", [False, True])
def test_steps_are_told_in_their_order(turned):
    told = describe_input(DATA, turned, [48, 64], "bilinear")
    assert (told["mean"], told["standard_deviation"]) == ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    steps = told["preprocessing"]
    names = ["mode", *["upright"] * turned, "resize", "interpolation", "divide_by", "subtract", "divide_by_deviation"]
    assert list(steps) == [*names, "layout"]
    assert (steps["resize"], steps["interpolation"], steps["divide_by"]) == ([48, 64], "bilinear", 255)
    assert (steps["subtract"], steps["divide_by_deviation"]) == ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])


def test_the_example_has_gradients_down_and_across_and_a_disc():
    image = draw_image(20, 30)
    assert image.dtype == np.uint8 and image.shape == (20, 30, 3)
    for row, column in np.ndindex(20, 30):
        inside = (row - 10) ** 2 + (column - 15) ** 2 < 6**2
        assert image[row, column].tolist() == [row * 9, column * 8, 220 * inside]


def test_pixels_are_normalized_channel_by_channel():
    image = draw_image(4, 6)
    found = normalize(image, DATA)
    assert found.dtype == np.float32 and found.shape == (1, 3, 4, 6)
    for channel, (mean, deviation) in enumerate(zip(DATA.IMAGENET_MEAN, DATA.IMAGENET_STD)):
        np.testing.assert_allclose(found[0, channel], (image[:, :, channel] / 255 - mean) / deviation, rtol=1e-5)
