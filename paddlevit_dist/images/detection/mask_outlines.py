"""Outlines of masks along the edges of their pixels, from which COCO's tools draw the same pixels again."""

from typing import Any

import numpy as np

from ..run_lengths import decode

_STEPS = ((0, 0), (0, 1), (1, 0), (1, 1))  # of the pixels around a corner, from the left upper one


def trace_outlines(segmentation: Any, height: int, width: int) -> list[np.ndarray]:
    """Return the outline of each part of a mask, float64 (corners, 2), x and y; none without a pixel.

    A mask with a hole has a single outline: ``join_outlines`` of the borders of all parts and holes.

    Args:
        segmentation: polygons or run lengths, as ``run_lengths.decode`` takes them.
        height: of the image.
        width: of the image.
    """
    mask = decode(segmentation, height, width)
    loops = _trace_loops(mask)
    corners = [loop[np.lexsort(loop.T)[0]] for loop in loops]  # the leftmost of the uppermost
    has_holes = any(not mask[y, x] for x, y in corners)
    outlines = [loop.astype(np.float64) for loop in loops]
    return [join_outlines(outlines)] if has_holes else outlines


def join_outlines(outlines: list[np.ndarray]) -> np.ndarray:
    """Join outlines to one, by lines that are passed twice and so enclose nothing: there and back from the first."""
    first, *others = outlines
    start = first[:1]
    parts = [part for other in others for part in (start, other, other[:1])]
    return np.concatenate([first, *parts, *([start] if others else [])])


def _trace_loops(mask: np.ndarray) -> list[np.ndarray]:
    """Return the borders between inside and outside of a mask (height, width), int64 (corners, 2) each, x and y.

    Pixels that only touch at a corner are apart. A border has a corner wherever an odd number of the pixels around a
    point are inside, and two where only two opposite ones are: each border turns there, and is straight in between.
    """
    height, width = mask.shape
    padded = np.pad(mask != 0, 1)
    upper_left, upper_right, lower_left, lower_right = (
        padded[row : row + height + 1, column : column + width + 1] for row, column in _STEPS
    )
    is_odd = upper_left ^ upper_right ^ lower_left ^ lower_right
    is_falling = upper_left & lower_right & ~upper_right & ~lower_left
    is_rising = upper_right & lower_left & ~upper_left & ~lower_right
    y, x = np.nonzero(is_odd | is_falling | is_rising)
    copies = np.where(is_odd[y, x], 1, 2)
    y, x, is_rising = (np.repeat(part, copies) for part in (y, x, is_rising[y, x]))
    number = np.arange(len(x))
    # along each row, corners are the left and the right end of lines in turn; likewise along each column
    rows, columns = number, np.lexsort((np.where(is_rising, -number, number), y, x))
    following = np.empty((2, len(x)), np.int64)
    for axis, order in enumerate((rows, columns)):
        following[axis, order[::2]], following[axis, order[1::2]] = order[1::2], order[::2]
    loops, is_seen, neighbors = [], bytearray(len(x)), following.tolist()
    for start in range(len(x)):
        if not is_seen[start]:
            loop, place = [], start
            while not is_seen[place]:
                across = neighbors[0][place]
                is_seen[place] = is_seen[across] = True
                loop += [place, across]
                place = neighbors[1][across]
            loops.append(np.stack([x[loop], y[loop]], axis=1))
    return loops
