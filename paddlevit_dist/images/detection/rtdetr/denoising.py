"""Contrastive denoising: objects with noise join the queries and learn to be the objects again, or none.

Sources: Zhang et al., DINO, ICLR 2023, section 3.3; Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR
2024, with the authors' ``get_contrastive_denoising_training_group``.

The authors take as many groups for all images of a batch as the image with most objects has room for, so what an image
learns depends on its company, and on the number of devices. Here each image has its own groups, which depend on it
alone, of no more than its own objects; a query's loss is divided by the groups of its image, so an object weighs as
much as with the authors. The noise comes from the sample's generator.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import paddle

PREFIX = "denoising_"  # of their arrays in a batch, and of a network's outputs for them
_REPLACED = 0.25  # of the labels, by any class
_FARTHEST = 0.5  # that a corner of a positive one moves, in sides; a negative one's moves up to twice as far
_LEAST = 1e-5  # of a share and of its complement, before the logarithm


class DrawnNoise(NamedTuple):
    """The denoising queries of an image with n objects: groups of n that are to be objects, then n that are not.

    Attributes:
        labels: int64 (groups * 2 * n,), the classes that they begin with.
        boxes: float32 (groups * 2 * n, 4), the boxes, center, width and height as shares, before the sigmoid.
    """

    labels: np.ndarray
    boxes: np.ndarray


class ContrastiveNoise(NamedTuple):
    """How denoising queries are drawn.

    Attributes:
        classes: of the data.
        queries: pairs of a positive and a negative query in an image, about; an image with more objects has one group.
        mirrors: a box that noise turns inside out is mirrored, as with D-FINE's authors; otherwise it has no width.
    """

    classes: int
    queries: int = 100
    mirrors: bool = False

    def draw(
        self, boxes: np.ndarray, labels: np.ndarray, size: tuple[int, int], generator: np.random.Generator
    ) -> DrawnNoise:
        """The denoising queries of an image.

        Args:
            boxes: (n, 4), x0, y0, x1, y1 in pixels; labels: int64 (n,).
            size: height and width of the image in pixels.
        """
        number = len(labels)
        groups = max(1, self.queries // number) if number else 0
        shares = np.asarray(boxes, np.float64) / np.tile(size[::-1], 2)
        corners = np.broadcast_to(shares, (groups, 2, number, 4))
        sides = np.tile(corners[..., 2:] - corners[..., :2], 2)
        moved = generator.random(corners.shape) + np.array([0.0, 1.0]).reshape(2, 1, 1)  # positive, negative
        moved *= generator.choice([-1.0, 1.0], corners.shape)
        corners = np.clip(corners + moved * sides * _FARTHEST, 0, 1).reshape(-1, 4)
        spread = corners[:, 2:] - corners[:, :2]
        spread = np.abs(spread) if self.mirrors else np.maximum(spread, 0)
        centered = np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, spread], axis=1)
        own = np.tile(np.asarray(labels, np.int64), groups * 2)
        is_replaced = generator.random(len(own)) < _REPLACED
        own = np.where(is_replaced, generator.integers(self.classes, size=len(own)), own)
        return DrawnNoise(own, _before_sigmoid(centered))

    def collate(self, drawn: Sequence[DrawnNoise], counts: Sequence[int], most: int) -> dict[str, np.ndarray]:
        """The arrays of a ``DenoisingQueries``, by their names in a batch. There are twice ``queries`` of them, or more
        where an image has more; those that an image does not use are groups by themselves that nothing depends on.

        Args:
            counts: objects of each image; most: objects that the batch has room for in an image.
        """
        length = max([2 * self.queries, *(len(one.labels) for one in drawn)])
        positions = np.arange(length)
        shape = (len(drawn), length)
        batch = {
            "labels": np.full(shape, self.classes, np.int64),
            "boxes": np.broadcast_to(_before_sigmoid(np.zeros(4)), (*shape, 4)).copy(),
            "groups": np.zeros(shape, np.int64),
            "objects": np.full(shape, most, np.int64),
            "weights": np.zeros(shape, np.float32),
        }
        for row, (one, number) in enumerate(zip(drawn, counts)):
            used = len(one.labels)
            if used:
                inside = positions % (2 * number)
                batch["labels"][row, :used], batch["boxes"][row, :used] = one
                batch["groups"][row] = positions // (2 * number)
                batch["objects"][row] = np.where((inside < number) & (positions < used), inside, most)
                batch["weights"][row, :used] = 2 * number / used
        return {PREFIX + name: array for name, array in batch.items()}


class DenoisingQueries(NamedTuple):
    """The D denoising queries of each of N images with at most M objects.

    Attributes:
        labels: int64 (N, D), the class that a query begins with; the number of classes: none.
        boxes: float32 (N, D, 4), center, width and height, before the sigmoid.
        groups: int64 (N, D): a query sees the ordinary ones and those of its own number, no others.
        objects: int64 (N, D), the object that a query is to be; M: none.
        weights: float32 (N, D), of a query in the losses: one over the groups of its image; 0 where it is not used.
    """

    labels: paddle.Tensor
    boxes: paddle.Tensor
    groups: paddle.Tensor
    objects: paddle.Tensor
    weights: paddle.Tensor

    @classmethod
    def of(cls, batch: Mapping[str, paddle.Tensor]) -> "DenoisingQueries":
        """Those of a collated batch."""
        return cls(*(batch[PREFIX + name] for name in cls._fields))

    def blocked(self, ordinary: int) -> paddle.Tensor:
        """Which query must not see which, float32 (N, D + ordinary, D + ordinary): 1 where the row's must not see the
        column's, else 0. Denoising queries come first; no ordinary one sees any of them."""
        images, own = self.groups.shape
        apart = (self.groups.unsqueeze(2) != self.groups.unsqueeze(1)).astype("float32")  # (N, D, D)
        hidden = paddle.ones([images, ordinary, own], dtype="float32")
        columns = paddle.concat([apart, hidden], axis=1)
        return paddle.concat([columns, paddle.zeros([images, own + ordinary, ordinary], dtype="float32")], axis=2)


def _before_sigmoid(shares: np.ndarray) -> np.ndarray:
    """float32, of shares within 0 and 1."""
    return np.log(np.maximum(shares, _LEAST) / np.maximum(1 - shares, _LEAST)).astype(np.float32)
