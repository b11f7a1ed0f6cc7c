"""Where YOLO's images and labels are, and its class names: from data.yaml, obj.data, or folders and classes.txt."""

import os
from collections.abc import Collection
from typing import Any, NamedTuple

from ...core.runtime.errors import UserError
from ...core.runtime.files import readable
from ...core.runtime.spelling import compose, find_spelling, find_suffix
from ...core.runtime.text_files import read_text, read_yaml
from ...core.tasks.class_names import require_unique
from ...core.tasks.dataset import refuse_split, require_split
from .annotated_files import list_image_names, list_images_below
from .box_layouts import YOLO_SUFFIXES, find_yolo_descriptions
from .formats import SPLIT_WORDS, list_folders, list_names, split_in_name
from .image_dataset import names_in_file, read_class_names
from .listed_names import find_foreign_prefix, read_name_lines
from .reading import require_folder

_NAMES = (".names", "_darknet.labels")  # files of darknet's class names
LAYOUT = (
    "with data.yaml (train, val and names), or with images/train, images/val, labels/train, labels/val and "
    "classes.txt, or with images, their .txt files and classes.txt or obj.names; or with obj.data of CVAT's YOLO 1.1"
)


class YoloDescription(NamedTuple):
    """Contents of a data.yaml, or of an obj.data.

    Attributes:
        names: class names by number.
        places: folders or lists of images of each split, as written in the file.
        base: the folder that ``places`` are relative to.
        notices: lines about inconsistencies.
        keypoint_values: numbers of each object's keypoints, which follow its box (kpt_shape); 0: labels have none.
    """

    file: str
    names: dict[int, str]
    places: dict[str, list[str]]
    base: str
    notices: tuple[str, ...] = ()
    keypoint_values: int = 0


def find_label_file(image: str) -> str:
    """Return the label file of an image: in "labels" for the last folder "images" in its path, else next to it."""
    stem = os.path.splitext(image)[0]
    before, folder, after = stem.rpartition(f"{os.sep}images{os.sep}")
    stems = (f"{before}{os.sep}labels{os.sep}{after}", stem) if folder else (stem,)
    files = [find_suffix(f"{path}.txt") for path in stems]
    return next(filter(os.path.isfile, files), files[0])


def open_yolo(data_path: str | None, dataset: str) -> tuple[str, YoloDescription | None]:
    """Return folder and description of a data path, a folder or a data.yaml; a ``UserError`` if it is neither."""
    place = os.path.abspath(os.path.expanduser(data_path or ""))
    if not data_path or not (place.lower().endswith(YOLO_SUFFIXES) and os.path.isfile(place)):
        place = require_folder(data_path, dataset, LAYOUT)
    return place if os.path.isdir(place) else os.path.dirname(place), read_description(place)


def read_description(place: str) -> YoloDescription | None:
    """Read data.yaml or obj.data, or that in a folder, None without one.

    A ``UserError`` says that it is damaged, or one of several.
    """
    files, root = ([place], os.path.dirname(place)) if os.path.isfile(place) else (find_yolo_descriptions(place), place)
    if len(files) > 1:
        raise UserError(f"{', '.join(files)} all describe data: keep one of them, or rename one to data.yaml")
    if not files:
        return None
    file = files[0]
    with readable(file):
        keys = ("names", "path", "train", "val", "test")
        content = _read_darknet(root, file) if file.endswith(".data") else read_yaml(file, keys)
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not names or not all(type(number) is int and number >= 0 for number in names):
        raise UserError(f"{file} has no class names; expected names: [cat, dog], or a line 0: cat for each")
    places = {}
    for split in ("train", "val", "test"):
        value = content.get(split)
        if value is not None:
            places[split] = [_with_slashes(str(place)) for place in (value if isinstance(value, list) else [value])]
    base = os.path.join(root, _with_slashes(str(content.get("path") or "")))
    num_classes = content.get("nc")
    is_different = num_classes is not None and num_classes != len(names)
    notices = (
        (f"{file}: nc is {num_classes}, but names has {len(names)} classes: names is used",) if is_different else ()
    )
    names = {number: compose(str(names[number])) for number in sorted(names)}
    require_unique(names.values(), f"{file}: names", names)
    return YoloDescription(file, names, places, base, notices, _count_keypoint_values(file, content))


def _read_darknet(root: str, file: str) -> dict[str, Any]:
    """Return the lines ``key = value`` of darknet's obj.data with the keys of data.yaml, also of CVAT's subsets."""
    values: dict[str, Any] = {}
    for key, _, value in (line.partition("=") for line in read_text(file).splitlines()):
        split, value = split_in_name(key), value.strip()
        if split is not None and value:
            values.setdefault(split, []).append(value)  # of train and Train
        elif value:
            values[key.strip()] = value
    names = names_in_file(_find_place(_with_slashes(values.get("names", "")), root))
    return {**values, "names": names, "nc": int(values.get("classes") or len(names)), "path": None}


def _count_keypoint_values(file: str, content: dict[str, Any]) -> int:
    """Return how many numbers the keypoints of an object are: K points of 2 or 3 values; 0 without kpt_shape."""
    shape = content.get("kpt_shape")
    if shape is None:
        return 0
    if not isinstance(shape, list) or len(shape) != 2 or not all(type(number) is int for number in shape):
        raise UserError(f"{file}: kpt_shape {shape}: expected the number of keypoints and 2 or 3 values: [17, 3]")
    points, values = shape
    if points < 1 or values not in (2, 3):
        raise UserError(f"{file}: kpt_shape {shape}: expected the number of keypoints and 2 or 3 values: [17, 3]")
    return int(points * values)


