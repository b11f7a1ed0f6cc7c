"""Columns of a table of samples as ranks send them to each other."""

import pickle
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def pack_columns(columns: Mapping[Any, np.ndarray]) -> Mapping[Any, np.ndarray] | bytes:
    """Return columns as ranks send them: compressed if one has objects, whose many small arrays have much in common."""
    if all(np.asarray(column).dtype != object for column in columns.values()):
        return columns
    return zlib.compress(pickle.dumps(columns, pickle.HIGHEST_PROTOCOL))


def exchange_columns(
    indices: Sequence[int] | None, number: int, columns: Mapping[Any, np.ndarray]
) -> list[tuple[Any, int, Mapping[Any, np.ndarray]]]:
    """Return these three of every rank, in rank order. Every rank must call this."""
    from ..distributed import all_gather, world_size  # needs Paddle

    sent = columns if world_size() == 1 else pack_columns(columns)
    gathered = all_gather((indices, number, sent))
    return [
        (part, rows, pickle.loads(zlib.decompress(packed)) if isinstance(packed, bytes) else packed)
        for part, rows, packed in gathered
    ]
