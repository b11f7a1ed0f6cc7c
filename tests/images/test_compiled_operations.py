"""The compiled loops give what Pillow gives, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.transforms import operations_compiled
from paddlevit_dist.images.transforms.crops import TrainingTransform
from paddlevit_dist.images.transforms.operations import OPERATIONS
from paddlevit_dist.images.transforms.operations_compiled import Planes, apply_compiled, can_cut, cut
from paddlevit_dist.images.transforms.policies import AUTO_AUGMENT, AutoAugment, parse_rand_augment

LEFT_TO_PILLOW = {"GaussianBlur", "GaussianBlurRand"}
FILL = (124, 3, 255)


def picture(width, height, mode="RGB", seed=0):
    """Noise, a ramp and an even area."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    pixels[height // 3 : height // 2] = np.linspace(0, 255, width).astype(np.uint8)[:, None]
    pixels[height // 2 : 2 * height // 3, : width // 2] = (250, 255, 4)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [16, 23, 64])
def test_crops_equal_pillows_in_all_proportions(size, mode):
    image = picture(140, 130, mode)
    draw = np.random.default_rng(size)
    for number in range(60):
        width, height = (int(side) for side in draw.integers(2, 130, size=2))
        box = (3, 1, 3 + width, 1 + height) if number % 2 else (0, 0, width, height)
        assert can_cut(box)
        expected = Planes.of(image.crop(box).resize((size, size), Image.Resampling.BICUBIC)).pixels
        pixels = np.atleast_3d(np.array(image))
        np.testing.assert_array_equal(cut(pixels, box, size, False).pixels, expected)
        np.testing.assert_array_equal(cut(pixels, box, size, True).pixels, expected[:, :, ::-1])


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - LEFT_TO_PILLOW))
def test_operations_equal_pillows_at_every_strength(name, mode):
    draw = np.random.default_rng(1)
    for number, strength in enumerate((0.0, 0.1, 0.33, 0.5, 0.77, 0.9, 1.0)):
        image = picture(*((47, 61), (61, 47), (40, 40))[number % 3], mode, seed=number)
        fill = FILL if mode == "RGB" else 99
        parameter = OPERATIONS[name].parameter(strength, draw)
        changed = apply_compiled(name, Planes.of(image), parameter, fill)
        np.testing.assert_array_equal(changed.pixels, Planes.of(OPERATIONS[name].apply(image, parameter, fill)).pixels)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", ["AutoContrast", "Equalize", "Contrast", "Sharpness"])
def test_even_and_tiny_pictures(name, mode):
    for image in (
        Image.new(mode, (9, 7), 77 if mode == "L" else (77, 0, 255)),
        picture(2, 2, mode),
        picture(3, 3, mode),
    ):
        changed = apply_compiled(name, Planes.of(image), 1.7, 0)
        np.testing.assert_array_equal(changed.pixels, Planes.of(OPERATIONS[name].apply(image, 1.7, 0)).pixels)


@pytest.mark.parametrize("name", sorted(LEFT_TO_PILLOW))
def test_other_operations_are_left_to_pillow(name):
    assert apply_compiled(name, Planes.of(picture(20, 20)), 1.0, 0) is None


@pytest.mark.parametrize(
    "augment",
    [
        parse_rand_augment("rand-m9-mstd0.5-inc1-p1-n4", FILL),
        AutoAugment(AUTO_AUGMENT["v0"]),
        AutoAugment(AUTO_AUGMENT["3a"]),
    ],
    ids=["rand", "auto", "3a"],
)
def test_policies_draw_and_do_the_same_to_planes_and_pictures(augment):
    for seed in range(40):
        image = picture(31, 29, seed=seed)
        expected = augment(image, np.random.default_rng(seed))
        changed = augment(Planes.of(image), np.random.default_rng(seed))
        np.testing.assert_array_equal(changed.pixels, Planes.of(expected).pixels)


def test_a_pillow_that_scales_otherwise_is_left_to_itself(monkeypatch):
    transform = TrainingTransform(24, augment=parse_rand_augment("rand-m9-p1"))
    image = picture(60, 50)
    compiled = [transform(image, np.random.default_rng(seed)) for seed in range(5)]
    monkeypatch.setattr(operations_compiled, "order_of_passes", lambda: None)
    assert not can_cut((0, 0, 9, 9))
    for seed, array in enumerate(compiled):
        np.testing.assert_array_equal(transform(image, np.random.default_rng(seed)), array)
