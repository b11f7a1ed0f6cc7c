"""Pictures without labels: what files, folders, tar files and patterns hold, in an order that people expect."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Sequence as AbstractSequence
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
from PIL import Image

from ...checkpoint.download import fetch, is_address
from ...contracts.prediction import InputSamples
from ...contracts.sample_checks import BadSample
from ...errors import UserError
from ...files import atomic_file, is_folder, map_array
from ...loading.path_index import PathIndex, ensure_path_index, make_batch
from ...printing import without_credentials
from .formats import HEAD_BYTES, hint_of, is_hidden, picture_kind, readable_suffixes, suffix_of
from .inspection import note_deep
from .left_out import LeftOut, head_of
from .reading import Reading, UnreadablePicture, converted, decode_image, read_file
from .tar_members import TarFile
from .videos import Video, is_video, moments

_OPEN_FILES = 64
_NO_ARCHIVE = -1
_LIKE_ARCHIVES = (b".tar",)
_LARGEST_FETCHED_BYTES = 256 << 20


class Found(NamedTuple):
    """A picture that was listed.

    Attributes:
        name: as it is shown: a path, or that of an archive and its member.
        archive: number of the tar file, the video or the fetched file that it is in; -1: it is a file.
        offset, size: of its bytes in the archive; of a frame: its number, and the video's size; of a file: time of its
            last change in ns, and size.
    """

    name: bytes
    archive: int
    offset: int
    size: int


class Listing:
    """Lists what the given paths hold: ``found``, ``archives`` by number, ``unreadable`` and ``notices``.

    Args:
        folder: for what is fetched.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.found: List[Found] = []
        self.archives: List[str] = []
        self.unreadable: List[Tuple[str, str]] = []
        self.notices: List[str] = []

    def add(self, path: str) -> None:
        """List a file, a folder with all that is below it, a tar file, a video, what a pattern matches, or what is at
        an address."""
        if is_address(path):
            self._add_address(path)
            return
        if not os.path.lexists(path) and glob.has_magic(path):
            matches = sorted(map(os.fsencode, glob.glob(path, recursive=True)), key=natural)
            for match in matches:
                self._add_one(match)
            if matches:
                return
        self._add_one(os.fsencode(path))

    def _add_one(self, path: bytes) -> None:
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
            self._add_video(shown, shown)
        else:
            self.found.append(Found(path, _NO_ARCHIVE, status.st_mtime_ns, status.st_size))

    def _add_video(self, path: str, shown: str) -> None:
        """List its frames, each called by its number and its time."""
        try:
            times = moments(path)
        except UserError as error:
            self.unreadable.append((shown, str(error)))
            return
        stem, size = os.path.splitext(os.path.basename(shown))[0], os.path.getsize(path)
        for frame, time_ms in enumerate(times):
            name = os.fsencode(f"{shown}/{stem}_{frame:06d}_{time_ms}ms")
            self.found.append(Found(name, len(self.archives), frame, size))
        self.archives.append(os.path.abspath(path))

    def _add_address(self, address: str) -> None:
        shown = without_credentials(address)
        name = shown.partition("?")[0]
        suffix = os.path.splitext(name)[1] if is_video(name) else ""
        file = self._folder / f"fetched-{len(self.archives)}{suffix}"
        try:
            fetch(address, file, _LARGEST_FETCHED_BYTES)
        except (UserError, OSError) as error:
            self.unreadable.append((shown, str(error)))
            return
        if suffix:
            self._add_video(str(file), shown)
        else:
            self.found.append(Found(os.fsencode(shown), len(self.archives), 0, file.stat().st_size))
            self.archives.append(str(file))

    def _add_folder(self, top: bytes) -> None:
        left_out, hidden, found = LeftOut(os.fsdecode(top)), 0, []
        folders: List[Tuple[bytes, FrozenSet[Tuple[int, int]]]] = [(top, frozenset())]
        while folders:  # no recursion: trees may be deeper than Python's stack
            folder, parents = folders.pop()
            try:
                status = os.stat(folder)
                if (status.st_dev, status.st_ino) in parents:
                    raise OSError(0, "it is a link to a folder that contains it")
                with os.scandir(folder) as scanned:
                    entries = list(scanned)
            except OSError as error:
                self.unreadable.append((os.fsdecode(folder), f"it cannot be listed: {error.strerror}"))
                continue
            inside = parents | {(status.st_dev, status.st_ino)}
            for entry in entries:
                if is_hidden(entry.name):
                    hidden += 1
                elif is_folder(entry):
                    folders.append((entry.path, inside))
                else:
                    found.append(entry.path)
        before = len(self.found), len(self.unreadable)
        for path in sorted(found, key=natural):
            self._add_of_folder(path, left_out)
        if hidden:
            self.notices.append(f"left out below {left_out.place}: {hidden:,} hidden files or folders")
        if left_out.counts:
            self.notices.append(left_out.summary())
        if before == (len(self.found), len(self.unreadable)):
            self.unreadable.append((left_out.place, "the folder holds no pictures"))

    def _add_of_folder(self, path: bytes, left_out: LeftOut) -> None:
        suffix = suffix_of(os.path.basename(path))
        if suffix in readable_suffixes() or _is_archive(path) or is_video(os.fsdecode(path)):
            self._add_one(path)
            return
        hint = hint_of(suffix.decode("ascii"))
        if hint is not None:
            self.unreadable.append((os.fsdecode(path), f"a picture that Pillow cannot open here ({hint})"))
            return
        head = [b""]

        def read_head() -> bytes:
            head[0] = head_of(path)
            return head[0]

        left_out.add(os.path.basename(path), path, read_head)
        kind = picture_kind(head[0])
        if kind is not None:
            reason = f"a {kind} picture by its content, but not by its name: rename it, or name the file itself"
            self.unreadable.append((os.fsdecode(path), reason))

    def _add_archive(self, path: bytes) -> None:
        shown = os.fsdecode(path)
        number, left_out, hidden, before = len(self.archives), LeftOut(shown), 0, len(self.found)
        self.archives.append(os.path.abspath(shown))
        try:
            with TarFile(shown) as tar:
                for name, offset, size in _pictures_and_others(tar):
                    base = name.rpartition(b"/")[2]
                    if any(is_hidden(part) for part in name.split(b"/") if part not in (b".", b"..")):
                        hidden += 1
                    elif suffix_of(base) in readable_suffixes():
                        self.found.append(Found(path + b"/" + name, number, offset, size))
                    else:
                        self._leave_out(path + b"/" + name, tar, offset, size, left_out)
        except UserError as error:
            self.unreadable.append((shown, str(error)))
        if hidden:
            self.notices.append(f"left out in {shown}: {hidden:,} hidden files")
        if left_out.counts:
            self.notices.append(left_out.summary())
        if before == len(self.found) and not (self.unreadable and self.unreadable[-1][0].startswith(shown)):
            self.unreadable.append((shown, "the archive holds no pictures"))

    def _leave_out(self, path: bytes, tar: TarFile, offset: int, size: int, left_out: LeftOut) -> None:
        base = os.path.basename(path)
        hint = hint_of(suffix_of(base).decode("ascii"))
        if hint is not None:
            self.unreadable.append((os.fsdecode(path), f"a picture that Pillow cannot open here ({hint})"))
        else:
            left_out.add(base, path, lambda: tar.read(offset, min(size, HEAD_BYTES)))

    def digest(self, given: Sequence[str]) -> bytes:
        """Changes with the pictures, their order, and their size or time of change."""
        key = hashlib.sha256()
        for path in given:
            key.update(os.fsencode(os.path.abspath(path)) + b"\0")
        for one in self.found:
            key.update(b"%d %d %d %s\0" % (one.archive, one.offset, one.size, one.name))
        for path, _ in self.unreadable:
            key.update(os.fsencode(path) + b"\0")
        return key.digest()


