"""Rotary positions of patches: queries and keys are turned by angles that grow with row and column.

Sources: Su et al., RoFormer, arXiv 2104.09864, equation 15; Fang et al., EVA-02, arXiv 2303.11331, section 2.1; Siméoni
et al., DINOv3, arXiv 2508.10104, section 3.2.
"""

import numpy as np
import paddle

from ...runtime.transfers import constant

AXIAL, GRID = "axial", "grid"
KINDS = (AXIAL, GRID)
_EVA_GRID = 16  # patches along a side in pretraining, to which every grid is scaled
_PAIRS = {AXIAL: -2, GRID: -1}  # of (..., 2, channels / 2): halves; of (..., channels / 2, 2): neighbours


def angles(kind: str, grid: tuple[int, int], head_dim: int) -> np.ndarray:
    """float64 (patches, head_dim / 2), row by row: a quarter of the channels turn with the row, the next with the
    column.

    "axial", DINOv3's: patch centres from -1 to 1 along each side, one turn in 100 ** (4 j / head_dim) of it. "grid",
    EVA-02's: a patch's number, scaled to a grid of 16, times 10000 ** (-4 j / head_dim).
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


def cosines_and_sines(kind: str, grid: tuple[int, int], head_dim: int, prefix: int, dtype: str) -> np.ndarray:
    """(2, prefix + patches, 1, head_dim / 2); tokens in front are not turned."""
    turned = np.concatenate([np.zeros((prefix, head_dim // 2)), angles(kind, grid, head_dim)])
    return np.stack([np.cos(turned), np.sin(turned)]).astype(dtype)[:, :, None]


def rotate(x: paddle.Tensor, kind: str, grid: tuple[int, int], prefix: int) -> paddle.Tensor:
    """Turn the channels of (batch, prefix + patches, heads, head_dim), in float32 or, if they are, in float64. The
    table is made once for a grid."""
    head_dim, axis = x.shape[-1], _PAIRS[kind]
    dtype = "float64" if x.dtype == paddle.float64 else "float32"
    cosine, sine = constant(cosines_and_sines, kind, tuple(grid), head_dim, prefix, dtype)  # (tokens, 1, head_dim / 2)
    shape = [2, head_dim // 2]
    first, second = x.astype(dtype).reshape([0, 0, 0, *(shape if axis == -2 else shape[::-1])]).unbind(axis)
    turned = paddle.stack([first * cosine - second * sine, second * cosine + first * sine], axis)
    return turned.reshape([0, 0, 0, head_dim]).astype(x.dtype)
