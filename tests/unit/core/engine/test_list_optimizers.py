"""Matrices become orthogonal by Newton-Schulz, in which singular values follow a polynomial of their own."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.engine.list_optimizers import orthogonalize


@pytest.mark.parametrize("shape", [(2, 4, 9), (3, 9, 4), (1, 6, 40)])
@pytest.mark.parametrize("norm", [None, 5e-8])  # of a matrix; below 1e-7, it is divided by that
def test_singular_vectors_stay_and_singular_values_come_near_one(shape, norm):
    draws = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    if norm is not None:
        draws *= np.float32(norm) / np.sqrt((draws**2).sum(axis=(1, 2), keepdims=True))
    found = orthogonalize(paddle.to_tensor(draws)).numpy().astype(np.float64)
    for matrix, result in zip(draws, found):
        left, values, right = np.linalg.svd(matrix.astype(np.float64), full_matrices=False)
        inner = left.T @ result @ right.T  # the singular values, if the vectors are the same
        np.testing.assert_allclose(inner, np.diag(np.diag(inner)), atol=1e-4)
        values /= max(np.sqrt((values**2).sum()), 1e-7)
        for _ in range(5):
            values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
        np.testing.assert_allclose(np.diag(inner), values, rtol=1e-4)
        assert 0.6 < values.min() and values.max() < 1.3


def test_a_matrix_of_zeros_stays_one():
    assert not orthogonalize(paddle.zeros([2, 3, 4])).any()
