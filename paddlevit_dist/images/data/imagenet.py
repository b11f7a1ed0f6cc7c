"""ImageNet as published for ILSVRC 2012, read from PaddleViT's lists, class folders or the development kit's labels."""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...core.data.path_index import PathBatch, PathIndex, ensure_path_index, make_batch
from ...core.runtime.errors import UserError
from ...core.runtime.files import open_regular, read_regular, readable
from ...core.runtime.text_files import read_bytes
from ...core.tasks.dataset import require_split
from ..imagenet_classes import read_table
from .class_folders import IndexedClassImages, index_class_folders, list_classes
from .class_trees import find_class_tree
from .formats import SkippedFiles
from .image_dataset import name_folders, read_class_names
from .listed_names import find_foreign_prefix
from .reading import SPLITS, check_labels, require_folder

_LINES_PER_BATCH = 65536
_LINES_TRIED = 20  # of a list, which show whether its paths are of another machine
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LIST_SUFFIX = "_list.txt"
LISTS = {split: split + _LIST_SUFFIX for split in SPLITS}
NUM_IMAGENET_1K_CLASSES = 1000
FIRST_OF_KIT = "ILSVRC2012_val_00000001.JPEG"
_KIT = "ILSVRC2012_devkit_t12"
_TRUTH = "data/ILSVRC2012_validation_ground_truth.txt"
_LARGEST_KIT_BYTES = 1 << 26  # unpacked; the published one has 3 MB


class ImageNet2012(IndexedClassImages):
    """Images listed in ``train_list.txt`` and ``val_list.txt`` (``path label``, 1000 classes), or in class folders.

    ``classes.txt``, if present, names the classes of the lists and determines their number; without it,
    ``num_classes`` is the number (``MODEL.NUM_CLASSES``, as in PaddleViT). If neither list exists,
    labels are the positions of the sorted folders ``train/<wnid>``, whose count is the number of classes. Validation
    images may then be in ``val`` without class folders, with the development kit next to it.
    """

    layout = (
        "with train_list.txt and val_list.txt (lines 'path label'), or with train/<wnid>/ and val/<wnid>/ "
        "(or val/ILSVRC2012_val_*.JPEG and the development kit ILSVRC2012_devkit_t12)"
    )

    @classmethod
    def open(cls, config: Any, split: str, cache_folder: Path) -> "ImageNet2012":
        """Open the dataset that the configuration describes."""
        return cls(config.DATA.DATA_PATH, split, cache_folder, config.MODEL.NUM_CLASSES or NUM_IMAGENET_1K_CLASSES)

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path, num_classes: int = NUM_IMAGENET_1K_CLASSES
    ) -> None:
        """List the images of ``split`` ("train", "val", or the name of a list or folder); index in ``cache_folder``.

        A ``UserError`` says that neither layout is found, or that a list has an invalid line.
        """
        self.split = split
        root = require_folder(data_path, "imagenet2012", self.layout)
        name = f"imagenet2012-{split}"
        prefix = b""
        skipped_files: SkippedFiles | None = None  # lists and the development kit name every image
        has_lists = any(os.path.lexists(os.path.join(root, list_name)) for list_name in LISTS.values())
        root = root if has_lists else os.path.join(root, find_class_tree(root).top).rstrip("/")  # the archive wraps it
        if has_lists:
            list_file = Path(root, _find_list(root, split))
            names = read_class_names(root)
            num_classes = len(names) if names else num_classes
            prefix = _find_prefix(list_file, root)
            index = _index_list(list_file, num_classes, cache_folder, name, names, prefix)
        elif split == "val" and os.path.exists(os.path.join(root, "val", FIRST_OF_KIT)):
            index, num_classes = _index_by_kit(root, cache_folder, name), NUM_IMAGENET_1K_CLASSES
        elif os.path.isdir(os.path.join(root, split)):
            folders = {folder: folder for folder in ("train", split) if os.path.isdir(os.path.join(root, folder))}
            index, skipped_files = index_class_folders(root, split, folders, cache_folder, name)
            num_classes = len(index.class_names)
        else:
            raise UserError(f"{root} has no {split} images of imagenet2012; expected a folder {self.layout}")
        super().__init__(root, index, num_classes, skipped_files)
        if prefix:
            self.notices = [f"{list_file}: all paths begin with {os.fsdecode(prefix)}, which is removed"]
        check_labels(index.labels, num_classes, "imagenet2012", self.describe)


