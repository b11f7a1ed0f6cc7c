"""Where images and their label maps are: published datasets, custom label maps, and outlines of Labelme and YOLO.

Only names and the beginnings of files are read.
"""

import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from ...core.runtime.errors import UserError
from ...core.runtime.spelling import compose, find_spelling
from ...core.runtime.text_files import read_json
from ...core.tasks.dataset import refuse_split
from .box_layouts import (
    SPLIT_FOLDERS,
    DatasetGuess,
    find_labelme,
    find_yolo_outlines,
    list_first_folders,
    list_first_names,
    read_beginning,
)
from .formats import SPLIT_WORDS, get_suffix, is_hidden, readable_suffixes, walk_files
from .listed_names import find_listed_name, read_name_lines, remove_image_suffix

MAPS, LABELME_JSON, YOLO_TEXT, PANOPTIC = "maps", "labelme", "yolo", "panoptic"
_MOST_SPACES = 100  # at which a line of a list is divided, from its end
_YEARS = ("", "2017", "2014")  # suffixes of COCO's split names
IMAGE_FOLDERS = ("images", "image", "imgs", "img", "pictures", "photos", "jpegimages", "rgb", "inputs")
_LABELS = (
    *("labels", "label", "masks", "mask", "annotations", "annotation", "segmentationclass", "segmentations"),
    *("segmentationclasspng", "segmentation", "labelmaps", "label_maps", "ground_truth", "groundtruth", "gt"),
    "targets",
)
_FOLDER_ENDS = ("_labels", "_masks", "_mask", "_label", "_annotations", "annot", "_gt")  # suffixes of label map folders
_ENDS = ("_mask", "_masks", "_label", "_labels", "_labelIds", "_gt", "_seg", "_segmentation", "_L", "-mask", "_m")


class LabelMapLayout(NamedTuple):
    """How images and their label maps are arranged in a folder. ``{split}`` is replaced by the word for a split.

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


class LabelMapPairs(NamedTuple):
    """The images of a split and the label map of each; "" if an image has none."""

    images: list[str]
    labels: list[str]
    notices: list[str]


def find_label_maps(root: str, shown: str) -> list[DatasetGuess]:
    """Return the dataset of images with label maps in a folder, ``shown`` in messages: none or one."""
    match = find_layout(root)
    return [] if match is None else [DatasetGuess(match.layout.dataset, f"{shown} has {match.layout.words}")]


def find_layout(root: str, dataset: str | None = None) -> MatchedLayout | None:
    """Find the layout, of ``dataset`` if it is given, of a folder, or of folders one or two levels below it."""
    tops = [root, *list_first_folders(root), *list_first_folders(os.path.join(root, "VOCdevkit"))]
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
    custom = _custom_layouts(root) if dataset in (None, "label_maps") else ()
    return next((MatchedLayout(candidate, root) for candidate in custom if fits_layout(candidate, root)), None)


def _custom_layouts(root: str) -> Iterator[LabelMapLayout]:
    """Yield common layouts of custom images and label maps that fit the names of the folders."""
    for lists in ("{split}.txt", "{split}_list.txt"):  # of PaddleSeg and PaddleX
        yield LabelMapLayout("label_maps", "lists of images and label maps", lists=lists)
    make_layout = functools.partial(LabelMapLayout, "label_maps", "images and label maps")
    names = {os.path.basename(path).lower(): os.path.basename(path) for path in list_first_folders(root)}
    for images in filter(names.get, IMAGE_FOLDERS):
        for labels in filter(names.get, _LABELS):
            yield make_layout(f"{names[images]}/{{split}}", f"{names[labels]}/{{split}}")
            yield make_layout(names[images], names[labels])
    for word in filter(names.get, SPLIT_FOLDERS):
        inner = [os.path.basename(path) for path in list_first_folders(os.path.join(root, names[word]))]
        for images in (name for name in inner if name.lower() in IMAGE_FOLDERS):
            for labels in (name for name in inner if name.lower() in _LABELS):
                yield make_layout(f"{{split}}/{images}", f"{{split}}/{labels}")
    for end in _FOLDER_ENDS:
        yield make_layout("{split}", f"{{split}}{end}")
    for labels in filter(names.get, _LABELS):
        yield make_layout("{split}", f"{names[labels]}/{{split}}")
    for folder in ("{split}", ""):  # label maps next to the images, with an end of their names
        yield make_layout(folder, folder)


def fits_layout(layout: LabelMapLayout, top: str) -> bool:
    """Return whether a folder contains images and label maps of any split in this layout."""
    for split in SPLIT_WORDS:
        folders = find_split_folders(layout, top, split)
        if folders is None:
            continue
        images, labels = folders
        if layout.lists and not _list_files(layout, top, split):
            continue
        if layout.lists and not layout.images:
            first = read_beginning(_list_files(layout, top, split)[0]).decode("utf-8", "replace").splitlines()[:1]
            if _pairs_in(first, top):
                return True
        elif images == labels:
            names = [os.path.splitext(name)[0] for name in list_first_names(labels) if _is_image(name)]
            if any(name.removesuffix(end) in names for name in names for end in _ENDS if name.endswith(end)):
                return True
        elif _any(images, f"{layout.image_end}") and _any(labels, layout.end):
            return True
    return False


def _any(folder: str, end: str) -> bool:
    """Return whether a folder or a direct subfolder has a file with this end; any image, if the end has no suffix."""
    for place in (folder, *list_first_folders(folder)):
        for name in list_first_names(place):
            fits = name.lower().endswith(end.lower()) if "." in end else _is_image(name)
            if fits and not os.path.isdir(os.path.join(place, name)):
                return True
    return False


def _is_image(name: str) -> bool:
    return get_suffix(os.fsencode(name)) in readable_suffixes()


def find_split_folders(layout: LabelMapLayout, top: str, split: str) -> tuple[str, str] | None:
    """Return the folders of a split's images and label maps; None if they do not exist."""
    for word in _split_words(layout, split):
        pair = [os.path.join(top, place.format(split=word)).rstrip("/") for place in (layout.images, layout.labels)]
        if all(map(os.path.isdir, pair)) and ("{split}" in layout.images or split == "train" or layout.lists):
            return pair[0], pair[1]
    return None


