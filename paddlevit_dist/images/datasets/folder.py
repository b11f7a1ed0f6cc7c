"""Own pictures: ``train/<class>/*`` and ``val/<class>/*``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

from .checks import check_split, existing_folder
from .class_folders import TRAIN_FOLDER, WHOLE, index_class_folders
from .indexed import IndexedImages

VAL_FOLDERS = ("val", "valid", "validation", "test")


class ClassFolders(IndexedImages):
    """Pictures in one folder per class, ``data_path/train/<class>/`` and ``data_path/val/<class>/``.

    Labels are the positions of the sorted class folders of ``train``. ``valid``, ``validation`` and ``test`` are
    accepted in place of ``val``; where there is no ``train`` at all, the classes are those of the validation folder.
    """

    layout = "with train/<class>/ and val/<class>/ that hold pictures of any format that Pillow opens"

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path, whole: bool = False) -> None:
        """List the pictures of ``split`` ("train" or "val"); their index goes to ``cache_folder``.

        Raises:
            UserError: the folder has another layout, or a class is empty.
        """
        self.split = check_split(split)
        root = existing_folder(data_path, "folder", self.layout)
        if whole and not os.path.isdir(os.path.join(root, TRAIN_FOLDER)):
            split = WHOLE
        listing = index_class_folders(root, split, VAL_FOLDERS, cache_folder, f"folder-{split or 'whole'}")
        super().__init__(root, listing.index, len(listing.index.class_names), listing.left_out)

    @classmethod
    def whole(cls, data_path: Optional[str], cache_folder: Path) -> ClassFolders:
        """All pictures of a data set that is to be split: of ``train``, or without it of ``data_path/<class>/``."""
        return cls(data_path, "train", cache_folder, whole=True)

    @staticmethod
    def has_validation(data_path: str) -> bool:
        """Whether there is a folder of validation pictures."""
        return any(os.path.isdir(os.path.join(data_path, name)) for name in VAL_FOLDERS)
