"""Where images lie whose pixels have classes, and what says so: label maps of published sets and of one's own, and
outlines of Labelme and YOLO. One table; only names and the beginnings of files are read."""

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...runtime.errors import UserError
from ...runtime.text_files import read_text
from ...tasks.dataset import require_split
from .annotated_files import readable
from .box_layouts import (
    SPLIT_FOLDERS,
    DatasetGuess,
    find_labelme,
    find_yolo_outlines,
    first_folders,
    first_names,
    head_of_text,
)
from .formats import SPLIT_WORDS, files_below, get_suffix, is_hidden, readable_suffixes

MAPS, LABELME_JSON, YOLO_TEXT, PANOPTIC = "maps", "labelme", "yolo", "panoptic"
_YEARS = ("", "2017", "2014")  # behind the words of COCO's splits
_IMAGES = ("images", "image", "imgs", "img", "pictures", "photos", "jpegimages", "rgb", "inputs")
_LABELS = (
    *("labels", "label", "masks", "mask", "annotations", "annotation", "segmentationclass", "segmentations"),
    *(
        "segmentationclasspng",
        "segmentation",
        "labelmaps",
        "label_maps",
        "ground_truth",
        "groundtruth",
        "gt",
        "targets",
    ),
)
_BESIDE = ("_labels", "_masks", "_mask", "_label", "_annotations", "annot", "_gt")  # behind a split's word: its maps
_ENDS = ("_mask", "_masks", "_label", "_labels", "_labelIds", "_gt", "_seg", "_segmentation", "_L", "-mask", "_m")


class LabelMapLayout(NamedTuple):
    """How images and what says their pixels' classes lie in a folder. ``{split}`` stands for the word of a split.

    Attributes:
        dataset: registered name.
        words: what it is called in messages.
        images, labels: folders.
        end: of names of label maps, suffix included; "": any image's suffix, behind an end that is found out.
        image_end: of names of images, which those of their label maps lack, without suffix.
        lists: file with a split's names, a line each; "": all that is in the folders.
        marks: what must be there as well before it is guessed.
        classes: section of the table of published classes; "": the folder's own list.
        first: number of class 0 in label maps, the others following; None: the published numbers, plus ``offset``.
        ignored: numbers of pixels without a class besides 255.
        split_words: what splits are called here, where it differs.
        published: how many images each split has.
        kind: MAPS, or another of these constants.
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


_CITYSCAPES = LabelMapLayout(
    "cityscapes",
    "Cityscapes' train ids",
    "leftImg8bit/{split}",
    "gtFine/{split}",
    "_gtFine_labelTrainIds.png",
    image_end="_leftImg8bit",
    classes="cityscapes",
    published={"train": 2975, "val": 500},
)
_VOC = LabelMapLayout(
    "voc_segmentation",
    "Pascal VOC's label maps",
    "JPEGImages",
    "SegmentationClass",
    ".png",
    lists="ImageSets/Segmentation/{split}.txt",
    classes="voc",
    published={"train": 1464, "val": 1449},
)
_PANOPTIC = LabelMapLayout(
    "coco_panoptic",
    "COCO's panoptic label maps",
    "{split}",
    "annotations/panoptic_{split}",
    ".png",
    published={"train": 118_287, "val": 5000},
    kind=PANOPTIC,
)
_STUFF = LabelMapLayout(
    "coco_stuff",
    "COCO-Stuff's label maps",
    "{split}",
    "stuffthingmaps/{split}",
    ".png",
    classes="coco_stuff",
    first=None,
    published={"train": 118_287, "val": 5000},
)
_STUFF_10K = _STUFF._replace(
    words="COCO-Stuff 10k's label maps",
    images="images",
    labels="annotations",
    end=".mat",
    lists="imageLists/{split}.txt",
    offset=1,
    ignored=(0,),
    split_words={"val": ("test",)},  # it has no other
    published={"train": 9000, "val": 1000},
)
_TRAIN_IDS = {"labels": "annotations/{split}", "end": "_labelTrainIds.png", "lists": "", "offset": 0}


def _in_images(layout: LabelMapLayout) -> tuple[LabelMapLayout, LabelMapLayout]:
    """Images in folders of splits, and these in the folder "images"."""
    return layout, layout._replace(images="images/{split}")


# A row for each way in which a set is found; of several that fit, the first.
LAYOUTS = (
    LabelMapLayout(
        "ade20k",
        "ADE20K's label maps",
        "images/{split}",
        "annotations/{split}",
        ".png",
        marks=("objectInfo150.txt",),
        classes="ade20k",
        first=1,
        ignored=(0,),
        published={"train": 20_210, "val": 2000},
    ),
    _CITYSCAPES,
    _CITYSCAPES._replace(
        words="Cityscapes' label ids", end="_gtFine_labelIds.png", first=None, ignored=tuple(range(34))
    ),
    _VOC._replace(
        dataset="pascal_context",
        words="Pascal Context's label maps",
        labels="SegmentationClassContext",
        lists="ImageSets/SegmentationContext/{split}.txt",
        classes="pascal_context",
        ignored=(0,),
        published={"train": 4998, "val": 5105},
    ),
    _VOC._replace(
        words="Pascal VOC's label maps with SBD's",
        labels="SegmentationClassAug",
        marks=("ImageSets/Segmentation/trainaug.txt",),
        split_words={"train": ("trainaug",)},
        published={"train": 10_582, "val": 1449},
    ),
    *(
        _VOC._replace(
            dataset="label_maps",
            words="own label maps in Pascal VOC's folders",
            marks=(listed,),
            classes="",
            split_words={"train": ("train", "default")},  # CVAT calls a task without splits "default"
            published={},
        )
        for listed in ("classes.txt", "labelmap.txt")
    ),
    _VOC,
    *_in_images(_PANOPTIC),
    *_in_images(_PANOPTIC._replace(labels="panoptic_{split}")),
    *_in_images(_STUFF),
    _STUFF_10K._replace(**_TRAIN_IDS, images="images/{split}", first=1, marks=("imageLists/train.txt",)),
    *_in_images(_STUFF._replace(**_TRAIN_IDS, first=0)),
    _STUFF_10K._replace(marks=("imageLists/train.txt",)),
)
LABELME_LAYOUT = LabelMapLayout("labelme", "outlines that Labelme has written", kind=LABELME_JSON)
YOLO_LAYOUT = LabelMapLayout("yolo_outlines", "outlines in YOLO's form", kind=YOLO_TEXT)


class MatchedLayout(NamedTuple):
    """A layout that fits what lies in the folder ``top``."""

    layout: LabelMapLayout
    top: str


class LabelMapPairs(NamedTuple):
    """The images of a split and, for each, the file that says its pixels' classes; "" where nothing does."""

    images: list[str]
    labels: list[str]
    notices: list[str]


