"""Where images and their label maps are: published datasets, custom label maps, and outlines of Labelme and YOLO.

Only names and the beginnings of files are read.
"""

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...core.runtime.errors import UserError
from ...core.runtime.text_files import read_json
from .box_layouts import (
    SPLIT_FOLDERS,
    DatasetGuess,
    find_labelme,
    find_yolo_outlines,
    list_first_folders,
    list_first_names,
    read_beginning,
)
from .class_trees import find_inner_folder, find_label_map_folders, has_own_image, may_be_label_maps
from .formats import SPLIT_WORDS, split_in_name
from .listed_names import has_image_suffix
from .map_lists import parse_pairs

MAPS, LABELME_JSON, YOLO_TEXT, PANOPTIC = "maps", "labelme", "yolo", "panoptic"
_YEARS = ("", "2017", "2014")  # suffixes of COCO's split names
IMAGE_FOLDERS = (
    "images",
    "image",
    "imgs",
    "img",
    "pictures",
    "photos",
    "jpegimages",
    "rgb",
    "inputs",
)  # as ``_simplify`` writes them
_LABELS = (
    *("labels", "label", "masks", "mask", "annotations", "annotation", "segmentationclass", "segmentations"),
    *("segmentation", "labelmaps", "groundtruth", "gt"),
    "targets",
)
_MOST_TOPS = 50  # folders that each may be a published data set; more are classes, and take seconds
_OTHER_MAPS = re.compile("object|instance|visuali")  # in names of folders with maps of other contents
_FOLDER_ENDS = ("_labels", "_masks", "_mask", "_label", "_annotations", "annot", "_gt")  # suffixes of label map folders
ENDS = ("_mask", "_masks", "_label", "_labels", "_labelIds", "_gt", "_seg", "_segmentation", "_L", "-mask", "_m")


class LabelMapLayout(NamedTuple):
    """How images and their label maps are arranged in a folder.

    ``{split}`` is replaced by the word for a split, and ``{name}`` by its own name, such as train.

    Attributes:
        dataset, words: registered name, and name in messages.
        images, labels: folders of the images and of the label maps.
        end: end of label map names, with suffix; "": any image's suffix, after an end that is detected.
        image_end: end of image names without suffix, which the label map names do not have.
        lists: file with a split's names, one per line; "": all files in the folders.
        marks: files that must exist for detection.
        classes: section of the table of published classes; "": the folder's own list.
        first: number of class 0 in label maps, followed by the others; None: the published numbers, plus ``offset``.
        ignored: numbers of pixels without a class in addition to 255.
        split_words: words for splits, where they are others; CVAT calls a task without splits "default".
        published: number of images in each split.
        kind: MAPS, or another of these constants.
        is_flat: label maps are in one folder, with the names of images in several.
    """

    dataset: str
    words: str
    images: str = ""
    labels: str = ""
    end: str = ""
    image_end: str = ""
    lists: str = ""
    marks: Sequence[str] = ()
    classes: str = ""
    first: int | None = 0
    offset: int = 0
    ignored: Sequence[int] = ()
    split_words: Mapping[str, Sequence[str]] = {}
    published: Mapping[str, int] = {}
    kind: str = MAPS
    is_flat: bool = False


# One row for each arrangement of a dataset; the first that fits is used.
LAYOUTS = tuple(LabelMapLayout(**row) for row in read_json(Path(__file__).with_name("label_map_layouts.json")))
LABELME_LAYOUT = LabelMapLayout("labelme", "Labelme outlines", kind=LABELME_JSON)
YOLO_LAYOUT = LabelMapLayout("yolo_outlines", "YOLO outlines", kind=YOLO_TEXT)


class MatchedLayout(NamedTuple):
    """A layout that fits the content of the folder ``top``."""

    layout: LabelMapLayout
    top: str


def find_label_maps(root: str, shown: str) -> list[DatasetGuess]:
    """Return the dataset of images with label maps in a folder, ``shown`` in messages: none or one."""
    match = find_layout(root)
    return [] if match is None else [DatasetGuess(match.layout.dataset, f"{shown} has {match.layout.words}")]


def find_layout(root: str, dataset: str | None = None) -> MatchedLayout | None:
    """Find the layout, of ``dataset`` if it is given, of a folder, or of folders one or two levels below it."""
    inner = list_first_folders(root)
    tops = [root, *(inner if len(inner) <= _MOST_TOPS else ()), *list_first_folders(os.path.join(root, "VOCdevkit"))]
    rows = [candidate for candidate in LAYOUTS if dataset in (None, candidate.dataset)]
    unmarked = [] if dataset is None else [row._replace(marks=()) for row in rows]
    for layout in (*rows, *unmarked):
        for top in tops:
            is_marked = all(os.path.exists(os.path.join(top, mark)) for mark in layout.marks)
            if is_marked and fits_layout(layout, top):
                return MatchedLayout(layout, top)
    for layout, find in ((LABELME_LAYOUT, find_labelme), (YOLO_LAYOUT, find_yolo_outlines)):
        if dataset in (None, layout.dataset) and find(root):
            return MatchedLayout(layout, root)
    for custom in _custom_layouts(root) if dataset in (None, "label_maps") else ():
        if fits_layout(custom, root):
            _refuse_rivals(MatchedLayout(custom, root))
            return MatchedLayout(custom, root)
    wrapped = find_inner_folder(root)
    return find_layout(wrapped, dataset) if wrapped else None


