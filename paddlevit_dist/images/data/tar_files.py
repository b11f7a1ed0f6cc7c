"""Byte ranges of open files, and the images of one split in tar files with their labels."""

import functools
import itertools
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from tqdm import tqdm

from ...core.data.path_index import PathBatch, make_batch
from ...core.runtime.errors import UserError
from ...core.runtime.files import readable, require_regular
from ...core.runtime.text_files import parse_json, to_utf8
from .formats import HEAD_BYTES, PACKED_TARS, SPLIT_WORDS, SkippedFiles, get_suffix, is_hidden_path, readable_suffixes
from .tar_members import TarMember, iterate_members

_MOST_OPEN = 64
_REPLACED = "files that later ones of the same name replace, as in unpacking"


class OpenFiles:
    """Reads byte ranges of files; the last few files stay open.

    A forked process may share them, since each read passes an offset; a pickled copy opens its own.
    """

    def __init__(self) -> None:
        self._files: OrderedDict[str, BinaryIO] = OrderedDict()

    def __getstate__(self) -> Any:
        return {"_files": OrderedDict()}

    def read(self, path: str, offset: int, size: int) -> np.ndarray:
        """Read ``size`` bytes into new memory, uint8, fewer if the file ends; an ``OSError`` if it cannot be read."""
        if path in self._files:
            self._files.move_to_end(path)
        else:
            while len(self._files) >= _MOST_OPEN:
                self._files.popitem(last=False)[1].close()
            self._files[path] = open(path, "rb", buffering=0)  # noqa: SIM115 - stays open
        content = np.empty(size, dtype=np.uint8)
        try:
            return content[: os.preadv(self._files[path].fileno(), [content], offset)]
        except OSError:  # a network drive that is back does not know the files that were open before
            self._files.pop(path).close()
            raise


_LARGEST_LABEL_BYTES = 1 << 20
_SUFFIX = re.compile(r"\.(tar(\.\w+)?|tgz|tbz|txz)$", re.IGNORECASE)


class LocalTars:
    """The tar files of a folder of this machine.

    Attributes:
        root, folder: the data path, and the folder of the lists next to the tar files.
        threads: tar files that are scanned at once.
    """

    threads = 1

    def __init__(self, root: str) -> None:
        self.root = self.folder = root
        self._open_files = OpenFiles()

    def find(self, split: str) -> list[str]:
        """Return the tar files of ``split``; see ``find_shards``."""
        return find_shards(self.root, split)

    def find_index(self, split: str) -> "tuple[Any, str] | None":
        """Return None: an index next to the tar files is for readers from elsewhere."""
        return None

    def stamps(self, shards: Sequence[str]) -> list[str]:
        """Return size and times of change of each tar file; a ``UserError`` if one cannot be read."""
        stamps = []
        for shard in shards:
            path = os.path.join(self.root, shard)
            with readable(path):
                require_regular(path)
                status = os.stat(path)
            stamps.append(f"{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}")  # mtime may be set
        return stamps

    def size(self, shard: str) -> int:
        """Return the size of a tar file in bytes."""
        return os.path.getsize(os.path.join(self.root, shard))

    def members(self, shard: str) -> Iterator[TarMember]:
        """Yield the members of a tar file; see ``iterate_members``."""
        return iterate_members(os.path.join(self.root, shard))

    def peek(self, shard: str, offset: int, size: int) -> np.ndarray:
        """Read bytes of the tar file whose members are iterated, uint8; an ``OSError`` if it cannot be read."""
        return self.read(shard, offset, size)

    def read(self, shard: str, offset: int, size: int, start: int = 0, length: int | None = None) -> np.ndarray:
        """Read ``length`` bytes of a member from its byte ``start`` on, by default to its end; ``OSError`` if it fails.

        ``offset`` and ``size`` are the member's. Returns new memory, uint8; shorter if the tar file ends.
        """
        length = size - start if length is None else length
        return self._open_files.read(os.path.join(self.root, shard), offset + start, length)


class TarScan(NamedTuple):
    """All images of a split in order.

    Attributes:
        batches: paths below the data path, of the tar file and the member; one batch per tar file, labels are 0.
        locations: (samples, 2) int64: offset, size.
        labels: (samples,) int64 from label files, or the positions of ``groups``.
        groups: class names in the archives; None if labels are from label files.
        skipped_files: members that are neither images nor labels.
    """

    batches: list[PathBatch]
    locations: np.ndarray
    labels: np.ndarray
    groups: list[str] | None
    skipped_files: SkippedFiles

    def paths(self) -> list[str]:
        """Return the paths of all images, in their order."""
        paths = []
        for batch in self.batches:
            ends = np.cumsum(batch.lengths).tolist()
            paths += [os.fsdecode(batch.blob[start:end]) for start, end in zip([0, *ends], ends)]
        return paths


