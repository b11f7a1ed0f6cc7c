"""Base class of all image datasets, and the names of classes."""

import itertools
import os
import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.runtime.files import readable
from ...core.runtime.printing import describe_value
from ...core.runtime.spelling import compose, find_spelling
from ...core.runtime.text_files import read_text, split_lines
from ...core.tasks.class_labels import make_class
from ...core.tasks.class_names import make_unique, require_unique
from ...core.tasks.dataset import Dataset
from ...core.tasks.sample_checks import BadSample
from ...core.tasks.sample_groups import SUBJECT
from .formats import SkippedFiles
from .image_labels import ANY, CLASS, LABELS, make_label_matrix, make_labels
from .reading import ReadConfig, UnreadableImage, read_file, require_8_bits

FILE = "classes.txt"


class ImageDataset(Dataset):
    """Labeled images: ``read(index)`` returns ``(PIL image, label)``; docs/guides/samples.md lists forms of labels."""

    holds = "images"
    groups_by = SUBJECT
    #: "photo": cropped and resized at random in training; "glyph": small signs, shifted and turned
    kind: str = "photo"
    #: Pillow's mode of the images
    image_mode: str = "RGB"
    #: labels of images that have several, int8 (samples, classes): 1, 0, or -1 for not known; None: they have one each
    label_matrix: np.ndarray | None = None
    #: how image files are decoded; None: the images are not files, and were all checked when the dataset was opened
    reading: ReadConfig | None = None
    #: ``read`` only decodes the ``encoded`` bytes, so the part that a crop needs may be decoded instead
    reads_parts: bool = False
    #: a random split of one dataset by ``DATA.VAL_FRACTION``
    is_random_split: bool = False
    #: other files in the folders, not read; None: not searched for
    skipped_files: SkippedFiles | None = None
    #: folders of images that were missing when the dataset was opened
    absent_folders: frozenset[str] = frozenset()
    #: whether an image is converted to RGB; classifiers take gray images, too
    needs_rgb: bool = False
    #: what the label of an image is, set by the task: CLASS, LABELS, or ANY, what a user's own task reads
    truth: str = ANY
    #: what an image's truth is called in a message
    truth_name: str = "label"

    @abstractmethod
    def read(self, index: int) -> tuple[Image.Image, Any]:
        """Read image ``index``, from 0, and its label, see ``make_truth``."""

    def make_sample(self, sample: Any) -> Any:
        """Return an image and its truth; a BadSample says that these are something else, or not of 8 bits."""
        if not isinstance(sample, (tuple, list)) or len(sample) != 2 or not isinstance(sample[0], Image.Image):
            what = f"{self.own_class.__name__}.read returns {describe_value(sample)}"
            raise BadSample(f"{what}, expected (PIL image, {self.truth_name})")
        image, truth = sample
        require_8_bits(image)
        if self.needs_rgb and image.mode != "RGB":
            image = image.convert("RGB")
        return image, self.make_truth(truth, image)

    def read_as(self, truth: str) -> None:
        """Set what the label of an image is, ``truth``."""
        self.truth = truth

    def make_truth(self, truth: Any, image: Image.Image) -> Any:
        """Return the label of an image: a class as ``make_class`` does, several labels as ``make_labels``, or as is.

        A derived class with other annotations returns these. Raises BadSample: they cannot be used.
        """
        if self.truth == CLASS:
            return make_class(truth, self.num_classes, self.class_names or ())
        if self.truth == LABELS and self.num_classes is not None:
            return make_labels(truth, self.num_classes, self.class_names or ())
        return truth

    def make_facts(self, name: str) -> None:
        """Make what the attributes say of the classes what tasks expect; without ``num_classes``, count the names."""
        super().make_facts(name)
        if self.num_classes is None and self.class_names is not None:
            self.num_classes = len(self.class_names)
        if self.label_matrix is not None:
            names, matrix = self.class_names or (), self.label_matrix
            made = make_label_matrix(matrix, self.num_classes, names, self.describe)
            self._set("label_matrix", matrix, made, name)

    @staticmethod
    def has_validation(data_path: str | None) -> bool:
        """Return whether the data have a validation split, as published datasets do."""
        return True

    def read_with(self, reading: ReadConfig) -> None:
        """Set how image files are decoded; no effect on images that are not files."""
        if self.reading is not None:
            self.reading = reading

    def limit_cache(self, gigabytes: float) -> None:
        """Set the size of the cache of images at an address; no effect on images of this machine."""

    def label_at(self, index: int) -> Any:
        """Return the class of image ``index``, or its row of ``label_matrix``, without reading it; None if unknown."""
        if self.label_matrix is not None:
            return self.label_matrix[index]
        return None if self.labels is None else int(self.labels[index])

    def encoded(self, index: int) -> bytes:
        """Read the file of image ``index``, for datasets of image files.

        An ``UnreadableImage`` says that the file is missing or may not be read.
        """
        return read_file(self.describe(index))

    def part(self, index: int, start: int, length: int) -> np.ndarray:
        """Read ``length`` bytes of the file of image ``index`` into new memory, uint8.

        An ``UnreadableImage`` says that the file is missing, shorter, or may not be read.
        """
        content = self.encoded(index)[start : start + length]
        if len(content) != length:
            raise UnreadableImage(self.describe(index), "the file has become shorter")
        return np.frombuffer(bytearray(content), dtype=np.uint8)

    def num_bytes(self, index: int) -> int:
        """Return the file size of image ``index``, for datasets of image files; -1 if it is missing."""
        try:
            return os.stat(find_spelling(self.describe(index))).st_size
        except (OSError, ValueError):
            return -1

    def require_size(self, index: int, size: tuple[int, int]) -> None:
        """Raise an ``UnreadableImage`` unless annotations and file of image ``index`` agree on height and width."""


