"""List the images in files, folders, tar files, data files and videos, in natural_key order."""

import functools
import hashlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.runtime.outages import read_through_outages
from ...core.runtime.printing import count
from ...core.tasks.prediction import stamps
from .formats import (
    HEAD_BYTES,
    PACKED_TARS,
    SkippedFiles,
    detect_image_type,
    find_hint,
    get_suffix,
    is_hidden,
    is_hidden_path,
    is_image_name,
    read_head,
    readable_suffixes,
    walk_files,
)
from .hub.layout import ARROW, PARQUET
from .hub.opening import holds_images, locate_images
from .reading import UnreadableImage
from .tar_files import OpenFiles, keep_last
from .tar_members import iterate_members

NO_ARCHIVE = -1
_VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv")


class ListedImage(NamedTuple):
    """An image that was listed.

    Attributes:
        name: as shown: a path, or the path of an archive and its member.
        archive: number of the tar file or video; -1 for a file.
        offset: position of the bytes in the archive; number of the frame; a file's time of last change in ns.
        size: bytes of the image in the archive; of the video; of the file.
    """

    name: bytes
    archive: int
    offset: int
    size: int


class InputListing:
    """Lists the images of paths: ``images``, ``archives`` by number, ``unreadable`` and ``notices``."""

    def __init__(self) -> None:
        self.images: list[ListedImage] = []
        self.archives: list[str] = []
        self.unreadable: list[tuple[str, str]] = []
        self.notices: list[str] = []

    def add(self, path: bytes) -> None:
        """List a file, a folder and its subfolders, a tar file, a Parquet or Arrow file, or a video."""
        shown = os.fsdecode(path)
        try:
            status = read_through_outages(functools.partial(os.stat, path))
        except (OSError, ValueError) as error:
            self.unreadable.append((shown, getattr(error, "strerror", None) or str(error)))
            return
        if stat.S_ISDIR(status.st_mode):
            self._add_folder(path)
        elif _is_archive(path):
            self._add_archive(path)
        elif is_video(shown):
            self._add_video(shown)
        elif shown.lower().endswith((*PARQUET, *ARROW)):
            self._add_rows(shown)
        else:
            self.images.append(ListedImage(path, NO_ARCHIVE, status.st_mtime_ns, status.st_size))

    def _add_video(self, path: str) -> None:
        """List the frames of a video, named by number and time."""
        try:
            times = read_frame_times(path)
        except UserError as error:
            self.unreadable.append((path, str(error)))
            return
        stem, size = os.path.splitext(os.path.basename(path))[0], os.path.getsize(path)
        for frame, time_ms in enumerate(times):
            name = os.fsencode(f"{path}/{stem}_{frame:06d}_{time_ms}ms")
            self.images.append(ListedImage(name, len(self.archives), frame, size))
        self.archives.append(os.path.abspath(path))

    def _add_rows(self, path: str) -> None:
        """List the images in the rows of a Parquet or Arrow file, named by their numbers."""
        try:
            archive, places, notices = locate_images(path)
        except UserError as error:
            self.unreadable.append((path, str(error)))
            return
        for row, (offset, size) in enumerate(places.ranges.tolist()):
            name = f"{path}/{row}"
            if row in places.paths:
                self.add(os.fsencode(os.path.join(os.path.dirname(path), places.paths[row])))
            elif size < 0:
                self.unreadable.append((name, "the row has no image"))
            else:
                self.images.append(ListedImage(os.fsencode(name), len(self.archives), offset, size))
        self.archives.append(os.path.abspath(archive))
        self.notices += notices

    def _add_folder(self, top: bytes) -> None:
        skipped, paths = SkippedFiles(os.fsdecode(top)), []
        hidden, before = 0, len(self.images) + len(self.unreadable)
        for entry in walk_files(top, lambda folder, reason: self.unreadable.append((os.fsdecode(folder), reason))):
            if is_hidden(entry.name):
                hidden += 1
            else:
                paths.append(entry.path)
        for path in sorted(paths, key=natural_key):
            if (
                get_suffix(os.path.basename(path)) in readable_suffixes()
                or _is_archive(path)
                or holds_images(os.fsdecode(path))
                or is_video(os.fsdecode(path))
            ):
                self.add(path)
            else:
                self._skip(path, skipped, functools.partial(read_head, path))
        self._log(skipped, f"below {skipped.place}: {hidden:,} hidden files or folders" if hidden else "")
        if before == len(self.images) + len(self.unreadable):
            self.unreadable.append((skipped.place, "the folder contains no images"))

    def _add_archive(self, path: bytes) -> None:
        shown = os.fsdecode(path)
        number, skipped, files = len(self.archives), SkippedFiles(shown), OpenFiles()
        hidden, first, before = 0, len(self.images), len(self.images) + len(self.unreadable)
        self.archives.append(os.path.abspath(shown))
        try:
            for member in iterate_members(shown):
                name = path + b"/" + member.name
                if is_hidden_path(member.name):
                    hidden += 1
                elif member.problem and is_image_name(member.name):
                    self.unreadable.append((os.fsdecode(name), f"one of the {member.problem}"))
                elif member.problem:
                    skipped.add_unusable(member.name, member.problem)
                elif is_image_name(member.name):
                    self.images.append(ListedImage(name, number, member.offset, member.size))
                else:
                    size = min(member.size, HEAD_BYTES)
                    head = lambda offset=member.offset, size=size: files.read(shown, offset, size).tobytes()  # noqa: E731
                    self._skip(name, skipped, head)
        except (UserError, OSError) as error:
            self.unreadable.append((shown, str(error)))
        self.images[first:] = keep_last(self.images[first:], skipped)
        self._log(skipped, f"in {shown}: {count(hidden, 'hidden file')}" if hidden else "")
        if before == len(self.images) + len(self.unreadable):
            self.unreadable.append((shown, "the archive contains no images"))

    def _log(self, skipped: SkippedFiles, hidden: str) -> None:
        if hidden:
            self.notices.append(f"skipped {hidden}")
        if skipped.counts:
            self.notices.append(skipped.summary())

    def _skip(self, path: bytes, skipped: SkippedFiles, read_head: Callable[[], bytes]) -> None:
        name = os.path.basename(path)
        hint = find_hint(get_suffix(name).decode("ascii"))
        if hint is not None:
            self.unreadable.append((os.fsdecode(path), f"an image that Pillow cannot open here ({hint})"))
            return
        images_before = skipped.num_images
        skipped.add(name, path, read_head)
        if skipped.num_images > images_before:
            kind = detect_image_type(read_head())
            reason = f"a {kind} image by its content, but not by its name: rename it, or pass the file itself"
            self.unreadable.append((os.fsdecode(path), reason))

    def digest(self, paths: Sequence[str]) -> bytes:
        """Return a hash that changes with the images, their order, and their size or time of change."""
        key = hashlib.sha256()
        for path in paths:
            key.update(os.fsencode(os.path.abspath(path)) + b"\0")
        for image in self.images:
            key.update(b"%d %d %d %s\0" % (image.archive, image.offset, image.size, image.name))
        key.update(repr(stamps(self.archives)).encode("utf-8", "surrogateescape"))
        for path, _ in self.unreadable:
            key.update(os.fsencode(path) + b"\0")
        return key.digest()


