"""The images of one split in tar files, with the labels or the class names that the archives give them."""

from __future__ import annotations

import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np
from tqdm import tqdm

from ...errors import UserError
from ...loading.path_index import Batch, make_batch
from ...text_files import parse_json
from .formats import HEAD_BYTES, is_hidden, readable_suffixes, suffix_of
from .left_out import LeftOut
from .tar_members import Member, TarFile

LABEL_ENDINGS = (b".cls", b".json")
_LARGEST_LABEL_BYTES = 1 << 20
_SPLIT_WORDS = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test", "testing")}
_SUFFIX = re.compile(r"\.(tar(\.\w+)?|tgz|tbz|txz)$", re.IGNORECASE)
_PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz", ".tar.zst")


class Scan(NamedTuple):
    """All images of a split in order.

    Attributes:
        batches: names, one batch per tar file; their labels are 0.
        locations: (samples, 3) int64: number of the tar file, offset, size.
        labels: (samples,) int64 from label files, or the positions of ``groups``.
        groups: class names that the archives give; None where labels come from label files.
        left_out: members that are neither images nor labels.
    """

    batches: List[Batch]
    locations: np.ndarray
    labels: np.ndarray
    groups: Optional[List[str]]
    left_out: LeftOut


def find_shards(root: str, split: str) -> List[str]:
    """The tar files of ``split`` under ``root``, sorted: named after the split, or all in the folder of that name.

    Raises:
        UserError: the folder cannot be listed, or holds a compressed archive without its uncompressed form.
    """
    words = _SPLIT_WORDS.get(split, (split,))
    pattern = re.compile(rf"(?:.*[._-])?(?:{'|'.join(map(re.escape, words))})(?:[^a-zA-Z].*)?", re.DOTALL)
    for folder in ("", *words):
        try:
            names = sorted(os.listdir(os.path.join(root, folder)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UserError(f"folder {os.path.join(root, folder)} cannot be listed: {error.strerror}") from error
        names = [name for name in names if folder or pattern.fullmatch(_SUFFIX.sub("", name))]
        names = [name for name in names if not name.startswith(".")]
        shards = [os.path.join(folder, name) for name in names if name.lower().endswith(".tar")]
        unpacked = {_SUFFIX.sub("", os.path.basename(shard)) for shard in shards}
        packed = [name for name in names if name.lower().endswith(_PACKED) and _SUFFIX.sub("", name) not in unpacked]
        if packed:
            raise UserError(
                f"{os.path.join(root, folder, packed[0])} is compressed, but pictures are read in place: "
                "uncompress it once"
            )
        if shards:
            return shards
    return []


def scan(root: str, shards: List[str], split: str, listed: Optional[Dict[bytes, int]] = None) -> Scan:
    """Go through the headers of all ``shards``.

    Args:
        listed: labels by the last part of an image's name, if a list next to the archives gives them.

    Raises:
        UserError: a tar file is corrupt, or an image has no label.
    """
    total = sum(os.path.getsize(os.path.join(root, shard)) for shard in shards)
    pages: List[_Page] = []
    left_out = LeftOut(os.path.join(root, shards[0]) if len(shards) == 1 else f"{root} in {len(shards)} tar files")
    with tqdm(total=total, desc=f"indexing {split}", unit="B", unit_scale=True, disable=None, leave=False) as bar:
        for shard in shards:
            with TarFile(os.path.join(root, shard)) as tar:
                pages.append(_read_page(tar, bar, left_out))
    if any(page.labels for page in pages):
        for page in pages:
            page.keep_labelled(left_out)
        labels, groups = [page.own_labels() for page in pages], None
    elif listed is not None:
        labels, groups = [page.listed_labels(listed) for page in pages], None
    else:
        labels, groups = _group_labels(root, shards, pages)
    locations = [
        np.array([(number, member.offset, member.size) for member in page.members], np.int64).reshape(-1, 3)
        for number, page in enumerate(pages)
    ]
    batches = [make_batch([member.name for member in page.members], 0) for page in pages]
    return Scan(batches, np.concatenate(locations), np.concatenate(labels), groups, left_out)


class _Page:
    """The contents of one tar file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.members: List[Member] = []  # images
        self.labels: Dict[bytes, int] = {}  # from label files, by key

    def keep_labelled(self, left_out: LeftOut) -> None:
        """Of ``key.jpg``, ``key.cls`` and what else a sample may have, keep the image; each has exactly one."""
        suffixes = readable_suffixes()
        kept = [member for member in self.members if b"." + _key(member.name)[1].lower() in suffixes]
        seen = set()
        for member in kept:
            key = _key(member.name)[0]
            if key not in self.labels:
                raise UserError(
                    f"{self.path} has no label for {os.fsdecode(member.name)}: expected {os.fsdecode(key)}.cls or .json"
                )
            if key in seen:
                raise UserError(f"{self.path} has two pictures for {os.fsdecode(key)}; expected one beside its label")
            seen.add(key)
        for member in self.members:  # key.seg.png is a further part of the sample key.jpg; without one it is lost
            if b"." + _key(member.name)[1].lower() not in suffixes and _key(member.name)[0] not in seen:
                raise UserError(
                    f"{self.path} member {os.fsdecode(member.name)}: the key of a sample ends at the first dot, and "
                    f"{os.fsdecode(_key(member.name)[0])} has no picture; name it without further dots"
                )
        self.members = kept

    def own_labels(self) -> np.ndarray:
        return np.array([self.labels[_key(member.name)[0]] for member in self.members], np.int64)

    def listed_labels(self, listed: Dict[bytes, int]) -> np.ndarray:
        names = [member.name.rpartition(b"/")[2] for member in self.members]
        unknown = next((name for name in names if name not in listed), None)
        if unknown is not None:
            raise UserError(f"{self.path} holds {os.fsdecode(unknown)}, which the list of labels does not have")
        return np.array([listed[name] for name in names], np.int64)


def _read_page(tar: TarFile, bar: tqdm, left_out: LeftOut) -> _Page:
    page = _Page(tar.path)
    before = 0
    for member in tar.members():
        if _is_hidden(member.name):
            pass
        elif member.name.lower().endswith(b".tar"):
            for inner in tar.members(member):
                if not _is_hidden(inner.name):
                    _sort_in(inner._replace(name=member.name + b"/" + inner.name), tar, page, left_out)
        elif member.name.endswith(LABEL_ENDINGS):
            _read_label(tar, member, page)
        else:
            _sort_in(member, tar, page, left_out)
        bar.update(member.offset + member.size - before)
        before = member.offset + member.size
    bar.update(tar.size - before)
    return page


def _is_hidden(name: bytes) -> bool:
    return any(is_hidden(part) for part in name.split(b"/") if part not in (b".", b".."))


def _sort_in(member: Member, tar: TarFile, page: _Page, left_out: LeftOut) -> None:
    base = member.name.rpartition(b"/")[2]
    if suffix_of(base) in readable_suffixes():
        page.members.append(member)
        return
    path = os.path.join(os.fsencode(tar.path), member.name)
    left_out.add(base, path, lambda: tar.read(member.offset, min(member.size, HEAD_BYTES)))


def _key(name: bytes) -> Tuple[bytes, bytes]:
    """A member's name up to the first dot of its last part, and what follows the dot."""
    folder, slash, base = name.rpartition(b"/")
    key, _, ending = base.partition(b".")
    return folder + slash + key, ending


def _read_label(tar: TarFile, member: Member, page: _Page) -> None:
    key, ending = _key(member.name)
    if ending not in (b"cls", b"json"):
        return
    content = tar.read(member.offset, min(member.size, _LARGEST_LABEL_BYTES))
    try:
        value = parse_json(content) if ending == b"json" else int(content)
        if isinstance(value, dict):
            if "label" not in value and "cls" not in value:
                return  # metadata without a class
            value = value["label"] if "label" in value else value["cls"]
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise ValueError("no class number")
    except ValueError as error:
        wanted = 'an object with a whole number "label"' if ending == b"json" else "a whole number"
        raise UserError(f"{tar.path} member {os.fsdecode(member.name)}: expected {wanted} from 0 up") from error
    if page.labels.setdefault(key, value) != value:
        raise UserError(f"{tar.path} gives {os.fsdecode(key)} two labels, {page.labels[key]} and {value}")


def _group_labels(root: str, shards: List[str], pages: List[_Page]) -> Tuple[List[np.ndarray], List[str]]:
    """Classes from the tar file or folder that contains each image."""
    found: Dict[str, int] = {}
    labels = []
    for shard, page in zip(shards, pages):
        own = os.fsencode(os.path.basename(shard)[: -len(".tar")]) if os.path.dirname(shard) else None
        groups = [_group(member.name, own, page.path) for member in page.members]
        labels.append(np.array([found.setdefault(group, len(found)) for group in groups], np.int64))
    names = sorted(found)
    position = np.empty(len(names), np.int64)
    position[[found[name] for name in names]] = np.arange(len(names))
    return [position[numbers] if len(names) else numbers for numbers in labels], names


def _group(name: bytes, shard: Optional[bytes], path: str) -> str:
    folder = name.rpartition(b"/")[0].rpartition(b"/")[2]
    group = folder[:-4] if folder.endswith(b".tar") else folder
    if group in (b"", b"."):
        group = shard
    if group is None:
        raise UserError(
            f"{path} gives no class for {os.fsdecode(name)}: expected a label file beside it (.cls or .json), or its "
            "class as a folder or tar file around it"
        )
    return os.fsdecode(group)
