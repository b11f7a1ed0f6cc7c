"""Hashes and alignments agree with their formulas in slow loops, and drawn copies are found as often as stated."""

import math

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist.extensions.leakage import perceptual


def slow_hash(luminance, down=(0.0, 1.0), across=(0.0, 1.0)) -> int:
    """The hash of an image between borders: signs of 64 cosine sums over 32 x 32 means of interpolated pixels."""
    shares = (np.arange(256) + 0.5) / 256
    places = [np.clip((low + (high - low) * shares) * 64 - 0.5, 0, 63) for low, high in (down, across)]
    rows = np.stack([np.interp(places[0], np.arange(64), column) for column in luminance.T], axis=1)
    small = np.stack([np.interp(places[1], np.arange(64), row) for row in rows])
    small = small.reshape(32, 8, 32, 8).mean(axis=(1, 3))
    orders = [(row, column) for row in range(32) for column in range(32) if (row, column) != (0, 0)]
    orders.sort(key=lambda order: (math.hypot(*order), order))
    centers = (np.arange(32) + 0.5) / 32
    bits = []
    for row, column in orders[:64]:
        waves = np.outer(np.cos(np.pi * row * centers), np.cos(np.pi * column * centers))
        bits.append((small * waves).sum() > 0)
    return int.from_bytes(np.packbits(bits).tobytes(), "little")


@pytest.mark.parametrize("seed", range(4))
def test_a_hash_is_the_signs_of_the_64_longest_waves(seed):
    generator = np.random.default_rng(seed)
    luminance = generator.uniform(0, 255, (64, 64))
    assert int(perceptual.compute_hashes(luminance, 1)[0]) == slow_hash(luminance)
    assert perceptual.compute_hashes(np.zeros((64, 64)), 1)[0] == 0


def test_variants_are_cropped_or_extended_at_each_corner():
    luminance = np.random.default_rng(5).uniform(0, 255, (64, 64)) + np.linspace(0, 90, 64)
    smaller, larger = [(0.0, 0.95), (0.05, 1.0)], [(0.0, 1.05), (-0.05, 1.0)]
    pairs = [((0.0, 1.0),) * 2, *((y, x) for half in (smaller, larger) for y in half for x in half)]
    found = perceptual.compute_hashes(luminance, perceptual.NUM_VARIANTS)
    assert found.tolist() == [slow_hash(luminance, *pair) for pair in pairs] and len(set(found.tolist())) == 9
    assert perceptual.compute_hashes(luminance, 3).tolist() == found.tolist()[:3]


@pytest.mark.parametrize(
    "colors, details, is_copy",
    [(0.5, 0.95, True), (0.95, 0.5, True), (0.49, 1.0, False), (1.0, 0.49, False), (0.7, 0.74, False)],
)
def test_a_copy_is_alike_in_colors_and_details_and_in_both_together(colors, details, is_copy):
    assert perceptual.ImageSimilarity(colors, details).is_copy is is_copy


def test_images_with_other_colors_are_not_aligned_and_equal_ones_are_copies():
    generator = np.random.default_rng(0)
    blocks = [np.kron(generator.integers(0, 256, (8, 8, 3)), np.ones((8, 8, 1), int)).astype(np.uint8) for _ in "ab"]
    colors, details = perceptual.compute_similarity(*blocks)
    assert colors < 0.4 and details == 0.0
    assert perceptual.compute_similarity(blocks[0], blocks[0]) == pytest.approx((1.0, 1.0))
    darker = (blocks[0] * 0.5 + 20).astype(np.uint8)
    assert min(perceptual.compute_similarity(blocks[0], darker)) > 0.99
    assert perceptual.correlate(np.ones(4), np.arange(4.0)) == 0.0
    assert perceptual.correlate(np.arange(4.0), -np.arange(4.0)) == pytest.approx(-1.0)


def make_blob(row: float, column: float) -> np.ndarray:
    """A wide spot with this center, in shares of the sides, on a slope."""
    places = (np.arange(64) + 0.5) / 64
    spot = np.exp(-(((places[:, None] - row) / 0.25) ** 2) - ((places - column) / 0.2) ** 2)
    return 200 * spot + 5 * places


def test_an_alignment_finds_a_shift_by_steps_of_limited_length(monkeypatch):
    start = np.array([0.0, 1.0, 0.0, 1.0])
    found = perceptual.align_images(make_blob(0.56, 0.47), make_blob(0.5, 0.5), start)
    assert found - start == pytest.approx([0.06, 0.06, -0.03, -0.03], abs=0.004)
    for sign in (1, -1):
        far = perceptual.align_images(make_blob(0.5 + 0.2 * sign, 0.5 - 0.25 * sign), make_blob(0.5, 0.5), start)
        assert np.abs(far - start).max() == pytest.approx(0.15)
    monkeypatch.setattr(perceptual, "_STEPS", 2)  # fit after the first step, which moves and stretches by 5 %
    found = perceptual.align_images(make_blob(0.62, 0.44), make_blob(0.5, 0.5), start)
    assert found - start == pytest.approx([0.075, 0.025, -0.025, -0.075])


def test_crops_of_one_image_are_copies_once_they_are_aligned():
    generator = np.random.default_rng(3)
    whole = np.kron(generator.integers(0, 256, (20, 20, 3)), np.ones((10, 10, 1), int)).astype(np.uint8)
    crops = [Image.fromarray(whole[top : top + 180, left : left + 180]) for top, left in ((0, 0), (14, 9))]
    found = perceptual.compute_similarity(*map(perceptual.make_thumbnail, crops))
    assert min(found) > 0.9


def test_nothing_is_moved_to_fit_an_image_without_details():
    start = np.array([0.01, 1.0, 0.0, 0.98])
    assert (perceptual.align_images(make_blob(0.4, 0.6), np.full((64, 64), 9.0), start) == start).all()
    stripes = np.tile(make_blob(0.5, 0.5)[:, :1], 64)  # equal columns: any shift across fits
    assert perceptual.align_images(stripes, stripes, start)[2:] == pytest.approx(start[2:])


def test_a_luminance_weighs_green_most_and_a_thumbnail_averages_blocks():
    thumb = np.zeros((64, 64, 3), np.uint8)
    thumb[0, :3] = np.eye(3) * 100
    np.testing.assert_allclose(perceptual.to_luminance(thumb)[0, :4], [29.9, 58.7, 11.4, 0.0])
    pixels = np.random.default_rng(0).integers(0, 256, (128, 256), np.uint8)
    found = perceptual.make_thumbnail(Image.fromarray(pixels))
    means = pixels.reshape(64, 2, 64, 4).mean(axis=(1, 3))
    assert found.shape == (64, 64, 3) and np.abs(found - means[..., None]).max() <= 1


def test_what_two_aligned_images_share_lies_inside_of_both():
    for top, bottom, left, right in ((0.0, 1.0, 0.0, 1.0), (0.1, 1.0, -0.12, 0.9), (-0.05, 1.1, 0.02, 1.13)):
        _, _, is_shared = perceptual.find_window(np.array([top, bottom, left, right]))
        for row in range(0, 64, 3):
            for column in range(64):
                y, x = (row + 0.5) / 64 * (bottom - top) + top, (column + 0.5) / 64 * (right - left) + left
                assert is_shared[row, column] == (0 <= y <= 1 and 0 <= x <= 1), (row, column)
