"""The order of an epoch: a permutation in memory, or for many samples one that is computed where it is needed.

An array of 100 million indices takes 800 MB on each rank. ``KeyedPermutation`` takes a few numbers instead, and any
part of it can be computed without the others.
"""

from typing import NamedTuple

import numpy as np

MOST_IN_MEMORY = 1 << 24  # indices, 128 MiB; more samples than this have a computed order
_ROUNDS = 8
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


class KeyedPermutation:
    """A pseudo-random permutation of ``0 .. size - 1`` that a few random keys define.

    It is a balanced Feistel network over the smallest even number of bits that holds ``size - 1``. A value outside of
    the range is permuted again until it is inside, at most four times on average, which leaves a permutation of the
    range (cycle walking). Sources: M. Luby and C. Rackoff, "How to construct pseudorandom permutations from
    pseudorandom functions", SIAM J. Comput. 17, 1988; J. Black and P. Rogaway, "Ciphers with arbitrary finite
    domains", CT-RSA 2002. The round function is the mixing function of splitmix64 (G. Steele et al., "Fast splittable
    pseudorandom number generators", OOPSLA 2014).

    Args:
        size: number of indices, 2 to 2**62.
        generator: draws the keys.
    """

    def __init__(self, size: int, generator: np.random.Generator) -> None:
        self.size = size
        self._half_bits = np.uint64(((size - 1).bit_length() + 1) // 2)
        self._mask = (np.uint64(1) << self._half_bits) - np.uint64(1)
        self._keys = generator.integers(1 << 64, size=_ROUNDS, dtype=np.uint64)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, positions: np.ndarray) -> np.ndarray:
        """Return the indices at ``positions``.

        Args:
            positions: int (n,), each from 0 to ``size - 1``.

        Returns:
            int64 (n,).
        """
        values = self._encrypt(np.asarray(positions).astype(np.uint64))
        while (outside := np.flatnonzero(values >= self.size)).size:
            values[outside] = self._encrypt(values[outside])
        return values.astype(np.int64)

    def _encrypt(self, values: np.ndarray) -> np.ndarray:
        left, right = values >> self._half_bits, values & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._mask)
        return (left << self._half_bits) | right


def _mix(values: np.ndarray) -> np.ndarray:
    """Mix the bits of 64-bit numbers as splitmix64 does."""
    values = (values ^ (values >> _SHIFTS[0])) * _MULTIPLIERS[0]
    values = (values ^ (values >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return values ^ (values >> _SHIFTS[2])


class DrawnOrder(NamedTuple):
    """Sample indices drawn for an epoch, some perhaps several times.

    Attributes:
        indices: int (samples,), or a permutation that is computed where it is needed.
        occurrences: int (samples,), how often each position's index occurred before; None: each occurs once.
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
