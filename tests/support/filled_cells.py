"""Matrices of counts as arrays, for comparisons."""

import numpy as np

from paddlevit_dist.core.tasks.figures import FilledCells


def to_dense(cells: FilledCells, size: int) -> np.ndarray:
    """Return the matrix of the filled cells, int64 (size, size), each of which is filled once and not with 0."""
    matrix = np.zeros((size, size), np.int64)
    for row, column, count in zip(*(part.tolist() for part in cells), strict=True):
        assert matrix[row, column] == 0 and count > 0
        matrix[row, column] = count
    return matrix
