"""What Mask R-CNN is made of, computed box by box and point by point in float64."""

import math

import numpy as np


def boxes(rng: np.random.Generator, number: int, side: float = 100.0, smallest: float = 0.5) -> np.ndarray:
    """float64 (number, 4) of any size, also beyond the image's right and bottom."""
    corners = rng.uniform(0, side, (number, 2))
    return np.concatenate([corners, corners + rng.uniform(smallest, side / 2, (number, 2))], axis=1)


def overlap(one, other) -> float:
    """Intersection over union of two boxes; 0 without an area in common."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return width * height / (sum(areas) - width * height)


def suppressed(of_boxes, scores, groups, limit: float) -> list:
    """The numbers of the boxes that stay, best first."""
    kept: list = []
    for number in np.argsort(-scores, kind="stable"):
        rivals = [other for other in kept if groups[other] == groups[number]]
        if all(overlap(of_boxes[number], of_boxes[other]) <= limit for other in rivals):
            kept.append(int(number))
    return kept


def matched(of_objects, of_boxes, positive: float, negative: float, lowest=None) -> tuple:
    """Object and state (1 positive, 0 negative, -1 neither) of each box."""
    table = [[overlap(one, box) for box in of_boxes] for one in of_objects]
    objects, states = [], []
    for number in range(len(of_boxes)):
        column = [row[number] for row in table]
        objects.append(column.index(max(column)))
        state = 1 if max(column) >= positive else 0 if max(column) < negative else -1
        for row in table if lowest is not None else []:
            if max(row) > 0 and max(row) >= lowest and row[number] == max(row):
                state = 1
        states.append(state)
    return objects, states


def value_at(image: np.ndarray, y: float, x: float) -> float:
    """Bilinear, of a map (height, width); 0 further than one position outside."""
    height, width = image.shape
    if y < -1 or y > height or x < -1 or x > width:
        return 0.0
    y, x = min(max(y, 0.0), height - 1), min(max(x, 0.0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    down, across = y - top, x - left
    above = image[top, left] * (1 - across) + image[top, right] * across
    below = image[bottom, left] * (1 - across) + image[bottom, right] * across
    return above * (1 - down) + below * down


def cut_out(image: np.ndarray, box, stride: float, size: int, samples: int, aligned: bool) -> np.ndarray:
    """RoIAlign, (size, size), of one map (height, width)."""
    x0, y0, x1, y1 = (value / stride - (0.5 if aligned else 0.0) for value in box)
    width, height = max(x1 - x0, 1.0), max(y1 - y0, 1.0)
    down = samples if samples > 0 else math.ceil(height / size)
    across = samples if samples > 0 else math.ceil(width / size)
    result = np.zeros((size, size))
    for row, column, i, j in np.ndindex(size, size, down, across):
        y = y0 + height / size * (row + (i + 0.5) / down)
        x = x0 + width / size * (column + (j + 0.5) / across)
        result[row, column] += value_at(image, y, x) / (down * across)
    return result


def smooth(distance: float, beta: float) -> float:
    distance = abs(distance)
    return distance**2 / (2 * beta) if distance < beta else distance - beta / 2


def cross_entropy(logit: float, target: float) -> float:
    """Of a logit with a probability."""
    return target * math.log1p(math.exp(-logit)) + (1 - target) * math.log1p(math.exp(logit))
