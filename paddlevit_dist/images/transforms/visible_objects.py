"""What a mask says of an object after a geometric change: whether it is visible, and its box."""

import numpy as np


def find_visible_box(box: np.ndarray, before: np.ndarray, after: np.ndarray, is_changed: bool) -> np.ndarray | None:
    """Return an object's box after a geometric change of the image; None: no pixel of the object is visible.

    ``box`` is float64 (4,), x0, y0, x1, y1, as the change moves the corners of a box. A mask that was empty ``before``
    says that the object is known by its box only. ``is_changed``: it was cut or turned, so that its mask decides the
    box.
    """
    if not after.any():
        return None if before.any() else box
    return box_of_mask(after) if is_changed else box


def count_least_pixels(box: np.ndarray) -> float:
    """Return the fewest pixels of a connected object in a box, x0, y0, x1, y1; of a mask with fewer, some are lost."""
    return max(1.0, float((box[2:] - box[:2]).max()) - 2)


def box_of_mask(mask: np.ndarray) -> np.ndarray:
    """Return the smallest box around a mask with a pixel, float64 (4,), x0, y0, x1, y1."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float64)
