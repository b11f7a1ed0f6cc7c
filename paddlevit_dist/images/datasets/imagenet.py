"""ImageNet as ILSVRC 2012 published it, by PaddleViT's lists or as class folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from ...errors import UserError
from .checks import check_labels, check_split, existing_folder
from .class_folders import index_class_folders
from .indexed import IndexedImages
from .path_list import index_path_list

LISTS = {"train": "train_list.txt", "val": "val_list.txt"}
NUM_CLASSES_OF_LISTS = 1000


class ImageNet2012(IndexedImages):
    """Pictures listed in ``train_list.txt`` and ``val_list.txt`` (``path label``, 1000 classes), or in class folders.

    Where neither list exists, labels are the positions of the sorted folders ``train/<wnid>``, and their count is the
    number of classes.
    """

    layout = "with train_list.txt and val_list.txt (lines 'path label'), or with train/<wnid>/ and val/<wnid>/"

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path) -> None:
        """List the pictures of ``split`` ("train" or "val"); their index goes to ``cache_folder``.

        Raises:
            UserError: neither layout is found, or a list has a wrong line.
        """
        self.split = check_split(split)
        root = existing_folder(data_path, "imagenet2012", self.layout)
        name = f"imagenet2012-{split}"
        if any(os.path.exists(os.path.join(root, list_name)) for list_name in LISTS.values()):
            list_file = Path(root, LISTS[split])
            index = index_path_list(list_file, NUM_CLASSES_OF_LISTS, cache_folder, name)
            num_classes = NUM_CLASSES_OF_LISTS
        elif os.path.isdir(os.path.join(root, split)):
            index = index_class_folders(root, split, ("val",), cache_folder, name)
            num_classes = len(index.class_names)
        else:
            raise UserError(f"{root} has no {split} pictures of imagenet2012; expected a folder {self.layout}")
        super().__init__(root, index, num_classes)
        check_labels(index.labels, num_classes, "imagenet2012", self.describe)
