"""Places of keypoints: the largest cell of each heatmap, refined by the shape of the peak.

Source: Zhang et al., Distribution-Aware Coordinate Representation for Human Pose Estimation, CVPR 2020 (section 3.2),
in the form of Huang et al., CVPR 2020 (appendix), which mmpose and transformers have: a Newton step on the logarithm of
the smoothed map.
"""

import numpy as np

from ....core.runtime.compiled import compiled

KERNEL = 11  # cells of the smoothing, for targets with a deviation of 2
_DEVIATION = 0.8  # of the smoothing, in cells
_LOWEST, _HIGHEST = 0.001, 50.0  # limits of the smoothed map, before its logarithm
_EPSILON = float(np.finfo(np.float32).eps)  # added to the second derivatives, against flat maps


#: the steps of ``decode_heatmaps``, for programs that have an exported network and its kernel
DECODING = {
    "peak": "the cell of the map's largest value; the place of a point, unless the value is above 0 and a step follows",
    "score": "this value, at least 0",
    "deviation": _DEVIATION,
    "smoothing": "means of the map along rows and columns with weights exp(-(k / deviation)^2 / 2), k from "
    "-(kernel // 2) to kernel // 2; beyond its border the map is mirrored, the last cell first",
    "limits": [_LOWEST, _HIGHEST],
    "epsilon": _EPSILON,
    "step": "with L[y, x], the logarithms of the smoothed map within limits, at the peak [0, 0] and its neighbors, "
    "those beyond the border as at the border: minus the inverse of [[xx, xy], [xy, yy]] times (x, y), where "
    "x = (L[0, 1] - L[0, -1]) / 2, xx = L[0, 1] - 2 L[0, 0] + L[0, -1] + epsilon, likewise y and yy, "
    "xy = (L[1, 1] - L[0, 1] - L[1, 0] + 2 L[0, 0] - L[0, -1] - L[-1, 0] + L[-1, -1]) / 2; none longer than the map",
    "place": "x = left + width cell / (columns - 1) of the region, and likewise y",
}


def decode_heatmaps(maps: np.ndarray, kernel: int = KERNEL) -> tuple[np.ndarray, np.ndarray]:
    """Return places, float64 (n, points, 2), x and y in cells, and scores, float64 (n, points), the largest values.

    A map without a positive value shows no point: its score tells, and the place is that of the largest value. So is
    the place of a peak whose refinement would leave the map by more than its size.

    Args:
        maps: float (n, points, rows, columns).
        kernel: side of the smoothing in cells, an odd number.
    """
    count, points, rows, columns = maps.shape
    offsets = np.arange(-(kernel // 2), kernel // 2 + 1)
    weights = np.exp(-0.5 * (offsets / _DEVIATION) ** 2)
    places, scores = np.empty((count * points, 2)), np.empty(count * points)
    flat = np.ascontiguousarray(maps).reshape(count * points, rows, columns)
    margins = [_mirror_indices(size, kernel // 2 + 1) for size in (rows, columns)]
    if not flat.size:  # without objects or without points
        return places.reshape(count, points, 2), scores.reshape(count, points)
    peaks = flat.reshape(count * points, rows * columns).argmax(axis=1)
    _decode(flat, peaks, weights / weights.sum(), *margins, places, scores)
    return places.reshape(count, points, 2), scores.reshape(count, points)


def _mirror_indices(size: int, margin: int) -> np.ndarray:
    """Return the cells that the places from -margin to size + margin - 1 stand for, mirrored at the borders."""
    places = np.arange(-margin, size + margin) % (2 * size)
    return np.minimum(places, 2 * size - 1 - places)


@compiled(needs_numba=False)
def _decode(maps, peaks, weights, source_rows, source_columns, places, scores):
    """Fill places (n, 2) and scores (n,), given maps (n, rows, columns), their largest cells, ``_mirror_indices``."""
    count, rows, columns = maps.shape
    radius = len(weights) // 2
    lines = np.empty((3 + 2 * radius, 3))  # smoothed along the rows: a line for each row around the peak
    logs = np.empty((3, 3))  # around the peak, of the smoothed map
    for index in range(count):
        peak_row, peak_column = peaks[index] // columns, peaks[index] % columns
        best = maps[index, peak_row, peak_column]
        places[index, 0], places[index, 1], scores[index] = peak_column, peak_row, best
        if not best > 0.0:
            continue
        for line in range(3 + 2 * radius):
            row = source_rows[peak_row + line]
            for across in range(3):
                first = min(max(peak_column - 1 + across, 0), columns - 1) + 1
                total = 0.0
                for k in range(2 * radius + 1):
                    total += weights[k] * maps[index, row, source_columns[first + k]]
                lines[line, across] = total
        for down in range(3):
            first = min(max(peak_row - 1 + down, 0), rows - 1) - (peak_row - 1)
            for across in range(3):
                total = 0.0
                for k in range(2 * radius + 1):
                    total += weights[k] * lines[first + k, across]
                logs[down, across] = np.log(min(max(total, _LOWEST), _HIGHEST))
        dx, dy = 0.5 * (logs[1, 2] - logs[1, 0]), 0.5 * (logs[2, 1] - logs[0, 1])
        dxx = logs[1, 2] - 2.0 * logs[1, 1] + logs[1, 0] + _EPSILON
        dyy = logs[2, 1] - 2.0 * logs[1, 1] + logs[0, 1] + _EPSILON
        dxy = 0.5 * (logs[2, 2] - logs[1, 2] - logs[2, 1] + 2.0 * logs[1, 1] - logs[1, 0] - logs[0, 1] + logs[0, 0])
        determinant = dxx * dyy - dxy * dxy
        if determinant == 0.0:
            continue
        x_step, y_step = (dyy * dx - dxy * dy) / determinant, (dxx * dy - dxy * dx) / determinant
        if abs(x_step) < columns and abs(y_step) < rows:  # also false for NaN
            places[index, 0] -= x_step
            places[index, 1] -= y_step
