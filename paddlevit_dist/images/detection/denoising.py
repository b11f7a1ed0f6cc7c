"""Contrastive denoising: objects with noise are additional queries that learn to restore the objects, or no object.

Sources: Zhang et al., DINO, ICLR 2023, section 3.3; Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR
2024, with the authors' ``get_contrastive_denoising_training_group``.

The authors use the same number of groups for all images of a batch, limited by the image with most objects, so that
training on an image depends on the batch and on the number of devices. Here each image has its own groups, which depend
only on its objects; a query's loss is divided by the number of its image's groups, so that objects have the authors'
weights. The noise comes from the sample's generator.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle

PREFIX = "denoising_"  # of arrays in a batch, and of a network's outputs for them
_REPLACED = 0.25  # fraction of labels replaced by a random class
_MAX_SHIFT = 0.5  # of a positive query's corner, in sides; negative ones are shifted up to twice as far
_EPSILON = 1e-5  # smallest fraction and complement, for the logarithm


class DrawnNoise(NamedTuple):
    """Denoising queries of an image with n objects: groups of n positive, then n negative queries."""

    labels: np.ndarray  # int64 (groups * 2 * n,), initial classes
    places: np.ndarray  # float32 (groups * 2 * n, numbers of a place), see ``DenoisingQueries``


class ContrastiveNoise(NamedTuple):
    """Generator of denoising queries."""

    classes: int  # number of classes of the data
    queries: int = 100  # approximate pairs of positive and negative queries of an image, at least one group
    mirrors: bool = False  # mirror boxes that noise inverts, as D-FINE's and DEIM's authors; else they get no width

    def draw_objects(self, objects: Any, size: tuple[int, int], generator: np.random.Generator) -> DrawnNoise:
        """Draw the denoising queries of the ``ImageObjects`` of an image of height and width ``size``."""
        return self.draw(objects.boxes, objects.labels, size, generator)

    def draw(
        self, boxes: np.ndarray, labels: np.ndarray, size: tuple[int, int], generator: np.random.Generator
    ) -> DrawnNoise:
        """Draw the denoising queries of an image of height and width ``size``.

        Args:
            boxes: (n, 4), x0, y0, x1, y1 in pixels.
            labels: int64 (n,).
        """
        number = len(labels)
        groups = max(1, self.queries // number) if number else 0
        fractions = np.asarray(boxes, np.float64) / np.tile(size[::-1], 2)
        corners = np.broadcast_to(fractions, (groups, 2, number, 4))
        sides = np.tile(corners[..., 2:] - corners[..., :2], 2)
        shifts = generator.random(corners.shape) + np.array([0.0, 1.0]).reshape(2, 1, 1)  # positive, negative
        shifts *= generator.choice([-1.0, 1.0], corners.shape)
        corners = np.clip(corners + shifts * sides * _MAX_SHIFT, 0, 1).reshape(-1, 4)
        spread = corners[:, 2:] - corners[:, :2]
        spread = np.abs(spread) if self.mirrors else np.maximum(spread, 0)
        centered = np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, spread], axis=1)
        return DrawnNoise(draw_labels(labels, groups, self.classes, generator), _before_sigmoid(centered))

    def collate(self, noises: Sequence[DrawnNoise], counts: Sequence[int], most: int) -> dict[str, np.ndarray]:
        """Return the arrays of ``DenoisingQueries`` by their names in a batch, for images of ``counts`` objects.

        There are twice ``queries`` of them, or more if an image has more. Unused ones are separate groups without
        influence. ``most`` is the largest number of objects of an image in the batch.
        """
        unused = _before_sigmoid(np.zeros(4))
        return collate_noises(noises, counts, most, self.queries, none=self.classes, unused=unused)


class DenoisingQueries(NamedTuple):
    """D denoising queries for each of N images with at most M objects."""

    labels: paddle.Tensor  # int64 (N, D), initial class of a query; the number of classes: none
    places: paddle.Tensor  # float32 (N, D, 4), center, width and height of boxes, before the sigmoid; of objects with
    # K keypoints (N, D, 2 K), x and y of each point as fractions
    groups: paddle.Tensor  # int64 (N, D): a query attends to ordinary queries and to its group only
    objects: paddle.Tensor  # int64 (N, D), target object of a query; M: none
    weights: paddle.Tensor  # float32 (N, D), weight in the losses: 1 / groups of its image; 0 if unused

    @classmethod
    def from_batch(cls, batch: Mapping[str, paddle.Tensor]) -> "DenoisingQueries":
        """Build the queries of a collated batch."""
        return cls(*(batch[PREFIX + name] for name in cls._fields))

    def blocked(self, ordinary: int) -> paddle.Tensor:
        """Return the attention mask, float32 (N, D + ordinary, D + ordinary), 1 where a row must ignore a column.

        Denoising queries come first; ordinary queries attend to none of them.
        """
        images, num_denoising = self.groups.shape
        is_other_group = (self.groups.unsqueeze(2) != self.groups.unsqueeze(1)).astype("float32")  # (N, D, D)
        hidden = paddle.ones([images, ordinary, num_denoising], dtype="float32")
        columns = paddle.concat([is_other_group, hidden], axis=1)
        seen = paddle.zeros([images, num_denoising + ordinary, ordinary], dtype="float32")
        return paddle.concat([columns, seen], axis=2)


def draw_labels(labels: np.ndarray, groups: int, classes: int, generator: np.random.Generator) -> np.ndarray:
    """Repeat the labels (n,) for the positive and negative queries of each group, some replaced by random ones."""
    repeated = np.tile(np.asarray(labels, np.int64), groups * 2)
    is_replaced = generator.random(len(repeated)) < _REPLACED
    return np.where(is_replaced, generator.integers(classes, size=len(repeated)), repeated)


def collate_noises(
    noises: Sequence[DrawnNoise], counts: Sequence[int], most: int, queries: int, *, none: int, unused: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the arrays of denoising queries by their names in a batch, for images of ``counts`` objects.

    Args:
        noises: of each image.
        most: the largest number of objects of an image in the batch.
        queries: see ``ContrastiveNoise``.
        none: class of an unused query.
        unused: place of an unused query.
    """
    length = max([2 * queries, *(len(labels) for labels, _ in noises)])
    positions = np.arange(length)
    shape = (len(noises), length)
    batch = {
        "labels": np.full(shape, none, np.int64),
        "places": np.broadcast_to(unused, (*shape, len(unused))).astype(np.float32),
        "groups": np.zeros(shape, np.int64),
        "objects": np.full(shape, most, np.int64),
        "weights": np.zeros(shape, np.float32),
    }
    for row, (noise, number) in enumerate(zip(noises, counts)):
        num_used = len(noise[0])
        if num_used:
            group_positions = positions % (2 * number)
            batch["labels"][row, :num_used], batch["places"][row, :num_used] = noise
            batch["groups"][row] = positions // (2 * number)
            batch["objects"][row] = np.where((group_positions < number) & (positions < num_used), group_positions, most)
            batch["weights"][row, :num_used] = 2 * number / num_used
    return {PREFIX + name: array for name, array in batch.items()}


def _before_sigmoid(fractions: np.ndarray) -> np.ndarray:
    """Return the inverse sigmoid of fractions from 0 to 1, as float32."""
    return np.log(np.maximum(fractions, _EPSILON) / np.maximum(1 - fractions, _EPSILON)).astype(np.float32)
