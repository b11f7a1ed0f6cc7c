"""Tar files at an address: found by a listing or a published index, read image by image into a cache of this machine.

A published index (``prepare index``) is in the folder of the tar files: ``tar-index.json`` names them with their sizes,
and the two files of each split that ``tar`` otherwise builds. Without it, the headers of all tar files are read once.
"""

import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from ...core.data.checked_files import DamagedCacheError, map_verified
from ...core.data.path_index import PathIndex
from ...core.data.range_cache import RangeCache
from ...core.data.remote_folder import RangeRequest, RemoteFile, RemoteFolder, RemoteReader
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file, os_errors_as_user_errors
from ...core.runtime.json_format import format_json
from ...core.runtime.text_files import parse_json, read_json
from .formats import is_image_name
from .image_dataset import FILE as CLASSES_FILE
from .imagenet import LISTS
from .prepared import FILE as PREPARED_FILE
from .tar_files import find_shards, scan
from .tar_members import TarMember, read_members

INDEX_FILE = "tar-index.json"
_LISTS = (CLASSES_FILE, PREPARED_FILE, *LISTS.values())
_SCAN_BUFFER_BYTES = 1 << 16  # of a tar file, read at once for its headers
_REPAIR = "write the index again with 'prepare index', and upload it with the tar files"
_LONGEST_NAME = 100  # bytes of a name in a member's header; another header may have a longer one
_GIGABYTE = 1 << 30
Range = tuple[str, int, int]  # tar file, offset, size


class SplitFiles(msgspec.Struct, frozen=True):
    """The published index of a split: files of paths and labels, and of offsets and sizes; hexadecimal key; bytes."""

    index: Annotated[str, msgspec.Meta(pattern=r"^tar-[A-Za-z0-9_-]+\.index$")]
    locations: Annotated[str, msgspec.Meta(pattern=r"^tar-[A-Za-z0-9_-]+\.npy$")]
    key: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    shards: dict[str, Annotated[int, msgspec.Meta(ge=0)]]


class PublishedIndex(msgspec.Struct, frozen=True):
    """Content of ``tar-index.json``: the index of each split."""

    version: Literal[1]
    splits: dict[str, SplitFiles]


def parse_index(content: bytes, path: str) -> PublishedIndex:
    """Parse ``tar-index.json``; a ``UserError`` with ``path`` if it is damaged, or of another version."""
    try:
        return msgspec.convert(parse_json(content), PublishedIndex)
    except (ValueError, msgspec.ValidationError) as error:
        raise UserError(f"{path} cannot be read: {error}; write it again with 'prepare index'") from error


def _open_published(cache_folder: Path, split_files: SplitFiles) -> tuple[PathIndex, str]:
    """Open the files of a published index that were fetched."""
    names = (split_files.index, split_files.locations)
    index_file, locations_file = (Path(cache_folder, os.path.basename(name)) for name in names)
    index = PathIndex(index_file, bytes.fromhex(split_files.key))
    if map_verified(locations_file).shape != (len(index), 2):
        raise DamagedCacheError(f"{locations_file} does not belong to {index_file}")
    return index, str(locations_file)


def _is_header_of(header: bytes, path: str, size: int) -> bool:
    """Return whether a block of a tar file is the header of a member with the last part of ``path`` as its name."""
    try:
        member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    name = os.path.basename(path)
    has_name = len(member.name) < _LONGEST_NAME and member.name.isascii() and name.isascii()
    has_name = has_name and is_image_name(os.fsencode(member.name))  # otherwise only a link has made it an image
    return member.size == size and (not has_name or os.path.basename(member.name) == name)