def natural(path: bytes) -> Tuple[Any, ...]:
    """Sorts paths part by part, and numbers in them by value: ``2.png`` before ``10.png``."""
    return tuple(_natural_part(part) for part in path.split(b"/")), path


def _natural_part(part: bytes) -> Tuple[Any, ...]:
    pieces = re.split(rb"([0-9]+)", part)
    return tuple(int(piece) if number % 2 else piece for number, piece in enumerate(pieces))


def _is_archive(path: bytes) -> bool:
    name = os.path.basename(path).lower()
    return name.endswith(_LIKE_ARCHIVES + (b".tar.gz", b".tgz", b".tar.bz2", b".tbz", b".tar.xz", b".txz", b".tar.zst"))


def _pictures_and_others(tar: TarFile) -> Iterator[Tuple[bytes, int, int]]:
    """Name, offset and size of each plain file, those of tar files inside it included."""
    for member in tar.members():
        if member.name.lower().endswith(_LIKE_ARCHIVES):
            for inner in tar.members(member):
                yield _plain(member.name) + b"/" + _plain(inner.name), inner.offset, inner.size
        else:
            yield _plain(member.name), member.offset, member.size


def _plain(name: bytes) -> bytes:
    return name[2:] if name.startswith(b"./") else name


class Names(AbstractSequence):
    """The paths of an index as they were listed; its pickle is the name of the index."""

    def __init__(self, index: PathIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            return [self._index.path(number) for number in range(*position.indices(len(self)))]
        return self._index.path(position)


class PictureInputs(InputSamples):
    """Listed pictures with the transform of an evaluation.

    Args:
        given: paths of files, folders, tar files and videos, patterns, and addresses.
        cache_folder: for the list, which processes map instead of copying, and for what is fetched.
        transform: called with a PIL image and a generator; returns what the task collates.
        mode: of Pillow, that pictures are converted to.
    """

    def __init__(self, given: Sequence[str], cache_folder: Path, transform: Any, mode: str, reading: Reading) -> None:
        listing = Listing(cache_folder)
        for path in given:
            listing.add(path)
        key, found = listing.digest(given), listing.found
        numbers = np.array([one.archive for one in found], np.int32)
        self._index = ensure_path_index(
            cache_folder, "inputs", key, lambda: [make_batch([one.name for one in found], numbers)]
        )
        self._locations_file = str(cache_folder / f"inputs-{key.hex()[:16]}.npy")
        with atomic_file(Path(self._locations_file)) as file:
            np.save(file, np.array([one[2:] for one in found], np.int64).reshape(-1, 2), allow_pickle=False)
        self.names = Names(self._index)
        self.unreadable, self.notices = listing.unreadable, listing.notices
        self._archives, self._transform, self._mode, self._reading = listing.archives, transform, mode, reading
        self._locations: Optional[np.ndarray] = None
        self._files: OrderedDict = OrderedDict()
        self._videos: Dict[Tuple[int, int], Video] = {}
        self.notices = [*self.notices, *note_deep(len(self.names), self._encoded, self.names.__getitem__)]

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_locations": None, "_files": OrderedDict(), "_videos": {}}

    def fingerprint(self) -> str:
        return self._index.key.hex()

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """What the transform makes of picture ``index``.

        Raises:
            UnreadablePicture: it cannot be decoded.
        """
        return self._transform(self.picture(index), generator)

    def picture(self, index: int) -> Image.Image:
        """Picture ``index`` as it is stored.

        Raises:
            UnreadablePicture: it cannot be decoded.
        """
        archive = self._index.label(index)
        if archive != _NO_ARCHIVE and is_video(self._archives[archive]):
            return converted(self._frame(archive, index), self._mode, self._reading)
        return decode_image(self._encoded(index), self.names[index], self._mode, self._reading)

    def _frame(self, archive: int, index: int) -> Image.Image:
        reader = os.getpid(), threading.get_ident()  # a video is read from where its reader stands
        if reader not in self._videos or self._videos[reader].path != self._archives[archive]:
            self._videos[reader] = Video(self._archives[archive])
        return self._videos[reader].frame(self._location(index)[0])

    def _encoded(self, index: int) -> bytes:
        """The bytes of a picture; none of a frame."""
        name, archive = self.names[index], self._index.label(index)
        if archive != _NO_ARCHIVE and is_video(self._archives[archive]):
            return b""
        return read_file(name) if archive == _NO_ARCHIVE else self._member(name, archive, index)

    def _member(self, name: str, archive: int, index: int) -> bytes:
        offset, size = self._location(index)
        try:
            content = os.pread(self._descriptor(archive), size, offset)
        except OSError as error:
            raise UnreadablePicture(name, error.strerror) from error
        if len(content) != size:
            raise UnreadablePicture(name, "the archive has become shorter since it was listed")
        return content

    def _location(self, index: int) -> List[int]:
        if self._locations is None:
            self._locations = map_array(self._locations_file)
        return self._locations[index].tolist()

    def _descriptor(self, archive: int) -> int:
        """An open tar file. Forked processes may share it, since reads pass an explicit offset."""
        if archive in self._files:
            self._files.move_to_end(archive)
        else:
            while len(self._files) >= _OPEN_FILES:
                self._files.popitem(last=False)[1].close()
            self._files[archive] = open(self._archives[archive], "rb", buffering=0)  # noqa: SIM115 - stays open
        return self._files[archive].fileno()


class GivenPictures(InputSamples):
    """Pictures in memory: PIL images, and uint8 arrays (height, width[, 1 or 3 or 4])."""

    def __init__(self, pictures: Sequence[Any], transform: Any, mode: str, reading: Reading) -> None:
        self._pictures, self._transform, self._mode, self._reading = list(pictures), transform, mode, reading
        self.names = [f"picture {number}" for number in range(len(self._pictures))]

    def fingerprint(self) -> str:
        """Of a list that no other process can have."""
        return f"{len(self._pictures)} pictures at {id(self)}"

    def sample(self, index: int, generator: np.random.Generator) -> Any:
        """As ``PictureInputs.sample``."""
        return self._transform(self.picture(index), generator)

    def picture(self, index: int) -> Image.Image:
        """Picture ``index`` as it was given."""
        picture = self._pictures[index]
        if isinstance(picture, np.ndarray):
            is_picture = picture.ndim == 2 or (picture.ndim == 3 and picture.shape[2] in (1, 3, 4))
            if picture.dtype != np.uint8 or not is_picture or not picture.size:
                raise BadSample(f"expected uint8 (height, width[, 3]), got {picture.dtype} {picture.shape}")
            picture = Image.fromarray(picture[:, :, 0] if picture.ndim == 3 and picture.shape[2] == 1 else picture)
        elif not isinstance(picture, Image.Image):
            raise BadSample(f"expected a path, a PIL image or an array, got {type(picture).__name__}")
        return converted(picture, self._mode, self._reading)


def picture_inputs(
    inputs: Sequence[Any], cache_folder: Path, transform: Any, mode: str, reading: Reading
) -> Union[PictureInputs, GivenPictures]:
    """Pictures at paths, or in memory; the arguments are those of ``PictureInputs``.

    Raises:
        UserError: paths and pictures in memory are mixed.
    """
    are_paths = [isinstance(one, str) for one in inputs]
    if any(are_paths) and not all(are_paths):
        raise UserError("predict: paths and pictures in memory were given together: give one kind at a time")
    if inputs and not any(are_paths):
        return GivenPictures(inputs, transform, mode, reading)
    return PictureInputs(inputs, cache_folder, transform, mode, reading)
