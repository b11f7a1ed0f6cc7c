"""Compiled loops over the levels of an image in planes, equal to Pillow's in every bit.

Planes are uint8 (channels, height, width), C-contiguous.
"""

import numpy as np

from ..runtime.compiled import compiled


@compiled
def histograms(planes: np.ndarray) -> np.ndarray:
    """How many pixels each level has: int64 (channels, 256)."""
    channels, height, width = planes.shape
    counts = np.zeros((channels, 256), dtype=np.int64)
    others = np.zeros((channels, 256), dtype=np.int64)  # neighbours are often equal, and one count waits for the other
    for channel in range(channels):
        even, odd = counts[channel], others[channel]
        for row in range(height):
            line = planes[channel, row]
            for pair in range(width // 2):
                even[line[2 * pair]] += 1
                odd[line[2 * pair + 1]] += 1
            if width % 2:
                even[line[width - 1]] += 1
    return counts + others


@compiled
def look_up(planes: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """Every level replaced; ``tables``: uint8 (channels, 256)."""
    channels, height, width = planes.shape
    result = np.empty_like(planes)
    for channel in range(channels):
        table = tables[channel]
        for row in range(height):
            line, target = planes[channel, row], result[channel, row]
            for column in range(width):
                target[column] = table[line[column]]
    return result


@compiled
def luminance(planes: np.ndarray) -> np.ndarray:
    """Pillow's conversion from RGB (3, height, width) to gray: uint8 (height, width).

    The weights are those of ITU-R BT.601, rounded to 16 binary places.
    """
    _, height, width = planes.shape
    result = np.empty((height, width), dtype=np.uint8)
    for row in range(height):
        red, green, blue, target = planes[0, row], planes[1, row], planes[2, row], result[row]
        for column in range(width):
            level = 19595 * np.uint32(red[column]) + 38470 * np.uint32(green[column]) + 7471 * np.uint32(blue[column])
            target[column] = np.uint8((level + np.uint32(0x8000)) >> np.uint32(16))
    return result


@compiled
def blend(planes: np.ndarray, others: np.ndarray, factor: np.float32) -> np.ndarray:
    """``others`` + ``factor`` (``planes`` - ``others``), truncated and kept between 0 and 255.

    Args:
        others: uint8 (channels or 1, height, width).
    """
    channels, height, width = planes.shape
    result = np.empty_like(planes)
    for channel in range(channels):
        for row in range(height):
            line, target = planes[channel, row], result[channel, row]
            other = others[min(channel, len(others) - 1), row]
            for column in range(width):
                start = np.float32(np.int32(other[column]))
                level = start + factor * (np.float32(np.int32(line[column])) - start)
                level = level if level > np.float32(0) else np.float32(0)
                target[column] = np.int32(level if level < np.float32(255) else np.float32(255))
    return result


@compiled
def smooth(planes: np.ndarray, beside: np.float32, centre: np.float32) -> np.ndarray:
    """The mean of each pixel, weight ``centre``, and its eight neighbours, weight ``beside``, rounded; the outermost
    pixels as they are. The sums in float32 are in Pillow's order."""
    channels, height, width = planes.shape
    result = planes.copy()
    inner = width - 2
    if inner < 1:
        return result
    for channel in range(channels):
        for row in range(1, height - 1):
            above, middle, below = planes[channel, row - 1], planes[channel, row], planes[channel, row + 1]
            target = result[channel, row, 1 : width - 1]
            a, b, c = above[:inner], above[1 : width - 1], above[2:]
            d, e, f = middle[:inner], middle[1 : width - 1], middle[2:]
            g, h, i = below[:inner], below[1 : width - 1], below[2:]
            for column in range(inner):
                level = np.float32(0.5) + (
                    np.float32(np.int32(g[column])) * beside
                    + np.float32(np.int32(h[column])) * beside
                    + np.float32(np.int32(i[column])) * beside
                )
                level += (
                    np.float32(np.int32(d[column])) * beside
                    + np.float32(np.int32(e[column])) * centre
                    + np.float32(np.int32(f[column])) * beside
                )
                level += (
                    np.float32(np.int32(a[column])) * beside
                    + np.float32(np.int32(b[column])) * beside
                    + np.float32(np.int32(c[column])) * beside
                )
                target[column] = np.int32(level if level < np.float32(255) else np.float32(255))
    return result
