"""Evaluation of scenes that are too large for the network: overlapping blocks are processed one after the other.

The network's input, mainly its plan, is built and held for one block at a time. The voxels and the scores of the whole
scene stay in the host's memory.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...core.launch import status
from ..data.scene import IGNORED

_CHUNK_POINTS = 1 << 20  # points whose scores are in memory at a time

#: coordinates int32 (M, 4) of the voxels of one block, and their rows in the batch -> logits float32 (M, classes)
Network = Callable[[np.ndarray, np.ndarray], np.ndarray]


class FloorBlocks(NamedTuple):
    """Square blocks on the floor, unlimited in height, in voxels."""

    size: int  # edge of a block
    overlap: int  # overlap of neighboring blocks, less than ``size``

    def split(self, voxels: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the rows of each non-empty block of voxels, int32 (M, 3), increasing; each row is in at least one."""
        if not len(voxels):
            return
        order = np.argsort(voxels[:, 0], kind="stable")
        x_sorted, y_sorted = voxels[order, 0], voxels[order, 1]
        for start in self._starts(int(x_sorted[0]), int(x_sorted[-1])):
            strip = slice(*np.searchsorted(x_sorted, [start, start + self.size]))
            y_in_strip = y_sorted[strip]
            for edge in self._starts(int(y_in_strip.min()), int(y_in_strip.max())) if len(y_in_strip) else ():
                is_inside = (y_in_strip >= edge) & (y_in_strip < edge + self.size)
                if is_inside.any():
                    yield np.sort(order[strip][is_inside])

    def _starts(self, first: int, last: int) -> range:
        """Return the first voxels of blocks that cover the voxels ``first`` to ``last``."""
        step = self.size - self.overlap
        return range(first, max(last - self.overlap, first) + 1, step)


def score_fragments(
    network: Network, blocks: FloorBlocks, batch: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each point, int64 (P,), and its cross-entropy, float32 (P,), 0 without a label.

    A voxel's logits are the mean over the blocks that contain it, and a point has the logits of its voxel. With several
    views of a scene, probabilities are averaged. So each point counts once, and no result depends on the batch.
    ``network`` computes the logits of a block; ``batch`` has the fields of ``collate_samples``.
    """
    labels, ends = batch["labels"], batch["offsets"].tolist()
    classes, losses = np.zeros(len(labels), np.int64), np.zeros(len(labels), np.float32)
    num_scenes = len(ends) - 1
    views = len(batch["inverse"]) // max(len(labels), 1)
    starts = np.searchsorted(batch["coordinates"][:, 0], np.arange(views * num_scenes + 1))
    for scene, (first, end) in enumerate(zip(ends[:-1], ends[1:])):
        if first == end:
            continue
        total = None  # sum of the points' probabilities
        for view in range(views):
            rows = slice(*starts[view * num_scenes + scene :][:2])
            scores = _mean_logits(network, blocks, batch["coordinates"][rows], rows.start)
            inverse = batch["inverse"][view * len(labels) :][first:end] - rows.start
            if views > 1:
                scores = np.exp(scores - _log_sum_exp(scores)) / np.float32(views)
                total = np.zeros((end - first, scores.shape[1]), np.float32) if total is None else total
                for part in _iterate_chunks(len(inverse)):
                    total[part] += scores[inverse[part]]
        for part in _iterate_chunks(end - first):
            logits = scores[inverse[part]] if total is None else np.log(np.maximum(total[part], 1e-38))
            points = slice(first + part.start, first + part.stop)
            classes[points] = logits.argmax(axis=1)
            losses[points] = _cross_entropies(logits, labels[points])
    return classes, losses


def _mean_logits(network: Network, blocks: FloorBlocks, coordinates: np.ndarray, first: int) -> np.ndarray:
    """Return the mean logits of all voxels of a view, float32 (M, classes); ``first`` is its first row in the batch."""
    sums: np.ndarray | None = None
    numbers = np.zeros(len(coordinates), np.float32)
    for place, rows in enumerate(blocks.split(coordinates[:, 1:])):
        status.set_detail(f"in block {place + 1} of a scene")
        inside = coordinates[rows]
        inside[:, 0] = 0
        logits = network(inside, rows + first)
        if sums is None:
            sums = np.zeros((len(coordinates), logits.shape[1]), np.float32)
        sums[rows] += logits
        numbers[rows] += 1
    return np.divide(sums, numbers[:, None], out=sums)


def _iterate_chunks(number: int) -> Iterator[slice]:
    for first in range(0, number, _CHUNK_POINTS):
        yield slice(first, min(first + _CHUNK_POINTS, number))


def _log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """Return the logarithm of each row's sum of exponentials, (rows, 1)."""
    highest = logits.max(axis=1, keepdims=True)
    return highest + np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))


def _cross_entropies(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    has_label = labels != IGNORED
    label_logits = np.take_along_axis(logits, np.where(has_label, labels, 0)[:, None], axis=1)
    return np.where(has_label, (_log_sum_exp(logits) - label_logits)[:, 0], 0.0)
