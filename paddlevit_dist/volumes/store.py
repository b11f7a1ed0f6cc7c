"""Decoded volumes on disk, memory-mapped: a compressed file is decoded once, not in every epoch."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..data.checked_files import DamagedCacheError, checked_file, read_checked, verify, write_array
from ..runtime.errors import UserError
from .geometry import VolumeGeometry, canonical, check_voxels, resample, resampled_shape
from .nonzero import BOX, MASK, VOLUME, compute_box, nonzero_mask
from .reading import list_parts, read_header, read_volume
from .settings import MAX_VOXELS

_VERSION = 6  # of what is kept of a volume
_SMALL = ("uint8", "int8", "uint16", "int16", "bool")  # kept as is; others become float32
_PERCENTILES = (0.5, 99.5)
_SAMPLED_VOXELS = 1 << 20  # enough to place the percentiles


class DecodedVolume(NamedTuple):
    """A volume ready for use.

    Attributes:
        array: (depth, height, width), memory-mapped where it comes from a file; axes are aligned with the world's
            (right, anterior, superior).
        geometry: of the array.
        window: the intensities of its percentiles 0.5 and 99.5.
        moments: mean and standard deviation of the intensities; the latter is never 0.
    """

    array: np.ndarray
    geometry: VolumeGeometry
    window: tuple[float, float]
    moments: tuple[float, float] = (0.0, 1.0)


class DecodedStore:
    """Keeps decoded volumes in a folder.

    Args:
        folder: created if needed.
        spacing: millimeters (depth, height, width) to resample to, or None.
        max_voxels: of a volume, as it is stored and as it is resampled.
    """

    def __init__(self, folder: Path, spacing: Sequence[float] | None, max_voxels: int = MAX_VOXELS) -> None:
        self.folder = folder
        self.max_voxels = max_voxels
        self.spacing = None if spacing is None else [float(length) for length in spacing]
        self._meaning: list[Any] = []  # of the numbers in files, plain values
        self._verified: set[str] = set()  # by this process

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_verified": set()}

    def get(self, file: str, within: str = VOLUME, channels: Sequence[str] = ()) -> DecodedVolume:
        """The volume of a file, decoded now if it is new or has changed, or if its decoded copy is damaged, at whose
        checksum each process looks once.

        Args:
            within, channels: as of ``read_decoded``; by default the volume has no other channel.
        Raises:
            UserError: see ``read_volume``; or the folder cannot be written.
        """
        is_alone = within == VOLUME and file == next(iter(channels), file)
        stored, voxels = self._read_kept(file, *(() if is_alone else (within, *channels)))
        low, high = stored["window"]
        mean, deviation = stored["moments"]
        return DecodedVolume(
            voxels, VolumeGeometry(voxels.shape, np.array(stored["affine"])), (low, high), (mean, deviation)
        )

    def _read_kept(self, file: str, *within: str) -> tuple[dict[str, Any], np.ndarray]:
        """Read what is known of a decoded volume, and its voxels."""
        stem = self.folder / self._key(file, *within)
        facts, array = stem.with_suffix(".json"), stem.with_suffix(".npy")
        if stem.name not in self._verified and not _belong_together(facts, array):
            self._decode(file, facts, array, *within)
        self._verified.add(stem.name)
        try:
            return json.loads(read_checked(facts)), np.load(array, mmap_mode="r", allow_pickle=False)
        except (DamagedCacheError, OSError, ValueError) as error:  # since this process has looked at it
            raise UserError(f"the decoded copy of {file} in {self.folder} was damaged: start the run again") from error

    def _key(self, file: str, *within: str) -> str:
        parts = [(part, os.stat(part)) for one in (file, *within[1:]) for part in list_parts(one)]
        states = [(os.path.basename(part), state.st_size, state.st_mtime_ns) for part, state in parts]
        facts = [_VERSION, os.path.abspath(file), states, self.spacing, *self._meaning, *within[:1]]
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=12).hexdigest()

    def _decode(self, file: str, facts: Path, target: Path, *within: str) -> None:
        voxels, affine, known = self._read(file, *within)
        self.folder.mkdir(parents=True, exist_ok=True)
        checksum = write_array(target, voxels)
        stored = {"file": os.path.abspath(file), "affine": affine.tolist(), **known, "checksum": checksum}
        with checked_file(facts) as out:
            out.write(json.dumps(stored).encode("utf-8"))

    def _read(self, file: str, *within: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Voxels and affine as ``read_upright`` gives them, and what else is kept of a volume."""
        decoded = read_decoded(file, self.spacing, self.max_voxels, *within[:1], channels=within[1:])
        return decoded.array, decoded.geometry.affine, {"window": decoded.window, "moments": decoded.moments}


