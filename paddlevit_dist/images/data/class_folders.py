"""Images listed in a path index, and folders with one subfolder per class, listed in a fixed order."""

import functools
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from ...core.data.path_index import PathBatch, PathIndex, ensure_path_index, make_batch
from ...core.runtime.errors import UserError
from ...core.runtime.files import is_folder
from ...core.runtime.spelling import compose
from ...core.tasks.dataset import require_split
from .class_trees import find_class_tree, find_label_map_files, find_listed_classes, list_class_folders
from .formats import (
    SPLIT_WORDS,
    SkippedFiles,
    find_hint,
    get_suffix,
    is_hidden,
    iterate_entries,
    list_folders,
    read_head,
    readable_suffixes,
    split_in_name,
    walk_files,
)
from .image_dataset import ImageDataset, name_folders
from .prepared import FILE as PREPARED
from .reading import SPLITS, ReadConfig, decode_image, require_folder

WHOLE = ""  # no split: the class folders are directly in the data path


def index_class_folders(
    root: str, split: str, folders: Mapping[str, str], cache_folder: Path, name: str
) -> tuple[PathIndex, SkippedFiles]:
    """List the images of ``split`` under ``root`` and open the index of that list, rebuilding it if it has changed.

    Classes are the sorted subfolders of the training folder, or of the split's folder if there is none. An image is a
    file with the suffix of a format this installation can open; other files are counted. Images may be nested inside a
    class folder and are sorted by path. Symbolic links are followed, hidden names skipped.

    Args:
        split: "train", "val", another folder's name, or ``WHOLE``.
        folders: the folder of each split that has one, see ``find_class_tree``; under ``WHOLE`` that of all classes.
        name: of the index.

    Returns:
        The index, and the other files in the folders.

    Raises:
        UserError: a folder or its classes are missing, a validation class is not a training class, a training class is
            empty, or a folder cannot be listed.
    """
    folder, train_folder = _split_folder(root, split, folders), folders.get("train")
    listed = find_listed_classes(os.path.join(root, folder)) if folder not in (WHOLE, train_folder) else {}
    present = sorted(set(listed.values())) or list_classes(root, folder)
    classes = present
    if train_folder is not None and folder != train_folder:
        classes = list_classes(root, train_folder)
        _check_known(present, classes, os.path.join(root, folder), os.path.join(root, train_folder))
    label_of = {compose(each): label for label, each in enumerate(classes)}

    names = name_folders(root, list(label_of))
    key = hashlib.sha256("\0".join(["class folders", *classes, *names]).encode("utf-8", "surrogateescape"))
    skipped_files = SkippedFiles(os.path.join(root, folder) if folder else root)
    _count_outside_classes(skipped_files)
    for path in list_folders(skipped_files.place):
        if os.path.basename(path) not in present and not listed:
            skipped_files.add_unusable(
                os.fsencode(os.path.basename(path)), "folder of label maps or a copy of others", is_lost=False
            )
    batches: list[PathBatch] = []
    for class_name in tqdm(present, desc=f"listing {folder or root}", unit="class", disable=None, leave=False):
        in_class = SkippedFiles(os.path.join(root, folder, class_name))
        paths = [os.fsencode(os.path.join(folder, path)) for path, label in listed.items() if label == class_name]
        paths = paths or _list_class_images(root, folder, class_name, in_class)
        batch = make_batch(paths, label_of[compose(class_name)])
        if (split == WHOLE or folder == train_folder) and len(batch.labels) == 0:
            raise _empty("class folder ", in_class)
        skipped_files.merge(in_class)
        for part in (batch.lengths.data, batch.labels.tobytes(), batch.blob):
            key.update(part)
        batches.append(batch)
    if not any(len(each.labels) for each in batches):
        raise _empty("", skipped_files)
    return ensure_path_index(cache_folder, name, key.digest(), lambda: batches, names), skipped_files


