"""Contents of files, folders, tar files and videos, in an order that people expect."""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ...runtime.errors import UserError
from .formats import (
    HEAD_BYTES,
    PACKED_TARS,
    LeftOut,
    files_below,
    find_hint,
    get_suffix,
    image_kind,
    is_hidden,
    is_hidden_path,
    read_head,
    readable_suffixes,
)
from .reading import UnreadableImage
from .tar_files import OpenFiles, members

NO_ARCHIVE = -1
_VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv")


class ListedImage(NamedTuple):
    """An image that was listed.

    Attributes:
        name: as it is shown: a path, or that of an archive and its member.
        archive: number of the tar file or the video that it is in; -1: it is a file.
        offset, size: of its bytes in the archive; of a frame: its number, and the video's size; of a file: time of its
            last change in ns, and size.
    """

    name: bytes
    archive: int
    offset: int
    size: int


class InputListing:
    """Lists what the given paths hold: ``found``, ``archives`` by number, ``unreadable`` and ``notices``."""

    def __init__(self) -> None:
        self.found: list[ListedImage] = []
        self.archives: list[str] = []
        self.unreadable: list[tuple[str, str]] = []
        self.notices: list[str] = []

    def add(self, path: bytes) -> None:
        """List a file, a folder with all that is below it, a tar file, or a video."""
        shown = os.fsdecode(path)
        try:
            status = os.stat(path)
        except (OSError, ValueError) as error:
            self.unreadable.append((shown, getattr(error, "strerror", None) or str(error)))
            return
        if stat.S_ISDIR(status.st_mode):
            self._add_folder(path)
        elif _is_archive(path):
            self._add_archive(path)
        elif is_video(shown):
            self._add_video(shown)
        else:
            self.found.append(ListedImage(path, NO_ARCHIVE, status.st_mtime_ns, status.st_size))

    def _add_video(self, path: str) -> None:
        """List its frames, each called by its number and its time."""
        try:
            times = frame_times(path)
        except UserError as error:
            self.unreadable.append((path, str(error)))
            return
        stem, size = os.path.splitext(os.path.basename(path))[0], os.path.getsize(path)
        for frame, time_ms in enumerate(times):
            name = os.fsencode(f"{path}/{stem}_{frame:06d}_{time_ms}ms")
            self.found.append(ListedImage(name, len(self.archives), frame, size))
        self.archives.append(os.path.abspath(path))

    def _add_folder(self, top: bytes) -> None:
        left_out, paths = LeftOut(os.fsdecode(top)), []
        hidden, before = 0, len(self.found) + len(self.unreadable)
        for entry in files_below(top, lambda folder, reason: self.unreadable.append((os.fsdecode(folder), reason))):
            if is_hidden(entry.name):
                hidden += 1
            else:
                paths.append(entry.path)
        for path in sorted(paths, key=natural):
            if (
                get_suffix(os.path.basename(path)) in readable_suffixes()
                or _is_archive(path)
                or is_video(os.fsdecode(path))
            ):
                self.add(path)
            else:
                self._leave_out(path, left_out, lambda path=path: read_head(path))
        self._log(left_out, f"below {left_out.place}: {hidden:,} hidden files or folders" if hidden else "")
        if before == len(self.found) + len(self.unreadable):
            self.unreadable.append((left_out.place, "the folder holds no images"))

    def _add_archive(self, path: bytes) -> None:
        shown = os.fsdecode(path)
        number, left_out, files = len(self.archives), LeftOut(shown), OpenFiles()
        hidden, before = 0, len(self.found) + len(self.unreadable)
        self.archives.append(os.path.abspath(shown))
        try:
            for member in members(shown):
                name = path + b"/" + member.name
                if is_hidden_path(member.name):
                    hidden += 1
                elif get_suffix(os.path.basename(name)) in readable_suffixes():
                    self.found.append(ListedImage(name, number, member.offset, member.size))
                else:
                    size = min(member.size, HEAD_BYTES)
                    head = lambda offset=member.offset, size=size: files.read(shown, offset, size).tobytes()  # noqa: E731
                    self._leave_out(name, left_out, head)
        except (UserError, OSError) as error:
            self.unreadable.append((shown, str(error)))
        self._log(left_out, f"in {shown}: {hidden:,} hidden files" if hidden else "")
        if before == len(self.found) + len(self.unreadable):
            self.unreadable.append((shown, "the archive holds no images"))

    def _log(self, left_out: LeftOut, hidden: str) -> None:
        if hidden:
            self.notices.append(f"left out {hidden}")
        if left_out.counts:
            self.notices.append(left_out.summary())

    def _leave_out(self, path: bytes, left_out: LeftOut, read_head: Callable[[], bytes]) -> None:
        name = os.path.basename(path)
        hint = find_hint(get_suffix(name).decode("ascii"))
        if hint is not None:
            self.unreadable.append((os.fsdecode(path), f"an image that Pillow cannot open here ({hint})"))
            return
        images_before = left_out.num_images
        left_out.add(name, path, read_head)
        if left_out.num_images > images_before:
            kind = image_kind(read_head())
            reason = f"a {kind} image by its content, but not by its name: rename it, or name the file itself"
            self.unreadable.append((os.fsdecode(path), reason))

    def digest(self, given: Sequence[str]) -> bytes:
        """Changes with the images, their order, and their size or time of change."""
        key = hashlib.sha256()
        for path in given:
            key.update(os.fsencode(os.path.abspath(path)) + b"\0")
        for one in self.found:
            key.update(b"%d %d %d %s\0" % (one.archive, one.offset, one.size, one.name))
        for path, _ in self.unreadable:
            key.update(os.fsencode(path) + b"\0")
        return key.digest()