def find_label_maps(root: str, shown: str) -> list[DatasetGuess]:
    """The dataset of images with label maps that a folder holds, none or one.

    Args:
        shown: how messages call it.
    """
    found = find_layout(root)
    return [] if found is None else [DatasetGuess(found.layout.dataset, f"{shown} has {found.layout.words}")]


def find_layout(root: str, dataset: str | None = None) -> MatchedLayout | None:
    """Find what lies in a folder, or one or two folders below it.

    Args:
        dataset: registered name of what must be there; None: anything.
    """
    tops = [root, *first_folders(root), *first_folders(os.path.join(root, "VOCdevkit"))]
    rows = [layout for layout in LAYOUTS if dataset in (None, layout.dataset)]
    unmarked = [] if dataset is None else [layout._replace(marks=()) for layout in rows]
    for layout in (*rows, *unmarked):
        for top in tops:
            is_marked = all(os.path.exists(os.path.join(top, mark)) for mark in layout.marks)
            if is_marked and _holds(layout, top):
                return MatchedLayout(layout, top)
    for layout, look in ((LABELME_LAYOUT, find_labelme), (YOLO_LAYOUT, find_yolo_outlines)):
        if dataset in (None, layout.dataset) and look(root):
            return MatchedLayout(layout, root)
    own = _own_layouts(root) if dataset in (None, "label_maps") else ()
    return next((MatchedLayout(layout, root) for layout in own if _holds(layout, root)), None)


