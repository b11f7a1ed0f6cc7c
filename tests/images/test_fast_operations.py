"""The policies' operations in OpenCV against the same operations in Pillow."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.images.transforms.operations import OPERATIONS
from paddlevit_dist.images.transforms.policies import parse_auto_augment, parse_rand_augment
from paddlevit_dist.images.transforms.policy_tables import RAND_AUGMENT, RAND_AUGMENT_INCREASING

pytest.importorskip("cv2")

from paddlevit_dist.images.transforms.operations_opencv import apply_fast  # noqa: E402

FILL = (10, 120, 200)
GEOMETRY = {"Rotate": 17.0, "ShearX": 0.21, "ShearY": -0.17, "TranslateXRel": 0.13, "TranslateYRel": -0.3}
BLENDS = ("Color", "ColorIncreasing", "Desaturate", "Sharpness", "SharpnessIncreasing")
LEVELS = [name for name in (*RAND_AUGMENT, *RAND_AUGMENT_INCREASING) if name not in {*GEOMETRY, *BLENDS}]


def picture(size=96, dark=0.0, seed=0) -> np.ndarray:
    """Smooth waves with a bright box: (size, size + 20, 3) uint8."""
    y, x = np.mgrid[:size, : size + 20]
    waves = [127 + 90 * np.sin(x / a + seed) * np.cos(y / b) for a, b in ((11, 17), (23, 9), (9, 31))]
    pixels = (np.stack(waves, axis=-1) * (1 - dark)).astype(np.uint8)
    pixels[size // 3 : size // 2, size // 4 : size // 2] = (250, 20, 90)
    return pixels


def both(name: str, pixels: np.ndarray, parameter, fill=FILL):
    """(ours, Pillow's) as int arrays."""
    reference = np.asarray(OPERATIONS[name].apply(Image.fromarray(pixels), parameter, fill))
    return apply_fast(name, pixels.copy(), parameter, fill).astype(int), reference.astype(int)


@pytest.mark.parametrize("strength", [0.0, 0.37, 0.9, 1.0])
@pytest.mark.parametrize("name", sorted(set(LEVELS)))
def test_operations_on_levels_are_equal_to_the_last_bit(name, strength):
    for dark, seed in ((0.0, 0), (0.6, 1)):
        parameter = OPERATIONS[name].parameter(strength, np.random.default_rng(seed))
        ours, reference = both(name, picture(dark=dark, seed=seed), parameter)
        assert np.array_equal(ours, reference), name


@pytest.mark.parametrize("name", ["AutoContrast", "Equalize", "ContrastIncreasing"])
@pytest.mark.parametrize("level", [0, 77, 255])
def test_pictures_of_one_colour_stay_as_pillow_leaves_them(name, level):
    pixels = np.full((8, 9, 3), level, np.uint8)
    ours, reference = both(name, pixels, 1.7)
    assert np.array_equal(ours, reference)


@pytest.mark.parametrize("factor", [0.1, 0.55, 1.0, 1.9])
@pytest.mark.parametrize("name", BLENDS)
def test_blends_differ_by_rounding_only(name, factor):
    ours, reference = both(name, picture(), factor)
    assert np.abs(ours - reference).max() <= 2 and (np.abs(ours - reference) > 1).mean() < 1e-3
    unchanged = np.abs(reference - picture())
    assert factor == 1.0 or unchanged.max() > 5  # the operation does something


@pytest.mark.parametrize("name", sorted(GEOMETRY))
def test_maps_go_where_pillow_goes(name):
    parameter = GEOMETRY[name]
    ours, reference = both(name, picture(), parameter)
    wrong_way, _ = both(name, picture(), -parameter)
    assert np.abs(ours - reference).mean() < 1.5
    assert np.abs(wrong_way - reference).mean() > 15
    outside = (reference == FILL).all(axis=-1)
    assert (
        outside.any() and ((ours == FILL).all(axis=-1) & outside).sum() > 0.75 * outside.sum()
    )  # the edges are blended


def test_grey_pictures_are_grey_afterwards():
    grey = np.ascontiguousarray(picture()[..., 0])
    for name in sorted({*LEVELS, *BLENDS, *GEOMETRY}):
        parameter = OPERATIONS[name].parameter(0.5, np.random.default_rng(0))
        ours, reference = both(name, grey, parameter, fill=100)
        assert ours.shape == grey.shape and np.abs(ours - reference).mean() < 1.5, name


@pytest.mark.parametrize("policy", [parse_rand_augment("rand-m9-mstd0.5-inc1", FILL), parse_auto_augment("3a", FILL)])
def test_policies_draw_the_same_on_arrays_and_pictures(policy):
    """Equal numbers of draws, and pictures that are close."""
    for seed in range(30):
        fast, exact = np.random.default_rng(seed), np.random.default_rng(seed)
        ours = np.asarray(policy(picture(), fast)).astype(int)
        reference = np.asarray(policy(Image.fromarray(picture()), exact)).astype(int)
        assert fast.bit_generator.state == exact.bit_generator.state
        assert np.abs(ours - reference).mean() < 4
