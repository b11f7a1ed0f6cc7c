"""Memory-mapped cache of decoded volumes: a compressed file is decoded once, not in every epoch."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.data.checked_files import DamagedCacheError, checked_file, read_checked, verify, write_array
from ..core.runtime.errors import UserError
from ..core.runtime.json_format import format_json
from .geometry import VolumeGeometry, check_voxels, resample, resampled_shape, to_canonical
from .nonzero import BOX, MASK, VOLUME, compute_box, nonzero_mask
from .reading import FileChannel, list_parts, read_header, read_volume
from .settings import MAX_VOXELS

_VERSION = 9  # version of the cached files
_SMALL = ("uint8", "int8", "uint16", "int16", "bool")  # unchanged dtypes; others become float32
_PERCENTILES = (0.5, 99.5)
_SAMPLED_VOXELS = 1 << 20  # enough to estimate the percentiles


class DecodedVolume(NamedTuple):
    """A decoded volume; ``make_volume`` creates it from an array."""

    # (depth, height, width), memory-mapped if it comes from a file; axes are aligned with the world's (right, anterior,
    # superior)
    array: np.ndarray
    geometry: VolumeGeometry  # geometry of the array
    window: tuple[float, float]  # percentiles 0.5 and 99.5 of the intensities
    # mean and standard deviation of the intensities; the deviation is never 0
    moments: tuple[float, float] = (0.0, 1.0)
    extremes: tuple[float, float] = (0.0, 1.0)  # the smallest and the largest intensity before resampling


class DecodedStore:
    """Cache of decoded volumes in a folder, created if needed, at ``spacing``, mm (depth, height, width), or their own.

    ``max_voxels`` is the limit for a volume, as stored and as resampled.
    """

    def __init__(self, folder: Path, spacing: Sequence[float] | None, max_voxels: int = MAX_VOXELS) -> None:
        self.folder = folder
        self.max_voxels = max_voxels
        self.spacing = None if spacing is None else [float(length) for length in spacing]
        self._meaning: list[Any] = []  # meaning of the numbers in files, as plain values
        self._verified: set[str] = set()  # keys that this process has verified

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_verified": set()}

    def get(self, file: str, within: str = VOLUME, channels: Sequence[str] = ()) -> DecodedVolume:
        """Return the volume of a file, decoded first if its copy is missing, outdated or damaged.

        Each process verifies the checksum of a copy once. ``within`` and ``channels`` are as for ``read_decoded``.
        UserError is as from ``read_volume``, or if the folder cannot be written.
        """
        is_alone = within == VOLUME and file == next(iter(channels), file)
        stored, voxels = self._read_kept(file, *(() if is_alone else (within, *channels)))
        low, high = stored["window"]
        mean, deviation = stored["moments"]
        least, most = stored["extremes"]
        geometry = VolumeGeometry(voxels.shape, np.array(stored["affine"]))
        return DecodedVolume(voxels, geometry, (low, high), (mean, deviation), (least, most))

    def _read_kept(self, file: str, *within: str) -> tuple[dict[str, Any], np.ndarray]:
        """Read the facts and the voxels of a decoded volume."""
        stem = self.folder / self._key(file, *within)
        facts, array = stem.with_suffix(".json"), stem.with_suffix(".npy")
        if stem.name not in self._verified and not _belong_together(facts, array):
            self._decode(file, facts, array, *within)
        self._verified.add(stem.name)
        try:
            return json.loads(read_checked(facts)), np.load(array, mmap_mode="r", allow_pickle=False)
        except (DamagedCacheError, OSError, ValueError) as error:  # damaged after this process verified it
            raise UserError(f"the decoded copy of {file} in {self.folder} was damaged: start the run again") from error

    def _key(self, file: str, *within: str) -> str:
        parts = [(part, os.stat(part)) for channel in (file, *within[1:]) for part in list_parts(channel)]
        states = [(os.path.basename(part), state.st_size, state.st_mtime_ns) for part, state in parts]
        facts = [_VERSION, os.path.abspath(file), states, self.spacing, *self._meaning, *within[:1]]
        facts += [["channel", file.channel]] if isinstance(file, FileChannel) else []
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=12).hexdigest()

    def _decode(self, file: str, facts: Path, target: Path, *within: str) -> None:
        voxels, affine, extra = self._read(file, *within)
        self.folder.mkdir(parents=True, exist_ok=True)
        checksum = write_array(target, voxels)
        stored = {"file": os.path.abspath(file), "affine": affine.tolist(), **extra, "checksum": checksum}
        with checked_file(facts) as out:
            out.write(format_json(stored).encode("utf-8"))

    def _read(self, file: str, *within: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Read voxels and affine, see ``read_upright``, and further facts to store."""
        region, channels = (within[0], within[1:]) if within else (VOLUME, ())
        decoded = read_decoded(file, self.spacing, self.max_voxels, region, channels)
        facts = {"window": decoded.window, "moments": decoded.moments, "extremes": decoded.extremes}
        return decoded.array, decoded.geometry.affine, facts