def _own_layouts(root: str) -> Iterator[LabelMapLayout]:
    """How people lay out images and label maps of their own, as far as the names of folders fit."""
    for lists in ("{split}.txt", "{split}_list.txt"):  # as PaddleSeg and PaddleX have them
        yield LabelMapLayout("label_maps", "lists of images and label maps", lists=lists)
    own = functools.partial(LabelMapLayout, "label_maps", "images and label maps")
    names = {os.path.basename(path).lower(): os.path.basename(path) for path in first_folders(root)}
    for images in filter(names.get, _IMAGES):
        for labels in filter(names.get, _LABELS):
            yield own(f"{names[images]}/{{split}}", f"{names[labels]}/{{split}}")
            yield own(names[images], names[labels])
    for word in filter(names.get, SPLIT_FOLDERS):
        inner = [os.path.basename(path) for path in first_folders(os.path.join(root, names[word]))]
        for images in (name for name in inner if name.lower() in _IMAGES):
            for labels in (name for name in inner if name.lower() in _LABELS):
                yield own(f"{{split}}/{images}", f"{{split}}/{labels}")
    for end in _BESIDE:
        yield own("{split}", f"{{split}}{end}")
    for labels in filter(names.get, _LABELS):
        yield own("{split}", f"{names[labels]}/{{split}}")
    for folder in ("{split}", ""):  # label maps beside the images, with an end of their names
        yield own(folder, folder)


def _holds(layout: LabelMapLayout, top: str) -> bool:
    """Whether a folder has images and label maps of any split where the layout says."""
    for split in SPLIT_WORDS:
        folders = find_split_folders(layout, top, split)
        if folders is None:
            continue
        images, labels = folders
        if layout.lists and not _list_files(layout, top, split):
            continue
        if layout.lists and not layout.images:
            first = head_of_text(_list_files(layout, top, split)[0]).decode("utf-8-sig", "replace").splitlines()[:1]
            if any(all(map(os.path.isfile, row)) for row in _pairs_in(first, top)):
                return True
        elif images == labels:
            names = [os.path.splitext(name)[0] for name in first_names(labels) if _is_image(name)]
            if any(name.removesuffix(end) in names for name in names for end in _ENDS if name.endswith(end)):
                return True
        elif _any(images, f"{layout.image_end}") and _any(labels, layout.end):
            return True
    return False


def _any(folder: str, end: str) -> bool:
    """Whether a folder, or one directly below it, has a file that ends so; an image, if the end has no suffix."""
    for place in (folder, *first_folders(folder)):
        for name in first_names(place):
            fits = name.lower().endswith(end.lower()) if "." in end else _is_image(name)
            if fits and not os.path.isdir(os.path.join(place, name)):
                return True
    return False


def _is_image(name: str) -> bool:
    return get_suffix(os.fsencode(name)) in readable_suffixes()


def find_split_folders(layout: LabelMapLayout, top: str, split: str) -> tuple[str, str] | None:
    """The folders of a split's images and of its label maps; None: they are not there."""
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


def find_pairs(found: MatchedLayout, split: str) -> LabelMapPairs:
    """The images of a split and their label maps, sorted.

    Raises:
        UserError: there is no such split; or what a list names is missing; or no image has a label map.
    """
    layout, top = found
    folders = find_split_folders(layout, top, split)
    files = _list_files(layout, top, split) if layout.lists else []
    if folders is None or (layout.lists and not files):
        known = [one for one in SPLIT_WORDS if _has_split(found, one)]
        helps = split == "val" and "train" in known
        remark = "; DATA.VAL_FRACTION divides the training set" if helps else ""
        require_split(split, [one for one in known if one != split], f"{layout.dataset} at {top}", remark)
        raise UserError(f"{top} has no {split} images; expected {layout.words}")
    if layout.lists and not layout.images:
        with readable(files[0]):
            rows = _pairs_in(read_text(files[0], "utf-8-sig").splitlines(), top)
        missing = next(
            (f"{path}, which is not there" for row in rows for path in row if not os.path.isfile(path)), None
        )
        if missing is not None or not rows:
            raise UserError(f"{files[0]} names {missing or 'no images, each with its label map, on all lines'}")
        return LabelMapPairs(*map(list, zip(*rows)), [])
    images, labels = (_files(folder, end) for folder, end in zip(folders, (None, layout.end)))
    images = {stem.removesuffix(layout.image_end): name for stem, name in images.items()}
    end = "" if layout.end else _end_of_own(images, labels, folders[0] == folders[1])
    if end:
        images = {stem: name for stem, name in images.items() if folders[0] != folders[1] or not stem.endswith(end)}
        labels = {stem.removesuffix(end): name for stem, name in labels.items() if stem.endswith(end)}
    if files:
        stems, notices = _read_list(files[0], images, labels, folders), []
    else:
        stems, notices = _match(split, images, labels, folders)
    expected = layout.published.get(split, len(stems))
    if len(stems) != expected:
        notices.append(f"{split}: {len(stems):,} images; {layout.dataset} as published has {expected:,}")
    found_names = zip(folders, (images, labels))
    return LabelMapPairs(
        *([os.path.join(folder, names[stem]) for stem in stems] for folder, names in found_names), notices
    )


