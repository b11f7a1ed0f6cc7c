"""Scenes that are too large for the network as a whole: overlapping blocks go through it one after the other.

What the network needs, its plan above all, is made and held for one block at a time. The voxels and the scores of the
whole scene stay in the host's memory.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...launch import status
from ..data.scene import IGNORED

_POINTS = 1 << 20  # whose scores are in memory at a time

#: coordinates int32 (M, 4) of the voxels of one block, and their rows in the batch -> logits float32 (M, classes)
Network = Callable[[np.ndarray, np.ndarray], np.ndarray]


class FloorBlocks(NamedTuple):
    """Square blocks on the floor, which reach over all heights, in voxels.

    Attributes:
        size: edge of a block.
        overlap: of neighboring blocks, less than ``size``.
    """

    size: int
    overlap: int

    def of(self, voxels: np.ndarray) -> Iterator[np.ndarray]:
        """The rows of each block that is not empty, increasing; all rows are in at least one.

        Args:
            voxels: int32 (M, 3).
        """
        if not len(voxels):
            return
        order = np.argsort(voxels[:, 0], kind="stable")
        along, across = voxels[order, 0], voxels[order, 1]
        for start in self._starts(int(along[0]), int(along[-1])):
            strip = slice(*np.searchsorted(along, [start, start + self.size]))
            places = across[strip]
            for edge in self._starts(int(places.min()), int(places.max())) if len(places) else ():
                is_inside = (places >= edge) & (places < edge + self.size)
                if is_inside.any():
                    yield np.sort(order[strip][is_inside])

    def _starts(self, first: int, last: int) -> range:
        """Of blocks that cover the voxels ``first`` to ``last``."""
        step = self.size - self.overlap
        return range(first, max(last - self.overlap, first) + 1, step)


def score_fragments(
    network: Network, blocks: FloorBlocks, batch: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The class of each point, int64 (P,), and its cross-entropy, float32 (P,), 0 without a label.

    A voxel's logits are the mean over the blocks that it is in, a point's are those of its voxel; over several views of
    a scene the probabilities are averaged. So each point counts once, and no number depends on the batch.

    Args:
        batch: as ``join`` gives it.
    """
    labels, ends = batch["labels"], batch["offsets"].tolist()
    classes, losses = np.zeros(len(labels), np.int64), np.zeros(len(labels), np.float32)
    num_scenes = len(ends) - 1
    views = len(batch["inverse"]) // max(len(labels), 1)
    starts = np.searchsorted(batch["coordinates"][:, 0], np.arange(views * num_scenes + 1))
    for scene, (first, end) in enumerate(zip(ends[:-1], ends[1:])):
        if first == end:
            continue
        total = None  # of the points' probabilities
        for view in range(views):
            rows = slice(*starts[view * num_scenes + scene :][:2])
            scores = _mean_logits(network, blocks, batch["coordinates"][rows], rows.start)
            inverse = batch["inverse"][view * len(labels) :][first:end] - rows.start
            if views > 1:
                scores = np.exp(scores - _log_sums(scores)) / np.float32(views)
                total = np.zeros((end - first, scores.shape[1]), np.float32) if total is None else total
                for part in _parts(len(inverse)):
                    total[part] += scores[inverse[part]]
        for part in _parts(end - first):
            logits = scores[inverse[part]] if total is None else np.log(np.maximum(total[part], 1e-38))
            own = slice(first + part.start, first + part.stop)
            classes[own] = logits.argmax(axis=1)
            losses[own] = _cross_entropies(logits, labels[own])
    return classes, losses


def _mean_logits(network: Network, blocks: FloorBlocks, coordinates: np.ndarray, first: int) -> np.ndarray:
    """Of all voxels of a view, float32 (M, classes).

    Args:
        coordinates: int32 (M, 4), of one view.
        first: its first row in the batch.
    """
    sums: np.ndarray | None = None
    numbers = np.zeros(len(coordinates), np.float32)
    for place, rows in enumerate(blocks.of(coordinates[:, 1:])):
        status.set_detail(f"in block {place + 1} of a scene")
        inside = coordinates[rows]
        inside[:, 0] = 0
        logits = network(inside, rows + first)
        if sums is None:
            sums = np.zeros((len(coordinates), logits.shape[1]), np.float32)
        sums[rows] += logits
        numbers[rows] += 1
    return np.divide(sums, numbers[:, None], out=sums)


def _parts(number: int) -> Iterator[slice]:
    for first in range(0, number, _POINTS):
        yield slice(first, min(first + _POINTS, number))


def _log_sums(logits: np.ndarray) -> np.ndarray:
    """The logarithm of each row's sum of exponentials, (rows, 1)."""
    highest = logits.max(axis=1, keepdims=True)
    return highest + np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))


def _cross_entropies(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    known = labels != IGNORED
    own = np.take_along_axis(logits, np.where(known, labels, 0)[:, None], axis=1)
    return np.where(known, (_log_sums(logits) - own)[:, 0], 0.0)
