"""Denoising of poses: objects with moved keypoints are additional queries that learn to restore them, or no object.

Source: Janampa and Pattichis, DETRPose, 2025, arXiv 2506.13027, section 3.2, "OKS-based denoising". A positive query's
points have similarities (see ``similarity``) from 0.5 to 1 with the object's, a negative one's from 0.1 to 0.5.

The authors' code (``dn_component.py``, a6ca202) moves points to the lower right only, since it draws directions as
positive numbers and normalizes them by a wrong axis, by a distance divided by the longer side on both axes, puts
points without a label at the upper left corner, and the center of an object at the mean of its box's center and its
box's size. Here directions are uniform, distances are divided by the side of their axis, points without a label are at
the mean of those with one, and the center is that of the points, as of ordinary queries. Only training depends on it.
As in ``images.detection.denoising``, each image has its own groups.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...detection.denoising import DrawnNoise, collate_noises, draw_labels

_EXPONENTS = ((0.0, math.log(2.0)), (math.log(2.0), math.log(10.0)))  # of positive, negative queries' similarities


class PoseNoise(NamedTuple):
    """Generator of denoising queries."""

    sigmas: tuple[tuple[float, ...], ...]  # COCO's sigma of each of the K points of each class
    queries: int = 20  # approximate pairs of positive and negative queries of an image, at least one group

    def draw_objects(self, objects: Any, size: tuple[int, int], generator: np.random.Generator) -> DrawnNoise:
        """Draw the denoising queries of the ``ImageObjects`` of an image of height and width ``size``."""
        return self.draw(objects.points.places, objects.areas, objects.labels, size, generator)

    def draw(
        self,
        points: np.ndarray,
        areas: np.ndarray,
        labels: np.ndarray,
        size: tuple[int, int],
        generator: np.random.Generator,
    ) -> DrawnNoise:
        """Draw the denoising queries of an image of height and width ``size``.

        Args:
            points: (n, K, 3), x and y in pixels, and COCO's visibility.
            areas: (n,), square pixels.
            labels: int64 (n,).
        """
        number, labels = len(labels), np.asarray(labels, np.int64)
        groups = max(1, self.queries // number) if number else 0
        is_labeled, places = points[..., 2:] > 0, np.asarray(points[..., :2], np.float64)
        labeled = np.maximum(is_labeled.sum(axis=1, keepdims=True), 1)
        places = np.where(is_labeled, places, (places * is_labeled).sum(axis=1, keepdims=True) / labeled)
        low, high = (np.array(side).reshape(2, 1, 1) for side in zip(*_EXPONENTS))
        shape = (groups, 2, number, points.shape[1])
        exponents = low + (high - low) * generator.random(shape)
        variances = (2 * np.array(self.sigmas)[labels]) ** 2  # (n, K)
        distances = np.sqrt(2 * exponents * np.asarray(areas, np.float64)[:, None] * variances) * is_labeled[..., 0]
        angles = generator.random(shape) * (2 * math.pi)
        moved = places + distances[..., None] * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        fractions = np.clip(moved / np.array(size[::-1], np.float64), 0, 1)
        query_labels = draw_labels(labels, groups, len(self.sigmas), generator)
        return DrawnNoise(query_labels, fractions.reshape(len(query_labels), 2 * shape[-1]).astype(np.float32))

    def collate(self, noises: Sequence[DrawnNoise], counts: Sequence[int], most: int) -> dict[str, np.ndarray]:
        """Return the arrays of ``DenoisingQueries`` by their names in a batch, see ``ContrastiveNoise.collate``."""
        unused = np.full(2 * len(self.sigmas[0]), 0.5)
        return collate_noises(noises, counts, most, self.queries, none=len(self.sigmas), unused=unused)
