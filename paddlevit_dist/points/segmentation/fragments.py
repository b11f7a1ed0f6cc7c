"""Evaluation of scenes that are too large for the network: overlapping blocks are processed one after the other.

The network's input, mainly its plan, is built and held for one block at a time. The voxels and the scores of the whole
scene stay in the host's memory.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ...core.launch import status
from ..data.scene import IGNORED

_CHUNK_POINTS = 1 << 20  # points whose scores are in memory at a time

#: rows of the batch's features -> logits float32 (M, classes) of the M voxels of a block
BlockNetwork = Callable[[np.ndarray], np.ndarray]
#: coordinates int32 (M, 4) of the voxels of a block, and their rows in the batch -> the block's network
Network = Callable[[np.ndarray, np.ndarray], BlockNetwork]


class FloorBlocks(NamedTuple):
    """Square blocks on the floor, unlimited in height, in voxels."""

    size: int  # edge of a block
    overlap: int = 0  # overlap of neighboring blocks, less than ``size``

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


class BatchView(NamedTuple):
    """A view of a scene in a batch."""

    rows: slice  # of its M voxels in the batch
    first: int  # number of its first point among the points of all views
    inverse: np.ndarray  # int64 (P,), the voxel of each point, from 0


def iterate_scenes(batch: dict[str, np.ndarray]) -> Iterator[tuple[slice, list[Callable[[], BatchView]]]]:
    """Yield the points of each scene that has points, and functions that return its views."""
    ends, number, inverse = batch["offsets"].tolist(), len(batch["labels"]), batch["inverse"]
    num_scenes, num_views = len(ends) - 1, len(inverse) // max(number, 1)
    starts = np.searchsorted(batch["coordinates"][:, 0], np.arange(num_views * num_scenes + 1)).tolist()

    def get_view(scene: int, view: int) -> BatchView:
        rows = slice(*starts[view * num_scenes + scene :][:2])
        first, end = (view * number + ends[scene + side] for side in (0, 1))
        return BatchView(rows, first, inverse[first:end] - rows.start)

    for scene, (first, end) in enumerate(zip(ends[:-1], ends[1:])):
        if first < end:
            yield slice(first, end), [functools.partial(get_view, scene, view) for view in range(num_views)]


def score_fragments(
    network: Network, blocks: FloorBlocks, batch: dict[str, np.ndarray]
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield points in order, and their logits, float32 (points, classes).

    A voxel's logits are the mean over the blocks that contain it, and a point has the logits of its voxel. With several
    views of a scene, probabilities are averaged. So each point counts once, and no result depends on the batch.
    ``network`` computes the logits of a block; ``batch`` has the fields of ``collate_samples``.
    """
    for points, views in iterate_scenes(batch):
        total = None  # sum of the points' probabilities
        for view in (get_view() for get_view in views):
            inverse = view.inverse
            scores = _mean_logits(network, blocks, batch["coordinates"][view.rows], view.rows.start)
            if len(views) > 1:
                scores = softmax(scores) / np.float32(len(views))
                total = np.zeros((len(inverse), scores.shape[1]), np.float32) if total is None else total
                for part in iterate_chunks(len(inverse)):
                    total[part] += scores[inverse[part]]
        for part in iterate_chunks(len(inverse)):
            place = slice(points.start + part.start, points.start + part.stop)
            yield place, scores[inverse[part]] if total is None else log_shares(total[part])


def _mean_logits(network: Network, blocks: FloorBlocks, coordinates: np.ndarray, first: int) -> np.ndarray:
    """Return the mean logits of all voxels of a view, float32 (M, classes); ``first`` is its first row in the batch."""
    sums: np.ndarray | None = None
    numbers = np.zeros(len(coordinates), np.float32)
    for place, rows in enumerate(blocks.split(coordinates[:, 1:])):
        status.set_detail(f"in block {place + 1} of a scene")
        inside = coordinates[rows]
        inside[:, 0] = 0
        logits = network(inside, rows + first)(rows + first)
        if sums is None:
            sums = np.zeros((len(coordinates), logits.shape[1]), np.float32)
        sums[rows] += logits
        numbers[rows] += 1
    return np.divide(sums, numbers[:, None], out=sums)


def iterate_chunks(number: int) -> Iterator[slice]:
    """Yield slices of so many points as may be in memory at a time."""
    for first in range(0, number, _CHUNK_POINTS):
        yield slice(first, min(first + _CHUNK_POINTS, number))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return probabilities (rows, classes)."""
    return np.exp(logits - _log_sum_exp(logits))


def log_shares(shares: np.ndarray) -> np.ndarray:
    """Return the logarithm of probabilities, which may be 0."""
    return np.log(np.maximum(shares, 1e-38))


def _log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """Return the logarithm of each row's sum of exponentials, (rows, 1)."""
    highest = logits.max(axis=1, keepdims=True)
    return highest + np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))


def cross_entropies(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the cross-entropy of each row, 0 for the label ``IGNORED``."""
    has_label = labels != IGNORED
    label_logits = np.take_along_axis(logits, np.where(has_label, labels, 0)[:, None], axis=1)
    return np.where(has_label, (_log_sum_exp(logits) - label_logits)[:, 0], 0.0)
