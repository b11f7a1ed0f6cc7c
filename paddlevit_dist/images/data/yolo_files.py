"""Where YOLO's images and labels lie, and what its classes are called: as data.yaml says, or as folders do."""

import os
from collections.abc import Collection
from typing import NamedTuple

from ...runtime.errors import UserError
from ...runtime.text_files import read_text, read_yaml
from ...tasks.dataset import require_split
from .annotated_files import image_names, images_below, readable
from .box_layouts import yolo_descriptions
from .formats import SPLIT_WORDS, folder_paths
from .image_dataset import read_class_names

LAYOUT = (
    "with data.yaml (train, val and names), or with images/train, images/val, labels/train, labels/val and "
    "classes.txt, or with images, their .txt files and classes.txt"
)


class YoloDescription(NamedTuple):
    """Contents of a data.yaml.

    Attributes:
        file: the YAML file.
        names: by number of the class.
        places: folders or lists of images of each split, as they are written there.
        base: what these are relative to.
        notices: what in it does not fit together.
    """

    file: str
    names: dict[int, str]
    places: dict[str, list[str]]
    base: str
    notices: tuple[str, ...] = ()


def find_label_file(image: str) -> str:
    """The file of an image's labels: the last folder "images" of its path becomes "labels"; where there is none, the
    one beside it."""
    stem = os.path.splitext(image)[0]
    before, found, behind = stem.rpartition(f"{os.sep}images{os.sep}")
    named = f"{before}{os.sep}labels{os.sep}{behind}.txt"
    return named if found and (os.path.isfile(named) or not os.path.isfile(f"{stem}.txt")) else f"{stem}.txt"


def read_description(root: str) -> YoloDescription | None:
    """Read what the data.yaml of a folder says; None: there is none.

    Raises:
        UserError: it cannot be read, or lacks names; or there are several.
    """
    files = yolo_descriptions(root)
    if len(files) > 1:
        raise UserError(f"{', '.join(files)} all describe data: keep one in the folder, or call it data.yaml")
    if not files:
        return None
    file = files[0]
    with readable(file):
        content = read_yaml(file)
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not names or not all(type(number) is int and number >= 0 for number in names):
        raise UserError(f"{file} has no names of classes; expected names: [cat, dog], or a line 0: cat for each")
    places = {}
    for split in ("train", "val", "test"):
        value = content.get(split)
        if value is not None:
            places[split] = [_with_slashes(str(one)) for one in (value if isinstance(value, list) else [value])]
    base = os.path.join(root, _with_slashes(str(content.get("path") or "")))
    number_of = content.get("nc")
    odd = number_of is not None and number_of != len(names)
    notices = (
        (f"{file}: nc is {number_of}, but {len(names)} classes have names: those with names count",) if odd else ()
    )
    return YoloDescription(file, {number: str(names[number]) for number in sorted(names)}, places, base, notices)


def _with_slashes(path: str) -> str:
    """A path that was written on Windows."""
    return path.replace("\\", "/")


def parse_names(root: str) -> dict[int, str]:
    splits = [os.path.join(root, word) for words in SPLIT_WORDS.values() for word in words]
    for folder in (root, os.path.join(root, "labels"), *splits):
        names = read_class_names(folder)
        if names is not None:
            return dict(enumerate(names))
    raise UserError(
        f"{root} has no names of classes; expected data.yaml with names: [cat, dog], or classes.txt, a name a line"
    )


def list_images(root: str, split: str, described: YoloDescription | None) -> list[str]:
    """The files of a split's images, sorted."""
    if described is not None and described.places:
        require_split(split, tuple(described.places), described.file, _remark(split, described.places))
        found = [image for place in described.places[split] for image in _images_at(root, place, described)]
    else:
        found = [
            os.path.join(folder, name) for folder in _find_split_folders(root, split) for name in images_below(folder)
        ]
    if not found:
        raise UserError(f"{described.file if described else root}: there are no {split} images")
    return sorted(dict.fromkeys(found))


def find_folder(root: str, split: str) -> str | None:
    """The folder of a split's images where no data.yaml names it; None: there is none of its own."""
    for word in SPLIT_WORDS.get(split, (split,)):
        for parts in (("images", word), (word, "images"), (word,)):
            if os.path.isdir(folder := os.path.join(root, *parts)):
                return folder
    return None


def _find_split_folders(root: str, split: str) -> list[str]:
    """The folders of a split where no data.yaml names them."""
    images = os.path.join(root, "images")
    if (own := find_folder(root, split)) is not None:
        return [own]
    if split == "train" and os.path.isdir(images):
        return [images]  # one folder, which DATA.VAL_FRACTION may divide
    if split == "train" and image_names(root):  # with labels beside them, as labelImg writes them
        return [root]
    known = [os.path.basename(path) for path in (*folder_paths(images), *folder_paths(root))]
    known = [name for name in known if name not in ("images", "labels")]
    has_train = os.path.isdir(images) or bool(image_names(root))
    require_split(split, known, f"yolo at {root}", _remark(split, [*known, *(["train"] if has_train else [])]))
    raise UserError(f"{root} has no folder of {split} images; expected a folder {LAYOUT}")


def _remark(split: str, known: Collection[str]) -> str:
    helps = split == "val" and any(word in known for word in SPLIT_WORDS["train"])
    return "; DATA.VAL_FRACTION divides the training set" if helps else ""


def _images_at(root: str, place: str, described: YoloDescription) -> list[str]:
    """The images of a folder, or of a list, that data.yaml names."""
    # Published files often say ../train/images and lie beside train.
    tries = [os.path.join(described.base, place), os.path.join(root, place), os.path.join(root, place.lstrip("./"))]
    path = next((os.path.normpath(one) for one in tries if os.path.exists(one)), None)
    if path is None:
        raise UserError(f"{described.file} names {place}, which is not there; looked at {os.path.normpath(tries[0])}")
    if os.path.isdir(path):
        return [os.path.join(path, name) for name in images_below(path)]
    with readable(path):
        lines = [line.strip() for line in read_text(path, "utf-8-sig").splitlines()]
    folder = os.path.dirname(path)
    return [os.path.normpath(os.path.join(folder, _with_slashes(line))) for line in lines if line]