def _find_list(root: str, split: str) -> str:
    lists = [name for name in sorted(os.listdir(root)) if name.endswith(_LIST_SUFFIX)]
    if split not in LISTS:
        require_split(split, [name[: -len(_LIST_SUFFIX)] for name in lists], root)
    return f"{split}{_LIST_SUFFIX}"


def _index_list(
    list_file: Path, num_classes: int, cache_folder: Path, name: str, class_names: list[str] | None, prefix: bytes
) -> PathIndex:
    """Open the index of ``list_file``, rebuilding it if the file's content has changed.

    ``prefix`` is removed from all paths; a ``UserError`` if one does not begin with it.
    """
    key = hashlib.sha256(prefix + f"path list, {num_classes} classes {class_names}\n".encode())
    with readable(list_file):
        with open_regular(list_file, "rb") as stream:
            for chunk in iter(lambda: stream.read(1 << 20), b""):
                key.update(chunk)
        index = ensure_path_index(
            cache_folder, name, key.digest(), lambda: _batches(list_file, num_classes, prefix), class_names
        )
    if len(index) == 0:
        raise UserError(f"{list_file} contains no samples; expected lines of 'path label'")
    return index


def _find_prefix(list_file: Path, root: str) -> bytes:
    """Return the folders of another machine with which the first paths of a list begin; empty: there are none."""
    if not list_file.is_file():  # reported when it is read
        return b""
    with open_regular(list_file, "rb") as stream:
        lines = [line.strip().rsplit(None, 1)[0] for line in islice(stream, _LINES_TRIED) if line.strip()]
    return os.fsencode(find_foreign_prefix(list(map(os.fsdecode, lines)), lambda path: _is_file(root, path)))


def _is_file(root: str, path: str) -> bool:
    return "\0" not in path and os.path.isfile(os.path.join(root, path))


def _batches(list_file: Path, num_classes: int, prefix: bytes) -> Iterator[PathBatch]:
    entries = read_entries(list_file, num_classes)
    for chunk in iter(lambda: list(islice(entries, _LINES_PER_BATCH)), []):
        paths, labels = zip(*chunk, strict=True)
        other = next((path for path in paths if not path.startswith(prefix)), None)
        if other is not None:
            raise UserError(
                f"{list_file}: {os.fsdecode(other)} does not begin with {os.fsdecode(prefix)}, another machine's "
                "folders, which were to be removed from all paths: correct the paths"
            )
        yield make_batch([path[len(prefix) :] for path in paths], np.array(labels, np.int32))


def read_entries(list_file: Path, num_classes: int) -> Iterator[tuple[bytes, int]]:
    """Yield path and label of each line that is not blank. The label is the last field, so paths may contain spaces."""
    with open_regular(list_file, "rb") as stream:
        for number, line in enumerate(stream, 1):
            fields = line.removeprefix(_BYTE_ORDER_MARK).strip().rsplit(None, 1)
            try:
                path, label = fields[0], int(fields[1])
            except (ValueError, IndexError):
                if not fields:
                    continue
                shown = line.strip().decode("utf-8", "backslashreplace")[:100]
                raise UserError(
                    f"{list_file} line {number}: expected 'path label' with an integer label, found '{shown}'"
                ) from None
            if b"\0" in path:
                raise UserError(f"{list_file} line {number}: the path has a null byte; remove it")
            if not 0 <= label < num_classes:
                raise UserError(
                    f"{list_file} line {number}: label {label} is out of range; "
                    f"with {num_classes} classes, labels are 0 to {num_classes - 1}"
                )
            yield path, label


def find_label_files(root: str, split: str) -> list[str]:
    """Return the files under ``root`` that may contain the labels of ``split``, for images in tar files."""
    files = [os.path.join(root, f"{split}{_LIST_SUFFIX}")]
    return [*files, os.path.join(root, f"{_KIT}.tar.gz"), os.path.join(root, _KIT, _TRUTH)] if split == "val" else files