def _split_folder(root: str, split: str, folders: Mapping[str, str]) -> str:
    if os.path.exists(os.path.join(root, PREPARED)):
        raise UserError(f"{root} contains the output of 'prepare images': add -dataset=tar")
    if split in folders:
        return folders[split]
    if split not in SPLITS:
        if os.path.isdir(os.path.join(root, split)):
            return split
        require_split(split, [name for name in list_class_folders(root) if list_class_folders(root, name)], root)
    expected = " or ".join(f"{word}/<class>/" for word in SPLIT_WORDS[split])
    raise UserError(
        f"{root} has no folder {expected} with the {split} images; create it with one subfolder per class"
        f", or set DATA.VAL_FRACTION to split a single folder <class>/"
    )


def list_classes(root: str, folder: str) -> list[str]:
    """Return the names of the class folders in ``folder`` under ``root``, sorted by their composed form.

    A ``UserError`` says that there are none, two differ only in their Unicode form, or the folder cannot be listed.
    """
    names = sorted(list_class_folders(root, folder), key=compose)
    twice = next((name for name, following in zip(names, names[1:]) if compose(name) == compose(following)), None)
    if twice is not None:
        raise UserError(
            f"{os.path.join(root, folder)} has two class folders {twice} that differ only in how Unicode spells them: "
            "move the images of one to the other"
        )
    if not names:
        path = os.path.join(root, folder) if folder else root
        is_trained = not folder or split_in_name(folder) in SPLITS
        remedy = "" if is_trained else "; for images without labels, use 'predict'"
        raise UserError(f"{path} has no class folders; expected its images in one subfolder per class{remedy}")
    return names


def _check_known(present: list[str], classes: list[str], folder: str, train_folder: str) -> None:
    extra = sorted(set(map(compose, present)) - set(map(compose, classes)))
    if extra:
        more = f" (and {len(extra) - 1} more)" if len(extra) > 1 else ""
        raise UserError(
            f"class folder '{extra[0]}'{more} of {folder} does not exist in {train_folder}; validation classes must be "
            "training classes"
        )


def _count_outside_classes(skipped_files: SkippedFiles) -> None:
    """Count the images directly in the folder; its subfolders are the classes."""
    suffixes = readable_suffixes()
    for entry in iterate_entries(skipped_files.place):
        suffix = get_suffix(os.fsencode(entry.name))
        if (suffix in suffixes or find_hint(suffix.decode("ascii")) is not None) and not is_folder(entry):
            skipped_files.add_outside_classes(os.fsencode(entry.path))


def _list_class_images(root: str, folder: str, class_name: str, skipped_files: SkippedFiles) -> list[bytes]:
    """List the sorted paths of a class's images, relative to ``root``; as bytes, which saves a million conversions."""
    suffixes = readable_suffixes()
    top = os.fsencode(os.path.join(root, folder, class_name))
    relative_from = len(os.fsencode(root).rstrip(b"/")) + 1
    paths = []
    for entry in walk_files(top, _refuse):
        name = entry.name
        if is_hidden(name):
            continue
        if name[name.rfind(b".") :].lower() in suffixes:
            paths.append(entry.path[relative_from:])
        else:
            skipped_files.add(name, entry.path, functools.partial(read_head, entry.path))
    masks = find_label_map_files(paths, root)
    for path in sorted(masks):
        skipped_files.add_unusable(path, "label maps", is_lost=False)
    return sorted(path for path in paths if path not in masks)


def _refuse(folder: bytes, reason: str) -> None:
    raise UserError(f"folder {os.fsdecode(folder)}: {reason}")


def _empty(kind: str, skipped_files: SkippedFiles) -> UserError:
    skipped = f" ({skipped_files.summary()})" if skipped_files.counts else ""
    return UserError(
        f"{kind}{skipped_files.place} contains no images; expected files ending in jpg, png or another suffix that "
        f"Pillow opens{skipped}"
    )