def read_decoded(
    file: str, spacing_mm: Sequence[float] | None, max_voxels: int, within: str = VOLUME, channels: Sequence[str] = ()
) -> DecodedVolume:
    """A volume without a store; arguments and errors as of ``read_upright``.

    Args:
        within: what its moments are of, see ``nonzero``: VOLUME, all voxels as they are resampled; BOX, those in the
            box, as they are stored; MASK, those that are not zero: these are normalized already, and the moments 0, 1.
        channels: the files of all channels, whose voxels decide what is not zero; all are turned as the first one.
    """
    first = next(iter(channels), file)
    voxels, affine = read_stored(file, max_voxels, first=first)
    own = None
    if within != VOLUME:
        mask = nonzero_mask([read_stored(channel, max_voxels, first=first)[0] for channel in channels])
        own = moments(voxels[compute_box(mask)] if within == BOX else voxels[mask][None])
    if own is not None and within == MASK:
        normal = (voxels.astype(np.float32) - np.float32(own[0])) / np.float32(own[1])
        voxels, own = np.where(mask, normal, np.float32(0)), (0.0, 1.0)
    voxels, affine = at_spacing(file, voxels, affine, spacing_mm, max_voxels, are_labels=False)
    return DecodedVolume(
        voxels, VolumeGeometry(voxels.shape, affine), percentile_window(voxels), own or moments(voxels)
    )


def read_upright(
    file: str,
    spacing_mm: Sequence[float] | None,
    max_voxels: int,
    classes_of: Callable[[str, np.ndarray], np.ndarray],
    first: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The classes in a file (depth, height, width) along the world's axes, contiguous, and their affine (4, 4).

    Args:
        spacing_mm: millimeters (depth, height, width) to resample to, or None.
        max_voxels: as it is stored and as it is resampled.
        classes_of: makes classes of the file's numbers.
        first: see ``read_stored``.
    Raises:
        UserError: see ``read_volume``.
    """
    return at_spacing(file, *read_stored(file, max_voxels, classes_of, first), spacing_mm, max_voxels, are_labels=True)


def read_stored(
    file: str,
    max_voxels: int,
    classes_of: Callable[[str, np.ndarray], np.ndarray] | None = None,
    first: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Read the voxels of a file, or their classes, along the world's axes, at their own spacing, and their affine.

    Args:
        first: a file that lies where this one does, to whose header the axes are turned: where two axes are equally
            near to one of the world's, the last digits of each header would choose between them. None: its own header.
    """
    voxels, header = read_volume(file, max_voxels)
    geometry = header.geometry if first in (None, file) else read_header(first, max_voxels).geometry
    return canonical(voxels if classes_of is None else classes_of(file, voxels), geometry.affine)


def at_spacing(
    file: str,
    voxels: np.ndarray,
    affine: np.ndarray,
    spacing_mm: Sequence[float] | None,
    max_voxels: int,
    are_labels: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what ``read_stored`` returns at another spacing, contiguous; arguments as of ``read_upright``."""
    if spacing_mm is not None:
        spacing = np.array(spacing_mm, dtype=np.float64)
        why = f" at the spacing of {' x '.join(f'{length:g}' for length in spacing)} mm (VOLUMES.SPACING_MM)"
        check_voxels(file, resampled_shape(voxels.shape, affine, spacing), max_voxels, why)
        voxels, affine = resample(voxels, affine, spacing, are_labels)
    return np.ascontiguousarray(voxels, None if voxels.dtype.name in _SMALL else np.float32), affine


def _belong_together(facts: Path, array: Path) -> bool:
    """Whether both are intact, and the facts are those of this array."""
    try:
        return bool(json.loads(read_checked(facts))["checksum"] == verify(array))
    except DamagedCacheError:  # a right checksum is that of what this program has written
        return False


def percentile_window(voxels: np.ndarray) -> tuple[float, float]:
    """Two intensities between which almost all of the volume lies; never equal."""
    every = max(1, voxels.size // _SAMPLED_VOXELS)
    low, high = np.percentile(voxels.reshape(-1)[::every].astype(np.float64), _PERCENTILES)
    return float(low), float(high if high > low else low + 1.0)


def moments(voxels: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of all intensities; 1 in place of a deviation of 0."""
    mean = float(voxels.mean(dtype=np.float64))
    squares = sum(float(np.square(plane - mean, dtype=np.float64).sum()) for plane in voxels)  # none of a whole volume
    return mean, (squares / voxels.size) ** 0.5 or 1.0
