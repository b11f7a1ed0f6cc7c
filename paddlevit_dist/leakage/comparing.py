"""Which of many hashes are near which of many others: all are compared, none is left out by an index."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from ..launch.devices import cpu_cores
from ..logging.progress import ProgressBar
from ..runtime.compiled import compiled

NEAR, FIRST = 13, 22  # bits that may differ from the nearest variant, and from the image itself
NEAREST = 8  # kept of each
_AT_ONCE = 512  # hashes in a piece of work
_TILE = 4096  # of the others: what stays in the nearest cache


@intrinsic
def _count_bits(typing_context: Any, number: Any):
    """How many bits of a uint64 are 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


def nearest(queries: np.ndarray, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each image the others that are near: at most ``NEAREST``, the nearest first.

    One is near where ``NEAR`` bits at most differ from one of the image's variants, and ``FIRST`` from the image.

    Args:
        queries: uint64 (n, variants), the first variant is the image itself.
        others: uint64 (m,).
    Returns:
        int64 (n, 8), positions in ``others``, -1 where there are fewer; and uint8 (n, 8), the bits that differ.
    """
    queries, others = np.ascontiguousarray(queries), np.ascontiguousarray(others)
    found = np.full((len(queries), NEAREST), -1, np.int64)
    distances = np.full((len(queries), NEAREST), 255, np.uint8)
    starts = range(0, len(queries), _AT_ONCE)
    bar = ProgressBar(len(starts), "comparing hashes", shown=True)
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
    is_near = np.zeros(_TILE, np.uint8)  # one flag a byte, eight of which are looked at together
    eights = is_near.view(np.uint64)
    for tile in range(0, len(others), _TILE):
        part = others[tile : tile + _TILE]
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
                        distances[row, rank], found[row, rank] = distances[row, rank - 1], found[row, rank - 1]
                        rank -= 1
                    distances[row, rank], found[row, rank] = distance, tile + place
