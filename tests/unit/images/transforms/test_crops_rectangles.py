"""Training transforms to images that are not square; (height, width) is 24 x 40 unless stated."""

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.transforms.crops import GlyphTransform, TrainingTransform
from paddlevit_dist.images.transforms.decoding_opencv import FastTransform
from paddlevit_dist.images.transforms.on_device import BatchMixing, RandomErasing
from paddlevit_dist.images.transforms.policies import parse_rand_augment

SIZE = [24, 40]


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def rng(seed=0):
    return np.random.default_rng(seed)


def test_training_resizes_its_crop_to_the_rectangle():
    image, transform = noise(90, 70), TrainingTransform(SIZE, flip_probability=0.0)
    for seed in range(20):
        expected = image.crop(transform.draw_box(image.size, rng(seed))).resize((40, 24), Image.Resampling.BICUBIC)
        np.testing.assert_array_equal(transform(image, rng(seed)), np.asarray(expected).transpose(2, 0, 1), strict=True)


def test_boxes_do_not_depend_on_the_size_of_the_result():
    """As timm's and torchvision's: CROP_RATIO is of the crop, not relative to the result."""
    both = [TrainingTransform(size).draw_box((90, 70), rng(3)) for size in (SIZE, 24)]
    assert both[0] == both[1]


def test_augmentations_keep_the_rectangle():
    transform = TrainingTransform(SIZE, augment=parse_rand_augment("rand-m9-mstd0.5-inc1-n4-p1"))
    for seed in range(30):
        assert transform(noise(50, 60, seed), rng(seed)).shape == (3, 24, 40)


@pytest.mark.parametrize("size", [(90, 70), (30, 20), (90, 20)], ids=["shrinks", "grows", "both"])
def test_the_fast_decoder_makes_the_same_crop(size):
    pytest.importorskip("cv2")
    y, x = np.mgrid[: size[1], : size[0]]
    waves = [127 + 100 * np.sin(x / 7 + phase) * np.cos(y / 5) for phase in (0, 1, 2)]
    image = Image.fromarray(np.stack(waves, axis=2).astype(np.uint8))
    exact = TrainingTransform(SIZE, crop_scale=(0.5, 1.0))
    for seed in range(10):
        found = FastTransform(exact)(np.asarray(image), rng(seed))
        assert found.shape == (3, 24, 40)
        assert np.abs(found.astype(float) - exact(image, rng(seed))).mean() < 2


def letter(width=32, height=16):
    """A bar at the left of the image and a short one at its top."""
    pixels = np.zeros((height, width), np.uint8)
    pixels[2:-2, 4:8], pixels[2:4, 4:20] = 255, 255
    return Image.fromarray(pixels)


def test_glyphs_are_stretched_to_the_rectangle_in_training_too():
    evaluated = GlyphTransform([24, 40], train=False)(letter(), rng())[0]
    np.testing.assert_array_equal(
        evaluated, np.asarray(letter().resize((40, 24), Image.Resampling.BICUBIC)), strict=True
    )
    still = GlyphTransform([24, 40], train=True, distortion=0.0)(letter(), rng())[0].astype(float)
    assert np.abs(still - evaluated).mean() < 3


def test_glyphs_are_turned_in_the_pixels_of_the_result_and_shifted_by_shares_of_its_sides():
    """The map from the source's corners: scaled to 40 x 24, turned by the drawn angle about the middle, then moved."""
    options = {"scale": (1, 1), "largest_shear": 0}
    transform = GlyphTransform([24, 40], train=True, largest_rotation_degrees=30, largest_shift=0.25, **options)
    inverse = np.array(transform.draw_inverse_map((32, 16), rng(5))).reshape(2, 3)
    generator = rng(5)
    angle = np.radians(generator.uniform(-30, 30))
    generator.uniform(1, 1), generator.uniform(0, 0)
    shift = generator.uniform(-0.25, 0.25, 2) * [40, 24]
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    for corner in ([0, 0], [32, 0], [0, 16], [9, 5]):
        target = turn @ (np.array(corner) * [40 / 32, 24 / 16] - [20, 12]) + [20, 12] + shift
        np.testing.assert_allclose(inverse @ [*target, 1], corner, atol=1e-9)


def test_boxes_of_erasing_and_cutmix_are_shares_of_both_sides():
    """Of 1,000 boxes in images 12 high and 60 wide, some are wider than 12; none leaves the image."""
    erasing = RandomErasing(1.0)
    boxes = np.stack([erasing.draw((3, 12, 60), rng(seed))["erase_boxes"][0] for seed in range(1000)])
    assert (boxes[:, 2] <= 12).all() and (boxes[:, 3] <= 60).all() and (boxes[:, 3] - boxes[:, 1]).max() > 12
    mixing = BatchMixing(cutmix_minmax=(0.5, 0.75), mode="elem")
    mix = mixing.draw(rng(), (1000, 3, 12, 60))
    heights, widths = mix.boxes[:, 2] - mix.boxes[:, 0], mix.boxes[:, 3] - mix.boxes[:, 1]
    assert (heights.min(), heights.max(), widths.min(), widths.max()) == (6, 8, 30, 44)
    np.testing.assert_allclose(mix.share, 1 - heights * widths / 720)
