"""Which of many hashes are near which of many others: all are compared, none is left out by an index."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..observe.progress import Progress
from ..parallel.devices import cpu_cores
from ..runtime.compiled import compiled

NEAR, FIRST = 13, 22  # bits that may differ from the nearest variant, and from the picture itself
NEAREST = 8  # kept of each
_AT_ONCE = 512  # hashes in a piece of work
_TILE, _BLOCK = 4096, 16  # of the others: what stays in the nearest cache, and what is passed over at once

_PAIRS, _FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)
_EIGHTS, _SUMS = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
_ONE, _TWO, _FOUR, _TOP = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)


def nearest(queries: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each picture the others that are near: at most ``NEAREST``, the nearest first.

    One is near where ``NEAR`` bits at most differ from one of the picture's variants, and ``FIRST`` from the picture.

    Args:
        queries: uint64 (n, variants), the first variant is the picture itself.
        others: uint64 (m,).
    Returns:
        int64 (n, 8), positions in ``others``, -1 where there are fewer; and uint8 (n, 8), the bits that differ.
    """
    queries, others = np.ascontiguousarray(queries), np.ascontiguousarray(others)
    found = np.full((len(queries), NEAREST), -1, np.int64)
    distances = np.full((len(queries), NEAREST), 255, np.uint8)
    starts = range(0, len(queries), _AT_ONCE)
    bar = Progress(len(starts), "comparing hashes", shown=True)
    gone = threading.Event()

    def compare(start: int) -> None:
        if not gone.is_set():
            part = slice(start, start + _AT_ONCE)
            _compare(queries[part], others, found[part], distances[part])

    pool = ThreadPoolExecutor(max(1, min(cpu_cores(), os.cpu_count() or 1)))
    try:
        if len(queries) and len(others):
            compare(0)  # compiles
        for _ in pool.map(compare, starts[1:]):
            bar.step()
    finally:
        gone.set()
        pool.shutdown(wait=True, cancel_futures=True)
        bar.close()
    return found, distances


@compiled
def _compare(queries, others, found, distances):
    def differing(one, other):
        # How many bits differ. Source: H. Warren, "Hacker's Delight", 2nd edition, section 5-1; compilers know it.
        bits = one ^ other
        bits = bits - ((bits >> _ONE) & _PAIRS)
        bits = (bits & _FOURS) + ((bits >> _TWO) & _FOURS)
        return (((bits + (bits >> _FOUR)) & _EIGHTS) * _SUMS) >> _TOP

    for tile in range(0, len(others), _TILE):
        for row in range(len(queries)):
            picture = queries[row, 0]
            for begin in range(tile, min(tile + _TILE, len(others)), _BLOCK):
                end = min(begin + _BLOCK, len(others))
                least = np.uint64(64)
                for place in range(begin, end):
                    least = min(least, differing(picture, others[place]))
                if least > FIRST:
                    continue
                for place in range(begin, end):
                    if differing(picture, others[place]) > FIRST:
                        continue
                    distance = np.uint64(64)
                    for variant in range(queries.shape[1]):
                        distance = min(distance, differing(queries[row, variant], others[place]))
                    if distance > NEAR or distance >= distances[row, NEAREST - 1]:
                        continue
                    rank = NEAREST - 1
                    while rank > 0 and distances[row, rank - 1] > distance:
                        distances[row, rank], found[row, rank] = distances[row, rank - 1], found[row, rank - 1]
                        rank -= 1
                    distances[row, rank], found[row, rank] = distance, place
