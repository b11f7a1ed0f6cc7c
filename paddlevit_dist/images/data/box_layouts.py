"""Where annotation files are, and in which format: COCO, Pascal VOC or YOLO, from names and the beginnings of files."""

import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...core.runtime.errors import UserError
from ...core.runtime.text_files import to_utf8
from .formats import SPLIT_FOLDERS, SPLIT_WORDS, get_suffix, list_folders, list_names, readable_suffixes

VOC_ANNOTATIONS = ("Annotations", "annotations", "xmls", "labels")
VOC_IMAGES = ("JPEGImages", "images", "Images", "img")
_YOLO_DESCRIPTIONS = ("data.yaml", "dataset.yaml", "data.yml", "dataset.yml")  # preferred to other names
YOLO_SUFFIXES = (".yaml", ".yml", ".data")
_HEAD_BYTES = 1 << 16
_MOST_PROBED = 20  # files of a folder that are read
MOST_NAMES = 20_000  # read from a folder; it may have a million, and detection lists many folders, some repeatedly
_COCO = re.compile(rb'"(images|annotations|categories)"\s*:\s*\[\s*[\]{]')
_LABELME = re.compile(rb'"shapes"\s*:\s*\[')
# Own formats of labeling programs that are not read: what their files contain, and the format to export instead.
_PROGRAMS = (
    ("Label Studio", re.compile(rb'"(from_name|original_width|annotation_id)"\s*:'), "COCO, YOLO or Pascal VOC"),
    ("VGG Image Annotator", re.compile(rb'"(_via_\w+|shape_attributes)"\s*:'), "its menu's COCO format"),
    ("Datumaro", re.compile(rb'"categories"\s*:\s*\{'), "COCO (datum convert -if datumaro -f coco)"),
    ("Supervisely", re.compile(rb'"classTitle"\s*:'), "COCO, YOLO or Pascal VOC"),
    ("Labelbox", re.compile(rb'"data_row"\s*:'), "COCO, with its Python package"),
    ("V7 Darwin", re.compile(rb'"bounding_box"\s*:\s*\{'), "COCO"),
    ("CreateML", re.compile(rb'"coordinates"\s*:\s*\{'), "COCO, YOLO or Pascal VOC"),
    ("FiftyOne", re.compile(rb'"sample_fields"\s*:'), "fiftyone.types.COCODetectionDataset"),
    ("CVAT", re.compile(rb"<annotations>\s*<version>"), "COCO 1.0, YOLO 1.1 or PASCAL VOC 1.1"),
)
_VOC = re.compile(rb"<annotation[\s>]")
_YOLO = re.compile(rb"(?m)^names\s*[:=]")
_YOLO_PLACES = re.compile(rb"(?mi)^(train|val|valid|validation|path)\s*[:=]")
_KEYPOINTS = re.compile(rb"(?m)^kpt_shape\s*:")
_CLASS, _NUMBER = re.compile(rb"\d+(\.0*)?"), re.compile(rb"-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_BOX, _OUTLINE = 5, 7  # numbers of the shortest line: class and box; class and three points


class DatasetGuess(NamedTuple):
    """A dataset that a path appears to contain: ``my_data has class folders below train and val`` is a ``reason``.

    ``path`` is the folder inside that it is in; "": the path itself.
    """

    dataset: str
    reason: str
    path: str = ""


def list_first_names(folder: str) -> list[str]:
    """Return the first names in a folder; none if the folder cannot be listed."""
    return list_names(folder, may_be_absent=True, most=MOST_NAMES)


def list_first_folders(folder: str) -> list[str]:
    """Return the paths of the first folders in a folder; none if the folder cannot be listed."""
    return list_folders(folder, may_be_absent=True, most=MOST_NAMES)


def find_boxes(root: str, shown: str) -> list[DatasetGuess]:
    """Find the datasets of images with boxes in a folder, ``shown`` in messages; usually none or one."""
    guesses = []
    for dataset, find, description in (
        ("coco", _find_coco, "annotations in COCO's format"),
        ("voc", _find_voc, "Pascal VOC's annotations"),
        ("yolo", _find_yolo, "YOLO's labels"),
    ):
        file = find(root)
        if file is not None:
            guesses.append(DatasetGuess(dataset, f"{shown} has {description}, such as {os.path.relpath(file, root)}"))
    return guesses


def list_json_files(root: str, most: int | None = None) -> list[str]:
    """List the JSON files in a folder and its direct subfolders; ``most`` limits the names read from each folder."""
    files = []
    for folder in (root, *list_folders(root, most=most)):
        names = list_names(folder, may_be_absent=True, most=most)
        files += [os.path.join(folder, name) for name in names if name.lower().endswith(".json")]
    return files


def is_coco(file: str) -> bool:
    """Return whether a file begins like annotations in COCO's format."""
    head = read_beginning(file)
    lists = {match[1] for match in _COCO.finditer(head)}
    if len(head) < _HEAD_BYTES:  # the whole file; Label Studio's notes.json has categories alone
        lists -= {b"categories"}
    return bool(lists) and not any(pattern.search(head) for _, pattern, _ in _PROGRAMS)


def find_labelme(root: str) -> str | None:
    """Return a Labelme file (outlines of one image) in a folder or one level down; None if there is none."""
    files = list_json_files(root, MOST_NAMES)[:_MOST_PROBED]
    return next((file for file in files if _LABELME.search(read_beginning(file))), None)


def refuse_own_formats(path: str) -> None:
    """Reject own files of labeling programs, in a folder or one level down, by a ``UserError`` that says what to do."""
    is_file = os.path.isfile(path)
    endings = (".json", ".ndjson", ".xml")
    folders = [] if is_file else [path, *list_first_folders(path)]
    files = [os.path.join(folder, name) for folder in folders for name in list_first_names(folder)]
    for candidate in [path] if is_file else [name for name in files if name.lower().endswith(endings)][:_MOST_PROBED]:
        head = read_beginning(candidate)
        for program, pattern, export in _PROGRAMS:
            if pattern.search(head):
                name = os.path.basename(candidate)
                raise UserError(
                    f"data path {path}: {name} is in {program}'s own format, which is not read: export {export}"
                )
    file = path if is_file else find_labelme(path)
    if file is not None and _LABELME.search(read_beginning(file)):
        folder = os.path.dirname(path) if is_file else path
        raise UserError(
            f"data path {path}: {os.path.basename(file)} is a Labelme file of one image; convert all of them to "
            f"one COCO file (pip install labelme2coco; labelme2coco {folder}) and give that as -data_path"
        )


def _find_coco(root: str) -> str | None:
    files = list_json_files(root, MOST_NAMES)
    return next((file for file in files if is_coco(file) and not os.path.basename(file).startswith("panoptic_")), None)


def _find_voc(root: str) -> str | None:
    tops = [root, os.path.join(root, "VOCdevkit")]
    tops += [folder for top in tops for folder in list_first_folders(top)]
    places = [root, *(os.path.join(top, name) for top in tops for name in VOC_ANNOTATIONS)]
    places += [os.path.join(root, name) for name in SPLIT_FOLDERS]
    return _find_first(places, ".xml", _VOC.search)


def find_yolo_descriptions(root: str) -> list[str]:
    """Return the YAML files, or darknet's .data, in a folder that describe YOLO data: one usual name, else all."""
    usual = [os.path.join(root, name) for name in _YOLO_DESCRIPTIONS]
    usual = [file for file in usual if os.path.isfile(file)]
    if usual:
        return usual[:1]
    files = [os.path.join(root, name) for name in list_first_names(root) if name.lower().endswith(YOLO_SUFFIXES)]
    return list(filter(is_yolo_description, files))


def is_yolo_description(file: str, needs_places: bool = True) -> bool:
    """Return whether a file names classes and places of images, as YOLO's YAML files and darknet's .data do."""
    head = read_beginning(file) if file.lower().endswith(YOLO_SUFFIXES) else b""
    return bool(_YOLO.search(head) and (_YOLO_PLACES.search(head) or not needs_places))


def _find_yolo(root: str) -> str | None:
    described = [file for file in find_yolo_descriptions(root) if _YOLO.search(read_beginning(file))]
    if described:
        return described[0]
    return _find_yolo_labels(root, _BOX)


def find_yolo_outlines(root: str) -> str | None:
    """Return a YOLO label file whose first line is an outline, not a box, perhaps with keypoints; None: none."""
    if any(_KEYPOINTS.search(read_beginning(file)) for file in find_yolo_descriptions(root)):
        return None
    return _find_yolo_labels(root, _OUTLINE)


def _find_yolo_labels(root: str, least: int) -> str | None:
    def is_label(head: bytes) -> bool:
        """Return whether the first line is a whole number and others, at least ``least`` in all."""
        words = head.split(b"\n", 1)[0].split()
        return len(words) >= least and _CLASS.fullmatch(words[0]) is not None and all(map(_NUMBER.fullmatch, words))

    labels = os.path.join(root, "labels")
    places = [labels, *list_first_folders(labels), *(os.path.join(root, split, "labels") for split in SPLIT_FOLDERS)]
    file = _find_first(places, ".txt", is_label)
    if file is None:  # next to the images, as labelImg writes them
        places = [root, *(os.path.join(root, split) for split in SPLIT_FOLDERS)]
        file = _find_first(places, ".txt", is_label, has_matching_image)
    return file


def has_matching_image(file: str) -> bool:
    """Return whether an image of the same name is in the same folder."""
    folder, name = os.path.split(file)
    stem = os.path.splitext(name)[0]
    return any(
        os.path.splitext(other)[0] == stem and get_suffix(os.fsencode(other)) in readable_suffixes()
        for other in list_first_names(folder)
    )


def _find_first(
    folders: Sequence[str], suffix: str, begins: Callable[[bytes], object], fits: Callable[[str], bool] = bool
) -> str | None:
    """Return the first file with this suffix and beginning among the first files of each folder."""
    for folder in folders:
        files = [os.path.join(folder, name) for name in list_first_names(folder) if name.lower().endswith(suffix)]
        for file in files[:_MOST_PROBED]:
            if begins(read_beginning(file)) and fits(file):
                return file
    return None


def read_beginning(file: str) -> bytes:
    """Read the beginning of a file; empty if it cannot be read."""
    try:
        if not os.path.isfile(file):
            return b""
        with open(file, "rb") as stream:
            return to_utf8(stream.read(_HEAD_BYTES), "replace")
    except OSError:  # reported when the whole file is read
        return b""


def names_split(name: str, split: str) -> bool:
    """Return whether a file's or folder's name contains a word for the split."""
    words: tuple[str, ...] = SPLIT_WORDS.get(split, (split.lower(),))
    return any(word in words for word in re.findall(r"[a-z]+", os.path.splitext(name)[0].lower()))
