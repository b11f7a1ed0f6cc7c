"""Hashes and alignments agree with their formulas in slow loops, and drawn copies are found as often as stated."""

import math

import numpy as np
import pytest

from paddlevit_dist.leakage import perceptual


def slow_hash(luminance) -> int:
    """The hash of an image itself: signs of 64 cosine sums over 32 x 32 means of interpolated pixels."""
    places = np.clip((np.arange(256) + 0.5) / 256 * 64 - 0.5, 0, 63)
    rows = np.stack([np.interp(places, np.arange(64), column) for column in luminance.T], axis=1)
    small = np.stack([np.interp(places, np.arange(64), row) for row in rows]).reshape(32, 8, 32, 8).mean(axis=(1, 3))
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


def test_what_two_aligned_images_share_lies_inside_of_both():
    for top, bottom, left, right in ((0.0, 1.0, 0.0, 1.0), (0.1, 1.0, -0.12, 0.9), (-0.05, 1.1, 0.02, 1.13)):
        _, _, is_shared = perceptual._window(np.array([top, bottom, left, right]))
        for row in range(0, 64, 3):
            for column in range(64):
                y, x = (row + 0.5) / 64 * (bottom - top) + top, (column + 0.5) / 64 * (right - left) + left
                assert is_shared[row, column] == (0 <= y <= 1 and 0 <= x <= 1), (row, column)