class RemoteTars:
    """Reads tar files below an address, as ``tar_files.LocalTars`` reads them in a folder; its pickle has only names.

    A ``UserError`` says that the address, ``s3://...``, ``http://...`` or ``https://...``, cannot be listed and has no
    published index, or that a list cannot be read.

    Attributes:
        root, folder: the address, and the folder of local copies of the lists next to the tar files.
        notices: lines for the log.
        threads: tar files that are scanned at once.
    """

    threads = 8

    def __init__(self, address: str, cache_folder: Path) -> None:
        self._remote = RemoteFolder(address)
        self.root = self._remote.address
        name = hashlib.blake2b(self.root.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        self._own_folder = Path(cache_folder, f"remote-{name}")
        self.folder = str(self._own_folder / "lists")
        self._cache = RangeCache(self._own_folder / "images", 100 * _GIGABYTE)
        self._versions_file: str | None = None
        self.notices: list[str] = []
        self._reset()
        self._published = self._fetch_lists()

    def _reset(self) -> None:
        self._files: dict[str, RemoteFile] = {}  # size and tag of each tar file
        self._listings: dict[str, dict[str, RemoteFile | None]] = {}
        self._fetched: dict[str, bytes] = {}  # images of the current batch that were not in the cache
        self._local = threading.local()

    def __getstate__(self) -> Any:
        names = ("_remote", "root", "_own_folder", "folder", "_cache", "_versions_file")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._reset()
        self.__dict__.update(state)

    def find(self, split: str) -> list[str]:
        """Return the tar files of ``split``; see ``find_shards``."""
        if self._published is not None:
            return list(self._published.splits[split].shards) if split in self._published.splits else []
        return find_shards(self.root, split, self._list)

    def find_index(self, split: str) -> tuple[PathIndex, str] | None:
        """Return the published index of ``split`` and its file of locations, fetched if the cache lacks them.

        A ``UserError`` says that the index is of other tar files, or cannot be read.
        """
        if self._published is None:
            return None
        split_files, cache_folder = self._published.splits[split], self._own_folder
        self.stamps(list(split_files.shards))
        for shard, size in split_files.shards.items():
            if self._files[shard].size != size:
                raise UserError(
                    f"{self.root}/{shard} has {self._files[shard].size:,} bytes, in {INDEX_FILE} {size:,}: {_REPAIR}"
                )
        tags_file = Path(cache_folder, f"{split_files.index}.tags.json")
        is_first, newer = not tags_file.exists(), self._find_newer(list(split_files.shards))
        if not is_first:
            self._require_known_tags(list(split_files.shards), tags_file)
        try:
            published = _open_published(cache_folder, split_files)
        except (UserError, DamagedCacheError):  # not fetched yet
            published = self._fetch_published(cache_folder, split_files)
        self._require_members(list(split_files.shards), *published)
        if is_first:
            self._require_labels(newer, split, *published)
            self._require_known_tags(list(split_files.shards), tags_file)
        return published

    def _find_newer(self, shards: Sequence[str]) -> list[str]:
        """Return the tar files that are not older than the published index, which may have old labels of them."""
        [index] = self._remote.examine([INDEX_FILE])
        return [shard for shard in shards if self._files[shard].changed >= index.changed > 0]

    def _require_labels(self, shards: list[str], split: str, index: PathIndex, locations_file: str) -> None:
        """Read headers and labels of tar files again, and require that the published index has the same."""
        if not shards:
            return
        found, locations = scan(self, shards, split), map_verified(Path(locations_file))
        known = {
            index.path(row): (*locations[row].tolist(), int(index.labels[row]))
            for row in range(len(index))
            if index.path(row).startswith(tuple(f"{shard}/" for shard in shards))
        }
        for path, (offset, size), label in zip(found.paths(), found.locations.tolist(), found.labels.tolist()):
            expected = known.pop(path, None)
            is_same = found.groups is not None or (expected is not None and expected[2] == label)  # groups are in paths
            if expected is None or expected[:2] != (offset, size) or not is_same:
                raise UserError(
                    f"{self.root}/{path} has another place or label than in {INDEX_FILE}: {_REPAIR}, after them"
                )
        if known:
            raise UserError(f"{self.root}/{next(iter(known))} is in {INDEX_FILE} alone: {_REPAIR}, after them")
        self.notices.append(
            f"note: {len(shards):,} tar files at {self.root} are not older than their {INDEX_FILE}, such as "
            f"{shards[0]}: their labels were read again, and are the same"
        )

    def _fetch_published(self, cache_folder: Path, split_files: SplitFiles) -> tuple[PathIndex, str]:
        for name in (split_files.index, split_files.locations):
            self._fetch(name, Path(cache_folder, os.path.basename(name)))
        try:
            return _open_published(cache_folder, split_files)
        except DamagedCacheError as error:
            raise UserError(f"{error}: write it again with 'prepare index', and upload it") from error

    def _require_known_tags(self, shards: Sequence[str], path: Path) -> None:
        """Require that the tags are those with which this index was first read, or note them in the file ``path``."""
        tags = {tar: self._files[tar].tag for tar in shards}
        if not path.exists():
            self._write(path, format_json(tags).encode("ascii"))
            return
        known = read_json(path)
        for shard, tag in tags.items():
            if known.get(shard) != tag:
                raise UserError(
                    f"{self.root}/{shard} has changed since its index was first read: its tag is {tag or 'none'}, then "
                    f"{known.get(shard) or 'none'}: {_REPAIR} (if it was only uploaded again, remove {path})"
                )

    def _require_members(self, shards: Sequence[str], index: PathIndex, locations_file: str) -> None:
        """Require that the first and the last image of each tar file are where the index says."""
        locations = map_verified(Path(locations_file))
        steps = np.diff(locations, axis=0)
        firsts = [0, *(np.flatnonzero((steps[:, 0] <= 0) & steps.any(axis=1)) + 1).tolist()]  # links may be equal
        rows = sorted({*firsts, *(first - 1 for first in firsts[1:]), len(index) - 1})
        found = [(index.path(row), *locations[row].tolist()) for row in rows]
        owners = [next(shard for shard in shards if member.startswith(f"{shard}/")) for member, _, _ in found]
        headers = self._remote.read_ranges(
            [
                RangeRequest(shard, self._files[shard], start - tarfile.BLOCKSIZE, tarfile.BLOCKSIZE)
                for shard, (_, start, _) in zip(owners, found, strict=True)
            ]
        )
        for header, shard, (path, offset, size) in zip(headers, owners, found, strict=True):
            members = map(index.path, np.flatnonzero(locations[:, 0] == offset).tolist())  # a file and links to it
            if not any(_is_header_of(header, each, size) for each in members if each.startswith(f"{shard}/")):
                raise UserError(
                    f"{self.root}/{path} is not at byte {offset:,} of its tar file, as {INDEX_FILE} says: {_REPAIR}"
                )

    def stamps(self, shards: Sequence[str]) -> list[str]:
        """Return size and tag of each tar file; a ``UserError`` if one is missing, or the server does not answer."""
        for shard in shards:
            listed = self._listings.get(os.path.dirname(shard), {}).get(os.path.basename(shard))
            if listed is not None:
                self._files[shard] = listed
        unknown = [tar for tar in shards if tar not in self._files]
        self._files.update(zip(unknown, self._remote.examine(unknown), strict=True))
        return [self._files[tar].stamp for tar in shards]

    def size(self, shard: str) -> int:
        """Return the size of a tar file in bytes."""
        return self._file(shard).size

    def members(self, shard: str) -> Iterator[TarMember]:
        """Yield the members of a tar file, whose headers are fetched."""
        reader = io.BufferedReader(RemoteReader(self._remote, shard, self._file(shard)), _SCAN_BUFFER_BYTES)
        self._local.reader = reader
        yield from read_members(f"{self.root}/{shard}", reader, self.size(shard))

    def peek(self, shard: str, offset: int, size: int) -> np.ndarray:
        """Read bytes of the tar file whose members this thread iterates; uint8."""
        self._local.reader.seek(offset)
        return np.frombuffer(self._local.reader.read(size), np.uint8)

    def finish(self) -> None:
        """Write sizes and tags for the processes that read, and note tar files without a tag."""
        bare = next((shard for shard, file in self._files.items() if not file.tag), None)
        if bare is not None:
            self.notices.append(
                f"note: the server sends neither ETag nor date of {bare}: if tar files change, but not in size, name "
                f"another DATA.CACHE_FOLDER than {self._own_folder.parent}, which keeps their images and labels"
            )
        content = format_json(self._files).encode("ascii")
        path = self._own_folder / f"files-{hashlib.sha256(content).hexdigest()[:16]}.json"
        self._write(path, content)
        self._versions_file = str(path)

    def limit_cache(self, gigabytes: float) -> str:
        """Set the size of the cache, and return the log line about it."""
        self._cache.limit_bytes = int(gigabytes * _GIGABYTE)
        size = sum(file.size for file in self._files.values()) / _GIGABYTE
        is_indexed = "with a published index" if self._published is not None else "without a published index"
        return (
            f"note: {len(self._files):,} tar files of {size:,.2f} GiB are read from {self.root} ({is_indexed}), image "
            f"by image into a cache of at most {gigabytes:g} GiB in {self._cache.folder}"
        )

    def _list(self, folder: str) -> dict[str, RemoteFile | None]:
        if folder not in self._listings:
            self._listings[folder] = self._remote.list_files(folder)
        return self._listings[folder]

    def _fetch_lists(self) -> PublishedIndex | None:
        """Copy the lists next to the tar files, and return the published index, if any."""
        problem: Exception | None = None
        try:
            names = set(self._list(""))
        except FileNotFoundError as error:
            names, problem = {INDEX_FILE}, error  # a server may send files and no listings
        for name in _LISTS:
            if name in names:
                self._fetch(name, Path(self.folder, name))
            else:
                Path(self.folder, name).unlink(missing_ok=True)
        if INDEX_FILE not in names:
            return None
        try:
            content = self._remote.read(INDEX_FILE)
        except (FileNotFoundError, UserError) as error:
            if problem is None:  # it is listed
                raise UserError(str(error)) from error
            raise UserError(
                f"{problem}, and has no {INDEX_FILE} (see 'prepare index'); check the address and, for S3, the "
                "credentials"
            ) from error
        return parse_index(content, f"{self.root}/{INDEX_FILE}")

    def _fetch(self, name: str, path: Path) -> None:
        try:
            content = self._remote.read(name)
        except FileNotFoundError as error:
            raise UserError(f"{self.root}/{name} does not exist") from error
        self._write(path, content)

    def _write(self, path: Path, content: bytes) -> None:
        with os_errors_as_user_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as out:
            out.write(content)

    def read(self, shard: str, offset: int, size: int, start: int = 0, length: int | None = None) -> np.ndarray:
        """Read bytes of a member, from the cache or from the address; see ``LocalTars.read``.

        A ``UserError`` says that the tar file has changed or cannot be read.
        """
        wanted = (shard, offset, size)
        content: bytes | None = self._fetched.get(self._key(wanted))
        if content is None:
            content = self._cache.get(self._key(wanted))
        if content is None:
            content = self._fetch_ranges([wanted])[0]
        end = size if length is None else start + length
        return np.frombuffer(bytearray(content[start:end]), np.uint8)

    def prefetch(self, ranges: Sequence[Range]) -> None:
        """Fetch the members of a batch that the cache lacks, several at once, and hold them until the next batch.

        A ``UserError`` says that a tar file has changed or cannot be read.
        """
        wanted = list(dict.fromkeys(ranges))
        cached = [(member, self._cache.get(self._key(member))) for member in wanted]
        missing = [member for member, content in cached if content is None]
        self._fetched = {self._key(member): content for member, content in cached if content is not None}
        self._fetched.update(zip(map(self._key, missing), self._fetch_ranges(missing), strict=True))

    def _fetch_ranges(self, ranges: Sequence[Range]) -> list[bytes]:
        requests = [RangeRequest(shard, self._file(shard), offset, size) for shard, offset, size in ranges]
        contents = self._remote.read_ranges(requests)
        for wanted, content in zip(ranges, contents, strict=True):
            self._cache.put(self._key(wanted), content)
        return contents

    def _key(self, wanted: Range) -> str:
        shard, offset, size = wanted
        file = self._file(shard)
        return f"{shard}\0{file.stamp}\0{offset}\0{size}"

    def _file(self, shard: str) -> RemoteFile:
        if not self._files and self._versions_file is not None:
            stored = read_json(Path(self._versions_file))
            self._files = {name: RemoteFile(*numbers) for name, numbers in stored.items()}
        return self._files[shard]
