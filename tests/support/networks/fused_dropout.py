"""What the fused kernels drop, computed by NumPy from the same seeds."""

import numpy as np


def mix(bits: np.ndarray) -> np.ndarray:
    """The hash of uint32 whose constants C. Wellons found (lowbias32)."""
    bits = bits ^ (bits >> 16)
    bits = (bits * np.uint64(0x7FEB352D)) & 0xFFFFFFFF
    bits = bits ^ (bits >> 15)
    bits = (bits * np.uint64(0x846CA68B)) & 0xFFFFFFFF
    return bits ^ (bits >> 16)


def row_keys(seeds: np.ndarray, site: int, rows: int) -> np.ndarray:
    first, second = seeds.view("u4")[2 * site : 2 * site + 2].astype("u8")
    return mix(mix(np.arange(rows, dtype="u8") ^ first) ^ second)


def keep(bits: np.ndarray, rate: float) -> np.ndarray:
    """Factors for random uint32."""
    return np.where((bits >> 8) * 2.0**-24 >= np.float32(rate), 1 / (1 - rate), 0.0)


def dropout(seeds: np.ndarray, site: int, rows: int, width: int, rate: float) -> np.ndarray:
    """Factors of single values, (rows, width)."""
    columns = (np.arange(width, dtype="u8") * 0x9E3779B9) & 0xFFFFFFFF
    return keep(mix(row_keys(seeds, site, rows)[:, None] ^ columns), rate)


def drop_path(seeds: np.ndarray, site: int, items: int, rate: float) -> np.ndarray:
    """Factors of whole items, (items,)."""
    return keep(row_keys(seeds, site, items), rate)
