"""Samplers: which samples each rank reads, and in which order, independent of the number of processes.

The order of an epoch is a permutation in memory, or for many samples (100 million take 800 MB on each rank) a
``KeyedPermutation`` of a few numbers, whose parts can be computed alone.
"""

from collections.abc import Iterator, Sized
from typing import Any, NamedTuple

import numpy as np
from paddle.io import DistributedBatchSampler

from .. import distributed
from ..runtime.errors import UserError
from ..runtime.printing import describe_value
from ..tasks.dataset import TransformedDataset, reading_generator

MOST_IN_MEMORY = 1 << 24  # indices, 128 MiB; more samples than this have a computed order
_ROUNDS = 8
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


class SampleKey(int):
    """One read of a sample (index, epoch, repeat); its randomness follows from these and the run's seed.

    It is the index as an ``int``, so that any dataset can be indexed by it: ``dataset[key]``. Two keys are equal if all
    three numbers are. The epoch counts from 1 (0 in an evaluation), its repeats from 0. ``batch`` are the indices of
    the batch that begins with this key, so that its samples may be fetched together, or None.
    """

    epoch: int
    index: int  # as a plain ``int``
    repeat: int
    batch: list[int] | None = None

    def __new__(cls, epoch: int, index: int, repeat: int) -> "SampleKey":
        """Create the key of repetition ``repeat`` of sample ``index`` in ``epoch``."""
        key = super().__new__(cls, index)
        key.epoch, key.index, key.repeat = epoch, int(index), repeat
        return key

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SampleKey):
            return (self.epoch, int(self), self.repeat) == (other.epoch, int(other), other.repeat)
        return int(self) == other

    def __ne__(self, other: object) -> bool:  # int defines it, too
        return not self == other

    __hash__ = int.__hash__

    def __reduce__(self) -> Any:
        return SampleKey, (self.epoch, int(self), self.repeat)

    def __repr__(self) -> str:
        return f"SampleKey(epoch={self.epoch}, index={int(self)}, repeat={self.repeat})"


class SampleKeys:
    """The keys of one batch, created when loader processes read them and pickled as arrays.

    In the training process, 256 keys would take 0.8 ms to create and pickle, during which it queues no work for a GPU;
    their arrays, integers (samples,), take 0.02 ms.
    """

    def __init__(self, epoch: int, indices: np.ndarray, repeats: np.ndarray) -> None:
        self._epoch, self._indices, self._repeats = epoch, indices, repeats

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, position: int) -> SampleKey:
        return SampleKey(self._epoch, int(self._indices[position]), int(self._repeats[position]))

    def __iter__(self) -> Iterator[SampleKey]:
        indices = self._indices.tolist()
        for position, (index, repeat) in enumerate(zip(indices, self._repeats.tolist())):
            key = SampleKey(self._epoch, index, repeat)
            if position == 0:
                key.batch = indices
            yield key


