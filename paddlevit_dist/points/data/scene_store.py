"""A scene in one memory-mapped file, 18 bytes a point, and the other files of a store.

Reading a scene involves no copying or parsing. A store also has ``classes.txt`` and a list of scene names for each
split.

Layout, little-endian: header of 128 bytes | number of skipped rows and length of the channels' names, uint32 | these
names as UTF-8, each with a newline, and zeros up to a multiple of four bytes | skipped rows int64 | xyz float32
(points, 3) | each channel float32 (points, columns) | instance int16 (points) | semantic int8 or int16 (points) | rgb
uint8 (points, 3). Skipped rows are rows of the source without finite coordinates. A scene without labels has
neither instance nor semantic.

The header has magic, version, bytes of a semantic label (0: no labels), number of points, of labeled points and of
instances, the highest class, whether the mean of the points is the origin, the bounds of xyz, the offset subtracted
from the source coordinates, a key of the scene's sources, and the CRC-32 of the data after the header and of the header
itself.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, open_regular, read_regular, readable
from ...core.runtime.spelling import find_suffix
from ...core.runtime.text_files import read_json, refuse_null_bytes, to_utf8
from ...core.tasks.sample_checks import BadSample
from .scene import IGNORED, Scene, channel_width
from .scene_fields import make_scene

MAGIC = b"pdscene\0"
VERSION = 5
HEADER = struct.Struct("<8sIIQIIiI6f3d32sI")
HEADER_BYTES = 128
SUFFIX = ".scene"
CLASSES_FILE = "classes.txt"
SCENES_FOLDER = "scenes"
RECORD_FILE = "prepared.json"
SPLITS = ("train", "val", "test")
NO_KEY = bytes(32)
_CHECKSUM = struct.Struct("<I")  # of the header, in its last four bytes
_LENGTHS = struct.Struct("<II")  # the number of skipped rows, and the length of the names of channels
_MAX_NAME_BYTES = 1 << 14
_START_BYTES = HEADER_BYTES + _LENGTHS.size + _MAX_NAME_BYTES
_CENTER_TOLERANCE = 0.01, 0.05  # fraction of the extent, and meters: float32 means can be off by this much
_MIN_WIDE_M, _SPARSE_M = 500.0, 5.0  # extent and point spacing rarely found together in scenes in meters
_MAX_HEIGHT_M, _TALL_M, _TALL_SHARE = 1000.0, 200.0, 0.2  # heights, the lower one with room-like proportions
_SPACES = " \t\v\f"  # around a line
_ADVICE = "delete it and prepare the data again: existing scenes are kept"


class SceneHeader(NamedTuple):
    """Header of a scene file."""

    label_bytes: int  # bytes of a semantic label, 1 or 2; 0 for a scene without labels
    num_points: int
    num_labeled: int  # points with a class
    num_instances: int  # instances, numbered from 0
    highest_class: int  # -1 if there is none
    is_centered: bool  # the mean of the points is at the origin, within 1 % of the extent or 5 cm
    low: tuple[float, float, float]  # low, high: bounding box of xyz, meters
    high: tuple[float, float, float]
    offset: tuple[float, float, float]  # ``Scene.offset``
    key: bytes  # 32 bytes that identify the scene's sources
    checksum: int  # CRC-32 of the arrays, and of the names of channels
    channels: tuple[str, ...] = ()  # names of ``Scene.channels``
    num_skipped: int = 0  # rows of the source without a point

    @property
    def file_bytes(self) -> int:
        """Length of the whole file."""
        per_point = 12 + 3 + (2 + self.label_bytes if self.label_bytes else 0)
        per_point += 4 * sum(map(channel_width, self.channels))
        start = HEADER_BYTES + len(_pack_names(self.channels, self.num_skipped)) + 8 * self.num_skipped
        return start + self.num_points * per_point

    @property
    def extent(self) -> float:
        """Longest side of the bounding box, meters."""
        return max(high - low for low, high in zip(self.low, self.high))

    @property
    def spacing(self) -> float:
        """Approximate distance between neighboring points on a surface, meters."""
        return self.extent / self.num_points**0.5

    @property
    def height(self) -> float:
        """Side of the bounding box along z, meters."""
        return self.high[2] - self.low[2]

    @property
    def looks_too_large(self) -> bool:
        """True if the unit is unlikely to be meters.

        Rooms in millimeters or centimeters are far too high at any point density, and flat scenes too wide for their
        number of points.
        """
        is_tall = self.height >= max(_TALL_M, _TALL_SHARE * self.extent)
        return is_tall or self.height >= _MAX_HEIGHT_M or (self.extent >= _MIN_WIDE_M and self.spacing >= _SPARSE_M)


def write_scene(path: Path, scene: Scene, labeled: bool = True, key: bytes = NO_KEY) -> SceneHeader:
    """Write a scene atomically, ``labeled`` or not, with 32 bytes for ``SceneHeader.key``.

    UserError if the scene is empty, ``make_scene`` refuses it, it has labels beyond int16, or the disk is full.
    """
    scene = _check(path, scene)
    header = build_header(scene, labeled, key)
    names = _pack_names(header.channels, header.num_skipped)
    arrays = [np.array(scene.skipped_rows, "<i8"), np.ascontiguousarray(scene.xyz, "<f4")]
    arrays += [np.ascontiguousarray(scene.channels[name], "<f4") for name in header.channels]
    if labeled:
        arrays += [np.asarray(scene.instance, "<i2"), np.asarray(scene.semantic, f"<i{header.label_bytes}")]
    arrays.append(np.ascontiguousarray(scene.rgb, np.uint8))
    checksum = zlib.crc32(names)
    for array in arrays:
        checksum = zlib.crc32(memoryview(array).cast("B"), checksum)
    header = header._replace(checksum=checksum)
    with atomic_file(path) as out:
        out.write(_pack(header) + names)
        for array in arrays:
            out.write(memoryview(array).cast("B"))
    return header


def build_header(scene: Scene, labeled: bool, key: bytes = NO_KEY) -> SceneHeader:
    """Return the header of a scene's file, without the checksum; the scene must have at least one point."""
    xyz, semantic, instance = np.asarray(scene.xyz), np.asarray(scene.semantic), np.asarray(scene.instance)
    highest = int(semantic.max()) if labeled else -1
    x, y, z = (float(length) for length in scene.offset)
    return SceneHeader(
        0 if not labeled else 1 if highest <= 127 else 2,
        len(xyz),
        int((semantic >= 0).sum()) if labeled else 0,
        max(int(instance.max()) + 1, 0) if labeled else 0,
        max(highest, -1),
        _is_centered(xyz),
        tuple(xyz.min(axis=0).tolist()),
        tuple(xyz.max(axis=0).tolist()),
        (x, y, z),
        key,
        0,
        tuple(scene.channels),
        len(scene.skipped_rows),
    )


