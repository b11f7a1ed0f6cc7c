"""Digests and hashes that are kept of each sample of a data set, so that those of two data sets can be compared."""

import contextlib
import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ..data.checked_files import DamagedCacheError, map_verified, write_array
from ..images.data.image_dataset import ImageDataset
from ..images.data.inspection import run_in_threads
from ..images.data.reading import convert, open_image, raise_as_unreadable
from ..runtime.errors import UserError
from . import perceptual

NOT_READ, UNREADABLE, EXACT, HASHED = range(4)
SMALLEST_PX = 32  # of a side: smaller images are compared pixel by pixel only
_DRAFT_PX = 256  # a JPEG is decoded at no more than what this takes
_VERSION = 2  # with a checksum
_POINTS, _VOLUMES = ("scenes", "shapes"), ("volumes", "volumes with label maps")  # what datasets hold


class DatasetFingerprints(NamedTuple):
    """Of a data set of n samples.

    Attributes:
        state: uint8 (n,): not read, unreadable, compared for equality only, or hashed.
        stored: uint64 (n,), digest of the bytes of its file; 0 where it is in no file of its own.
        content: uint64 (n,), digest of its pixels, points or voxels; 0 for images that have a hash.
        hashes: uint64 (n, variants), perceptual; see ``perceptual.hashes``.
    """

    state: np.ndarray
    stored: np.ndarray
    content: np.ndarray
    hashes: np.ndarray

    @property
    def num_read(self) -> int:
        """How many samples were read, those included that cannot be."""
        return int(np.count_nonzero(self.state != NOT_READ))


def can_be_compared(dataset: Any) -> bool:
    """Whether it is known what its samples hold: images, scenes, shapes or volumes."""
    return isinstance(dataset, ImageDataset) or getattr(dataset, "holds", "") in (*_POINTS, *_VOLUMES)


def fingerprints(
    dataset: Any, label: str, variants: int, cache_folder: Path | None, seconds: float = float("inf")
) -> DatasetFingerprints:
    """Read all samples, or as many in a fixed random order as the time allows.

    Those of image files are kept in ``cache_folder``, also where this is interrupted: the next call reads the others.

    Args:
        label: of the progress bar.
        variants: hashes of each image.
    """
    total = len(dataset)
    table = np.zeros(total, [("state", "u1"), ("stored", "<u8"), ("content", "<u8"), ("hashes", "<u8", (variants,))])
    file = _cache_file(dataset, variants, cache_folder)
    if file is not None:
        with contextlib.suppress(DamagedCacheError):  # none yet, or damaged: made again
            kept = map_verified(file)
            table = kept.copy() if kept.dtype == table.dtype and kept.shape == table.shape else table
    missing = np.flatnonzero(table["state"] == NOT_READ)
    if seconds < float("inf"):
        missing = np.random.default_rng(0).permutation(missing)
    try:
        order = missing.tolist()
        for index, row in zip(
            order, run_in_threads(partial(_look, variants), dataset, order, label, len(order), seconds)
        ):
            table[index] = row
    finally:
        if file is not None and len(missing):
            with contextlib.suppress(UserError):  # it only saves time
                write_array(file, table)
    return DatasetFingerprints(table["state"], table["stored"], table["content"], table["hashes"])


def _cache_file(dataset: Any, variants: int, cache_folder: Path | None) -> Path | None:
    """Where the fingerprints of image files are kept: another name for other files, sizes or times of change."""
    if cache_folder is None or getattr(dataset, "reading", None) is None:
        return None
    key = hashlib.sha256(repr((_VERSION, variants, len(dataset), dataset.reading, dataset.kind)).encode())
    for index in range(len(dataset)):
        described = dataset.describe(index)
        try:
            status = os.stat(described)
        except (OSError, ValueError):  # in an archive, or gone
            return None
        key.update(f"{described}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return Path(cache_folder, f"fingerprints-{key.hexdigest()[:16]}.npy")


def _look(variants: int, dataset: Any, index: int) -> tuple[int, int, int, Any]:
    """A row of the table."""
    try:
        if dataset.holds in _POINTS:
            return EXACT, 0, _digest_of_points(dataset.read(index)), 0
        if dataset.holds in _VOLUMES:
            decoded = dataset.read(index)[0]
            first = decoded[0] if isinstance(decoded, list) else decoded  # channel
            return EXACT, 0, _digest(np.sort(first.array, axis=None)), 0
        return _look_at_image(dataset, index, variants)
    except UserError:
        return UNREADABLE, 0, 0, 0


def _look_at_image(dataset: Any, index: int, variants: int) -> tuple[int, int, int, Any]:
    stored = 0
    if dataset.reading is None:
        image = dataset.read(index)[0].convert("RGB")
    else:
        encoded = dataset.encoded(index)
        stored = _digest(encoded)
        image = _decode(encoded, dataset, index, (_DRAFT_PX, _DRAFT_PX))
    if dataset.kind != "glyph" and min(image.size) >= SMALLEST_PX:
        luminance = perceptual.gray(perceptual.thumbnail(image))
        if luminance.std() >= perceptual.PLAIN:
            return HASHED, stored, 0, perceptual.hashes(luminance, variants)
    pixels = read_pixels(dataset, index)
    return EXACT, stored, _digest(np.array(pixels.shape), pixels), 0


def _decode(encoded: bytes, dataset: Any, index: int, draft: tuple[int, int] | None) -> Image.Image:
    path = dataset.describe(index)
    with raise_as_unreadable(path), open_image(encoded, path, dataset.reading) as image:
        if draft is not None:
            image.draft("RGB", draft)
        return convert(image, "RGB", dataset.reading)


def read_pixels(dataset: Any, index: int) -> np.ndarray:
    """uint8 (height, width, 3), in full.

    Raises:
        UserError: it cannot be read.
    """
    return np.asarray(_image(dataset, index, None))


def _image(dataset: Any, index: int, draft: tuple[int, int] | None) -> Image.Image:
    if dataset.reading is None:
        return dataset.read(index)[0].convert("RGB")
    return _decode(dataset.encoded(index), dataset, index, draft)


def thumbnails(dataset: Any, indices: Sequence[int], label: str) -> dict[int, np.ndarray]:
    """Small images, uint8 (64, 64, 3), by their indices; without those that cannot be read any more."""
    found = run_in_threads(_thumbnail, dataset, indices, label, len(indices), float("inf"))
    return {index: thumb for index, thumb in zip(indices, found) if thumb is not None}


def _thumbnail(dataset: Any, index: int) -> np.ndarray | None:
    try:
        return perceptual.thumbnail(_image(dataset, index, (_DRAFT_PX, _DRAFT_PX)))
    except UserError:
        return None


def _digest_of_points(scene: Any) -> int:
    """Of coordinates and of colors where there are some, in whatever order the points are."""
    xyz = np.asarray(scene.xyz, dtype="<f4") + np.float32(0)  # there is one zero
    colors = np.asarray(getattr(scene, "rgb", xyz[:, :0]), dtype="<u4")
    rows = np.concatenate([np.ascontiguousarray(xyz).view("<u4"), colors], axis=1)
    return _digest(rows[np.lexsort(rows.T)])


def _digest(*parts: Any) -> int:
    """64 bits of BLAKE2b, never 0."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return int.from_bytes(digest.digest(), "little") or 1
