"""Decoded volumes on disk, memory-mapped: a compressed file is decoded once, not in every epoch."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path
from typing import NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..files import atomic_file
from .geometry import Geometry, canonical, resample, resampled_shape
from .limits import MAX_VOXELS, check_voxels
from .reading import parts_of, read_volume

# 1 kept MetaImage and NRRD volumes along their own axes, turned by 180 degrees about z; 2 took NIfTI's metres and
# microns for millimetres
_VERSION = 3
_SMALL = ("uint8", "int8", "uint16", "int16", "bool")  # kept as is; others become float32
_PERCENTILES = (0.5, 99.5)
_SAMPLED_VOXELS = 1 << 20  # enough to place the percentiles


class Decoded(NamedTuple):
    """A volume ready for use.

    Attributes:
        array: (depth, height, width), memory-mapped where it comes from a file; axes are aligned with the world's
            (right, anterior, superior).
        geometry: of the array.
        window: the intensities of its percentiles 0.5 and 99.5.
    """

    array: np.ndarray
    geometry: Geometry
    window: Tuple[float, float]


class DecodedStore:
    """Keeps decoded volumes in a folder.

    Args:
        folder: created if needed.
        spacing: millimetres (depth, height, width) to resample to, or None.
        max_voxels: of a volume, as it is stored and as it is resampled.
    """

    def __init__(self, folder: Path, spacing: Optional[Sequence[float]], max_voxels: int = MAX_VOXELS) -> None:
        self.folder = folder
        self.max_voxels = max_voxels
        self.spacing = None if spacing is None else [float(length) for length in spacing]

    def get(self, file: str) -> Decoded:
        """The volume of a file, decoded now if it is new or has changed.

        Raises:
            UserError: see ``read_volume``; or the folder cannot be written.
        """
        stem = self.folder / self._key(file)
        facts, array = stem.with_suffix(".json"), stem.with_suffix(".npy")
        if not facts.exists():  # written last
            self._decode(file, facts, array)
        stored = json.loads(facts.read_text(encoding="utf-8"))
        voxels = np.load(array, mmap_mode="r", allow_pickle=False)
        low, high = stored["window"]
        return Decoded(voxels, Geometry(voxels.shape, np.array(stored["affine"])), (low, high))

    def _key(self, file: str) -> str:
        parts = [(part, os.stat(part)) for part in parts_of(file)]
        states = [(os.path.basename(part), state.st_size, state.st_mtime_ns) for part, state in parts]
        facts = [_VERSION, os.path.abspath(file), states, self.spacing]
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=12).hexdigest()

    def _decode(self, file: str, facts: Path, target: Path) -> None:
        voxels, header = read_volume(file, self.max_voxels)
        voxels, affine = canonical(voxels, header.geometry.affine)
        if self.spacing is not None:
            spacing = np.array(self.spacing)
            why = f" at the spacing of {' x '.join(f'{length:g}' for length in spacing)} mm (VOLUMES.SPACING_MM)"
            check_voxels(file, resampled_shape(voxels.shape, affine, spacing), self.max_voxels, why)
            voxels, affine = resample(voxels, affine, spacing)
        if voxels.dtype.name not in _SMALL:
            voxels = voxels.astype(np.float32)
        self.folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        np.save(content, np.ascontiguousarray(voxels))
        with atomic_file(target) as out:
            out.write(content.getbuffer())
        stored = {"file": os.path.abspath(file), "affine": affine.tolist(), "window": percentile_window(voxels)}
        with atomic_file(facts) as out:
            out.write(json.dumps(stored).encode("utf-8"))


def percentile_window(voxels: np.ndarray) -> Tuple[float, float]:
    """Two intensities between which almost all of the volume lies; never equal."""
    every = max(1, voxels.size // _SAMPLED_VOXELS)
    low, high = np.percentile(voxels.reshape(-1)[::every].astype(np.float64), _PERCENTILES)
    return float(low), float(high if high > low else low + 1.0)