def read_header(path: str | Path) -> SceneHeader:
    """Return a scene file's header, checking its length only; UserError if missing, damaged, or of another version."""
    try:
        with open_regular(path, "rb") as stream:
            start = stream.read(_START_BYTES)
            return _parse(start, os.fstat(stream.fileno()).st_size, str(path))
    except (OSError, ValueError) as error:  # ValueError: a null character in its name
        raise _unreadable(path, error) from error


def read_scene(path: str | Path, name: str, verify: bool = True) -> Scene:
    """Return a scene whose arrays are read-only views of the file; one-byte semantic labels are copied.

    ``verify`` compares the checksum, 1 ms for a million bytes. UserError if the file is missing, truncated, damaged, or
    of another version.
    """
    content: mmap.mmap | bytes
    try:
        with open_regular(path, "rb") as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError:  # an empty file cannot be mapped
        content = b""
    header = _parse(bytes(content[:_START_BYTES]), len(content), str(path))
    with memoryview(content) as view:
        if verify and zlib.crc32(view[HEADER_BYTES:]) != header.checksum:
            raise UserError(f"scene {path} is damaged: the checksum of its points does not match; {_ADVICE}")
    number, position = header.num_points, HEADER_BYTES + len(_pack_names(header.channels, header.num_skipped))
    skipped = np.frombuffer(content, "<i8", header.num_skipped, position)
    position += skipped.nbytes
    is_row = (skipped >= 0) & (skipped < number + len(skipped))
    if not is_row.all() or (np.diff(skipped) <= 0).any():
        raise UserError(f"scene {path} is damaged: its skipped rows are not ascending rows of the source; {_ADVICE}")
    xyz = np.frombuffer(content, "<f4", 3 * number, position).reshape(number, 3)
    position += 12 * number
    channels = {}
    for channel in header.channels:
        values = np.frombuffer(content, "<f4", channel_width(channel) * number, position)
        channels[channel] = values.reshape(number, -1)
        position += values.nbytes
    if header.label_bytes:
        instance = np.frombuffer(content, "<i2", number, position)
        position += 2 * number
        labels = np.frombuffer(content, f"<i{header.label_bytes}", number, position)
        semantic = labels.astype(np.int16, copy=False)
        position += header.label_bytes * number
    else:
        semantic = instance = np.full(number, IGNORED, np.int16)
    rgb = np.frombuffer(content, np.uint8, 3 * number, position).reshape(number, 3)
    return Scene(xyz, rgb, semantic, instance, name, header.offset, channels, skipped)