def read_decoded(
    file: str, spacing_mm: Sequence[float] | None, max_voxels: int, within: str = VOLUME, channels: Sequence[str] = ()
) -> DecodedVolume:
    """Read a volume without a store; see ``read_upright`` for the other arguments and errors.

    ``within`` is the region of the moments, see ``nonzero``. VOLUME: all voxels after resampling. BOX: voxels in the
    box, before resampling. MASK: nonzero voxels, which are normalized, so that the moments are 0 and 1. The voxels of
    all ``channels``' files determine the mask; axes are reordered as in the first file.
    """
    first = next(iter(channels), file)
    voxels, affine = read_stored(file, max_voxels, first=first)
    region_moments = None
    if within != VOLUME:
        mask = nonzero_mask([read_stored(channel, max_voxels, first=first)[0] for channel in channels])
        region_moments = moments(voxels[compute_box(mask)] if within == BOX else voxels[mask][None])
    if region_moments is not None and within == MASK:
        normal = (voxels.astype(np.float32) - np.float32(region_moments[0])) / np.float32(region_moments[1])
        voxels, region_moments = np.where(mask, normal, np.float32(0)), (0.0, 1.0)
    stored_extremes = extremes(voxels)  # before resampling, which shortens peaks, as in nnU-Net
    voxels, affine = at_spacing(file, voxels, affine, spacing_mm, max_voxels, are_labels=False)
    geometry, found = VolumeGeometry(voxels.shape, affine), region_moments or moments(voxels)
    return DecodedVolume(voxels, geometry, percentile_window(voxels), found, stored_extremes)


def read_upright(
    file: str,
    spacing_mm: Sequence[float] | None,
    max_voxels: int,
    to_classes: Callable[[str, np.ndarray], np.ndarray],
    first: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Read the classes of a file (depth, height, width) along the world's axes, contiguous, and their affine (4, 4).

    ``spacing_mm`` (depth, height, width) is to resample to, or None; ``max_voxels`` the limit, as stored and as
    resampled. ``to_classes`` converts the file's numbers to classes; for ``first`` see ``read_stored``, for UserError
    ``read_volume``.
    """
    return at_spacing(file, *read_stored(file, max_voxels, to_classes, first), spacing_mm, max_voxels, are_labels=True)


def read_stored(
    file: str,
    max_voxels: int,
    to_classes: Callable[[str, np.ndarray], np.ndarray] | None = None,
    first: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Read the voxels of a file, or their classes, along the world's axes at the stored spacing, and their affine.

    The header of ``first``, a file with the same geometry, determines the axis order; None: the file's own header.
    Otherwise the last digits of each header would decide between two axes that are equally close to a world axis.
    """
    voxels, header = read_volume(file, max_voxels, to_classes is not None)
    geometry = header.geometry if first is None or first == file else read_header(first, max_voxels).geometry
    return to_canonical(voxels if to_classes is None else to_classes(file, voxels), geometry.affine)


def at_spacing(
    file: str,
    voxels: np.ndarray,
    affine: np.ndarray,
    spacing_mm: Sequence[float] | None,
    max_voxels: int,
    are_labels: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Resample the result of ``read_stored`` to another spacing; see ``read_upright`` for the arguments."""
    if spacing_mm is not None:
        spacing = np.array(spacing_mm, dtype=np.float64)
        why = f" at the spacing of {' x '.join(f'{length:g}' for length in spacing)} mm (VOLUMES.SPACING_MM)"
        check_voxels(file, resampled_shape(voxels.shape, affine, spacing), max_voxels, why)
        voxels, affine = resample(voxels, affine, spacing, are_labels)
    return keep_small(voxels), affine


def keep_small(voxels: np.ndarray) -> np.ndarray:
    """Return voxels of a small type unchanged, others as float32; contiguous."""
    return np.ascontiguousarray(voxels, small_type(voxels))


def small_type(voxels: np.ndarray) -> np.dtype:
    """Return the type as which voxels are stored: their own if it is small, else float32."""
    return voxels.dtype if voxels.dtype.name in _SMALL else np.dtype(np.float32)


def _belong_together(facts: Path, array: Path) -> bool:
    """Return whether both files are intact and belong together."""
    try:
        return bool(json.loads(read_checked(facts))["checksum"] == verify(array))
    except DamagedCacheError:  # files with a valid checksum were written by this program
        return False


def percentile_window(voxels: np.ndarray) -> tuple[float, float]:
    """Return two different intensities that enclose almost all of the volume."""
    every = max(1, voxels.size // _SAMPLED_VOXELS)
    low, high = np.percentile(voxels.reshape(-1)[::every].astype(np.float64), _PERCENTILES)
    return float(low), float(high if high > low else low + 1.0)


def extremes(voxels: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest intensity."""
    return float(voxels.min()), float(voxels.max())


def moments(voxels: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation of all intensities; a deviation of 0 becomes 1."""
    mean = float(voxels.mean(dtype=np.float64))
    # Plane by plane, to save memory
    squares = sum(float(np.square(plane - mean, dtype=np.float64).sum()) for plane in voxels)
    return mean, (squares / voxels.size) ** 0.5 or 1.0
