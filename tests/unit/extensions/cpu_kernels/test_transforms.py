"""The compiled loops give what Pillow gives, bit for bit."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.extensions.cpu_kernels import transforms
from paddlevit_dist.extensions.cpu_kernels.operations import ImagePlanes, has_equal_operation
from paddlevit_dist.extensions.cpu_kernels.transforms import CompiledTrainingTransform, can_resize, resize_box
from paddlevit_dist.images.transforms.crops import TrainingTransform
from paddlevit_dist.images.transforms.operations import OPERATIONS
from paddlevit_dist.images.transforms.policies import (
    AUTO_AUGMENT,
    AutoAugment,
    ColorJitter,
    TransformChain,
    parse_rand_augment,
)

LEFT_TO_PILLOW = {"GaussianBlur", "GaussianBlurRand"}
FILL = (124, 3, 255)


def drawn_image(width, height, mode="RGB", seed=0):
    """Noise, a ramp and an even area."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    pixels[height // 3 : height // 2] = np.linspace(0, 255, width).astype(np.uint8)[:, None]
    pixels[height // 2 : 2 * height // 3, : width // 2] = (250, 255, 4)
    return Image.fromarray(pixels).convert(mode)


def assert_is_pillows(name, image, parameter, fill):
    assert has_equal_operation(name) == (name not in LEFT_TO_PILLOW)
    changed = ImagePlanes.from_image(image).changed(name, parameter, fill)
    np.testing.assert_array_equal(
        changed.pixels, ImagePlanes.from_image(OPERATIONS[name].apply(image, parameter, fill)).pixels
    )


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(16, 16), (23, 23), (64, 64), (17, 40), (50, 21)])
def test_crops_equal_pillows_in_all_proportions(size, mode):
    image = drawn_image(140, 130, mode)
    draw = np.random.default_rng(size[0])
    for number in range(60):
        width, height = (int(side) for side in draw.integers(2, 130, size=2))
        box = (3, 1, 3 + width, 1 + height) if number % 2 else (0, 0, width, height)
        assert can_resize(box)
        expected = ImagePlanes.from_image(image.crop(box).resize(size[::-1], Image.Resampling.BICUBIC)).pixels
        np.testing.assert_array_equal(resize_box(np.atleast_3d(np.array(image)), box, size), expected)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - LEFT_TO_PILLOW))
def test_operations_equal_pillows_at_every_strength(name, mode):
    draw = np.random.default_rng(1)
    for number, strength in enumerate((0.0, 0.1, 0.33, 0.5, 0.77, 0.9, 1.0)):
        image = drawn_image(*((47, 61), (61, 47), (40, 40))[number % 3], mode, seed=number)
        fill = FILL if mode == "RGB" else 99
        assert_is_pillows(name, image, OPERATIONS[name].parameter(strength, draw), fill)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("name", ["AutoContrast", "Equalize", "Contrast", "Sharpness"])
def test_even_and_tiny_images(name, mode):
    even = [Image.new(mode, (9, 7), level if mode == "L" else (level, 0, 255)) for level in (0, 77, 255)]
    for image in (*even, drawn_image(2, 2, mode), drawn_image(3, 3, mode)):
        assert_is_pillows(name, image, 1.7, 0)


@pytest.mark.parametrize("name", sorted(LEFT_TO_PILLOW))
def test_other_operations_are_left_to_pillow(name):
    assert_is_pillows(name, drawn_image(20, 20), 1.0, 0)


@pytest.mark.parametrize(
    "augment",
    [
        parse_rand_augment("rand-m9-mstd0.5-inc1-p1-n4", 99),
        AutoAugment(AUTO_AUGMENT["v0"]),
        AutoAugment(AUTO_AUGMENT["3a"]),
        None,
    ],
    ids=["rand", "auto", "3a", "none"],
)
@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_the_transform_draws_and_does_the_same(augment, channels, mode):
    kinds = CompiledTrainingTransform, TrainingTransform
    compiled, plain = (kind(31, channels=channels, augment=augment) for kind in kinds)
    for seed in range(20):
        image = drawn_image(60, 49, mode, seed=seed)
        draws = [np.random.default_rng(seed) for _ in range(2)]
        np.testing.assert_array_equal(compiled(image, draws[0]), plain(image, draws[1]))
        assert draws[0].bit_generator.state == draws[1].bit_generator.state


@pytest.mark.parametrize(
    "augment",
    [
        TransformChain((parse_rand_augment("rand-m9-mstd0.5-inc1-p1-n4", 99), ColorJitter(0.4))),
        AutoAugment(AUTO_AUGMENT["v0"]),
        None,
    ],
    ids=["chain", "auto", "none"],
)
def test_a_prepared_transform_compares_no_operation_with_pillow_later(augment):
    has_equal_operation.cache_clear()
    transform = CompiledTrainingTransform(31, augment=augment)
    transform.prepare()
    compared = has_equal_operation.cache_info().misses
    for seed in range(20):
        transform(drawn_image(60, 49, "RGB", seed=seed), np.random.default_rng(seed))
    assert has_equal_operation.cache_info().misses == compared and (compared > 0) == (augment is not None)


def test_a_pillow_that_scales_otherwise_is_left_to_itself(monkeypatch):
    kinds = CompiledTrainingTransform, TrainingTransform
    both = [kind(24, augment=parse_rand_augment("rand-m9-p1")) for kind in kinds]
    monkeypatch.setattr(transforms, "find_pass_order", lambda: None)
    assert not can_resize((0, 0, 9, 9))
    for seed in range(5):
        arrays = [make(drawn_image(60, 50), np.random.default_rng(seed)) for make in both]
        np.testing.assert_array_equal(*arrays)