def _custom_layouts(root: str) -> Iterator[LabelMapLayout]:
    """Yield common layouts of custom images and label maps that fit the names of the folders."""
    for lists in ("{split}.txt", "{split}_list.txt"):  # of PaddleSeg and PaddleX
        yield LabelMapLayout("label_maps", "lists of images and label maps", lists=lists)
    make_layout = functools.partial(LabelMapLayout, "label_maps", "images and label maps")
    names = {_simplify(path): os.path.basename(path) for path in list_first_folders(root)}
    for images in filter(names.get, IMAGE_FOLDERS):
        for labels in filter(names.get, _LABELS):
            yield make_layout(f"{names[images]}/{{split}}", f"{names[labels]}/{{split}}")
            folders = [os.path.join(root, names[each]) for each in (images, labels)]
            if has_own_image(folders[0]) and not has_own_image(folders[1]):  # such as annotations/trimaps
                inner = list_first_folders(folders[1])
                yield from (make_layout(names[images], os.path.relpath(path, root)) for path in inner)
            yield make_layout(names[images], names[labels])
    for word in filter(names.get, SPLIT_FOLDERS):
        inner = list_first_folders(os.path.join(root, names[word]))
        for images in (os.path.basename(path) for path in inner if _simplify(path) in IMAGE_FOLDERS):
            for labels in (os.path.basename(path) for path in inner if _simplify(path) in _LABELS):
                yield make_layout(f"{{split}}/{images}", f"{{split}}/{labels}")
    for end in _FOLDER_ENDS:
        yield make_layout("{split}", f"{{split}}{end}")
        yield make_layout("{split}_images", f"{{split}}{end}")
    for labels in filter(names.get, _LABELS):
        yield make_layout("{split}", f"{names[labels]}/{{split}}")
    for folder in ("{split}", ""):  # label maps next to the images, with an end of their names
        yield make_layout(folder, folder)
    for labels, images in find_label_map_folders(list_first_folders(root)).items():  # of any names
        if split_in_name(os.path.basename(images), is_whole=False) in (None, "train"):
            yield make_layout(os.path.basename(images), os.path.basename(labels))


def _simplify(path: str) -> str:
    """Return a folder's name as the words for folders are written: groundtruth for "Ground Truth"."""
    return re.sub("[^a-z]|(?:png|jpg|tif)$", "", os.path.basename(path).lower())


def _refuse_rivals(match: MatchedLayout) -> None:
    """Raise a UserError if another folder next to that of the label maps may have them, too."""
    layout, top = match
    parts = layout.labels.split("/")
    differing = next((at for at, pair in enumerate(zip(layout.images.split("/"), parts)) if pair[0] != pair[1]), 0)
    if layout.lists or layout.images == layout.labels or parts[differing].startswith("{split}"):
        return
    for split in SPLIT_WORDS:
        folders = find_split_folders(layout, top, split)
        if folders is None:
            continue
        place = os.path.relpath(folders[1], top).split("/")
        for depth in range(differing, len(parts)):
            if parts[depth] == "{split}":
                continue
            for path in list_first_folders(os.path.join(top, *place[:depth])):
                rival = os.path.join(path, *place[depth + 1 :])
                is_other = rival in folders or _OTHER_MAPS.search(os.path.basename(path).lower())
                if not is_other and os.path.isdir(rival) and may_be_label_maps(rival, folders[0]):
                    raise UserError(
                        f"{folders[1]} and {rival} may both have the label maps of {folders[0]}: move the others away, "
                        f"or name each image and its label map in a line of {os.path.join(top, 'train.txt')}"
                    )


def fits_layout(layout: LabelMapLayout, top: str) -> bool:
    """Return whether a folder contains images and label maps of any split in this layout."""
    for split in SPLIT_WORDS:
        folders = find_split_folders(layout, top, split)
        if folders is None:
            continue
        images, labels = folders
        if layout.lists and not list_files(layout, top, split):
            continue
        if layout.lists and not layout.images:
            first = read_beginning(list_files(layout, top, split)[0]).decode("utf-8", "replace").splitlines()[:1]
            if parse_pairs(first, top):
                return True
        elif images == labels:
            names = [os.path.splitext(name)[0] for name in list_first_names(labels) if has_image_suffix(name)]
            if any(name.removesuffix(end) in names for name in names for end in ENDS if name.endswith(end)):
                return True
        elif _any(images, f"{layout.image_end}") and _any(labels, layout.end):
            return True
    return False


def _any(folder: str, end: str) -> bool:
    """Return whether a folder or a direct subfolder has a file with this end; any image, if the end has no suffix."""
    for place in (folder, *list_first_folders(folder)):
        for name in list_first_names(place):
            fits = name.lower().endswith(end.lower()) if "." in end else has_image_suffix(name)
            if fits and not os.path.isdir(os.path.join(place, name)):
                return True
    return False


def find_split_folders(layout: LabelMapLayout, top: str, split: str) -> tuple[str, str] | None:
    """Return the folders of a split's images and label maps; None if they do not exist."""
    for word in _split_words(layout, split):
        places = (place.format(split=word, name=split) for place in (layout.images, layout.labels))
        pair = [os.path.join(top, place).rstrip("/") for place in places]
        if all(map(os.path.isdir, pair)) and ("{split}" in layout.images or split == "train" or layout.lists):
            return pair[0], pair[1]
    return None


def _split_words(layout: LabelMapLayout, split: str) -> list[str]:
    words = layout.split_words.get(split, SPLIT_WORDS.get(split, (split,)))
    return [f"{written}{year}" for word in words for year in _YEARS for written in (word, word.capitalize())]


def list_files(layout: LabelMapLayout, top: str, split: str) -> list[str]:
    """Return the files with a split's names; empty if there are none."""
    files = (os.path.join(top, layout.lists.format(split=word)) for word in _split_words(layout, split))
    return [file for file in files if os.path.isfile(file)]