def natural_key(path: bytes) -> tuple[Any, ...]:
    """Return a sort key that orders paths part by part and numbers in them by value: ``2.png`` before ``10.png``."""
    parts = (re.split(rb"([0-9]+)", part) for part in path.split(b"/"))
    return tuple(tuple(int(p) if number % 2 else p for number, p in enumerate(pieces)) for pieces in parts), path


def _is_archive(path: bytes) -> bool:
    return os.fsdecode(path).lower().endswith((".tar", *PACKED_TARS))


def is_video(path: str) -> bool:
    """Return whether a file has the suffix of a video."""
    return path.lower().endswith(_VIDEO_SUFFIXES)


def read_frame_times(path: str) -> list[int]:
    """Return the time of each frame in milliseconds; decodes the whole file, since its stated length is an estimate.

    A ``UserError`` says that OpenCV is not installed, or finds no frames.
    """
    capture, times = _open(path), []
    while capture.grab():
        times.append(round(capture.get(0)))  # CAP_PROP_POS_MSEC
    if not times:
        raise UserError("OpenCV finds no frames in this video")
    return times


class VideoFile:
    """A video file, for one thread; read frames in ascending order to avoid decoding it again."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._capture, self._next = _open(path), 0

    def frame(self, number: int) -> Image.Image:
        """Decode frame ``number`` from 0, RGB; an ``UnreadableImage`` if the video has become shorter."""
        if number < self._next:
            self._capture, self._next = _open(self.path), 0
        while self._next <= number:
            if not self._capture.grab():
                raise UnreadableImage(self.path, f"it has no frame {number} any more")
            self._next += 1
        _, pixels = self._capture.retrieve()
        return Image.fromarray(np.ascontiguousarray(pixels[:, :, ::-1]))


def _open(path: str) -> Any:
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # quiet: damage is reported in one line
    try:
        import cv2
    except ImportError as error:
        raise UserError("a video, which OpenCV reads: python -m pip install opencv-python-headless") from error
    set_level = cv2.setLogLevel if hasattr(cv2, "setLogLevel") else cv2.utils.logging.setLogLevel  # until OpenCV 4
    set_level(2)  # errors
    return cv2.VideoCapture(os.path.abspath(path), cv2.CAP_FFMPEG)
