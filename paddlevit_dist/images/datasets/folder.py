"""Own pictures: ``train/<class>/*`` and ``val/<class>/*``."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from .checks import check_split, existing_folder
from .class_folders import EXTENSIONS, index_class_folders
from .indexed import IndexedImages

VAL_FOLDERS = ("val", "valid", "validation", "test")


class ClassFolders(IndexedImages):
    """Pictures in one folder per class, ``data_path/train/<class>/`` and ``data_path/val/<class>/``.

    Labels are the positions of the sorted class folders of ``train``. ``valid``, ``validation`` and ``test`` are
    accepted in place of ``val``; where there is no ``train`` at all, the classes are those of the validation folder.
    """

    layout = f"with train/<class>/ and val/<class>/ that hold pictures ({', '.join(EXTENSIONS)})"

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path) -> None:
        """List the pictures of ``split`` ("train" or "val"); their index goes to ``cache_folder``.

        Raises:
            UserError: the folder has another layout, or a class is empty.
        """
        self.split = check_split(split)
        root = existing_folder(data_path, "folder", self.layout)
        index = index_class_folders(root, split, VAL_FOLDERS, cache_folder, f"folder-{split}")
        super().__init__(root, index, len(index.class_names))