def read_class_names(root: str) -> list[str] | None:
    """Read the lines of ``root/classes.txt`` as ``names_in_file``; None if there is no such file."""
    path = os.path.join(root, FILE)
    return names_in_file(path) if os.path.lexists(path) else None


def names_in_file(path: str) -> list[str]:
    """Read a file of class names, one per line.

    A ``UserError`` says that it cannot be read, is empty, or has a blank line or a duplicate name.
    """
    with readable(path):
        names = [compose(line.strip()) for line in split_lines(read_text(path).rstrip())]
    if not names:
        raise UserError(f"{path} is empty; expected one class name per line, or delete it")
    if "" in names:
        raise UserError(f"{path} line {names.index('') + 1} is blank; expected one class name per line")
    require_unique(names, f"{path} lines", itertools.count(1))
    return names


def name_folders(root: str, folders: Sequence[str]) -> list[str]:
    """Return class names for the sorted ``folders``: from ``classes.txt`` if it exists, else the folder names.

    Lines that begin with a folder's name, as in ``n01440764 tench``, name that folder, in any order; further lines are
    classes without a folder. Folders named by numbers take the lines by number: from 0 if there is a folder 0, also if
    only some of the classes have a folder. Otherwise lines correspond to the sorted folders one by one. A ``UserError``
    says that there are more or fewer of them, that one is at the place of another folder, or that the file is corrupt.
    """
    names = read_class_names(root)
    if names is None:
        return list(folders)
    name_of_folder = dict((name.split(None, 1) * 2)[:2] for name in names)  # a bare folder name is its own class name
    if set(folders) <= set(name_of_folder) and len(name_of_folder) == len(names):
        return make_unique([name_of_folder[folder] for folder in folders], folders)  # ImageNet has two cranes
    if set(folders) <= set(names) or names == [f"{line} {name}" for line, name in enumerate(folders, 1)]:  # CUB's
        return list(folders)
    numbers = [int(folder) for folder in folders if folder.isdecimal()]
    are_numbers = len(numbers) == len(folders)
    if are_numbers and len(names) > len(folders) and min(numbers) == 0 and max(numbers) < len(names):
        return [names[number] for number in numbers]
    path = os.path.join(root, FILE)
    if len(names) != len(folders):
        raise UserError(
            f"{path} has {len(names)} names, but there are {len(folders)} classes "
            f"({folders[0]} … {folders[-1]}); give one line per class or delete it"
        )
    places = sorted(range(len(numbers)), key=numbers.__getitem__) if are_numbers else range(len(names))
    named, known = dict(zip(places, names)), {folder.casefold() for folder in folders}
    for place, name in named.items():
        words = re.split(r"[\s,;:]+", name.casefold())
        told = {name.casefold(), words[0], *(word for word in words[-1:] if not word.isdecimal())} & known
        if told and folders[place].casefold() not in told:
            raise UserError(
                f"{path}: '{name}' is at the place of class folder {folders[place]}; write the name of its folder "
                f"before each class: {folders[place]} NAME"
            )
    return [named[place] for place in range(len(names))]