class KeyedPermutation:
    """A pseudo-random permutation of ``0 .. size - 1``, 2 to 2**62, that a few random keys define.

    It is a balanced Feistel network over the smallest even number of bits that holds ``size - 1``. A value outside of
    the range is permuted again until it is inside, at most four times on average, which leaves a permutation of the
    range (cycle walking). Sources: M. Luby and C. Rackoff, "How to construct pseudorandom permutations from
    pseudorandom functions", SIAM J. Comput. 17, 1988; J. Black and P. Rogaway, "Ciphers with arbitrary finite domains",
    CT-RSA 2002. The round function is the mixing function of splitmix64 (G. Steele et al., "Fast splittable
    pseudorandom number generators", OOPSLA 2014).
    """

    def __init__(self, size: int, generator: np.random.Generator) -> None:
        self.size = size
        self._half_bits = np.uint64(((size - 1).bit_length() + 1) // 2)
        self._mask = (np.uint64(1) << self._half_bits) - np.uint64(1)
        self._keys = generator.integers(1 << 64, size=_ROUNDS, dtype=np.uint64)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        """Return the indices, int64 (n,), at ``positions``, int (n,) from 0 to ``size - 1``."""
        values = self._encrypt(np.asarray(positions).astype(np.uint64))
        while (outside := np.flatnonzero(values >= self.size)).size:
            values[outside] = self._encrypt(values[outside])
        return values.astype(np.int64)

    def _encrypt(self, values: np.ndarray) -> np.ndarray:
        left, right = values >> self._half_bits, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (mix_bits(right ^ key) & self._mask)
        return (left << self._half_bits) | right


def mix_bits(values: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit numbers as splitmix64 does."""
    values = (values ^ (values >> _SHIFTS[0])) * _MULTIPLIERS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return values ^ (values >> _SHIFTS[2])


class DrawnOrder(NamedTuple):
    """Sample indices drawn for an epoch, some perhaps several times.

    ``occurrences``: int (samples,), how often each position's index occurred before; None: each occurs once.
    """

    indices: np.ndarray | KeyedPermutation
    occurrences: np.ndarray | None

    def at(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray | int]:
        """Return indices, and how often each occurred before, at ``positions``, int (n,)."""
        return self.indices[positions], 0 if self.occurrences is None else self.occurrences[positions]


def draw_permutation(size: int, generator: np.random.Generator) -> DrawnOrder:
    """Draw an order in which each of ``size`` samples occurs once."""
    if size > MOST_IN_MEMORY:
        return DrawnOrder(KeyedPermutation(size, generator), None)
    return DrawnOrder(generator.permutation(size), None)


def count_occurrences(order: np.ndarray) -> DrawnOrder:
    """Count for each position of ``order``, int (samples,), how often its index occurred before."""
    by_index = np.argsort(order, kind="stable")
    positions = np.arange(len(order))
    is_first = np.diff(order[by_index], prepend=-1) != 0
    occurrences = np.empty_like(order)
    occurrences[by_index] = positions - np.maximum.accumulate(np.where(is_first, positions, 0))
    return DrawnOrder(order, occurrences)


def sample_generator(seed: int, key: SampleKey, epochs: int | None = None) -> np.random.Generator:
    """Return the random generator for one reading of one sample, in a training run of ``epochs`` epochs."""
    return reading_generator(seed, key.epoch, key.index, key.repeat, epochs)


class TrainingSampler(DistributedBatchSampler):
    """Shuffled micro-batches of one rank; the global batch of a step does not depend on the number of ranks.

    Step ``k`` of an epoch takes the positions ``[k * G, (k + 1) * G)`` of a permutation drawn from ``(seed, epoch)``,
    with ``G = batch_size * world_size * accumulation_steps``. Rank ``r`` takes the ``r``-th of ``world_size`` equal
    slices of it, as ``accumulation_steps`` micro-batches. The last incomplete ``G`` of an epoch is dropped. With more
    than ``MOST_IN_MEMORY`` samples, the permutation is computed where it is needed and not stored.

    With ``repeats`` above 1 (repeated augmentation), each index of the permutation occurs that many times in a row,
    each time with another repeat number. Rank ``r`` takes every ``world_size``-th position of ``G`` from ``r`` on, so
    that the repeats of a sample go to different ranks. An epoch keeps its length, so it contains about 1 / ``repeats``
    of the samples. Source: M. Berman et al., "MultiGrain", arXiv 1902.05509, section 3.2; epoch length and assignment
    to ranks as in DeiT's RASampler, arXiv 2012.12877.

    If ``TransformedDataset.draw_order`` returns indices, they replace the permutation: one for each sample of an epoch.
    If an index occurs several times, each occurrence has different repeat numbers, so different augmentations.

    Args:
        dataset: ``TransformedDataset``, or any object with a length.
        batch_size: samples of one micro-batch on one rank.
        rank: rank of the sampler; None: of this process.
        world_size: number of ranks; None: of this run.
        accumulation_steps: micro-batches of one step on each rank.
        repeats: reads of each sample that an epoch contains.

    Attributes:
        consumed: samples over all ranks that the steps of the current epoch have used.
        consumed_before: ``consumed`` before the last step that was counted.
        global_batch_size: ``G``, samples of one step over all ranks.

    Raises:
        UserError: the dataset is smaller than one global batch.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        accumulation_steps: int = 1,
        seed: int = 0,
        repeats: int = 1,
    ) -> None:
        rank, world_size = _resolve_rank(rank, world_size)
        super().__init__(dataset, batch_size, num_replicas=world_size, rank=rank, shuffle=True, drop_last=True)
        self.accumulation_steps = accumulation_steps
        self.seed = seed
        self.repeats = repeats
        self.consumed = 0
        self.consumed_before = 0
        self.global_batch_size = batch_size * world_size * accumulation_steps
        if self.global_batch_size > len(dataset):
            raise UserError(
                f"one update takes {self.global_batch_size} samples (DATA.BATCH_SIZE {batch_size} x {world_size} "
                f"process(es) x TRAIN.ACCUM_ITER {accumulation_steps}) but the training set has only {len(dataset)}; "
                "lower -batch_size or -accum_iter"
            )

    @property
    def computes_order(self) -> bool:
        """Whether the permutation of an epoch is too large to be stored, and computed where it is needed."""
        return len(self.dataset) > MOST_IN_MEMORY

    @property
    def updates_per_epoch(self) -> int:
        """Steps of a complete epoch."""
        return self.updates_after(0)

    def updates_after(self, consumed: int) -> int:
        """Return the number of steps that an epoch still has after its first ``consumed`` samples."""
        return max(0, len(self.dataset) - consumed) // self.global_batch_size

    @property
    def updates_left(self) -> int:
        """Steps left in the current epoch."""
        return self.updates_after(self.consumed)

    @property
    def updates_made(self) -> int:
        """Steps since the start of the training, if all had this global batch."""
        return self.epoch * self.updates_per_epoch - self.updates_left

    def set_position(self, epoch: int, consumed: int) -> None:
        """Move to ``epoch`` (from 1), after its first ``consumed`` samples over all ranks; iteration starts there.

        They are samples that the trainer has used, not those that a loader has prefetched, perhaps with another global
        batch.
        """
        self.set_epoch(epoch)
        self.consumed = consumed

    def count_update(self) -> None:
        """Count one more step. After an epoch's last step, the position is the start of the next epoch."""
        self.consumed_before = self.consumed
        self.load_state_dict({"epoch": self.epoch - 1, "consumed": self.consumed + self.global_batch_size})

    def state_dict(self) -> dict[str, int]:
        """Return the number of completed epochs, and the samples consumed of the next one."""
        return {"epoch": self.epoch - 1, "consumed": self.consumed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the position of a ``state_dict``, also from a run with another global batch.

        If the rest of the epoch is smaller than a global batch, the next epoch starts.
        """
        self.set_position(state["epoch"] + 1, state["consumed"])
        if not self.updates_left:
            self.set_position(state["epoch"] + 2, 0)

    def __len__(self) -> int:
        return self.updates_left * self.accumulation_steps

    def __iter__(self) -> Iterator[SampleKeys]:
        yield from self.batches(self.epoch, self.consumed)

    def batches(self, epoch: int, consumed: int) -> Iterator[SampleKeys]:
        """Yield the micro-batches of ``epoch`` after ``consumed`` samples, independent of the current position."""
        order = self._draw_order(epoch, np.random.default_rng([self.seed, epoch]))
        # Of this rank's samples in a global batch; Paddle calls the global rank local_rank.
        rank_positions = np.arange(self.global_batch_size).reshape(self.nranks, -1)[self.local_rank]
        if self.repeats > 1:
            rank_positions = np.arange(self.local_rank, self.global_batch_size, self.nranks)
        for first in range(consumed, len(order.indices) - self.global_batch_size + 1, self.global_batch_size):
            for positions in (first + rank_positions).reshape(self.accumulation_steps, self.batch_size):
                indices, occurrences = order.at(positions // self.repeats)
                yield SampleKeys(epoch, indices, positions % self.repeats + self.repeats * occurrences)

    def _draw_order(self, epoch: int, generator: np.random.Generator) -> DrawnOrder:
        order = None
        if isinstance(self.dataset, TransformedDataset):
            self.dataset.set_epoch(epoch)
            order = self.dataset.draw_order(generator)
        if order is not None:
            order, number = np.asarray(order), len(self.dataset)
            if order.shape != (number,) or order.dtype.kind not in "iu" or order.min() < 0 or order.max() >= number:
                raise UserError(
                    f"draw_order of the training samples returns {describe_value(order)}, expected {number:,} indices "
                    f"from 0 to {number - 1:,}, some perhaps several times"
                )
        return draw_permutation(len(self.dataset), generator) if order is None else count_occurrences(order)


def _resolve_rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    return (
        distributed.rank() if rank is None else rank,
        distributed.world_size() if world_size is None else world_size,
    )


class EvaluationSampler(DistributedBatchSampler):
    """Every sample exactly once over all ranks, in batches that do not depend on the number of ranks.

    Batch ``k`` of consecutive indices goes to rank ``k mod world_size``. The last batch may be shorter, and ranks may
    have different numbers of batches. Paddle's sampler pads with repeated samples, which changes the result.

    Args:
        dataset: any object with a length.
        rank: rank of the sampler; None: of this process.
        world_size: number of ranks; None: of this run.
    """

    def __init__(
        self, dataset: Sized, batch_size: int, *, rank: int | None = None, world_size: int | None = None
    ) -> None:
        rank, world_size = _resolve_rank(rank, world_size)
        super().__init__(dataset, batch_size, num_replicas=world_size, rank=rank, shuffle=False, drop_last=False)

    def __len__(self) -> int:
        return len(range(self.local_rank, -(-len(self.dataset) // self.batch_size), self.nranks))

    def __iter__(self) -> Iterator[SampleKeys]:
        for indices in self._batches():
            yield SampleKeys(0, indices, np.zeros_like(indices))

    def _batches(self) -> Iterator[np.ndarray]:
        stride = self.batch_size * self.nranks
        for first in range(self.local_rank * self.batch_size, len(self.dataset), stride):
            yield np.arange(first, min(first + self.batch_size, len(self.dataset)))

    def indices(self) -> list[int]:
        """Return the indices of this rank's samples, in the order in which they are evaluated."""
        return [index for batch in self._batches() for index in batch.tolist()]