def _is_centered(xyz: np.ndarray) -> bool:
    share, meters = _CENTER_TOLERANCE
    extent = float((xyz.max(axis=0) - xyz.min(axis=0)).max())
    return bool(np.abs(xyz.mean(axis=0, dtype=np.float64)).max() <= max(share * extent, meters))


def _check(path: Path, scene: Scene) -> Scene:
    """Return the scene with arrays of the stated types; a user's reader may return others."""
    for name, values in scene.channels.items():
        if np.asarray(values).dtype.kind == "f" and not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise UserError(
                f"scene {path.stem}: {name} of point {row} is not a finite number; repair it, or remove {name} from "
                "--channels"
            )
    try:
        scene = make_scene(**scene._asdict())
    except BadSample as error:
        raise UserError(f"scene {path.stem}: {error}") from error
    if not len(scene.xyz):
        raise UserError(f"scene {path.stem} has no points; remove it from the list of its split")
    if len(_pack_names(tuple(scene.channels), 0)) > _MAX_NAME_BYTES:
        raise UserError(f"scene {path.stem} has {len(scene.channels):,} channels; choose fewer with --channels")
    if scene.instance.dtype != np.int16:
        row = int(np.argmax(scene.instance > np.iinfo(np.int16).max))
        raise UserError(
            f"scene {path.stem}: point {row} has instance {scene.instance[row]}, which is out of range; expected 0 to "
            f"32767, or {IGNORED} for none"
        )
    return scene


def _pack_names(channels: tuple[str, ...], num_skipped: int) -> bytes:
    """Pack the data between header and skipped rows."""
    names = "".join(f"{name}\n" for name in channels).encode("utf-8", "surrogateescape")
    return _LENGTHS.pack(num_skipped, len(names)) + names + bytes(-len(names) % 4)


def _parse_names(content: bytes, path: str) -> tuple[tuple[str, ...], int]:
    """Return the channels of a scene and the number of its skipped rows from the beginning of its file."""
    num_skipped, length = _LENGTHS.unpack_from(content.ljust(_START_BYTES, b"\0"), HEADER_BYTES)
    names = content[HEADER_BYTES + _LENGTHS.size :][:length]
    if length > _MAX_NAME_BYTES or len(names) < length or not (b"\n" + names).endswith(b"\n"):
        raise UserError(f"scene {path} is damaged: the names of its channels are incomplete; {_ADVICE}")
    return tuple(names.decode("utf-8", "surrogateescape").split("\n")[:-1]), num_skipped


def _pack(header: SceneHeader) -> bytes:
    counts = header[:6]  # in the order of the file
    places = *header.low, *header.high, *header.offset
    fields = HEADER.pack(MAGIC, VERSION, *counts, *places, header.key, header.checksum)
    padded = fields.ljust(HEADER_BYTES - _CHECKSUM.size, b"\0")
    return padded + _CHECKSUM.pack(zlib.crc32(padded))


