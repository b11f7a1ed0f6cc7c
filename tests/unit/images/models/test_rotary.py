"""Rotary positions by their definition: each pair of channels is a complex number that is turned."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.images.models import rotary

GRID, HEADS, HEAD_DIM, PREFIX = (2, 3), 3, 8, 2


def turn(x: np.ndarray, kind: str) -> np.ndarray:
    """Turn (tokens, heads, channels) one number at a time."""
    result = x.copy()
    for row in range(GRID[0]):
        for column in range(GRID[1]):
            token = PREFIX + row * GRID[1] + column
            for pair in range(HEAD_DIM // 2):
                place, side = ((row, GRID[0]), (column, GRID[1]))[pair // (HEAD_DIM // 4)]
                power = (pair % (HEAD_DIM // 4)) / (HEAD_DIM / 4)
                if kind == rotary.AXIAL:
                    angle = 2 * np.pi * (2 * (place + 0.5) / side - 1) / 100**power
                    first, second = pair, pair + HEAD_DIM // 2
                else:
                    angle = place / side * 16 * 10000**-power
                    first, second = 2 * pair, 2 * pair + 1
                for head in range(HEADS):
                    turned = (x[token, head, first] + 1j * x[token, head, second]) * np.exp(1j * angle)
                    result[token, head, first], result[token, head, second] = turned.real, turned.imag
    return result


@pytest.mark.parametrize("kind", rotary.KINDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_patches_are_turned_and_other_tokens_are_not(kind, dtype, tolerance):
    x = np.random.default_rng(0).normal(size=(2, PREFIX + 6, HEADS, HEAD_DIM))
    rotated = rotary.rotate(paddle.to_tensor(x.astype(dtype)), kind, list(GRID), PREFIX)
    assert rotated.dtype == getattr(paddle, dtype)
    np.testing.assert_allclose(rotated.numpy(), np.stack([turn(each, kind) for each in x]), atol=tolerance)
    np.testing.assert_array_equal(rotated.numpy()[:, :PREFIX], x[:, :PREFIX].astype(dtype))


def test_half_precision_is_computed_in_float32():
    x = paddle.to_tensor(np.random.default_rng(1).normal(size=(1, 6, 2, HEAD_DIM)).astype("float32"))
    half = rotary.rotate(x.astype("bfloat16"), rotary.GRID, GRID, 0)
    exact = rotary.rotate(x.astype("bfloat16").astype("float32"), rotary.GRID, GRID, 0)
    assert half.dtype == paddle.bfloat16
    np.testing.assert_array_equal(half.astype("float32").numpy(), exact.astype("bfloat16").astype("float32").numpy())
