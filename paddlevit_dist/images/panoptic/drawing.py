"""Images with the colors of their segments, and numbers of segments that have these colors."""

import numpy as np

from ..drawing import overlay_labels
from .data.segments import Segments

_LINE = np.array([(255, 255, 255)], np.uint8)  # color of boundaries
_VOID = 255  # not blended
_STEP = 37  # between the colors of two segments of a class, in each channel


def number_colors(labels: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """Return a number for each segment whose color, as in COCO's panoptic format, is near its class's: int64 (n,).

    Numbers are distinct and not 0. ``labels`` are int (n,), ``palette`` uint8 (classes, 3).
    """
    numbers: list[int] = []
    taken = {0}
    for place, label in enumerate(labels.tolist()):
        repeats = int((labels[:place] == label).sum())
        red, green, blue = (int(level) for level in palette[label])
        number = red + 256 * ((green + _STEP * repeats) % 256) + 65_536 * blue
        while number in taken:
            number = (number + 1) % (1 << 24)
        taken.add(number)
        numbers.append(number)
    return np.array(numbers, np.int64)


def draw_segments(pixels: np.ndarray, segments: Segments, palette: np.ndarray) -> np.ndarray:
    """Blend pixels, uint8 (height, width, 3), with the colors of classes; white lines separate segments."""
    labels = np.append(np.minimum(segments.labels, _VOID - 1), _VOID)[segments.places].astype(np.uint8)
    overlaid = overlay_labels(pixels, labels, palette[:_VOID])
    is_edge = np.zeros(segments.places.shape, bool)
    for axis in (0, 1):
        differs = np.diff(segments.places, axis=axis) != 0
        is_edge |= np.pad(differs, [(0, int(other == axis)) for other in (0, 1)])
    overlaid[is_edge] = _LINE
    return overlaid
