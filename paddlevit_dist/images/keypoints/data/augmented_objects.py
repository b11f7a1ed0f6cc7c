"""A user's augmentation of a stored image with the box and the points of one object."""

import numpy as np
from PIL import Image

from ...detection.data.object_points import ObjectPoints
from ...transforms.albumentations_file import AlbumentationsFile


class ObjectAugmentation:
    """Applies a file of Albumentations to an image and one of its objects, before the object is cropped.

    Args:
        path: of the file; a ``UserError`` says that it cannot be used.
        mirrors: int64 (labels, K), the point that each point of each category becomes in a mirror.
    """

    def __init__(self, path: str, mirrors: np.ndarray) -> None:
        self.file, self.mirrors = AlbumentationsFile(path, has_boxes=True), mirrors

    def __call__(
        self, image: Image.Image, box: np.ndarray, points: np.ndarray, label: int, generator: np.random.Generator
    ) -> tuple[Image.Image, np.ndarray, np.ndarray]:
        """Return image, box and points after augmentation, or unchanged if no labeled point would be left.

        Args:
            box: float64 (4,), x, y, width, height.
            points: float64 (K, 3), x, y and visibility.
        """
        corners = np.concatenate([box[:2], box[:2] + box[2:]])
        corners = np.clip(corners, 0, (image.width, image.height) * 2)[None]
        if not (corners[0, 2:] > corners[0, :2]).all():
            return image, box, points
        before = ObjectPoints(points[None], self.mirrors[[label]], np.ones(1))
        result = self.file.augment_objects(image, corners, None, generator, before.encode())
        if not len(result.boxes) or result.keypoints is None:
            return image, box, points
        after = before.follow(result.keypoints, result.objects[:1], result.boxes[:1]).places[0]
        after = hide_outside(after, result.image.height, result.image.width)
        if not after[:, 2].any():
            return image, box, points
        x0, y0, x1, y1 = result.boxes[0]
        return result.image, np.array([x0, y0, x1 - x0, y1 - y0]), after


def hide_outside(points: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return points of an object, float64 (K, 3), where those outside of an image of this size are not labeled."""
    return ObjectPoints(points[None], np.arange(len(points))[None], np.ones(1)).hide_outside(height, width).places[0]
