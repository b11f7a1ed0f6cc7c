"""Evaluation by votes: the network sees each point of a scene once, and more often where voxels have few points.

Source: the test of Pointcept, https://github.com/Pointcept/Pointcept, pointcept/engines/test.py and ``GridSample`` in
pointcept/datasets/transform.py.
"""

from collections.abc import Iterator

import numpy as np

from ...core.launch import status
from .fragments import (
    BatchView,
    FloorBlocks,
    Network,
    iterate_chunks,
    iterate_scenes,
    log_shares,
    softmax,
)


class VotingTurns:
    """The point of each voxel whose features the voxel has in each pass over a view.

    In pass k that is point k of a voxel, after ``most_votes`` or the last one the first again. A point beyond
    ``most_votes`` shares the votes of an earlier one of its voxel.
    """

    def __init__(self, view: BatchView, num_voxels: int, most_votes: int) -> None:
        sizes = np.bincount(view.inverse, minlength=num_voxels)
        self._order = np.argsort(view.inverse, kind="stable")
        self._starts = np.cumsum(sizes) - sizes
        self._cycles = np.minimum(sizes, most_votes)  # passes after which a voxel begins again
        self._inverse = view.inverse
        ranks = np.empty_like(self._order)
        ranks[self._order] = np.arange(len(self._order)) - np.repeat(self._starts, sizes)
        self._turns = ranks % self._cycles[view.inverse]

    def count_passes(self, voxels: np.ndarray) -> int:
        """Return the number of passes after which each point of these voxels has voted."""
        return int(self._cycles[voxels].max())

    def choose(self, voxels: np.ndarray, number: int) -> np.ndarray:
        """Return the point of each voxel in a pass, int64 (voxels,)."""
        return self._order[self._starts[voxels] + number % self._cycles[voxels]]

    def votes(self, points: np.ndarray, number: int) -> np.ndarray:
        """Return whether each of these points gets a vote in a pass, bool (points,)."""
        return self._turns[points] == number % self._cycles[self._inverse[points]]


def score_votes(
    network: Network, blocks: FloorBlocks, batch: dict[str, np.ndarray], most_votes: int
) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield points in order, and their logits, float32 (points, classes).

    A point has the mean of its votes in all blocks and views, which are probabilities: its voxel's when that has the
    point's features, see ``VotingTurns``. A block's passes are as many as its fullest voxel has points, at most
    ``most_votes``. ``batch`` has the fields of ``collate_samples``; the network of a block takes numbers of points.
    """
    for points, views in iterate_scenes(batch):
        scene = SceneVotes(points.stop - points.start)
        for number, get_view in enumerate(views):
            scene.add(
                network, blocks, batch["coordinates"], get_view(), most_votes, f"view {number + 1} of {len(views)}"
            )
        for part in iterate_chunks(points.stop - points.start):
            yield slice(points.start + part.start, points.start + part.stop), log_shares(scene.means(part))


class SceneVotes:
    """The sums of the votes of a scene's points, float32 (P, classes), and their numbers."""

    def __init__(self, num_points: int) -> None:
        self._numbers = np.zeros(num_points, np.float32)
        self._sums: np.ndarray | None = None

    def add(
        self, network: Network, blocks: FloorBlocks, coordinates: np.ndarray, view: BatchView, most: int, name: str
    ) -> None:
        """Add the votes of a view; ``coordinates`` are the batch's, int32 (M, 4)."""
        voxels, first = coordinates[view.rows], view.rows.start
        turns = VotingTurns(view, len(voxels), most)
        places = np.full(len(voxels), -1)  # of voxels in the block
        for block, rows in enumerate(blocks.split(voxels[:, 1:])):
            places[:], places[rows] = -1, np.arange(len(rows))
            members = np.flatnonzero(places[view.inverse] >= 0)
            inside, passes = voxels[rows], turns.count_passes(rows)
            inside[:, 0] = 0
            compute = network(inside, rows + first)
            for number in range(passes):
                status.set_detail(f"in pass {number + 1} of {passes} of block {block + 1} of {name} of a scene")
                shares = softmax(compute(turns.choose(rows, number) + view.first))
                voters = members[turns.votes(members, number)]
                if self._sums is None:
                    self._sums = np.zeros((len(self._numbers), shares.shape[1]), np.float32)
                self._numbers[voters] += 1
                for part in iterate_chunks(len(voters)):
                    self._sums[voters[part]] += shares[places[view.inverse[voters[part]]]]

    def means(self, points: slice) -> np.ndarray:
        """Return the mean of these points' votes, float32 (points, classes)."""
        assert self._sums is not None, "every scene with points has votes"
        return self._sums[points] / self._numbers[points, None]
