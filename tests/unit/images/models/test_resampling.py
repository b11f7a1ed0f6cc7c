"""Positions at other sizes: filters against Pillow's and Paddle's, and which tokens are patches."""

import numpy as np
import paddle
import pytest
from PIL import Image

from paddlevit_dist.images.models.resampling import (
    bicubic_matrix,
    bilinear_matrix,
    resampling_matrix,
    resize_position_embedding,
    resize_relative_position_bias,
)

SIZES = [(5, 8), (7, 3), (4, 4), (9, 10), (1, 3)]


@pytest.mark.parametrize("old, new", SIZES)
@pytest.mark.parametrize("make, kind", [(bicubic_matrix, "BICUBIC"), (bilinear_matrix, "BILINEAR")])
def test_filters_are_pillows(make, kind, old, new):
    values = np.random.default_rng(old).normal(size=(old, 1)).astype(np.float32)
    image = Image.fromarray(np.repeat(values, 2, axis=1))
    expected = np.array(image.resize((2, new), getattr(Image.Resampling, kind)))[:, :1]
    np.testing.assert_allclose(make(old, new) @ values, expected, atol=1e-5)


@pytest.mark.parametrize("old, new", [(5, 8), (7, 3), (9, 10), (1, 3)])  # of equal sizes Paddle changes nothing
def test_other_resampling_is_paddles_with_and_without_the_offset(old, new):
    values = np.random.default_rng(old).normal(size=(old, 3))
    x = paddle.to_tensor(values.T[None, :, :, None]).expand([1, 3, old, 2])
    expected = paddle.nn.functional.interpolate(x, size=[new, 2], mode="bicubic").numpy()[0, :, :, 0].T
    np.testing.assert_allclose(resampling_matrix("bicubic", old, new, "float64") @ values, expected, atol=1e-5)
    matrix = resampling_matrix("offset", old, new, "float32")
    assert matrix.dtype == np.float32 and matrix.shape == (new, old)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-6)
    scale = [(new + 0.1) / old, 1.0]
    scaled = paddle.nn.functional.interpolate(x, scale_factor=scale, mode="bicubic").numpy()[0, :, :, 0].T
    np.testing.assert_allclose(matrix @ values, scaled, atol=1e-5)
    antialiased = resampling_matrix("antialiased", old, new, "float32")
    np.testing.assert_array_equal(antialiased, bicubic_matrix(old, new).astype(np.float32))


def embedding(tokens):
    return np.random.default_rng(tokens).normal(size=(1, tokens, 3))


