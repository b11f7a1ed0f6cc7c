"""Regions around boxes, their crops, and the way from cells of a heatmap back to the image.

A pixel's center has integer coordinates, and lengths are counted between the centers of the first and the last pixel or
cell ("unbiased data processing"), so that crops, heatmaps and mirrored crops agree without shifts.

Source: Huang et al., The Devil is in the Details: Delving into Unbiased Data Processing for Human Pose Estimation, CVPR
2020 (section 3).
"""

import math

import numpy as np

from ....core.runtime.compiled import compiled

BOX_SCALE = 1.25  # a region is this much larger than its box, as of all published networks


def fit_regions(boxes: np.ndarray, crop_size: tuple[int, int], scale: float = BOX_SCALE) -> np.ndarray:
    """Return the regions of boxes: x and y of the center, width, height, float64 (n, 4).

    A region has the proportions of a crop, contains its box, and is then enlarged.

    Args:
        boxes: x and y of the corner at the top left, width, height in pixels, (n, 4).
        crop_size: height and width in pixels.
        scale: the factor.
    """
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    sizes = boxes[:, 2:]
    proportion = crop_size[1] / crop_size[0]
    widths = np.maximum(sizes[:, 0], sizes[:, 1] * proportion)
    fitted = np.stack([widths, np.maximum(sizes[:, 1], sizes[:, 0] / proportion)], axis=1)
    return np.concatenate([boxes[:, :2] + sizes * 0.5, fitted * scale], axis=1)


def build_matrix(region: np.ndarray, crop_size: tuple[int, int], angle: float = 0.0) -> np.ndarray:
    """Return the matrix from the image to the crop of a region, float64 (2, 3); see ``transform_points``.

    Args:
        region: x and y of the center, width, height in pixels of the image.
        crop_size: height and width of the crop in pixels.
        angle: degrees by which the content turns, clockwise as seen.
    """
    x, y, width, height = map(float, region)
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    across, down = (crop_size[1] - 1) / width, (crop_size[0] - 1) / height
    turned = np.array([[across * cosine, -across * sine], [down * sine, down * cosine]])
    shift = np.array([across * width, down * height]) * 0.5 - turned @ (x, y)
    return np.concatenate([turned, shift[:, None]], axis=1)


def transform_points(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Map points (..., 2) by a matrix (2, 3)."""
    return points @ matrix[:, :2].T + matrix[:, 2]


def invert_matrix(matrix: np.ndarray) -> np.ndarray:
    """Return the inverse of a matrix (2, 3) of an affine map."""
    inverse = np.linalg.inv(matrix[:, :2])
    return np.concatenate([inverse, -inverse @ matrix[:, 2:]], axis=1)


def crop_image(image: np.ndarray, matrix: np.ndarray, crop_size: tuple[int, int]) -> np.ndarray:
    """Cut a crop by bilinear interpolation, uint8 (channels, height, width); black outside of the image.

    Args:
        image: uint8 (channels, height, width).
        matrix: from the image to the crop, see ``build_matrix``.
        crop_size: height and width in pixels.
    """
    out = np.empty((len(image), *crop_size), np.uint8)
    _warp(np.ascontiguousarray(image), np.ascontiguousarray(invert_matrix(matrix)), out)
    return out


def map_cells(cells: np.ndarray, regions: np.ndarray, heatmap_size: tuple[int, int]) -> np.ndarray:
    """Map places in heatmaps to the image, float64 (n, points, 2).

    Args:
        cells: x and y, (n, points, 2).
        regions: of the crops, (n, 4).
        heatmap_size: rows and columns.
    """
    steps = np.array([heatmap_size[1] - 1, heatmap_size[0] - 1], np.float64)
    corner = regions[:, :2] - 0.5 * regions[:, 2:]
    return cells * (regions[:, None, 2:] / steps) + corner[:, None]


@compiled(needs_numba=False)
def _warp(image, inverse, out):
    """Fill ``out`` (channels, rows, columns) with an image at the places to which ``inverse`` (2, 3) maps pixels."""
    channels, height, width = image.shape
    _, rows, columns = out.shape
    for row in range(rows):
        for column in range(columns):
            x = inverse[0, 0] * column + inverse[0, 1] * row + inverse[0, 2]
            y = inverse[1, 0] * column + inverse[1, 1] * row + inverse[1, 2]
            left, top = int(np.floor(x)), int(np.floor(y))
            right_share, lower_share = x - left, y - top
            if 0 <= x < width - 1 and 0 <= y < height - 1:
                for channel in range(channels):
                    upper = image[channel, top, left] * (1.0 - right_share)
                    upper += image[channel, top, left + 1] * right_share
                    lower = image[channel, top + 1, left] * (1.0 - right_share)
                    lower += image[channel, top + 1, left + 1] * right_share
                    out[channel, row, column] = int(upper + (lower - upper) * lower_share + 0.5)
                continue
            for channel in range(channels):  # at the border and beyond, where the image is black
                total = 0.5
                for corner in range(4):
                    a, b = left + corner % 2, top + corner // 2
                    if 0 <= a < width and 0 <= b < height:
                        share = right_share if corner % 2 else 1.0 - right_share
                        share *= lower_share if corner // 2 else 1.0 - lower_share
                        total += share * image[channel, b, a]
                out[channel, row, column] = int(total)
