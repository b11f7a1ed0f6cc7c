"""ImageNet as published for ILSVRC 2012, read from PaddleViT's lists or class folders."""

from __future__ import annotations

import functools
import hashlib
import os
from itertools import islice
from pathlib import Path
from typing import Dict, Iterator, List, Optional

import numpy as np

from ...contracts.dataset import require_split
from ...errors import UserError
from ...files import open_regular
from ...loading.path_index import Batch, PathIndex, ensure_path_index, make_batch
from .class_folders import index_class_folders, list_classes
from .image_dataset import IndexedImages, name_folders, read_class_names
from .left_out import LeftOut
from .listed_labels import kit_labels
from .reading import SPLITS, check_labels, existing_folder

_LINES_PER_BATCH = 65536
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def index_path_list(
    list_file: Path, num_classes: int, cache_folder: Path, name: str, class_names: Optional[List[str]] = None
) -> PathIndex:
    """Open the index of ``list_file``, rebuilding it if the file's content has changed.

    The label is the last field of a line, so paths may contain spaces; blank lines are ignored.

    Raises:
        UserError: names the first line that is malformed or has a label outside ``0 .. num_classes - 1``.
    """
    key = hashlib.sha256(f"path list, {num_classes} classes {class_names}\n".encode())
    try:
        with open_regular(list_file, "rb") as stream:
            for chunk in iter(lambda: stream.read(1 << 20), b""):
                key.update(chunk)
    except OSError as error:
        raise _unreadable(list_file, error) from error
    index = ensure_path_index(cache_folder, name, key.digest(), lambda: _batches(list_file, num_classes), class_names)
    if len(index) == 0:
        raise UserError(f"{list_file} holds no samples; expected lines of 'path label'")
    return index


def _batches(list_file: Path, num_classes: int) -> Iterator[Batch]:
    try:
        with open_regular(list_file, "rb") as stream:
            if stream.read(3) != _BYTE_ORDER_MARK:
                stream.seek(0)
            first_line = 1
            for lines in iter(lambda: list(islice(stream, _LINES_PER_BATCH)), []):
                yield _parse(lines, first_line, list_file, num_classes)
                first_line += len(lines)
    except OSError as error:
        raise _unreadable(list_file, error) from error


def _parse(lines: List[bytes], first_line: int, list_file: Path, num_classes: int) -> Batch:
    fields = [line.strip().rsplit(None, 1) for line in lines]
    fields = [pair for pair in fields if pair]
    try:
        paths = [path for path, _ in fields]
        labels = np.fromiter((int(label) for _, label in fields), np.int64, len(fields))
        in_range = not ((labels < 0) | (labels >= num_classes)).any()
    except (ValueError, OverflowError):
        in_range = False
    if not in_range:
        raise _first_mistake(lines, first_line, list_file, num_classes)
    return make_batch(paths, labels)


def _first_mistake(lines: List[bytes], first_line: int, list_file: Path, num_classes: int) -> UserError:
    """Go through a bad batch line by line to report the first that is wrong."""
    for number, line in enumerate(lines, first_line):
        pair = line.strip().rsplit(None, 1)
        if not pair:
            continue
        try:
            _, label = pair[0], int(pair[1])
        except (ValueError, IndexError):
            shown = line.strip().decode("utf-8", "backslashreplace")[:100]
            return UserError(f"{list_file} line {number}: expected 'path label' with an integer label, found '{shown}'")
        if not 0 <= label < num_classes:
            return UserError(
                f"{list_file} line {number}: label {label} is out of range; "
                f"with {num_classes} classes labels go from 0 to {num_classes - 1}"
            )
    raise AssertionError(f"no wrong line between {first_line} and {first_line + len(lines) - 1} of {list_file}")


def _unreadable(list_file: Path, error: OSError) -> UserError:
    return UserError(f"{list_file} cannot be read: {error.strerror}")


_LIST_SUFFIX = "_list.txt"
LISTS = {split: split + _LIST_SUFFIX for split in SPLITS}
NUM_CLASSES_OF_LISTS = 1000
FIRST_OF_KIT = "ILSVRC2012_val_00000001.JPEG"