@pytest.mark.parametrize(
    "tokens, prefix, grid, old_grid, taken",
    [
        (2 + 12, 2, (6, 8), (3, 4), [0, 1]),  # the proportions of the new grid
        (1 + 9, 1, (4, 2), (3, 3), [0]),  # a square first
        (1 + 16, 2, (4, 4), (4, 4), [0, 0]),  # without a distillation token: it begins as the class token
        (2 + 16, 1, (4, 4), (4, 4), [0]),  # with one, which is dropped
        (6, 0, (3, 2), (3, 2), []),
    ],
)
def test_prefix_tokens_are_kept_and_patches_resampled(tokens, prefix, grid, old_grid, taken):
    old = embedding(tokens)
    new = resize_position_embedding(old, grid, prefix)
    assert new.dtype == np.float32 and new.shape == (1, prefix + grid[0] * grid[1], 3)
    np.testing.assert_allclose(new[0, :prefix], old[0, taken].reshape(prefix, 3), rtol=1e-6)
    patches = old[0, tokens - old_grid[0] * old_grid[1] :].reshape(*old_grid, 3)
    expected = np.zeros((*grid, 3))
    down, across = bicubic_matrix(old_grid[0], grid[0]), bicubic_matrix(old_grid[1], grid[1])
    for row, column in np.ndindex(*grid):
        expected[row, column] = np.einsum("y,x,yxc->c", down[row], across[column], patches)
    np.testing.assert_allclose(new[0, prefix:].reshape(*grid, 3), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "tokens, prefix, grid, old_grid, first_patch",
    [
        (2 + 12, 2, (4, 3), (3, 4), 2),  # as many patches
        (1 + 36, 1, (6, 6), (4, 9), 1),  # a square number of patches that are no square
        (24, 0, (4, 8), (6, 4), 0),  # other proportions
        (2 + 12, 1, (2, 5), (4, 3), 2),  # with a distillation token, which is dropped
    ],
)
def test_a_known_grid_is_not_guessed(tokens, prefix, grid, old_grid, first_patch):
    old = embedding(tokens)
    new = resize_position_embedding(old, grid, prefix, old_grid)
    patches = old[0, first_patch:].reshape(*old_grid, 3)
    down, across = bicubic_matrix(old_grid[0], grid[0]), bicubic_matrix(old_grid[1], grid[1])
    expected = np.einsum("yh,xw,hwc->yxc", down, across, patches)
    np.testing.assert_allclose(new[0, prefix:].reshape(*grid, 3), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(new[0, :prefix], old[0, :prefix], rtol=1e-6)


@pytest.mark.parametrize("tokens, prefix, first_patch", [(1 + 36, 2, 1), (2 + 36, 1, 2), (36, 0, 0), (5 + 36, 5, 5)])
def test_a_known_size_in_other_patches_gives_the_proportions_with_any_tokens_in_front(tokens, prefix, first_patch):
    """4 x 9 patches of 8 pixels, whose images have 8 x 18 of 4; as many as 6 x 6, and with one more token 37."""
    old = embedding(tokens)
    new = resize_position_embedding(old, (6, 6), prefix, (8, 18))
    patches = old[0, first_patch:].reshape(4, 9, 3)
    expected = np.einsum("yh,xw,hwc->yxc", bicubic_matrix(4, 6), bicubic_matrix(9, 6), patches)
    np.testing.assert_allclose(new[0, prefix:].reshape(6, 6, 3), expected, rtol=1e-4, atol=1e-6)
    assert resize_position_embedding(embedding(1 + 35), (6, 6), 1, (8, 18)) is None


def test_biases_of_a_known_window_are_not_taken_for_a_square():
    table = np.random.default_rng(0).normal(size=(5, 9, 2))  # of 3 x 5 tokens, and 45 is not a square number
    new = resize_relative_position_bias(table.reshape(45, 2), (2, 3), (3, 5))
    expected = np.einsum("yh,xw,hwc->yxc", bicubic_matrix(5, 3), bicubic_matrix(9, 5), table)
    np.testing.assert_allclose(new.reshape(3, 5, 2), expected, rtol=1e-5, atol=1e-6)
    assert resize_relative_position_bias(table.reshape(45, 2), (2, 3), (3, 4)) is None
    assert resize_relative_position_bias(table.reshape(45, 2), (2, 3)) is None


def test_what_has_no_grid_is_none():
    assert resize_position_embedding(embedding(1 + 7), (4, 4), 1) is None
    assert resize_position_embedding(embedding(1 + 3), (1, 40), 1) is None  # a row of which is less than one of these
    assert resize_position_embedding(embedding(1), (4, 4), 1) is None
    assert resize_position_embedding(embedding(17)[0], (4, 4), 1) is None
    for shape in ((16, 2), (24, 2), (5, 5, 2)):
        assert resize_relative_position_bias(np.zeros(shape), (3, 3)) is None


def test_biases_of_positions_have_offsets_of_both_signs():
    table = np.random.default_rng(0).normal(size=(5, 5, 2))
    new = resize_relative_position_bias(table.reshape(25, 2), (4, 2))
    assert new.dtype == np.float32 and new.shape == (7 * 3, 2)
    expected = np.einsum("yh,xw,hwc->yxc", bicubic_matrix(5, 7), bicubic_matrix(5, 3), table)
    np.testing.assert_allclose(new.reshape(7, 3, 2), expected, rtol=1e-5, atol=1e-6)
