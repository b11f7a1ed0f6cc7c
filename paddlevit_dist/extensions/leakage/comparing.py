"""Find the nearest hashes by brute force: every query is compared with every hash, without an index."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from ...core.launch.devices import cpu_cores
from ...core.logging.progress import ProgressBar
from ...core.runtime.compiled import compiled

NEAR, FIRST = 13, 22  # bits that may differ from the nearest variant, and from the image itself
NEAREST = 8  # matches of each query
_CHUNK = 512  # queries of one task of the thread pool
TILE = 4096  # hashes that stay in the first-level cache


@intrinsic
def _count_bits(typing_context: object, number: object):
    """Count the bits of a uint64 that are 1."""

    def generate(context: object, builder: Any, signature: object, arguments: Sequence[Any]) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


def find_nearest(queries: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find up to ``NEAREST`` near hashes for each image, the nearest first.

    A hash is near if at most ``NEAR`` bits differ from one of the image's variants, and at most ``FIRST`` bits from the
    image itself.

    Args:
        queries: uint64 (n, variants); the first variant is the image itself.
        others: uint64 (m,).

    Returns:
        int64 (n, 8), positions in ``others``, -1 where fewer hashes are near; and uint8 (n, 8), the bits that differ.
    """
    queries, others = np.ascontiguousarray(queries), np.ascontiguousarray(others)
    matches = np.full((len(queries), NEAREST), -1, np.int64)
    distances = np.full((len(queries), NEAREST), 255, np.uint8)
    starts = range(0, len(queries), _CHUNK)
    bar = ProgressBar(len(starts), "comparing hashes", shown=True)

    def compare(start: int) -> None:
        part = slice(start, start + _CHUNK)
        _compare(queries[part], others, matches[part], distances[part])

    try:
        compare(0)  # compiles
        with ThreadPoolExecutor(cpu_cores()) as pool:  # after an error, map cancels what has not begun
            for _ in pool.map(compare, starts[1:]):
                bar.step()
    finally:
        bar.close()
    return matches, distances


@compiled
def _compare(queries, others, matches, distances):
    is_near = np.empty(TILE, np.uint8)  # one flag per byte, so that eight flags are tested as one uint64
    eights = is_near.view(np.uint64)
    for tile in range(0, len(others), TILE):
        part = others[tile : tile + TILE]
        for row in range(len(queries)):
            for place in range(len(part)):
                is_near[place] = _count_bits(queries[row, 0] ^ part[place]) <= FIRST
            for eight in range((len(part) + 7) // 8):
                if eights[eight] == 0:
                    continue
                for place in range(8 * eight, min(8 * eight + 8, len(part))):
                    if not is_near[place]:
                        continue
                    distance = np.uint64(64)
                    for variant in range(queries.shape[1]):
                        distance = min(distance, _count_bits(queries[row, variant] ^ part[place]))
                    if distance > NEAR or distance >= distances[row, NEAREST - 1]:
                        continue
                    rank = NEAREST - 1
                    while rank > 0 and distances[row, rank - 1] > distance:
                        distances[row, rank], matches[row, rank] = distances[row, rank - 1], matches[row, rank - 1]
                        rank -= 1
                    distances[row, rank], matches[row, rank] = distance, tile + place