@functools.lru_cache(maxsize=None)
def names_by_synset() -> Dict[str, str]:
    """A short name, unlike the others, of each class by its WordNet id, in the order of the classes."""
    table = Path(__file__).with_name("imagenet_classes.txt").read_text(encoding="ascii")
    return dict(line.split(" ", 1) for line in table.splitlines())


class ImageNet2012(IndexedImages):
    """Images listed in ``train_list.txt`` and ``val_list.txt`` (``path label``, 1000 classes), or in class folders.

    ``classes.txt``, if present, names the classes of the lists and determines their number. If neither list exists,
    labels are the positions of the sorted folders ``train/<wnid>``, whose count is the number of classes. Validation
    images may then be in ``val`` without class folders, with the development kit next to it.
    """

    layout = (
        "with train_list.txt and val_list.txt (lines 'path label'), or with train/<wnid>/ and val/<wnid>/ "
        "(or val/ILSVRC2012_val_*.JPEG and the development kit ILSVRC2012_devkit_t12)"
    )

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path) -> None:
        """List the images of ``split`` ("train", "val", or one that has a list or a folder); their index goes to
        ``cache_folder``.

        Raises:
            UserError: neither layout is found, or a list has an invalid line.
        """
        self.split = split
        root = existing_folder(data_path, "imagenet2012", self.layout)
        name = f"imagenet2012-{split}"
        left_out: Optional[LeftOut] = None  # lists and the development kit name every image
        if any(os.path.lexists(os.path.join(root, list_name)) for list_name in LISTS.values()):
            list_file = Path(root, _list_of(root, split))
            names = read_class_names(root)
            num_classes = len(names) if names else NUM_CLASSES_OF_LISTS
            index = index_path_list(list_file, num_classes, cache_folder, name, names)
        elif split == "val" and os.path.exists(os.path.join(root, "val", FIRST_OF_KIT)):
            index = _index_by_kit(root, cache_folder, name)
            num_classes = NUM_CLASSES_OF_LISTS
        elif os.path.isdir(os.path.join(root, split)):
            index, left_out = index_class_folders(root, split, ("val",), cache_folder, name)
            num_classes = len(index.class_names)
        else:
            raise UserError(f"{root} has no {split} pictures of imagenet2012; expected a folder {self.layout}")
        super().__init__(root, index, num_classes, left_out)
        check_labels(index.labels, num_classes, "imagenet2012", self.describe)


def _list_of(root: str, split: str) -> str:
    lists = [name for name in sorted(os.listdir(root)) if name.endswith(_LIST_SUFFIX)]
    if split not in LISTS:
        require_split(split, [name[: -len(_LIST_SUFFIX)] for name in lists], root)
    return f"{split}{_LIST_SUFFIX}"


def _index_by_kit(root: str, cache_folder: Path, name: str) -> PathIndex:
    """Validation images in a single folder, with labels from the development kit."""
    labels = kit_labels(root)
    if labels is None:
        raise UserError(
            f"{os.path.join(root, 'val')} has no class folders, and {root} no ILSVRC2012_devkit_t12 (folder or .tar.gz)"
            " with their labels; get it from https://image-net.org or sort the pictures into class folders"
        )
    there = set(os.listdir(os.fsencode(os.path.join(root, "val"))))
    missing = next((picture for picture in labels if picture not in there), None)
    if missing is not None:
        raise UserError(f"{os.path.join(root, 'val', os.fsdecode(missing))} is missing, but the development kit has it")
    names: Optional[List[str]] = None
    if os.path.isdir(os.path.join(root, "train")):
        folders = list_classes(root, "train")
        if len(folders) != NUM_CLASSES_OF_LISTS:
            raise UserError(
                f"the development kit numbers {NUM_CLASSES_OF_LISTS} classes, but {os.path.join(root, 'train')} has "
                f"{len(folders)}; sort the validation pictures into class folders"
            )
        names = name_folders(root, folders)
    batch = make_batch([b"val/" + picture for picture in labels], np.array(list(labels.values())))
    key = hashlib.sha256(f"development kit {names}".encode("utf-8", "surrogateescape") + batch.labels.tobytes())
    return ensure_path_index(cache_folder, name, key.digest(), lambda: [batch], names)
