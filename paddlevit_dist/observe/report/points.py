"""Points packed for the viewer: positions in 16 bits an axis and colours, ordered so that they compress well.

The content is a zlib stream of planes, each of one byte per point: the low and the high bytes of x, y and z, each
coordinate as its difference (modulo 2^16) from that of the point before; then red, green and blue of each layer.
"""

from __future__ import annotations

import zlib
from typing import List, NamedTuple

import numpy as np

from ...contracts.figures import PointSet

MOST = 1_000_000
_STEPS = 65_535
_ORDER_BITS = 10  # an axis; finer than that, the order of points does not matter


class Packed(NamedTuple):
    """Attributes:
    number: of points kept.
    size_m: side of the cube that 0 to 65,535 stand for, in metres.
    """

    number: int
    size_m: float
    content: bytes


def pack(figure: PointSet, most: int = MOST) -> Packed:
    """The points of a figure, evenly thinned out to ``most``; those that are not finite are left out.

    Raises:
        ValueError: shapes do not fit, or there is nothing to show.
    """
    xyz = np.asarray(figure.xyz, dtype=np.float32)
    if xyz.ndim != 2 or xyz.shape[1] != 3:
        raise ValueError(f"expected xyz (points, 3), got {xyz.shape}")
    layers = [np.asarray(colours) for colours in figure.colours.values()]
    for name, colours in zip(figure.colours, layers):
        if colours.shape != xyz.shape or colours.dtype != np.uint8:
            raise ValueError(
                f"expected colours uint8 {xyz.shape} for layer '{name}', got {colours.dtype} {colours.shape}"
            )
    kept = np.flatnonzero(np.isfinite(xyz).all(axis=1))
    if len(kept) > most:
        kept = kept[np.linspace(0, len(kept) - 1, most).astype(np.int64)] if most else kept[:0]
    if not len(kept) or not layers:
        raise ValueError("there are no points to show")
    xyz = xyz[kept]
    low = xyz.min(axis=0)
    size = float((xyz - low).max()) or 1.0
    # The cube's middle is the middle of the points, so that they turn about it.
    low = low - (size - (xyz.max(axis=0) - low)) / 2
    steps = np.clip(np.rint((xyz - low) * (_STEPS / size)), 0, _STEPS).astype(np.uint16)
    order = np.argsort(_morton(steps >> (16 - _ORDER_BITS)), kind="stable")
    steps = steps[order]
    differences = np.diff(steps, axis=0, prepend=np.zeros((1, 3), np.uint16))  # modulo 2^16
    planes: List[np.ndarray] = []
    for axis in range(3):
        planes += [(differences[:, axis] & 255).astype(np.uint8), (differences[:, axis] >> 8).astype(np.uint8)]
    for colours in layers:
        planes += list(colours[kept[order]].T)
    return Packed(len(kept), size, zlib.compress(np.concatenate(planes).tobytes(), 6))


def _morton(cells: np.ndarray) -> np.ndarray:
    """The Z-order of cells (points, 3): bits of the three axes, interleaved."""
    code = np.zeros(len(cells), np.int64)
    for bit in range(_ORDER_BITS):
        for axis in range(3):
            code |= ((cells[:, axis].astype(np.int64) >> bit) & 1) << (3 * bit + axis)
    return code
