"""CIFAR-10 and CIFAR-100, converted once from the published archives to one memory-mapped file."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, List, Optional, Tuple

import numpy as np
from PIL import Image

from ...errors import UserError
from ...loading.atomic_file import atomic_file
from .checks import check_labels, check_split
from .cifar_files import RECORD, Publication, Source, find_source, read_batches

_HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"


class _Cifar:
    """Colour pictures of 32 x 32; the published test set is "val"."""

    name: str
    class_names: List[str]
    label_key: str
    publications: Tuple[Publication, ...]
    kind = "photo"
    image_mode = "RGB"

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path) -> None:
        """Find the archive or its extracted folder and convert ``split``, "train" or "val", unless that was done.

        Args:
            data_path: the archive, the extracted folder, or the folder that has one of them.
            split: "train" or "val".
            cache_folder: receives the converted file; its name carries path, size and time of change of the source.

        Raises:
            UserError: nothing is found, or the files are damaged or not as published.
        """
        self.split = check_split(split)
        self.num_classes = len(self.class_names)
        self._records: Optional[np.ndarray] = None
        source = find_source(self._existing(data_path), self.publications)
        key = hashlib.sha256(source.stamps(split).encode("utf-8", "surrogateescape")).hexdigest()[:16]
        file = Path(cache_folder, f"{self.name}-{split}-{key}.npy")
        self.source, self.file = str(source.path), str(file)
        if not self._is_intact():
            self._convert(source, file)

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_records": None}

    def __len__(self) -> int:
        return len(self._mapped())

    def read(self, index: int) -> Tuple[Image.Image, int]:
        """Picture ``index`` in mode "RGB", and its label."""
        record = self._mapped()[index]
        return Image.fromarray(record["image"]), int(record["label"])

    def describe(self, index: int) -> str:
        """Position of picture ``index`` among those of its split, and the source."""
        return f"sample {index} of the {'test' if self.split == 'val' else 'training'} set in {self.source}"

    @property
    def labels(self) -> np.ndarray:
        """All labels, (samples,) uint8, read-only."""
        return self._mapped()["label"]

    def _mapped(self) -> np.ndarray:
        if self._records is None:
            self._records = np.asarray(np.load(self.file, mmap_mode="r", allow_pickle=False))
        return self._records

    def _is_intact(self) -> bool:
        try:
            return self._mapped().dtype == RECORD
        except (OSError, ValueError, EOFError):
            return False

    def _convert(self, source: Source, file: Path) -> None:
        batches = list(read_batches(source, self.split, self.label_key, _HOME))
        records = np.concatenate(batches)
        check_labels(records["label"], self.num_classes, self.name, lambda index: f"sample {index} of {source.path}")
        self._records = None
        with atomic_file(file) as out:
            np.save(out, records, allow_pickle=False)

    def _existing(self, data_path: Optional[str]) -> Path:
        first = self.publications[0]
        wanted = f"a folder with {first.archive} or its extracted {first.folder}; get it from {_HOME}"
        if data_path is None:
            raise UserError(f"dataset {self.name} needs -data_path=<folder>, {wanted}")
        path = Path(os.path.abspath(os.path.expanduser(os.fspath(data_path))))
        if not path.exists():
            raise UserError(f"data path {path} does not exist; dataset {self.name} expects a folder: {wanted}")
        return path


class Cifar10(_Cifar):
    """60,000 pictures of ten classes, 50,000 for training.

    Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """

    name = "cifar10"
    label_key = "labels"
    class_names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    publications = (
        Publication(
            "cifar-10-python.tar.gz",
            "cifar-10-batches-py",
            {"train": [f"data_batch_{number}" for number in range(1, 6)], "val": ["test_batch"]},
            binary=False,
        ),
        Publication(
            "cifar-10-binary.tar.gz",
            "cifar-10-batches-bin",
            {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "val": ["test_batch.bin"]},
            binary=True,
        ),
    )


class Cifar100(_Cifar):
    """60,000 pictures of 100 classes (the fine labels), 50,000 for training.

    Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
    """

    name = "cifar100"
    label_key = "fine_labels"
    class_names = """
        apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
        castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
        elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
        man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
        pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
        skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
        tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()
    publications = (
        Publication("cifar-100-python.tar.gz", "cifar-100-python", {"train": ["train"], "val": ["test"]}, binary=False),
        Publication(
            "cifar-100-binary.tar.gz",
            "cifar-100-binary",
            {"train": ["train.bin"], "val": ["test.bin"]},
            binary=True,
            label_bytes=2,
        ),
    )