def find_shards(root: str, split: str, list_names: Callable[[str], Iterable[str]] | None = None) -> list[str]:
    """Return the tar files of ``split`` under ``root``, sorted: named after the split, or all in its folder.

    ``list_names`` returns the names in a folder below ``root``; by default they are listed on this machine. A
    ``UserError`` says that the folder cannot be listed, or has a compressed archive without its uncompressed form.
    """
    words = SPLIT_WORDS.get(split, (split,))
    pattern = re.compile(rf"(?:.*[._-])?(?:{'|'.join(map(re.escape, words))})(?:[^a-zA-Z].*)?", re.DOTALL)
    for folder in ("", *words):
        try:
            listed = os.listdir(os.path.join(root, folder)) if list_names is None else list_names(folder)
            names = sorted(filter(_SUFFIX.search, listed))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UserError(f"folder {os.path.join(root, folder)} cannot be listed: {error.strerror}") from error
        names = [name for name in names if folder or pattern.fullmatch(_SUFFIX.sub("", name))]
        names = [name for name in names if not name.startswith(".")]
        shards = [os.path.join(folder, name) for name in names if name.lower().endswith(".tar")]
        unpacked = {_SUFFIX.sub("", os.path.basename(shard)) for shard in shards}
        packed = [
            name for name in names if name.lower().endswith(PACKED_TARS) and _SUFFIX.sub("", name) not in unpacked
        ]
        if packed:
            raise UserError(
                f"{os.path.join(root, folder, packed[0])} is compressed, but images are read in place: "
                "uncompress it once"
            )
        if shards:
            return shards
    return []


def scan(
    tars: Any, shards: list[str], split: str, listed: dict[bytes, int] | None = None, has_labels: bool = True
) -> TarScan:
    """Read the headers of all ``shards``; a ``UserError`` if a tar file is corrupt, or an image has no label.

    ``tars`` is ``LocalTars``, or an object with its methods; ``listed`` are labels by the last part of an image's name,
    from a list next to the archives. Without ``has_labels`` all labels are 0, and files of labels are not read.
    """
    root, total = tars.root, sum(map(tars.size, shards))
    skipped_files = SkippedFiles(
        os.path.join(root, shards[0]) if len(shards) == 1 else f"{root} in {len(shards)} tar files"
    )
    contents = [_TarContents(tars, shard, has_labels) for shard in shards]
    bar = tqdm(total=total, desc=f"indexing {split}", unit="B", unit_scale=True, disable=None, leave=False)
    with bar, ThreadPoolExecutor(tars.threads) as pool:
        run = pool.map if tars.threads > 1 else map
        for in_shard in run(lambda content: content.read(bar), contents):
            skipped_files.merge(in_shard)
    return _join(contents, shards, listed, skipped_files)


def _join(
    tars: "list[_TarContents]", shards: list[str], listed: dict[bytes, int] | None, skipped_files: SkippedFiles
) -> TarScan:
    """Label the images of all tar files, and join them in order."""
    groups = None
    if any(tar.labels for tar in tars):
        labels = [tar.stored_labels() for tar in tars]
    elif not all(tar.has_labels for tar in tars):
        labels = [[0] * len(tar.images) for tar in tars]
    elif listed is not None:
        labels = [tar.listed_labels(listed) for tar in tars]
    else:
        groups_of_tars = [
            tar.groups(is_class=bool(os.path.dirname(shard))) for tar, shard in zip(tars, shards, strict=True)
        ]
        groups = sorted({group for tar_groups in groups_of_tars for group in tar_groups})
        position = {group: number for number, group in enumerate(groups)}
        labels = [[position[group] for group in tar_groups] for tar_groups in groups_of_tars]
    images = [member for tar in tars for member in tar.images]
    locations = np.array([(member.offset, member.size) for member in images], np.int64).reshape(-1, 2)
    batches = [
        make_batch([b"%s/%s" % (os.fsencode(shard), member.name) for member in tar.images], 0)
        for tar, shard in zip(tars, shards, strict=True)
    ]
    all_labels = np.fromiter(itertools.chain.from_iterable(labels), np.int64)
    return TarScan(batches, locations, all_labels, groups, skipped_files)