class IndexedClassImages(ImageDataset):
    """Images listed in a path index; nothing is known about an image until it is read."""

    root: str
    num_classes: int
    reading = ReadConfig()
    reads_parts = True

    def __init__(
        self, root: str, index: PathIndex, num_classes: int, skipped_files: SkippedFiles | None = None
    ) -> None:
        """Use the entries of ``index``, with paths relative to ``root``; ``skipped_files`` counts the other files."""
        self.root = root
        self.num_classes = num_classes
        self.skipped_files = skipped_files  # only in the process that listed the data; other processes do not need it
        self._index = index

    def __getstate__(self) -> Any:
        return {**self.__dict__, "skipped_files": None}

    def __len__(self) -> int:
        return len(self._index)

    def read(self, index: int) -> tuple[Image.Image, int]:
        """Decode image ``index``: (RGB image, label); an ``UnreadableImage`` if the file is missing or damaged."""
        image = decode_image(self.encoded(index), self.describe(index), self.image_mode, self.reading)
        return image, self._index.label(index)

    def describe(self, index: int) -> str:
        """Return the file of image ``index``."""
        return os.path.join(self.root, self._index.path(index))

    @property
    def labels(self) -> np.ndarray:  # type: ignore[override] # stored in the index
        """All labels, (samples,) int32, read-only."""
        return self._index.labels

    @property
    def class_names(self) -> list[str] | None:  # type: ignore[override] # stored in the index
        """Name of each class, None for a plain list of paths and labels."""
        return self._index.class_names

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what ``content_key`` covers: paths and labels."""
        return {"names": self._index.buffers(), "labels": [self._index.labels]}

    @property
    def content_key(self) -> str:  # type: ignore[override] # stored in the index
        """Hash of the list of images and labels, independent of their location."""
        return self._index.key.hex()


class ClassFolders(IndexedClassImages):
    """Images stored in one folder per class, ``data_path/train/<class>/`` and ``data_path/val/<class>/``.

    Labels are the positions of the sorted class folders of ``train``. Other usual names of splits are accepted, see
    ``find_class_tree``; without ``train``, the classes are those in the split's folder. Without ``val``, the images of
    ``test`` are used instead, unless a part of ``train`` is held out. Label maps next to the images are skipped.
    """

    layout = "with train/<class>/ and val/<class>/, with images of any format that Pillow opens"

    def __init__(self, data_path: str | None, split: str, cache_folder: Path, whole: bool = False) -> None:
        """List the images of ``split``, "train", "val" or another folder; their index goes to ``cache_folder``.

        A ``UserError`` says that the folder has a different layout, or that a class is empty.
        """
        self.split = split
        root = require_folder(data_path, "folder", self.layout)
        tree = find_class_tree(root)
        folders = {**tree.splits, WHOLE: tree.top}
        if whole and "train" not in folders:
            split = WHOLE
        if "test" in tree.labeled and "val" not in tree.labeled:
            folders["val"] = folders["test"]
        index, skipped_files = index_class_folders(root, split, folders, cache_folder, f"folder-{split or 'whole'}")
        super().__init__(root, index, len(index.class_names), skipped_files)
        self.notices = []
        folder = folders.get(split, split)
        self.published_as = {"split": folder} if folder else {}
        if folder not in (split, *SPLIT_WORDS.get(split, ())):
            what = f"{split} images" if split else "class folders"
            self.notices.append(f"note: the {what} are those in {os.path.join(root, folder)}")
        if split in ("train", WHOLE):
            for name in sorted(tree.splits[each] for each in tree.splits.keys() - tree.labeled):
                self.notices.append(f"note: {os.path.join(root, name)} has no folders of these classes: it is not used")

    @classmethod
    def whole(cls, data_path: str | None, cache_folder: Path) -> "ClassFolders":
        """Open all images of a dataset to be split: those in ``train`` or, without it, in ``data_path/<class>/``."""
        return cls(data_path, "train", cache_folder, whole=True)

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether there is a folder of validation images, or one of test images only."""
        if data_path is None or not os.path.isdir(data_path):
            return False
        labeled = find_class_tree(data_path).labeled
        return "val" in labeled or ("test" in labeled and "train" not in labeled)
