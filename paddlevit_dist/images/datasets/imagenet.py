"""ImageNet as ILSVRC 2012 published it, by PaddleViT's lists or as class folders."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import List, Optional

import numpy as np

from ...errors import UserError
from ...loading.path_index import PathIndex, ensure_path_index, make_batch
from .checks import check_labels, check_split, existing_folder
from .class_folders import index_class_folders, list_classes
from .class_names import name_folders, read_class_names
from .indexed import IndexedImages
from .left_out import LeftOut
from .listed_labels import kit_labels
from .path_list import index_path_list

LISTS = {"train": "train_list.txt", "val": "val_list.txt"}
NUM_CLASSES_OF_LISTS = 1000
FIRST_OF_KIT = "ILSVRC2012_val_00000001.JPEG"


class ImageNet2012(IndexedImages):
    """Pictures listed in ``train_list.txt`` and ``val_list.txt`` (``path label``, 1000 classes), or in class folders.

    ``classes.txt`` names the classes of the lists, and then says how many there are. Where neither list exists, labels
    are the positions of the sorted folders ``train/<wnid>``, and their count is the number of classes. Validation
    pictures may then lie in ``val`` without class folders, with the development kit beside it.
    """

    layout = (
        "with train_list.txt and val_list.txt (lines 'path label'), or with train/<wnid>/ and val/<wnid>/ "
        "(or val/ILSVRC2012_val_*.JPEG and the development kit ILSVRC2012_devkit_t12)"
    )

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path) -> None:
        """List the pictures of ``split`` ("train" or "val"); their index goes to ``cache_folder``.

        Raises:
            UserError: neither layout is found, or a list has a wrong line.
        """
        self.split = check_split(split)
        root = existing_folder(data_path, "imagenet2012", self.layout)
        name = f"imagenet2012-{split}"
        left_out: Optional[LeftOut] = None  # lists and the development kit name each picture
        if any(os.path.exists(os.path.join(root, list_name)) for list_name in LISTS.values()):
            list_file = Path(root, LISTS[split])
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


def _index_by_kit(root: str, cache_folder: Path, name: str) -> PathIndex:
    """The validation pictures in one folder, with the labels of the development kit."""
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