def _parse(content: bytes, file_bytes: int, path: str) -> SceneHeader:
    if content[: len(MAGIC)] != MAGIC[: len(content)] or not content:
        raise UserError(f"scene {path} is not a prepared scene; {_ADVICE}")
    if len(content) < HEADER_BYTES:
        raise UserError(
            f"scene {path} is truncated: expected at least {HEADER_BYTES} bytes, found {file_bytes}; {_ADVICE}"
        )
    version = struct.unpack_from("<I", content, len(MAGIC))[0]
    body = content[: HEADER_BYTES - _CHECKSUM.size]
    checksum = _CHECKSUM.unpack_from(content, len(body))[0]
    if version != VERSION:  # first: others may store the checksum elsewhere
        raise UserError(f"scene {path} has version {version}, this program reads version {VERSION}; {_ADVICE}")
    if zlib.crc32(body) != checksum:
        raise UserError(f"scene {path} is damaged: the checksum of its header does not match; {_ADVICE}")
    fields = HEADER.unpack_from(content)
    names, num_skipped = _parse_names(content, path)
    label_bytes, num_points, num_labeled, num_instances, highest_class, is_centered = fields[2:8]
    header = SceneHeader(
        label_bytes,
        num_points,
        num_labeled,
        num_instances,
        highest_class,
        bool(is_centered),
        low=fields[8:11],
        high=fields[11:14],
        offset=fields[14:17],
        key=fields[17],
        checksum=fields[18],
        channels=names,
        num_skipped=num_skipped,
    )
    if file_bytes != header.file_bytes:
        raise UserError(f"scene {path} is truncated: expected {header.file_bytes} bytes, found {file_bytes}; {_ADVICE}")
    return header


def _unreadable(path: str | Path, error: Exception) -> UserError:
    reason = getattr(error, "strerror", None) or error
    return UserError(f"scene {path} cannot be read: {reason}; prepare the data again")


def scene_file(root: str | Path, name: str) -> str:
    """Return the path of the scene of this name in a store."""
    return os.path.join(root, SCENES_FOLDER, name + SUFFIX)


def list_file(root: str | Path, split: str) -> str:
    """Return the path of the list of a split's scene names in a store."""
    return find_suffix(os.path.join(root, f"{split}.txt"))


def list_splits(root: str | Path) -> list[str]:
    """Return the splits that a store has lists of: train, val and test first."""
    files = [name for name in os.listdir(root) if name.lower().endswith(".txt") and not is_hidden(name)]
    lists = [os.path.splitext(name)[0] for name in files if name.lower() != CLASSES_FILE]
    return sorted(lists, key=lambda split: (SPLITS.index(split) if split in SPLITS else len(SPLITS), split))


def store_is_centered(root: str | Path) -> bool:
    """Return True if all scenes in all splits of a store are centered.

    The value is recorded by ``prepare``, or else read from the scenes' headers. Unreadable scenes are ignored until
    their split is opened.
    """
    try:
        is_centered = read_json(os.path.join(root, RECORD_FILE))["centered"]
    except (OSError, ValueError, LookupError, TypeError):
        is_centered = None
    if isinstance(is_centered, bool):
        return is_centered
    for name in {scene for split in SPLITS for scene in read_lines(list_file(root, split)) or ()}:
        try:
            if not read_header(scene_file(root, name)).is_centered:
                return False
        except UserError:
            continue
    return True


def read_lines(path: str | Path, is_known: Callable[[str], bool] | None = None) -> list[str] | None:
    """Return a text file's non-empty lines, None if there is no such file; UserError if it cannot be read.

    Spaces around a line are removed, unless ``is_known`` is true of the line with them.
    """
    try:
        with readable(path):
            content = to_utf8(read_regular(path))
            refuse_null_bytes(content)
    except UserError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    lines = [line.decode("utf-8", "surrogateescape") for line in content.splitlines() if line.strip()]
    return [line if is_known is not None and is_known(line) else line.strip(_SPACES) for line in lines]


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of this name is the system's, such as .DS_Store, ._chair_1.txt or __MACOSX."""
    return name.startswith(".") or name == "__MACOSX"


def write_lines(path: Path, lines: list[str]) -> None:
    """Write a text file atomically."""
    with atomic_file(path) as out:
        out.write("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
