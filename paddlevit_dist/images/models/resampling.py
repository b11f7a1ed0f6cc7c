"""Position embeddings for another number of patches, and biases of relative positions for other windows."""

import math

import numpy as np

_OTHER_PREFIX = {1: 2, 2: 1}  # prefix tokens without and with a distillation token, and the other way round


def resize_position_embedding(
    embedding: np.ndarray,
    grid: tuple[int, int],
    num_prefix_tokens: int,
    old_grid: tuple[int, int] | None = None,
    kind: str = "antialiased",
) -> np.ndarray | None:
    """Resample the patches of a position embedding to another grid, by default with Pillow's widening filter, as timm.

    An unknown old grid is taken for a square, or for one with the proportions of the new one. A known one with another
    number of patches, as of smaller ones, gives the proportions. A known one, or a square, with one prefix token more
    or less is of a model with or without a distillation token: its position is dropped, or begins as the class token's.

    Args:
        embedding: (1, prefix tokens + patches, channels).
        grid: new (height, width) in patches.
        num_prefix_tokens: class and distillation tokens in front.
        old_grid: (height, width) in patches before; None: unknown.
        kind: of interpolation, see ``resampling_matrix``.

    Returns:
        float32 (1, prefix tokens + height * width, channels), or None if the patches form no such grid.
    """
    if embedding.ndim != 3:
        return None
    old_prefix, old_grid = _prefix_and_grid(embedding.shape[1], num_prefix_tokens, grid, old_grid)
    if old_grid is None:
        return None
    prefix, patches = embedding[:, :old_prefix], embedding[:, old_prefix:]
    if old_prefix < num_prefix_tokens:
        prefix = np.concatenate([prefix, prefix[:, :1]], axis=1)
    prefix = prefix[:, :num_prefix_tokens]
    patches = patches.reshape(old_grid + (-1,))  # (old height, old width, channels)
    down = resampling_matrix(kind, old_grid[0], grid[0], "float64")  # (height, old height)
    across = resampling_matrix(kind, old_grid[1], grid[1], "float64")  # (width, old width)
    patches = np.einsum("yh,xw,hwc->yxc", down, across, patches, optimize=True)  # (height, width, channels)
    patches = patches.reshape(1, grid[0] * grid[1], -1)
    return np.concatenate([prefix, patches], axis=1).astype(np.float32)


def resize_patch_kernel(kernel: np.ndarray, patch_size: int) -> np.ndarray | None:
    """Resample the weights of an embedding of patches for patches of another size, as timm does.

    The embedding of a patch that is resized is as near as it can be to the old one of the patch itself.

    Source: Beyer et al., FlexiViT, CVPR 2023, arXiv 2212.08013, section 3.4 (pseudo-inverse resize).

    Args:
        kernel: (dim, channels, old side, old side).
        patch_size: new side.

    Returns:
        float32 (dim, channels, patch size, patch size); None for another shape.
    """
    if kernel.ndim != 4 or kernel.shape[2] != kernel.shape[3]:
        return None
    inverse = np.linalg.pinv(bicubic_matrix(kernel.shape[2], patch_size).T)  # (patch size, old side)
    return np.einsum("yh,xw,dchw->dcyx", inverse, inverse, kernel, optimize=True).astype(np.float32)


def resize_relative_position_bias(
    table: np.ndarray, window: tuple[int, int], old_window: tuple[int, int] | None = None
) -> np.ndarray | None:
    """Resample a Swin Transformer's biases of relative positions to another window, as ``resize_position_embedding``.

    The biases of the old window, a square if it is unknown, are (offsets down * offsets across, heads), with 2 * side -
    1 offsets each way. They become float32 ((2 * height - 1) * (2 * width - 1), heads) of ``window`` in tokens; None if
    the table is another one's.
    """
    if table.ndim != 2:
        return None
    side = math.isqrt(table.shape[0])
    rows, columns = (side, side) if old_window is None else (2 * length - 1 for length in old_window)
    if rows * columns != table.shape[0] or rows % 2 == 0:
        return None
    down, across = (bicubic_matrix(old, 2 * length - 1) for old, length in zip((rows, columns), window))
    biases = table.reshape(rows, columns, -1)
    biases = np.einsum("yh,xw,hwc->yxc", down, across, biases, optimize=True)
    return biases.reshape(-1, table.shape[1]).astype(np.float32)


