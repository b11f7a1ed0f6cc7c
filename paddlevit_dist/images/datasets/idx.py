"""MNIST and Fashion-MNIST from the four files that their authors publish."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Optional, Tuple

import numpy as np
from PIL import Image

from ...errors import UserError
from .checks import check_labels, check_split, existing_folder
from .idx_file import IdxFile

_PREFIXES = {"train": "train", "val": "t10k"}


class _IdxImages:
    """Grey pictures and labels of one split, mapped from a pair of IDX files."""

    name: str
    class_names: List[str]
    where_to_get: str
    default_folder: Optional[str] = None
    kind = "glyph"
    image_mode = "L"

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path) -> None:
        """Find and check the two files of ``split``: "train", or "val" which is the published test set.

        Args:
            data_path: folder of the files, each plain or ``.gz``.
            split: "train" or "val".
            cache_folder: receives what has to be decompressed.

        Raises:
            UserError: a file is missing, truncated or damaged, the two do not fit, or a label is no class.
        """
        self.split = check_split(split)
        self.num_classes = len(self.class_names)
        folder = Path(existing_folder(self._path_or_default(data_path), self.name, self._layout()))
        self._images = IdxFile(self._find(folder, "images", 3), 3, cache_folder)
        self._labels = IdxFile(self._find(folder, "labels", 1), 1, cache_folder)
        num_images, num_labels = self._images.shape[0], self._labels.shape[0]
        if num_images != num_labels:
            raise UserError(
                f"{self._images.source} has {num_images} images, but {self._labels.source} has {num_labels} labels; "
                "get both again"
            )
        if num_images == 0 or 0 in self._images.shape:
            raise UserError(f"{self._images.source} holds no samples: its shape is {self._images.shape}")
        check_labels(self.labels, self.num_classes, self.name, lambda i: f"sample {i} of {self._labels.source}")

    def __len__(self) -> int:
        return self._labels.shape[0]

    def read(self, index: int) -> Tuple[Image.Image, int]:
        """Picture ``index`` in mode "L", and its label."""
        return Image.fromarray(self._images.values[index]), int(self.labels[index])

    def describe(self, index: int) -> str:
        """Position and file of picture ``index``."""
        return f"sample {index} of {self._images.source}"

    @property
    def labels(self) -> np.ndarray:
        """All labels, (samples,) uint8, read-only."""
        return self._labels.values

    def _path_or_default(self, data_path: Optional[str]) -> Optional[str]:
        if data_path is None and self.default_folder is not None and os.path.isdir(self.default_folder):
            return self.default_folder
        return data_path

    def _layout(self) -> str:
        names = ", ".join(_file_name(split, part) for split in _PREFIXES for part in ("images", "labels"))
        return f"with {names}, each plain or .gz; get them from {self.where_to_get}"

    def _find(self, folder: Path, part: str, rank: int) -> Path:
        published = _file_name(self.split, part)
        dotted = published.replace("-idx", ".idx")
        for candidate in (published, dotted, f"{published}.gz", f"{dotted}.gz"):
            if (folder / candidate).exists():
                return folder / candidate
        raise UserError(
            f"{folder} has no {published} or {published}.gz; dataset {self.name} expects a folder {self._layout()}"
        )


def _file_name(split: str, part: str) -> str:
    return f"{_PREFIXES[split]}-{part}-idx{3 if part == 'images' else 1}-ubyte"


class Mnist(_IdxImages):
    """Handwritten digits, 60,000 and 10,000 grey pictures of 28 x 28.

    Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition", 1998.
    """

    name = "mnist"
    class_names = [str(digit) for digit in range(10)]
    where_to_get = "https://ossci-datasets.s3.amazonaws.com/mnist/"


class FashionMnist(_IdxImages):
    """Pieces of clothing, 60,000 and 10,000 grey pictures of 28 x 28; without a data path Debian's package is used.

    Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST", arXiv:1708.07747.
    """

    name = "fashion_mnist"
    class_names = [
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ]
    where_to_get = "https://github.com/zalandoresearch/fashion-mnist or 'apt-get install dataset-fashion-mnist'"
    default_folder = "/usr/share/datasets/fashion-mnist"