class _TarContents:
    def __init__(self, tars: Any, shard: str, has_labels: bool = True) -> None:
        self.path = os.path.join(tars.root, shard)
        self.images: list[TarMember] = []
        self.labels: dict[bytes, int] = {}  # from label files, by key
        self._label_files: dict[bytes, bytes] = {}
        self._tars, self._shard, self.has_labels = tars, shard, has_labels

    def read(self, bar: tqdm) -> SkippedFiles:
        """List the images and labels, and return the other members."""
        suffixes, before, skipped_files = readable_suffixes(), 0, SkippedFiles(self.path)
        for member in self._tars.members(self._shard):
            base = os.path.basename(member.name)
            if is_hidden_path(member.name):
                pass
            elif member.problem:
                skipped_files.add_unusable(member.name, member.problem)
            elif base.endswith((b".cls", b".json")) and b".tar/" not in member.name.lower():  # not in a class's tar
                if self.has_labels:
                    self._read_label(member)
            elif get_suffix(base) in suffixes:
                self.images.append(member)
                skipped_files.num_links += member.is_link
            else:
                path = os.path.join(os.fsencode(self.path), member.name)
                skipped_files.add(base, path, functools.partial(self._content, member, HEAD_BYTES))
            bar.update(member.offset + member.size - before)
            before = member.offset + member.size
        self.images = keep_last(self.images, skipped_files)
        return skipped_files

    def _content(self, member: TarMember, most: int) -> bytes:
        return self._tars.peek(self._shard, member.offset, min(member.size, most)).tobytes()

    def _read_label(self, member: TarMember) -> None:
        key, ending = _key(member.name)
        if ending not in (b"cls", b"json"):
            return
        content = self._content(member, _LARGEST_LABEL_BYTES)
        try:
            value = parse_json(content) if ending == b"json" else int(to_utf8(content))
            if isinstance(value, dict):
                if "label" not in value and "cls" not in value:
                    return  # metadata without a class
                value = value["label"] if "label" in value else value["cls"]
            if type(value) is not int or not 0 <= value < 1 << 31:
                raise ValueError("no class number")
        except ValueError as error:
            expected = 'an object with a whole number "label"' if ending == b"json" else "a whole number"
            raise UserError(f"{self.path} member {os.fsdecode(member.name)}: expected {expected} from 0 up") from error
        if self._label_files.setdefault(key, member.name) == member.name:
            self.labels[key] = value  # the last of a name counts, as in unpacking
        elif self.labels[key] != value:
            raise UserError(f"{self.path} gives {os.fsdecode(key)} two labels, {self.labels[key]} and {value}")

    def stored_labels(self) -> list[int]:
        """Return the labels of label files, and drop other images of a sample, as ``key.seg.png`` of ``key.jpg``."""
        suffixes, keys = readable_suffixes(), {}
        images = [image for image in self.images if b"." + _key(image.name)[1].lower() in suffixes]
        for member in images:
            key = _key(member.name)[0]
            if key not in self.labels:
                raise UserError(
                    f"{self.path} has no label for {os.fsdecode(member.name)}: expected {os.fsdecode(key)}.cls or .json"
                )
            if key in keys:
                raise UserError(f"{self.path} has two images for {os.fsdecode(key)}; expected one with its label")
            keys[key] = self.labels[key]
        for member in self.images:
            key = _key(member.name)[0]
            if key not in keys:
                raise UserError(
                    f"{self.path} member {os.fsdecode(member.name)}: the key of a sample ends at the first dot, and "
                    f"{os.fsdecode(key)} has no image; name it without further dots"
                )
        self.images = images
        return list(keys.values())

    def listed_labels(self, listed: dict[bytes, int]) -> list[int]:
        """Look up the labels in a list."""
        names = [os.path.basename(member.name) for member in self.images]
        unknown = next((name for name in names if name not in listed), None)
        if unknown is not None:
            raise UserError(f"{self.path} contains {os.fsdecode(unknown)}, which is not in the list of labels")
        return [listed[name] for name in names]

    def groups(self, is_class: bool) -> list[str]:
        """Return the class of each image: the folder or tar file around it, else this tar file if ``is_class``."""
        groups = []
        for member in self.images:
            group = os.path.basename(os.path.dirname(member.name)).removesuffix(b".tar")
            if group in (b"", b".") and is_class:
                group = os.fsencode(os.path.basename(self.path)[: -len(".tar")])
            if group in (b"", b"."):
                raise UserError(
                    f"{self.path} has no class for {os.fsdecode(member.name)}: expected a label file next to it (.cls "
                    "or .json), or its class as a folder or tar file around it"
                )
            groups.append(os.fsdecode(group))
        return groups


def keep_last(images: list[Any], skipped_files: SkippedFiles) -> list[Any]:
    """Return the last image of each ``name``, in order, and count the others: unpacking leaves the last."""
    last = {image.name: position for position, image in enumerate(images)}
    if len(last) == len(images):
        return images
    for position, image in enumerate(images):
        if last[image.name] != position:
            skipped_files.add_unusable(image.name, _REPLACED, is_lost=False)
    return [images[position] for position in sorted(last.values())]


def _key(name: bytes) -> tuple[bytes, bytes]:
    """Split a member's name at the first dot of its last part."""
    folder, slash, base = name.rpartition(b"/")
    key, _, ending = base.partition(b".")
    return folder + slash + key, ending
