"""Keypoints of the objects of an image, moved with it: resized, cropped, mirrored and augmented."""

from typing import NamedTuple

import numpy as np

_MARKS = 3  # points that show whether a transform mirrors an object: a corner and two legs
_LEG = 4.0  # pixels


class ObjectPoints(NamedTuple):
    """The K points of each of n objects; methods return new ones.

    As in COCO's files a pixel's center is at its integers. Resizing multiplies coordinates, as the authors of detectors
    do, so that networks learn shares of the sides; a mirror exchanges the centers of the first and the last pixel.
    """

    places: np.ndarray  # float64 (n, K, 3), x, y and visibility, see ``ImageAnnotations``
    mirrors: np.ndarray  # int64 (n, K), the point that each point becomes in a mirrored image
    fills: np.ndarray  # float64 (n,), area of an object as a share of its box, which no transform changes

    def only(self, chosen: np.ndarray) -> "ObjectPoints":
        """Return the points of the chosen objects: bool (n,), or int64 positions."""
        return ObjectPoints(self.places[chosen], self.mirrors[chosen], self.fills[chosen])

    def move(self, x: float, y: float) -> "ObjectPoints":
        """Return the points moved to the right and down."""
        return self._replace(places=self.places + (x, y, 0) * (self.places[:, :, 2:] > 0))

    def scale(self, x: float, y: float) -> "ObjectPoints":
        """Return the points in a resized image."""
        return self._replace(places=self.places * (x, y, 1))

    def mirror(self, width: int) -> "ObjectPoints":
        """Return the points in an image mirrored left to right, where left and right are exchanged."""
        mirrored = self.places * (-1, 1, 1) + (width - 1, 0, 0) * (self.places[:, :, 2:] > 0)
        return self._replace(places=np.take_along_axis(mirrored, self.mirrors[:, :, None], axis=1))

    def hide_outside(self, height: int, width: int) -> "ObjectPoints":
        """Return the points with zeros, not labeled, for those outside of an image of this size."""
        places = self.places[:, :, :2]
        is_inside = ((places >= -0.5) & (places <= (width - 0.5, height - 0.5))).all(axis=2, keepdims=True)
        return self._replace(places=np.where(is_inside & (self.places[:, :, 2:] > 0), self.places, 0.0))

    def cover(self, mask: np.ndarray) -> "ObjectPoints":
        """Return the points, all inside, with those hidden (visibility 1) that a mask (height, width) covers."""
        columns, rows = (
            np.clip(np.rint(self.places[:, :, axis]).astype(np.int64), 0, mask.shape[1 - axis] - 1) for axis in (0, 1)
        )
        places = self.places.copy()
        places[:, :, 2] = np.where(mask[rows, columns] > 0, np.minimum(places[:, :, 2], 1), places[:, :, 2])
        return self._replace(places=places)

    def encode(self) -> np.ndarray:
        """Return the labeled points and marks of each object, float64 (m, 3): x, y and a number; see ``follow``."""
        number = self.places.shape[1] + _MARKS
        rows = []
        for place, points in enumerate(self.places):
            labeled = np.flatnonzero(points[:, 2] > 0)
            if not len(labeled):
                continue
            middle = points[labeled, :2].mean(axis=0)
            marks = middle + np.array([(0.0, 0.0), (_LEG, 0.0), (0.0, _LEG)])
            codes = number * place + np.concatenate([labeled, number - _MARKS + np.arange(_MARKS)])
            rows.append(np.column_stack([np.concatenate([points[labeled, :2], marks]), codes]))
        return np.concatenate([np.zeros((0, 3)), *rows])

    def follow(self, moved: np.ndarray, objects: np.ndarray, boxes: np.ndarray) -> "ObjectPoints":
        """Return the points of objects after a transform that moved the rows of ``encode``.

        Args:
            moved: float64 (m, 3), each row any number of times, since a transform may repeat parts of an image.
            objects: int64 (k,), object that each of the moved ones was, perhaps several times.
            boxes: float64 (k, 4), x0, y0, x1, y1 of the moved objects: of repeated points, the nearest to its middle.
        """
        number = self.places.shape[1] + _MARKS
        followed = self.only(objects)._replace(places=np.zeros((len(objects), *self.places.shape[1:])))
        owners, numbers = np.divmod(moved[:, 2].astype(np.int64), number)
        for row, (place, box) in enumerate(zip(objects.tolist(), boxes)):
            middle = (box[:2] + box[2:]) / 2
            mine = np.flatnonzero(owners == place)
            mine = mine[np.argsort(-np.linalg.norm(moved[mine, :2] - middle, axis=1), kind="stable")]
            found = np.full((number, 2), np.nan)
            found[numbers[mine]] = moved[mine, :2]  # the nearest is written last
            points = found[:-_MARKS]
            is_found = ~np.isnan(points[:, 0])
            followed.places[row, is_found, :2] = points[is_found]
            followed.places[row, is_found, 2] = self.places[place, is_found, 2]
            corner, along, down = found[-_MARKS:]
            (x0, y0), (x1, y1) = along - corner, down - corner
            if x0 * y1 - x1 * y0 < 0:
                followed.places[row] = followed.places[row, self.mirrors[place]]
        return followed


def join_points(parts: "list[ObjectPoints | None]") -> ObjectPoints | None:
    """Return the points of the objects of several images; None if the first has none."""
    if parts[0] is None:
        return None
    known = [part for part in parts if part is not None]
    return ObjectPoints(*(np.concatenate(arrays) for arrays in zip(*known)))