def bicubic_matrix(old_size: int, new_size: int) -> np.ndarray:
    """float64 (new_size, old_size): each row the weights of the old samples in a new one.

    Source: Keys, Cubic convolution interpolation, 1981, with a = -1/2; samples at pixel centers, weights beyond the
    border omitted and the rest normalized.
    """
    scale = old_size / new_size
    width = max(scale, 1.0)  # the filter covers all old samples that fall into a new one
    centers = (np.arange(new_size) + 0.5) * scale
    distance = np.abs((np.arange(old_size) + 0.5)[None, :] - centers[:, None]) / width
    near = 1.5 * distance**3 - 2.5 * distance**2 + 1.0
    far = -0.5 * distance**3 + 2.5 * distance**2 - 4.0 * distance + 2.0
    weights = np.where(distance < 1.0, near, np.where(distance < 2.0, far, 0.0))
    return weights / weights.sum(axis=1, keepdims=True)


def bilinear_matrix(old_size: int, new_size: int) -> np.ndarray:
    """float64 (new_size, old_size): as ``bicubic_matrix``, with a triangle as the filter."""
    scale = old_size / new_size
    centers = (np.arange(new_size) + 0.5) * scale
    distance = np.abs((np.arange(old_size) + 0.5)[None, :] - centers[:, None]) / max(scale, 1.0)
    weights = np.maximum(1.0 - distance, 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


ANTIALIASED, BICUBIC, OFFSET = "antialiased", "bicubic", "offset"


def resampling_matrix(kind: str, old_size: int, new_size: int, dtype: str) -> np.ndarray:
    """(new_size, old_size): each row the weights of the old samples in a new one, of positions at other sizes.

    "antialiased": ``bicubic_matrix``, timm's. "bicubic": four neighbors with a = -3/4, those beyond the border being
    the border's, as PyTorch and Paddle interpolate. "offset": the same with the scale (new_size + 0.1) / old_size of
    DINOv2's authors, whose samples lie a little nearer to one another.
    """
    if kind == ANTIALIASED:
        return bicubic_matrix(old_size, new_size).astype(dtype)
    centers = (np.arange(new_size) + 0.5) * old_size / (new_size + (0.1 if kind == OFFSET else 0.0)) - 0.5
    first = np.floor(centers).astype(np.int64)
    matrix = np.zeros((new_size, old_size))
    for tap in range(-1, 3):
        distance = np.abs(centers - (first + tap))
        near = 1.25 * distance**3 - 2.25 * distance**2 + 1.0
        far = -0.75 * (distance**3 - 5.0 * distance**2 + 8.0 * distance - 4.0)
        places = np.clip(first + tap, 0, old_size - 1)
        np.add.at(matrix, (np.arange(new_size), places), np.where(distance <= 1.0, near, far))
    return matrix.astype(dtype)


def _prefix_and_grid(
    num_tokens: int, num_prefix_tokens: int, new_grid: tuple[int, int], old_grid: tuple[int, int] | None
) -> tuple[int, tuple[int, int] | None]:
    """Return how many of the tokens are not patches, and the grid of the others; no grid if there is none."""
    numbers = [number for number in (num_prefix_tokens, _OTHER_PREFIX.get(num_prefix_tokens)) if number is not None]
    if old_grid is not None:
        num_prefix = num_tokens - old_grid[0] * old_grid[1]
        if num_prefix in numbers:
            return num_prefix, old_grid
        like = old_grid[0] / old_grid[1]
        grids = [(number, grid) for number in numbers if (grid := _factor(num_tokens - number, like))]
        fitting = min(grids, key=lambda pair: abs(math.log(pair[1][0] / pair[1][1] / like)), default=None)
        return (num_prefix_tokens, None) if fitting is None else fitting
    if grid := _find_square(num_tokens - num_prefix_tokens):
        return num_prefix_tokens, grid
    if grid := _factor(num_tokens - num_prefix_tokens, new_grid[0] / new_grid[1]):
        return num_prefix_tokens, grid
    other_squares = ((number, _find_square(num_tokens - number)) for number in numbers[1:])
    return next((pair for pair in other_squares if pair[1] is not None), (num_prefix_tokens, None))


def _find_square(number: int) -> tuple[int, int] | None:
    side = math.isqrt(max(number, 0))
    return (side, side) if side and side * side == number else None


def _factor(number: int, proportion: float) -> tuple[int, int] | None:
    """Return height and width of this number of patches with about a proportion of the sides; None: there are none."""
    height = round(math.sqrt(number * proportion)) if number > 0 else 0
    return (height, number // height) if height > 0 and number % height == 0 else None