def natural(path: bytes) -> tuple[Any, ...]:
    """Sorts paths part by part, and numbers in them by value: ``2.png`` before ``10.png``."""
    parts = (re.split(rb"([0-9]+)", part) for part in path.split(b"/"))
    return tuple(tuple(int(p) if number % 2 else p for number, p in enumerate(pieces)) for pieces in parts), path


def _is_archive(path: bytes) -> bool:
    return os.fsdecode(path).lower().endswith((".tar", *PACKED_TARS))


def is_video(path: str) -> bool:
    """Whether a file is called as videos are."""
    return path.lower().endswith(_VIDEO_SUFFIXES)


def frame_times(path: str) -> list[int]:
    """The time of each frame in milliseconds. Decodes the whole file: what a file says of its length is an estimate.

    Raises:
        UserError: OpenCV is not installed, or finds no frames.
    """
    capture, times = _open(path), []
    while capture.grab():
        times.append(round(capture.get(0)))  # CAP_PROP_POS_MSEC
    if not times:
        raise UserError("OpenCV finds no frames in this video")
    return times


class VideoFile:
    """A video file; its frames are best asked for in ascending order. For one thread."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._capture, self._next = _open(path), 0

    def frame(self, number: int) -> Image.Image:
        """Frame ``number`` from 0, RGB. Counted and not looked up, which is inexact for many formats.

        Raises:
            UnreadableImage: the video has become shorter.
        """
        if number < self._next:
            self._capture, self._next = _open(self.path), 0
        while self._next <= number:
            if not self._capture.grab():
                raise UnreadableImage(self.path, f"it has no frame {number} any more")
            self._next += 1
        _, pixels = self._capture.retrieve()
        return Image.fromarray(np.ascontiguousarray(pixels[:, :, ::-1]))


def _open(path: str) -> Any:
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # nothing: what is wrong with a file is told in one line
    try:
        import cv2
    except ImportError as error:
        raise UserError("a video, which OpenCV reads: python -m pip install opencv-python-headless") from error
    set_level = cv2.setLogLevel if hasattr(cv2, "setLogLevel") else cv2.utils.logging.setLogLevel  # before, from 5.0 on
    set_level(2)  # errors
    return cv2.VideoCapture(os.path.abspath(path), cv2.CAP_FFMPEG)
