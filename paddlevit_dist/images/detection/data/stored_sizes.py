"""Measure images without a known size, and decide whether boxes refer to images after their EXIF rotation."""

from collections.abc import Callable, Sequence

import numpy as np

from ....core.runtime.errors import UserError
from ...data.data_warnings import DataWarnings
from ...data.inspection import run_in_threads
from ...data.reading import ReadConfig, UnreadableImage, open_image, orientation, read_file

_NUM_PROBES = 300  # evenly spaced images whose sizes are compared with their files


def fill_in_sizes(
    sizes: np.ndarray,
    file: Callable[[int], str],
    configured: bool | None,
    source: str,
    odd: DataWarnings,
    read: Callable[[str], bytes] = read_file,
) -> tuple[bool, np.ndarray, str]:
    """Decide whether boxes refer to images after their EXIF rotation, and measure images without a known size.

    Returns the decision, the positions of measured images, and how they were measured, for a message.

    Args:
        sizes: int64 (images, 2), height and width; values of 0 or less are filled in.
        file: returns the file of an image.
        configured: DATA.EXIF_ROTATE; None: boxes refer to the images that have the given sizes. If no size is given,
            boxes refer to rotated images, since no size of a stored image was written down.
        source: file or folder with the sizes, for messages.
        odd: collects notices on sizes of rotated images.
        read: returns the bytes of such a file, also in threads.

    Raises:
        UserError: images and their sizes contradict ``configured``, or each other.
    """
    unknown = np.flatnonzero((sizes <= 0).any(axis=1))
    is_turned, note = configured is not False, ""
    if len(unknown) < len(sizes):
        proofs = _find_rotated_sizes(sizes, file, read)
        is_turned = _decide_view(proofs, configured, source)
        like = f", like images with a given size (set DATA.EXIF_ROTATE {str(not is_turned).lower()} to change this)"
        note = f" {'after EXIF rotation' if is_turned else 'as stored'}{like}" if configured is None else ""
        if configured is None:
            odd.note_all("image", "whose size is given after EXIF rotation: all images are rotated", proofs[1])
    sizes[unknown] = measure([file(row) for row in unknown.tolist()], is_turned, read)
    return is_turned, unknown, note


def _decide_view(proofs: tuple[list[str], list[str]], configured: bool | None, source: str) -> bool:
    """Return whether boxes refer to rotated images, from files of stored and of rotated size, see ``fill_in_sizes``."""
    stored, turned = proofs
    if configured is None and stored and turned:
        raise UserError(
            f"{source} gives the sizes of some images as stored, such as {stored[0]}, and of some after EXIF rotation, "
            f"such as {turned[0]}: correct the sizes, or set DATA.EXIF_ROTATE"
        )
    is_turned = bool(turned) if configured is None else configured
    if (stored or turned) and not (turned if is_turned else stored):
        view = f"after EXIF rotation, such as {turned[0]}" if turned else f"as stored, such as {stored[0]}"
        value = str(is_turned).lower()
        raise UserError(f"DATA.EXIF_ROTATE {value}: {source} gives the sizes of images {view}: remove DATA.EXIF_ROTATE")
    return is_turned


def _find_rotated_sizes(
    sizes: np.ndarray, file: Callable[[int], str], read: Callable[[str], bytes]
) -> tuple[list[str], list[str]]:
    """Return, of files that EXIF rotates by a quarter turn, those with the size as stored and those as rotated."""
    candidates = np.flatnonzero((sizes > 0).all(axis=1) & (sizes[:, 0] != sizes[:, 1]))
    rows = candidates[:: max(1, -(-len(candidates) // _NUM_PROBES))]
    files = [file(row) for row in rows.tolist()]
    stored, turned = measure_both(files, read)
    is_sideways = (stored != turned).any(axis=1)
    matches = (np.flatnonzero(is_sideways & (sizes[rows] == measured).all(axis=1)) for measured in (stored, turned))
    as_stored, as_turned = ([files[row] for row in match.tolist()] for match in matches)
    return as_stored, as_turned


def measure(files: Sequence[str], turned: bool, read: Callable[[str], bytes] = read_file) -> np.ndarray:
    """Return height and width of images, int64 (files, 2), as stored or ``turned`` by EXIF; 0 if unreadable."""
    return measure_both(files, read)[int(turned)]


def measure_both(files: Sequence[str], read: Callable[[str], bytes] = read_file) -> tuple[np.ndarray, np.ndarray]:
    """Return the sizes of images as stored, and after EXIF rotation; see ``measure``."""
    reading = ReadConfig(True, max_pixels=2**31)

    def size(files: list[str], index: int) -> tuple[int, int, int, int]:
        try:
            with open_image(read(files[index]), files[index], reading) as image:
                width, height = image.size
                is_sideways = orientation(image) in (5, 6, 7, 8)
        except UnreadableImage:
            return 0, 0, 0, 0
        return (height, width, width, height) if is_sideways else (height, width, height, width)

    sizes = run_in_threads(size, list(files), range(len(files)), "measuring", len(files), np.inf)
    both = np.array(list(sizes), np.int64).reshape(-1, 4)
    return both[:, :2], both[:, 2:]
