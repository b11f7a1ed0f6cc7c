"""Digests and hashes of the samples of a dataset, to compare two datasets."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...core.data.checked_files import DamagedCacheError, map_verified, write_array
from ...core.runtime.errors import UserError
from ...core.runtime.outages import read_through_outages
from ...core.tasks.dataset import Dataset
from ...images.data.image_dataset import ImageDataset
from ...images.data.inspection import run_in_threads
from ...images.data.reading import convert, open_image, raise_as_unreadable
from . import perceptual

NOT_READ, UNREADABLE, EXACT, HASHED = range(4)
SMALLEST_PX = 32  # shortest side of a hashed image: smaller images are only compared pixel by pixel
_DRAFT_PX = 256  # a JPEG is decoded at the lowest resolution that has these many pixels a side
_VERSION = 2  # of the cache file: with a checksum
_POINTS, _VOLUMES = ("scenes", "shapes"), ("volumes", "volumes with label maps")  # values of ``dataset.holds``


class DatasetFingerprints(NamedTuple):
    """Fingerprints of a dataset of n samples."""

    state: np.ndarray  # uint8 (n,): not read, unreadable, compared for equality only, or hashed
    stored: np.ndarray  # uint64 (n,), digest of the sample's file; 0 if the sample does not have a separate file
    content: np.ndarray  # uint64 (n,), digest of pixels, points or voxels; 0 for images that have a hash
    hashes: np.ndarray  # uint64 (n, variants), perceptual; see ``perceptual.compute_hashes``

    @property
    def num_read(self) -> int:
        """Number of samples that were read, unreadable ones included."""
        return int(np.count_nonzero(self.state != NOT_READ))


def can_compare(dataset: object) -> bool:
    """Return whether the samples of a dataset are images, scenes, shapes or volumes."""
    return isinstance(dataset, ImageDataset) or getattr(dataset, "holds", "") in (*_POINTS, *_VOLUMES)


def compute_fingerprints(
    dataset: Dataset, label: str, variants: int, cache_folder: Path | None, seconds: float = float("inf")
) -> DatasetFingerprints:
    """Read all samples, or those that ``seconds`` allow, in a fixed random order, with ``label`` at the progress bar.

    The ``variants`` hashes of each image file are cached in ``cache_folder``, if given, also if the call is
    interrupted: the next call reads the other files.
    """
    total = len(dataset)
    table = np.zeros(total, [("state", "u1"), ("stored", "<u8"), ("content", "<u8"), ("hashes", "<u8", (variants,))])
    file = find_cache_file(dataset, variants, cache_folder)
    if file is not None:
        with contextlib.suppress(DamagedCacheError):  # computed again if missing or damaged
            cached = map_verified(file)
            table = cached.copy() if cached.dtype == table.dtype and cached.shape == table.shape else table
    missing = np.flatnonzero(table["state"] == NOT_READ)
    if seconds < float("inf"):
        missing = np.random.default_rng(0).permutation(missing)
    try:
        order = missing.tolist()
        for index, row in zip(
            order, run_in_threads(partial(compute_row, variants), dataset, order, label, len(order), seconds)
        ):
            table[index] = row
    finally:
        if file is not None and len(missing):
            with contextlib.suppress(UserError):  # the cache only saves time
                write_array(file, table)
    return DatasetFingerprints(table["state"], table["stored"], table["content"], table["hashes"])


def find_cache_file(dataset: Any, variants: int, cache_folder: Path | None) -> Path | None:
    """Return the cache file, whose name depends on the names, sizes and modification times of the image files."""
    if cache_folder is None or getattr(dataset, "reading", None) is None:
        return None
    key = hashlib.sha256(repr((_VERSION, variants, len(dataset), dataset.reading, dataset.kind)).encode())
    for index in range(len(dataset)):
        path = os.path.abspath(dataset.describe(index))
        try:
            status = os.stat(path)
        except (OSError, ValueError):  # in an archive, or deleted
            return None
        key.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return Path(cache_folder, f"fingerprints-{key.hexdigest()[:16]}.npy")


def compute_row(variants: int, dataset: Dataset, index: int) -> tuple[int, int, int, Any]:
    """Compute state, digests and hashes of a sample."""

    def compute() -> tuple[int, int, int, Any]:
        if dataset.holds in _POINTS:
            return EXACT, 0, digest_points(dataset.read(index)), 0
        if dataset.holds in _VOLUMES:
            decoded = dataset.read(index)[0]
            first = decoded[0] if isinstance(decoded, list) else decoded  # first channel
            return EXACT, 0, _digest(np.sort(first.array, axis=None)), 0
        return _compute_image_row(dataset, index, variants)

    try:
        return read_through_outages(compute, was_there=True, absent=getattr(dataset, "absent_folders", ()))
    except UserError:
        return UNREADABLE, 0, 0, 0


def _compute_image_row(dataset: Any, index: int, variants: int) -> tuple[int, int, int, Any]:
    stored = 0
    if dataset.reading is None:
        image = dataset.read(index)[0].convert("RGB")
    else:
        encoded = dataset.encoded(index)
        stored = _digest(encoded)
        image = _decode(encoded, dataset, index, (_DRAFT_PX, _DRAFT_PX))
    if dataset.kind != "glyph" and min(image.size) >= SMALLEST_PX:
        luminance = perceptual.to_luminance(perceptual.make_thumbnail(image))
        if luminance.std() >= perceptual.PLAIN:
            return HASHED, stored, 0, perceptual.compute_hashes(luminance, variants)
    pixels = read_pixels(dataset, index)
    return EXACT, stored, _digest(np.array(pixels.shape), pixels), 0


def _decode(encoded: bytes, dataset: Any, index: int, draft: tuple[int, int] | None) -> Image.Image:
    path = dataset.describe(index)
    with raise_as_unreadable(path), open_image(encoded, path, dataset.reading) as image:
        if draft is not None:
            image.draft("RGB", draft)
        return convert(image, "RGB", dataset.reading)


def read_pixels(dataset: Any, index: int) -> np.ndarray:
    """Read an image at full resolution, uint8 (height, width, 3); raises a UserError if it cannot be read."""
    return np.asarray(_read_image(dataset, index, None))


def _read_image(dataset: Any, index: int, draft: tuple[int, int] | None) -> Image.Image:
    if dataset.reading is None:
        return dataset.read(index)[0].convert("RGB")
    return _decode(dataset.encoded(index), dataset, index, draft)


def read_smaller(
    shrink: Callable[[Image.Image], np.ndarray], dataset: Dataset, indices: Sequence[int], label: str
) -> dict[int, np.ndarray]:
    """Read images, shrunk by a function of a module, by sample index. Those that have become unreadable are skipped."""
    shrunk = run_in_threads(partial(_read_shrunk, shrink), dataset, indices, label, len(indices), float("inf"))
    return {index: image for index, image in zip(indices, shrunk) if image is not None}


def _read_shrunk(shrink: Callable[[Image.Image], np.ndarray], dataset: Dataset, index: int) -> np.ndarray | None:
    try:
        return shrink(_read_image(dataset, index, (_DRAFT_PX, _DRAFT_PX)))
    except UserError:
        return None


def digest_points(scene: Any) -> int:
    """Compute a digest of coordinates and colors, if any, that does not depend on the order of the points."""
    xyz = np.asarray(scene.xyz, dtype="<f4") + np.float32(0)  # -0.0 becomes 0.0
    colors = np.asarray(getattr(scene, "rgb", xyz[:, :0]), dtype="<u4")
    rows = np.concatenate([np.ascontiguousarray(xyz).view("<u4"), colors], axis=1)
    return _digest(rows[np.lexsort(rows.T)])


def _digest(*parts: bytes | np.ndarray) -> int:
    """Compute 64 bits of BLAKE2b, never 0."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes())
    return int.from_bytes(digest.digest(), "little") or 1
