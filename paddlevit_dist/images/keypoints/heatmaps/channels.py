"""Which heatmap shows which point: categories with the same points share their heatmaps."""

from collections.abc import Sequence

import numpy as np

from ..keypoint_set import KeypointSet


class PointChannels:
    """The heatmaps of a network for the points of several categories.

    Args:
        class_names: names of the categories.
        keypoint_sets: points of each.

    Attributes:
        names: of the point of each heatmap, with its category's if other heatmaps show a point of that name.
        mirror: int64 (heatmaps,), the heatmap that each becomes for a mirrored object.
    """

    def __init__(self, class_names: Sequence[str], keypoint_sets: Sequence[KeypointSet]) -> None:
        firsts: dict[tuple[str, ...], int] = {}  # names of points -> their first heatmap
        owners: list[tuple[str, str]] = []  # category and point of each heatmap
        mirror: list[int] = []
        most = max((len(points.names) for points in keypoint_sets), default=0)
        self._channels = np.full((len(keypoint_sets), most), -1, np.int64)
        for label, points in enumerate(keypoint_sets):
            if points.names not in firsts:
                first = firsts[points.names] = len(owners)
                owners += [(class_names[label], name) for name in points.names]
                mirror += (points.mirror + first).tolist()
            first = firsts[points.names]
            self._channels[label, : len(points.names)] = np.arange(first, first + len(points.names))
        plain = [name for _, name in owners]
        self.names = [name if plain.count(name) == 1 else f"{category}: {name}" for (category, name) in owners]
        self.mirror = np.array(mirror, np.int64)

    def __len__(self) -> int:
        return len(self.names)

    def spread(self, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the values of points (n, K, ...) of objects at their heatmaps, (n, heatmaps, ...), else zeros."""
        channels = self._channels[labels]  # (n, K)
        result = np.zeros((len(values), len(self), *values.shape[2:]), values.dtype)
        rows, places = np.nonzero(channels >= 0)
        result[rows, channels[rows, places]] = values[rows, places]
        return result

    def collect(self, values: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Return the values at heatmaps (n, heatmaps, ...) of the points of objects, (n, K, ...), else zeros."""
        channels = self._channels[labels]
        shape = (*channels.shape, *(1,) * (values.ndim - 2))
        found = np.take_along_axis(values, np.maximum(channels, 0).reshape(shape), axis=1)
        return np.where(channels.reshape(shape) >= 0, found, np.zeros((), values.dtype))
