"""Images read directly from uncompressed tar files."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Tuple

import numpy as np
from PIL import Image

from ...errors import UserError
from .image_dataset import ImageDataset
from .left_out import LeftOut
from .reading import Reading, UnreadablePicture, decode_image, existing_folder
from .tar_index import Preparation, TarIndex, read_preparation

_OPEN_FILES = 64


class TarImages(ImageDataset):
    """Images in tar files that are not unpacked: an index holds the file, offset and size of each.

    The tar files of a split are those in ``data_path`` with the split in their name (``train-00000.tar``,
    ``ILSVRC2012_img_train.tar``, ``imagenet-val-03.tar``), or else all in the folder ``train`` or ``val``. What a class
    is follows from their content:

    - label files: ``key.jpg`` with ``key.cls`` (a whole number) or ``key.json`` (an object with ``label``), as
      WebDataset has it;
    - a tar file for each class, inside the tar file of the split (the ImageNet archive) or in the folder ``train``;
    - a folder for each class inside the tar files;
    - for tar files that say nothing of classes, such as ImageNet's validation set: ``val_list.txt`` with lines
      ``path label``, or ImageNet's development kit, extracted next to them.

    Classes that come from names are numbered in their sorted order, validation classes as those of the training
    files. ``classes.txt`` names the classes.
    """

    reading = Reading()
    reads_parts = True
    layout = "with uncompressed tar files: train-*.tar and val-*.tar, or train/<class>.tar and val/<class>.tar"

    def __init__(self, data_path: Optional[str], split: str, cache_folder: Path) -> None:
        """Index the tar files of ``split``, "train", "val" or what else their names say, unless ``cache_folder`` has
        their index.

        Raises:
            UserError: no tar files, a compressed, truncated or corrupt one, or an image without a class.
        """
        self.split = split
        self.root = existing_folder(data_path, "tar", self.layout)
        preparation = read_preparation(self.root)
        self._index = TarIndex(self.root, split, cache_folder)
        self.num_classes = _count_classes(self._index, preparation)
        self.notices = [preparation.note(self.root)] if preparation else []
        self._files: OrderedDict = OrderedDict()

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_files": OrderedDict()}

    def __len__(self) -> int:
        return len(self._index)

    def read(self, index: int) -> Tuple[Image.Image, int]:
        """Decode image ``index``: (RGB image, label).

        Raises:
            UnreadablePicture: it cannot be decoded; the message names tar file and member.
        """
        image = decode_image(self.encoded(index), self.describe(index), self.image_mode, self.reading)
        return image, self._index.label(index)

    def encoded(self, index: int) -> bytes:
        """The bytes of image ``index`` as stored.

        Raises:
            UserError: the tar file is missing or has become shorter.
        """
        return self.part(index, 0, self._index.location(index)[2]).tobytes()

    def part(self, index: int, start: int, length: int) -> np.ndarray:
        shard, offset, _ = self._index.location(index)
        content = np.empty(length, dtype=np.uint8)
        try:
            count = os.preadv(self._descriptor(shard), [content], offset + start)
        except OSError as error:
            raise UnreadablePicture(self.describe(index), error.strerror) from error
        if count != length:
            raise UserError(f"{self._shard_path(shard)} has become shorter since it was indexed; start the run again")
        return content

    def num_bytes(self, index: int) -> int:
        """Size of image ``index`` as stored."""
        return self._index.location(index)[2]

    def describe(self, index: int) -> str:
        """Tar file and member of image ``index``, as one path."""
        return os.path.join(self._shard_path(self._index.location(index)[0]), self._index.name(index))

    def listed(self) -> Dict[str, Iterable[Any]]:
        return {"names": self._index.names(), "labels": [self.labels]}

    @property
    def labels(self) -> np.ndarray:
        """All labels, (samples,) int32, read-only."""
        return self._index.labels

    @property
    def class_names(self) -> Optional[List[str]]:
        """Name of each class, None if neither the archives nor ``classes.txt`` name them."""
        return self._index.classes["names"]

    @property
    def left_out(self) -> LeftOut:
        """What the tar files contain besides images and labels."""
        return self._index.left_out

    @property
    def fingerprint(self) -> str:
        """Changes with the tar files and their labels."""
        return self._index.key.hex()

    def _shard_path(self, number: int) -> str:
        return os.path.join(self.root, self._index.shard(number))

    def _descriptor(self, number: int) -> int:
        """An open tar file. Forked processes may share it, since reads pass an explicit offset."""
        if number in self._files:
            self._files.move_to_end(number)
        else:
            while len(self._files) >= _OPEN_FILES:
                self._files.popitem(last=False)[1].close()
            self._files[number] = open(self._shard_path(number), "rb", buffering=0)  # noqa: SIM115 - stays open
        return self._files[number].fileno()


def _count_classes(index: TarIndex, preparation: Optional[Preparation]) -> int:
    classes = index.classes
    if preparation and not classes["names"]:
        return max(classes["count"], preparation.num_classes)
    return classes["count"]