def _pairs_in(lines: list[str], top: str) -> list[tuple[str, str]]:
    """The images and label maps that the lines of a list name, relative to ``top``; none if it is no such list."""
    rows = [
        re.split(r"\t" if "\t" in line else r"\s+(?=\S+$)", line.strip(), maxsplit=1) for line in lines if line.strip()
    ]
    if any(len(row) != 2 or not _is_image(row[1]) for row in rows):
        return []
    return [(os.path.join(top, row[0].strip()), os.path.join(top, row[1].strip())) for row in rows]


def _has_split(found: MatchedLayout, split: str) -> bool:
    layout, top = found
    return find_split_folders(layout, top, split) is not None and (
        not layout.lists or bool(_list_files(layout, top, split))
    )


def _files(folder: str, end: str | None) -> dict[str, str]:
    """The files below a folder whose names end so, or the images: path without that end -> path, both relative."""

    def refuse(place: bytes, reason: str) -> None:
        raise UserError(f"{os.fsdecode(place)}: {reason}")

    found: dict[str, str] = {}
    for path in sorted(entry.path for entry in files_below(os.fsencode(folder), refuse) if not is_hidden(entry.name)):
        name = os.fsdecode(path).removeprefix(f"{folder}{os.sep}")
        if not (name.lower().endswith(end.lower()) if end else _is_image(name)):
            continue
        stem = name[: -len(end)] if end else os.path.splitext(name)[0]
        if stem in found:
            raise UserError(f"{folder} has {found[stem]} and {name}, which would belong to the same: rename one")
        found[stem] = name
    return found


def _end_of_own(images: Mapping[str, str], labels: Mapping[str, str], is_shared: bool) -> str:
    """Find what names of label maps have behind those of their images: what fits most."""
    fitting = {end: sum(f"{stem}{end}" in labels for stem in images) for end in ("", *_ENDS)}
    if is_shared:
        del fitting[""]
    return max(fitting, key=lambda end: fitting[end])


def _read_list(file: str, images: Mapping[str, str], labels: Mapping[str, str], folders: Sequence[str]) -> list[str]:
    """The names in a list, in its order."""
    with readable(file):
        lines = [line.split() for line in read_text(file, "utf-8-sig").splitlines()]
    stems = list(dict.fromkeys(words[0].lstrip("/") for words in lines if words))
    stems = [str(Path(stem).with_suffix("")) if _is_image(stem) else stem for stem in stems]
    for names, folder, what in zip((images, labels), folders, ("image", "label map")):
        missing = [stem for stem in stems if stem not in names]
        if missing:
            more = f" (with it {len(missing):,} of {len(stems):,})" if len(missing) > 1 else ""
            raise UserError(f"{file} names {missing[0]}, but {folder} has no {what} of that name{more}")
    if not stems:
        raise UserError(f"{file} is empty; expected the name of an image on each line")
    return stems


def _match(
    split: str, images: Mapping[str, str], labels: Mapping[str, str], folders: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The names that images and label maps share, and lines about the others."""
    stems = [stem for stem in images if stem in labels]
    if not stems:
        shown = [next(iter(names.values()), "nothing") for names in (images, labels)]
        raise UserError(
            f"no image of {folders[0]} has a label map in {folders[1]}: expected equal names, found {shown[0]} and "
            f"{shown[1]}, for example"
        )
    notices = []
    for names, folder, text in (
        (images, folders[0], "images of {} have no label map and are left out"),
        (labels, folders[1], "label maps of {} belong to no image and are not read"),
    ):
        others = [name for stem, name in names.items() if stem not in (labels if names is images else images)]
        if others:
            notices.append(f"{len(others):,} {text.format(split)}, as {os.path.join(folder, others[0])}")
    return stems, notices
