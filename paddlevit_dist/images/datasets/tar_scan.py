"""The pictures of one split in tar files, with the labels or the class names that the archives give them."""

from __future__ import annotations

import json
import os
import re
from typing import Dict, List, NamedTuple, Optional, Tuple

import numpy as np
from tqdm import tqdm

from ...errors import UserError
from ...loading.path_index import Batch, make_batch
from .class_folders import ENDINGS as PICTURE_ENDINGS
from .tar_members import Member, TarFile

LABEL_ENDINGS = (b".cls", b".json")
_LARGEST_LABEL_BYTES = 1 << 20
_SPLIT_WORDS = {"train": "train|training", "val": "val|valid|validation"}
_SUFFIX = re.compile(r"\.(tar(\.\w+)?|tgz|tbz|txz)$")
_PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz", ".tar.xz", ".txz", ".tar.zst")


class Scan(NamedTuple):
    """All pictures of a split in order.

    Attributes:
        batches: names, one batch per tar file; their labels are 0.
        locations: (samples, 3) int64: number of the tar file, offset, size.
        labels: (samples,) int64 from label files, or the positions of ``groups``.
        groups: class names that the archives give; None where labels come from label files.
    """

    batches: List[Batch]
    locations: np.ndarray
    labels: np.ndarray
    groups: Optional[List[str]]


def find_shards(root: str, split: str) -> List[str]:
    """The tar files of ``split`` below ``root``, sorted: named for the split, or all in the folder of that name.

    Raises:
        UserError: the folder cannot be listed, or holds compressed archives only.
    """
    pattern = re.compile(rf"(?:.*[._-])?(?:{_SPLIT_WORDS[split]})(?:[^a-zA-Z].*)?", re.DOTALL)
    packed = None
    for folder in ("", *_SPLIT_WORDS[split].split("|")):
        try:
            names = sorted(os.listdir(os.path.join(root, folder)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UserError(f"folder {os.path.join(root, folder)} cannot be listed: {error.strerror}") from error
        names = [name for name in names if folder or pattern.fullmatch(_SUFFIX.sub("", name))]
        shards = [os.path.join(folder, name) for name in names if name.endswith(".tar") and not name.startswith(".")]
        if shards:
            return shards
        packed = packed or next((os.path.join(folder, name) for name in names if name.endswith(_PACKED)), None)
    if packed:
        raise UserError(
            f"{os.path.join(root, packed)} is compressed, but pictures are read in place: uncompress it once"
        )
    return []


def scan(root: str, shards: List[str], split: str, listed: Optional[Dict[bytes, int]] = None) -> Scan:
    """Go through the headers of all ``shards``.

    Args:
        listed: labels by the last part of a picture's name, where a list beside the archives gives them.

    Raises:
        UserError: a tar file is damaged, or a picture has no label.
    """
    total = sum(os.path.getsize(os.path.join(root, shard)) for shard in shards)
    pages: List[_Page] = []
    with tqdm(total=total, desc=f"indexing {split}", unit="B", unit_scale=True, disable=None, leave=False) as bar:
        for shard in shards:
            with TarFile(os.path.join(root, shard)) as tar:
                pages.append(_read_page(tar, bar))
    if any(page.labels for page in pages):
        for page in pages:
            page.keep_labelled()
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
    return Scan(batches, np.concatenate(locations), np.concatenate(labels), groups)


class _Page:
    """What one tar file holds."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.members: List[Member] = []  # pictures
        self.labels: Dict[bytes, int] = {}  # from label files, by key

    def keep_labelled(self) -> None:
        """Of ``key.jpg``, ``key.cls`` and what else a sample may have, keep the picture; each has exactly one."""
        kept = [member for member in self.members if b"." + _key(member.name)[1].lower() in PICTURE_ENDINGS]
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
        self.members = kept

    def own_labels(self) -> np.ndarray:
        return np.array([self.labels[_key(member.name)[0]] for member in self.members], np.int64)

    def listed_labels(self, listed: Dict[bytes, int]) -> np.ndarray:
        names = [member.name.rpartition(b"/")[2] for member in self.members]
        unknown = next((name for name in names if name not in listed), None)
        if unknown is not None:
            raise UserError(f"{self.path} holds {os.fsdecode(unknown)}, which the list of labels does not have")
        return np.array([listed[name] for name in names], np.int64)


def _read_page(tar: TarFile, bar: tqdm) -> _Page:
    page = _Page(tar.path)
    before = 0
    for member in tar.members():
        if member.name.endswith(b".tar"):
            for inner in tar.members(member):
                if inner.name.lower().endswith(PICTURE_ENDINGS):
                    page.members.append(inner._replace(name=member.name + b"/" + inner.name))
        elif member.name.lower().endswith(PICTURE_ENDINGS):
            page.members.append(member)
        elif member.name.endswith(LABEL_ENDINGS):
            _read_label(tar, member, page)
        bar.update(member.offset + member.size - before)
        before = member.offset + member.size
    bar.update(tar.size - before)
    return page


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
        value = json.loads(content) if ending == b"json" else int(content)
        if isinstance(value, dict):
            if "label" not in value and "cls" not in value:
                return  # metadata that say nothing of a class
            value = value["label"] if "label" in value else value["cls"]
        if type(value) is not int or not 0 <= value < 1 << 31:
            raise ValueError("no class number")
    except ValueError as error:
        wanted = 'an object with a whole number "label"' if ending == b"json" else "a whole number"
        raise UserError(f"{tar.path} member {os.fsdecode(member.name)}: expected {wanted} from 0 up") from error
    if page.labels.setdefault(key, value) != value:
        raise UserError(f"{tar.path} gives {os.fsdecode(key)} two labels, {page.labels[key]} and {value}")


def _group_labels(root: str, shards: List[str], pages: List[_Page]) -> Tuple[List[np.ndarray], List[str]]:
    """Classes from the tar file or the folder that each picture lies in."""
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
