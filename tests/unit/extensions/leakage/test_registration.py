"""Copies of images that look alike are proven by their pixels, and different images of one kind are not."""

import numpy as np
import pytest

from benchmarks.alike_pictures import CHANGES, KINDS
from paddlevit_dist.extensions.leakage import registration
from paddlevit_dist.extensions.leakage.registration import RegisteredDifference, compare_registered, make_picture

PROVEN = ("X-ray of a chest", "single cell", "face in a template", "object before a fixed camera", "scene")


@pytest.mark.parametrize("kind", KINDS)
def test_different_images_of_a_kind_are_no_copies(kind):
    pictures = [make_picture(KINDS[kind](np.random.default_rng(seed))) for seed in range(3)]
    for one, other in ((0, 1), (2, 0)):
        assert not compare_registered(pictures[one], pictures[other]).is_proof


@pytest.mark.parametrize("kind", PROVEN)
def test_changed_copies_are_proven_from_either_side(kind):
    generator = np.random.default_rng(5)
    image = KINDS[kind](generator)
    for name in ("jpeg 30", "darker", "cropped 5 %"):
        pair = make_picture(CHANGES[name](image, generator)), make_picture(image)
        assert compare_registered(*pair).is_proof and compare_registered(*pair[::-1]).is_proof, name


def test_a_shape_of_one_color_proves_nothing():
    """Every disc before white is a copy of every other, up to its borders and brightness."""
    image = KINDS["disc before white"](np.random.default_rng(0))
    found = compare_registered(make_picture(image), make_picture(image))
    assert found.agreement > 0.9 and found.changed == 0 and found.corners == 0 and not found.is_proof


def test_a_picture_has_no_more_pixels_than_its_image():
    scene = KINDS["scene"](np.random.default_rng(0))
    sides = {length: len(make_picture(scene.resize((length, 300)))) for length in (300, 150, 100, 40)}
    assert sides == {300: 192, 150: 144, 100: 96, 40: 64}


@pytest.mark.parametrize("flat", [0, 1])
def test_without_texture_nothing_is_compared(flat):
    pair = [np.full((64, 64), 90, np.uint8), make_picture(KINDS["scene"](np.random.default_rng(0)))]
    assert not compare_registered(pair[flat], pair[1 - flat]).is_proof
    assert compare_registered(pair[0], pair[0]) == RegisteredDifference(0, 0.0, 1.0)


def test_blocks_with_structure_in_two_directions_are_found():
    image = np.zeros((24, 24))
    image[:, 4:] = 80  # an edge in the first column of blocks
    image[16:, 16:] = np.random.default_rng(0).normal(80, 30, (8, 8))
    assert registration._find_corners(image).tolist() == [False] * 8 + [True]


def test_a_brighter_image_is_clipped_as_its_copy_is():
    values = np.linspace(20, 240, 64 * 64).reshape(64, 64)
    brighter = (1.4 * values).clip(0, 255)
    everywhere = np.ones((64, 64), bool)
    for pair in ((values, brighter), (brighter, values)):
        one, other = registration._equalize(*pair, everywhere)
        np.testing.assert_allclose(one, other, atol=1e-6)
