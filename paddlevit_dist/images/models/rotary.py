"""Rotary positions of patches: queries and keys are turned by angles that grow with row and column.

Sources: Su et al., RoFormer, arXiv 2104.09864, equation 15; Fang et al., EVA-02, arXiv 2303.11331, section 2.1; Siméoni
et al., DINOv3, arXiv 2508.10104, section 3.2.
"""

import numpy as np
import paddle

from ...core.runtime.transfers import constant

AXIAL, GRID = "axial", "grid"
KINDS = (AXIAL, GRID)
_EVA_GRID = 16  # patches along a side in pretraining, to which every grid is scaled


def angles(kind: str, grid: tuple[int, int], head_dim: int) -> np.ndarray:
    """Compute the angles of a grid of patches, float64 (patches, head_dim / 2), row by row.

    A quarter of the channels turn with the row, the next with the column. "axial" is DINOv3's: patch centers from -1 to
    1 along each side, one turn in 100 ** (4 j / head_dim) of it. "grid" is EVA-02's: a patch's number, scaled to a grid
    of 16, times 10000 ** (-4 j / head_dim).
    """
    powers = np.arange(head_dim // 4) / (head_dim / 4)
    turned = []
    for side in grid:
        if kind == AXIAL:
            places = 2 * (np.arange(side) + 0.5) / side - 1
            turned.append(2 * np.pi * places[:, None] / 100.0**powers)
        else:
            turned.append(np.arange(side)[:, None] / side * _EVA_GRID * 10000.0**-powers)
    down, across = turned
    down = np.repeat(down[:, None], grid[1], axis=1)
    across = np.repeat(across[None], grid[0], axis=0)
    return np.concatenate([down, across], axis=-1).reshape(grid[0] * grid[1], -1)


def _partners(kind: str, head_dim: int) -> np.ndarray:
    """int64 (head_dim,): with which channel each forms the pair that is turned."""
    channels = np.arange(head_dim)
    return (channels + head_dim // 2) % head_dim if kind == AXIAL else channels ^ 1


def _partners_of_heads(kind: str, head_dim: int, heads: int) -> np.ndarray:
    return (np.arange(heads)[:, None] * head_dim + _partners(kind, head_dim)).ravel()


def _all_angles(kind: str, grid: tuple[int, int], head_dim: int, prefix: int) -> np.ndarray:
    """(prefix + patches, head_dim): the angle of each channel, none in a prefix."""
    turned = np.concatenate([np.zeros((prefix, head_dim // 2)), angles(kind, grid, head_dim)])
    return np.tile(turned, 2) if kind == AXIAL else turned.repeat(2, axis=1)


def _signs(kind: str, head_dim: int) -> np.ndarray:
    return np.where(_partners(kind, head_dim) > np.arange(head_dim), -1.0, 1.0)  # the first of a pair loses


def _factors(kind: str, grid: tuple[int, int], head_dim: int, heads: int, prefix: int, dtype: str) -> np.ndarray:
    """(2, prefix + patches, heads * head_dim): factors of a channel and its partner, without turns in a prefix."""
    turned = _all_angles(kind, grid, head_dim, prefix)
    return np.tile(np.stack([np.cos(turned), np.sin(turned) * _signs(kind, head_dim)]), heads).astype(dtype)


def _scaled_factors(kind: str, grid: tuple[int, int], head_dim: int, heads: int, prefix: int, scale):
    """Return what ``_factors`` does, with all angles times ``scale``."""
    dtype = str(scale.dtype).rpartition(".")[2]
    turned = constant(_all_angles, kind, grid, head_dim, prefix).astype(dtype) * scale
    factors = paddle.stack([paddle.cos(turned), paddle.sin(turned) * constant(_signs, kind, head_dim).astype(dtype)])
    return factors.tile([1, 1, heads])


def rotate(
    x: paddle.Tensor, kind: str, grid: tuple[int, int], prefix: int, scale: paddle.Tensor | None = None
) -> paddle.Tensor:
    """Rotate the channels of (batch, prefix + patches, heads, head_dim), in float64 if ``x`` is, else in float32.

    The tables are made for all heads: Paddle's products on CPUs take eight times as long where a middle axis is
    repeated. ``scale``, (1,), is a factor of all angles; None: 1.
    """
    heads, head_dim = x.shape[2:]
    dtype = "float64" if x.dtype == paddle.float64 else "float32"
    size = (grid[0], grid[1])
    if scale is None:
        factors, partner_factors = constant(_factors, kind, size, head_dim, heads, prefix, dtype)
    else:
        factors, partner_factors = _scaled_factors(kind, size, head_dim, heads, prefix, scale.astype(dtype))
    flat = x.astype(dtype).flatten(2)
    partners = paddle.index_select(flat, constant(_partners_of_heads, kind, head_dim, heads), axis=-1)
    return (flat * factors + partners * partner_factors).reshape([0, 0, heads, head_dim]).astype(x.dtype)