def read_listed_labels(root: str, split: str) -> dict[bytes, int] | None:
    """Read the label of each image of ``split``, by the last part of its path; a ``UserError`` if that is corrupt.

    Labels are in ``<split>_list.txt`` or ImageNet's development kit; None if there are neither.
    """
    path = Path(root, f"{split}{_LIST_SUFFIX}")
    if not path.is_file():
        return read_kit_labels(root) if split == "val" else None
    labels: dict[bytes, int] = {}
    for file, label in read_entries(path, 1 << 31):
        name = os.path.basename(file)
        if labels.setdefault(name, label) != label:
            raise UserError(f"{path}: {os.fsdecode(name)} has two labels; file names must be unique")
    return labels


def read_kit_labels(root: str) -> dict[bytes, int] | None:
    """Read the labels of ``ILSVRC2012_val_00000001.JPEG`` etc. from the development kit in ``root``.

    The kit may be extracted or a ``.tar.gz``; None without it, a ``UserError`` if it is not as published. Classes are
    numbered by sorted WordNet id, as usual.
    """
    try:
        content = _read_truth(Path(root, _KIT, _TRUTH), Path(root, f"{_KIT}.tar.gz"))
        if content is None:
            return None
        label_of = {int(number): label for label, (_, number, _) in enumerate(read_table())}
        labels = [label_of[int(line)] for line in content.split()]
    except (OSError, EOFError, zlib.error, tarfile.TarError, ArithmeticError, LookupError, ValueError) as error:
        raise UserError(f"the development kit {_KIT} in {root} cannot be read: {error}; download it again") from error
    return {f"ILSVRC2012_val_{number:08d}.JPEG".encode(): label for number, label in enumerate(labels, 1)}


def _read_truth(file: Path, archive: Path) -> bytes | None:
    if file.parent.is_dir():
        return read_bytes(file, _LARGEST_KIT_BYTES)
    if not archive.is_file():
        return None
    content = read_regular(archive)
    if content.startswith(b"\x1f\x8b"):  # some browsers unpack it while downloading
        with gzip.open(io.BytesIO(content)) as packed:
            content = packed.read(_LARGEST_KIT_BYTES + 1)
    if len(content) > _LARGEST_KIT_BYTES:
        raise ValueError(f"it unpacks to more than {_LARGEST_KIT_BYTES:,} bytes, which the published one does not")
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
        member = tar.extractfile(f"{_KIT}/{_TRUTH}")  # KeyError: not in the archive
        if member is None:
            raise ValueError(f"{_TRUTH} is not a file")
        return member.read()


def _index_by_kit(root: str, cache_folder: Path, name: str) -> PathIndex:
    """Index the validation images in a single folder, with labels from the development kit."""
    labels = read_kit_labels(root)
    if labels is None:
        raise UserError(
            f"{os.path.join(root, 'val')} has no class folders, and {root} has no ILSVRC2012_devkit_t12 (folder or "
            ".tar.gz) with their labels; get it from https://image-net.org or sort the images into class folders"
        )
    existing = set(os.listdir(os.fsencode(os.path.join(root, "val"))))
    missing = next((image for image in labels if image not in existing), None)
    if missing is not None:
        raise UserError(f"{os.path.join(root, 'val', os.fsdecode(missing))} is missing, but the development kit has it")
    names: list[str] | None = None
    if os.path.isdir(os.path.join(root, "train")):
        folders = list_classes(root, "train")
        if len(folders) != NUM_IMAGENET_1K_CLASSES:
            raise UserError(
                f"the development kit numbers {NUM_IMAGENET_1K_CLASSES} classes, but {os.path.join(root, 'train')} has "
                f"{len(folders)}; sort the validation images into class folders"
            )
        names = name_folders(root, folders)
    batch = make_batch([b"val/" + image for image in labels], np.array(list(labels.values())))
    key = hashlib.sha256(
        f"development kit {names}".encode("utf-8", "surrogateescape") + batch.labels.tobytes() + batch.blob
    )
    return ensure_path_index(cache_folder, name, key.digest(), lambda: [batch], names)