def _with_slashes(path: str) -> str:
    """Convert a path that may be written on Windows."""
    return path.replace("\\", "/")


def parse_names(root: str) -> dict[int, str]:
    """Read the class names from classes.txt in a folder of the dataset; a ``UserError`` if there is no such file."""
    splits = [os.path.join(root, word) for words in SPLIT_WORDS.values() for word in words]
    for folder in (root, os.path.join(root, "labels"), *splits):
        names = read_class_names(folder)
        files = [name for name in list_names(folder, may_be_absent=True) if name.endswith(_NAMES)]
        if names is None and len(files) == 1:
            names = names_in_file(os.path.join(folder, files[0]))
        if names is not None:
            return dict(enumerate(names))
    raise UserError(
        f"{root} has no class names; expected data.yaml with names: [cat, dog], or classes.txt with a name per line"
    )


def list_images(root: str, split: str, description: YoloDescription | None) -> list[str]:
    """List the image files of a split, sorted."""
    if description is not None and description.places:
        require_split(split, tuple(description.places), description.file, _remark(split, description.places))
        images = [image for place in description.places[split] for image in _images_at(root, place, description)]
    else:
        images = [
            os.path.join(folder, name)
            for folder in _find_split_folders(root, split)
            for name in list_images_below(folder)
        ]
    if not images:
        raise UserError(f"{description.file if description else root}: there are no {split} images")
    return sorted(dict.fromkeys(images))


def find_folder(root: str, split: str) -> str | None:
    """Return the folder of a split's images without a data.yaml; None if the split has no folder."""
    for word in SPLIT_WORDS.get(split, (split,)):
        for parts in (("images", word), (word, "images"), (word,)):
            if os.path.isdir(folder := os.path.join(root, *parts)):
                return folder
    return next(iter(_find_similar_folders(root, split)), None)


def _find_similar_folders(root: str, split: str) -> list[str]:
    """Return the folders whose name contains the split's word, such as images/Train and images/train2017."""
    below, beside = list_folders(os.path.join(root, "images")), list_folders(root)
    for folders in (below, beside):
        similar = [path for path in folders if split_in_name(os.path.basename(path)) == split]
        if similar:
            inner = [os.path.join(path, "images") for path in similar]
            return [
                image if folders is beside and os.path.isdir(image) else path for path, image in zip(similar, inner)
            ]
    return []


def _find_split_folders(root: str, split: str) -> list[str]:
    """Return the folders of a split without a data.yaml."""
    images = os.path.join(root, "images")
    if (folder := find_folder(root, split)) is not None:
        similar = _find_similar_folders(root, split)
        return similar if folder in similar else [folder]
    if split == "train" and os.path.isdir(images):
        return [images]  # one folder, which DATA.VAL_FRACTION may split
    if split == "train" and list_image_names(root):  # with labels next to them, as labelImg writes them
        return [root]
    existing = [os.path.basename(path) for path in (*list_folders(images), *list_folders(root))]
    existing = [name for name in existing if name not in ("images", "labels")]
    has_train = os.path.isdir(images) or bool(list_image_names(root))
    refuse_split(split, existing, f"yolo at {root}", _remark(split, [*existing, *(["train"] if has_train else [])]))


def _remark(split: str, existing: Collection[str]) -> str:
    helps = split == "val" and any(word in existing for word in SPLIT_WORDS["train"])
    return "; set DATA.VAL_FRACTION to split the training set" if helps else ""


def _images_at(root: str, place: str, description: YoloDescription) -> list[str]:
    """List the images of a folder or of a list in data.yaml."""
    elsewhere = os.path.basename(os.path.normpath(description.base))  # such as path: ../datasets/coco128
    path = _find_place(place, description.base, root, os.path.join(root, elsewhere))
    if os.path.isdir(path):
        return [os.path.join(path, name) for name in list_images_below(path)]
    if not os.path.exists(path):
        raise UserError(f"{description.file} names {place}, which does not exist; tried {path}")
    lines = read_name_lines(path)
    images = [_find_listed(line, os.path.dirname(path), root) for line in lines]
    if not any(map(os.path.isfile, images)):
        prefix = find_foreign_prefix(
            lines, lambda line: os.path.isfile(_find_listed(line, os.path.dirname(path), root))
        )
        images = [_find_listed(_with_slashes(line)[len(prefix) :], os.path.dirname(path), root) for line in lines]
    if images and not any(map(os.path.isfile, images)):  # else the run names the missing ones
        raise UserError(
            f"{path}: {len(images):,} of its {len(images):,} images are missing, such as {', '.join(images[:3])}: "
            "copy them there, or write their paths relative to the folder of the list"
        )
    return images


def _find_listed(line: str, *folders: str) -> str:
    """Return the image on a line of a list; its name may begin or end with spaces, or have backslashes."""
    texts = dict.fromkeys((line, line.strip(), _with_slashes(line.strip())))
    places = [_find_place(text, *folders) for text in texts]
    return places[0] if len(places) == 1 else next(filter(os.path.exists, places), places[-1])


def _find_place(path: str, *folders: str) -> str:
    """Return where a path in a file leads from the first of the folders in which it exists, else from the first one."""
    # Published files often contain ../train/images, although they are next to train; darknet runs above "data".
    names = (path, path.lstrip("./"), path.lstrip("./").removeprefix("data/"))
    tries = (find_spelling(os.path.normpath(os.path.join(folder, name))) for name in names for folder in folders)
    return next(filter(os.path.exists, tries), os.path.normpath(os.path.join(folders[0], path)))
