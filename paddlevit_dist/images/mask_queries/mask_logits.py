"""Masks given as logits of a few cells each, which are inside where the interpolated logit is above 0."""

from typing import Any

import numpy as np
import paddle

from ...core.runtime.transfers import constant
from ..run_lengths import find_mask_runs


def resize(x: paddle.Tensor, size: tuple[int, int], shares: tuple[float, float] = (1.0, 1.0)) -> paddle.Tensor:
    """Interpolate (..., height, width) bilinearly between cell centers, also in float64, which Paddle's own does not.

    Products with matrices have gradients that do not depend on the order of additions. ``shares``: of height and width,
    from the top left corner, that the result covers.
    """
    kind = "float64" if x.dtype == paddle.float64 else "float32"
    sides = zip(x.shape[-2:], size, shares)
    down, across = (constant(weigh_cells, old, new, kind, share).astype(x.dtype) for old, new, share in sides)
    return paddle.matmul(paddle.matmul(down, x), across, transpose_y=True)


def weigh_cells(old_size: int, new_size: int, dtype: str, share: float = 1.0) -> np.ndarray:
    """Return the weights of the old cells in each new one, (new_size, old_size): of the two nearest, no others.

    ``share``: of the old side, from its beginning, that the new one covers.
    """
    centers = np.clip((np.arange(new_size) + 0.5) * (old_size * share) / new_size - 0.5, 0, old_size - 1)
    return np.maximum(1 - np.abs(centers[:, None] - np.arange(old_size)), 0).astype(dtype)


def encode_logits(logits: np.ndarray, size: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the run lengths of masks in an image of height and width ``size``, of logits (n, rows, columns).

    One mask at a time is resized, and only its columns between cells inside: a photo of 12 million pixels with 300
    masks takes no more memory than one of them.
    """
    height, width = size
    down, across = (weigh_cells(*pair, str(logits.dtype)) for pair in zip(logits.shape[1:], size))
    results = []
    for mask in logits:
        cells = np.flatnonzero((mask > 0).any(axis=0))
        columns = np.flatnonzero(across[:, cells].any(axis=1))  # others have no cell inside next to them
        first, last = (columns[0], columns[-1] + 1) if len(columns) else (0, 0)
        used = np.flatnonzero(across[first:last].any(axis=0))
        resized = (down @ mask[:, used]) @ across[first:last, used].T  # (height, last - first)
        runs = find_mask_runs(resized > 0)
        start = int(first) * height  # pixels are numbered column by column
        results.append(runs._replace(width=width, starts=runs.starts + start, ends=runs.ends + start).compress())
    return results