def _split_words(layout: LabelMapLayout, split: str) -> list[str]:
    words = layout.split_words.get(split, SPLIT_WORDS.get(split, (split,)))
    return [f"{written}{year}" for word in words for year in _YEARS for written in (word, word.capitalize())]


def _list_files(layout: LabelMapLayout, top: str, split: str) -> list[str]:
    files = (os.path.join(top, layout.lists.format(split=word)) for word in _split_words(layout, split))
    return [file for file in files if os.path.isfile(file)]


def find_pairs(match: MatchedLayout, split: str) -> LabelMapPairs:
    """Pair the images of a split and their label maps, sorted; a ``UserError`` if there are none or one is missing."""
    layout, top = match
    folders = find_split_folders(layout, top, split)
    files = _list_files(layout, top, split) if layout.lists else []
    if folders is None or (layout.lists and not files):
        _refuse_split(match, split)
    if layout.lists and not layout.images:
        return read_pairs(files[0], top)
    images, labels = (_files(folder, suffix) for folder, suffix in zip(folders, (None, layout.end)))
    images = {stem.removesuffix(layout.image_end): name for stem, name in images.items()}
    if layout.is_flat:
        images = _flatten(images, folders[0])
    end = "" if layout.end else _find_label_end(images, labels, folders[0] == folders[1])
    if end:
        images = {stem: name for stem, name in images.items() if folders[0] != folders[1] or not stem.endswith(end)}
        labels = {stem.removesuffix(end): name for stem, name in labels.items() if stem.endswith(end)}
    if files:
        stems = read_list(files[0], images, labels, folders)
        notices: list[str] = []
    else:
        stems, notices = _match(split, images, labels, folders)
    expected = layout.published.get(split, len(stems))
    if len(stems) != expected:
        notices.append(f"{split}: {len(stems):,} images; the published {layout.dataset} has {expected:,}")
    image_files = [os.path.join(folders[0], images[stem]) for stem in stems]
    return LabelMapPairs(image_files, [os.path.join(folders[1], labels[stem]) for stem in stems], notices)


def _refuse_split(match: MatchedLayout, split: str) -> NoReturn:
    """Raise the ``UserError`` about a split without folders or list."""
    layout, top = match
    existing = [name for name in SPLIT_WORDS if find_split_folders(layout, top, name)]
    existing = [name for name in existing if not layout.lists or _list_files(layout, top, name)]
    helps = split == "val" and "train" in existing
    remark = "; set DATA.VAL_FRACTION to split the training set" if helps else ""
    refuse_split(split, [name for name in existing if name != split], f"{layout.dataset} at {top}", remark)


def read_pairs(file: str, top: str) -> LabelMapPairs:
    """Read the images and label maps that the lines of a list name."""
    rows = _pairs_in(read_name_lines(file), top)
    missing = [path for row in rows for path in row if not os.path.isfile(path)]
    if missing or not rows:
        text = f"{', '.join(missing[:3])}, which {'do' if len(missing) > 1 else 'does'} not exist"
        raise UserError(f"{file} names {text if rows else 'no images, or lines without an image and its label map'}")
    return LabelMapPairs([image for image, _ in rows], [label for _, label in rows], [])


def _pairs_in(lines: list[str], top: str) -> list[tuple[str, str]]:
    """Parse the images and label maps on the lines of a list, relative to ``top``; none if it is not such a list."""
    rows = [_split_pair(line.strip().replace("\\", "/"), top) for line in lines if line.strip()]
    if any(len(row) != 2 or not _is_image(row[1]) for row in rows):
        return []
    return [(_find_path(image, top), _find_path(label_map, top)) for image, label_map in rows]


