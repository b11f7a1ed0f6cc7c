"""Images whose keypoints are small squares of a color each, which are found again after any transform."""

import numpy as np
from PIL import Image

from paddlevit_dist.images.detection.data.composition import ImageObjects
from paddlevit_dist.images.detection.data.object_points import ObjectPoints

COLORS = np.array([(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0), (255, 0, 255), (0, 255, 255)], np.uint8)
SIDE = 5  # of a square, in pixels
MIRROR = np.array([0, 2, 1])  # points 1 and 2 are left and right


def draw_marked(seed: int, height: int = 90, width: int = 120) -> ImageObjects:
    """Two objects of three points in an image, side by side, with an unlabeled point in the second."""
    generator = np.random.default_rng(seed)
    pixels, places = np.full((height, width, 3), 40, np.uint8), np.zeros((2, 3, 3))
    half, boxes = width // 2, []
    for row in range(2):
        for point in range(3):
            x = row * half + int(generator.integers(SIDE, half - SIDE))
            y = point * height // 3 + int(generator.integers(SIDE, height // 3 - SIDE))
            pixels[y - 2 : y + 3, x - 2 : x + 3] = COLORS[3 * row + point]
            places[row, point] = x, y, 1 + int(generator.integers(2))
        boxes.append((row * half, 0.0, row * half + half, height))
    places[1, 2] = 0
    points = ObjectPoints(places, np.tile(MIRROR, (2, 1)), np.ones(2))
    return ImageObjects(Image.fromarray(pixels), np.array(boxes, float), np.zeros(2, np.int64), None, points)


def find_color(image: Image.Image, number: int) -> np.ndarray | None:
    """The middle x, y of the pixels of a color; None if none or a part is there."""
    distances = np.abs(np.asarray(image, int) - COLORS[number]).sum(axis=2)
    rows, columns = np.nonzero(distances < 200)
    if len(rows) < SIDE * SIDE - 2:
        return None
    return np.array([columns.mean(), rows.mean()])
