"""Which patches of an image are kept, their positions, and patches of pixels.

Source: K. He et al., Masked Autoencoders Are Scalable Vision Learners, 2021 (section 3; appendix A.1).
"""

import numpy as np
import paddle


def count_kept(patches: int, mask_share: float) -> int:
    """Return how many of an image's patches the encoder sees: those that are not masked, rounded down."""
    return int(patches * (1 - mask_share))


def draw_order(patches: int, generator: np.random.Generator) -> np.ndarray:
    """Draw an order of an image's patches, int64 (patches,); the first ones are kept."""
    return sort_noise(generator.random((1, patches), dtype=np.float32))[0]


def sort_noise(noise: np.ndarray) -> np.ndarray:
    """Return the order of patches by their noise, float (batch, patches), as int64 of the same shape."""
    return np.argsort(noise, axis=1, kind="stable").astype(np.int64)


def sine_cosine_table(width: int, rows: int, columns: int, prefix: int) -> np.ndarray:
    """Compute fixed positions, float32 (prefix + rows * columns, width), zeros for the ``prefix`` tokens.

    The first half of the channels is for the column, the second for the row; each has sines, then cosines, of the
    position times 10,000 ** -(4 i / width).
    """
    frequencies = 10_000.0 ** -(np.arange(width // 4) / (width / 4))  # (width / 4,)
    across, down = np.tile(np.arange(columns), rows), np.repeat(np.arange(rows), columns)  # (patches,) each
    angles = [np.outer(places, frequencies) for places in (across, down)]
    table = np.concatenate([part for angle in angles for part in (np.sin(angle), np.cos(angle))], axis=1)
    return np.concatenate([np.zeros((prefix, width)), table]).astype(np.float32)


def cut_patches(images: paddle.Tensor, side: int) -> paddle.Tensor:
    """Cut images (batch, channels, height, width) into (batch, patches, side * side * channels), row by row.

    The pixels of a patch are ordered by row, column and channel.
    """
    _, channels, height, width = images.shape
    rows, columns = height // side, width // side
    # Two transpositions of long runs: one of single pixels takes three times as long on a CPU.
    lines = images.transpose([0, 2, 3, 1]).reshape([-1, rows, side, columns, side * channels])
    return lines.transpose([0, 1, 3, 2, 4]).reshape([-1, rows * columns, side * side * channels])


def join_patches(patches: paddle.Tensor, grid: tuple[int, int], side: int, channels: int) -> paddle.Tensor:
    """Put patches of ``cut_patches`` back into images (batch, channels, height, width)."""
    rows, columns = grid
    pixels = patches.reshape([-1, rows, columns, side, side, channels]).transpose([0, 5, 1, 3, 2, 4])
    return pixels.reshape([-1, channels, rows * side, columns * side])


def gather_tokens(tokens: paddle.Tensor, places: paddle.Tensor) -> paddle.Tensor:
    """Return the tokens (batch, chosen, width) at ``places``, int64 (batch, chosen), of (batch, tokens, width)."""
    batch, count, width = tokens.shape
    rows = places + paddle.arange(batch, dtype=places.dtype).unsqueeze(1) * count
    return paddle.gather(tokens.reshape([-1, width]), rows.flatten()).reshape([batch, -1, width])