def _split_pair(line: str, top: str) -> Sequence[str]:
    """Divide a line into image and label map: at its tabs, or at the last space for which both files exist."""
    if "\t" in line:
        return [part.strip() for part in line.split("\t")]
    pairs = [*_split_line(line)]
    exist = (pair for pair in pairs if all(os.path.isfile(_find_path(path, top)) for path in pair))
    return pairs[0] if len(pairs) == 1 else next(exist, pairs[0] if pairs else (line,))


def _find_path(path: str, top: str) -> str:
    return find_spelling(os.path.join(top, path))


def _files(folder: str, end: str | None) -> dict[str, str]:
    """List the files below a folder with this end, or the images: relative path without the end -> relative path."""

    def refuse(place: bytes, reason: str) -> None:
        raise UserError(f"{os.fsdecode(place)}: {reason}")

    paths: dict[str, str] = {}
    for path in sorted(entry.path for entry in walk_files(os.fsencode(folder), refuse) if not is_hidden(entry.name)):
        name = os.fsdecode(path).removeprefix(f"{folder}{os.sep}")
        if not (name.lower().endswith(end.lower()) if end else _is_image(name)):
            continue
        stem = compose(name[: -len(end)] if end else os.path.splitext(name)[0])
        if stem in paths:
            raise UserError(f"{folder} has {paths[stem]} and {name} of the same name; rename one of them")
        paths[stem] = name
    return paths


def _flatten(names: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return files by their names without folders; a ``UserError`` if two have one name."""
    flat: dict[str, str] = {}
    for stem, name in names.items():
        if (place := os.path.basename(stem)) in flat:
            raise UserError(f"{folder} has {flat[place]} and {name} of the same name; rename one of them")
        flat[place] = name
    return flat


def _find_label_end(images: Mapping[str, str], labels: Mapping[str, str], is_shared: bool) -> str:
    """Find the end that label map names have in addition to their image names: the one that fits most files."""
    fitting = {end: sum(f"{stem}{end}" in labels for stem in images) for end in ("", *_ENDS)}
    if is_shared:
        del fitting[""]
    return max(fitting, key=lambda end: fitting[end])


def read_list(file: str, images: Mapping[str, str], labels: Mapping[str, str], folders: Sequence[str]) -> list[str]:
    """Read the names in a list, in its order.

    A line is a name, perhaps with the suffix of an image, and perhaps with the name of the label map after it.
    """
    stems = list(dict.fromkeys(_find_stem(line, images, labels) for line in read_name_lines(file)))
    for names, folder, kind in zip((images, labels), folders, ("image", "label map")):
        missing = [stem for stem in stems if stem not in names]
        if missing:
            more = f" ({len(missing):,} of {len(stems):,} are missing)" if len(missing) > 1 else ""
            raise UserError(f"{file} names {', '.join(missing[:3])}, but {folder} has no {kind} of that name{more}")
    if not stems:
        raise UserError(f"{file} is empty; expected an image name on each line")
    return stems


def _find_stem(line: str, images: Collection[str], labels: Collection[str]) -> str:
    """Return the image that a line of a list names; the line itself, without suffix, if there is no such image."""
    stem = find_listed_name(line, images) or find_listed_name(line.strip().lstrip("/"), images)
    if stem is not None:
        return stem
    for head, tail in _split_line(line.strip()):
        stem = find_listed_name(head.lstrip("/"), images)
        if stem is not None and find_listed_name(tail.lstrip("/"), labels) == stem:
            return stem
    return compose(remove_image_suffix(line.strip().lstrip("/")))


def _split_line(line: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to divide a line at spaces into two texts, the one with the shortest second text first."""
    for space in [*re.finditer(r"\s+", line)][: -_MOST_SPACES - 1 : -1]:
        yield line[: space.start()], line[space.end() :]


def _match(
    split: str, images: Mapping[str, str], labels: Mapping[str, str], folders: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the names that images and label maps share, and lines about the others."""
    stems = [stem for stem in images if stem in labels]
    if not stems:
        shown = [next(iter(files.values()), "nothing") for files in (images, labels)]
        raise UserError(
            f"no image of {folders[0]} has a label map in {folders[1]}: expected equal names, found {shown[0]} and "
            f"{shown[1]}, for example"
        )
    notices = []
    for names, folder, text in (
        (images, folders[0], "images of {} have no label map and are skipped"),
        (labels, folders[1], "label maps of {} have no image and are skipped"),
    ):
        others = [name for stem, name in names.items() if stem not in (labels if names is images else images)]
        if others:
            notices.append(f"{len(others):,} {text.format(split)}, such as {os.path.join(folder, others[0])}")
    return stems, notices
