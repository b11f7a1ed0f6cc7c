"""Published data of segments: COCO's, Cityscapes' and ADE20K's folders and categories; and folders of one's own."""

import os
from collections.abc import Iterator, Sequence

from ...data.box_layouts import list_first_folders
from ...data.class_lists import published_classes
from ...data.map_layouts import IMAGE_FOLDERS, LAYOUTS, PANOPTIC, LabelMapLayout, MatchedLayout, fits_layout
from ...data.panoptic_files import Categories
from . import ade20k

IDS = "ids"  # kind of a layout: numbers that contain the class
CITYSCAPES, ADE20K, COCO = "cityscapes", "ade20k", "coco_panoptic"
_COCO_THINGS = 80  # the first of its 133 categories
# Source: cityscapesScripts, cityscapesscripts/helpers/labels.py: classes with instances.
_CITYSCAPES_THINGS = ("person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle")
DATASET = "panoptic"  # registered name of the dataset that reads all of them
_SEGMENT_FOLDERS = (
    *("panoptic", "panoptic_maps", "segments", "segment_maps", "segment_ids", "instances", "instance_ids", "ids"),
    *("masks", "labels", "annotations"),
)
_CITYSCAPES = (
    LabelMapLayout(
        DATASET,
        "Cityscapes' panoptic label maps",
        "leftImg8bit/{split}",
        "gtFine/cityscapes_panoptic_{split}",
        "_gtFine_panoptic.png",
        "_leftImg8bit",
        published={"train": 2975, "val": 500},
        kind=PANOPTIC,
        is_flat=True,
    ),
    LabelMapLayout(
        DATASET,
        "Cityscapes' instance ids",
        "leftImg8bit/{split}",
        "gtFine/{split}",
        "_gtFine_instanceIds.png",
        "_leftImg8bit",
        classes=CITYSCAPES,
        published={"train": 2975, "val": 500},
        kind=IDS,
    ),
)
_ADE20K = (
    LabelMapLayout(
        DATASET,
        "ADE20K's panoptic label maps",
        "images/{split}",
        "ade20k_panoptic_{name}",
        ".png",
        published={"train": 20210, "val": 2000},
        kind=PANOPTIC,
    ),
    LabelMapLayout(
        DATASET,
        "ADE20K's label maps and instances",
        "images/{split}",
        f"{ade20k.INSTANCES}/{{split}}",
        ".png",
        classes=ADE20K,
        published={"train": 20210, "val": 2000},
        kind=IDS,
    ),
)


def list_published(section: str) -> Categories:
    """Return the categories of ``CITYSCAPES``, ``ADE20K`` or ``COCO``, with their numbers in the published files."""
    classes = published_classes(section, None, 0)
    is_thing = {
        CITYSCAPES: lambda place: classes.names[place] in _CITYSCAPES_THINGS,
        ADE20K: lambda place: classes.numbers[place] not in ade20k.STUFF,
        COCO: lambda place: place < _COCO_THINGS,
    }[section]
    numbers = range(len(classes.names))
    return Categories(list(classes.numbers), classes.names, classes.palette, list(map(is_thing, numbers)))


def find_published(number: int, names: Sequence[str]) -> Categories | None:
    """Return the published categories of a network with this number of classes; None: it has others.

    ``names``: its names, also with synonyms as in the files of transformers ("road, route"): most have to be published
    at this place. Without names the number decides, unless it is a common one.
    """
    for section in (COCO, ADE20K, CITYSCAPES):
        known = list_published(section)
        equal = [
            name.casefold() in map(str.strip, own.casefold().replace(";", ",").split(","))
            for name, own in zip(known.names, names)
        ]
        if number == len(known.names) and (2 * sum(equal) > number if names else section != CITYSCAPES):
            return known
    return None


def find_segment_layout(root: str) -> MatchedLayout | None:
    """Find the layout of a folder, or of folders one level below it; None if there is none."""
    published = [*(layout for layout in LAYOUTS if layout.kind == PANOPTIC), *_CITYSCAPES, *_ADE20K]
    tops = [root, *list_first_folders(root)]
    places = [(layout, top) for layout in published for top in tops]
    places += [(layout, root) for layout in _list_own_layouts(root)]
    return next((MatchedLayout(layout, top) for layout, top in places if fits_layout(layout, top)), None)


def _list_own_layouts(root: str) -> Iterator[LabelMapLayout]:
    """Yield common layouts of images and maps of segments."""
    names = {os.path.basename(path).lower(): os.path.basename(path) for path in list_first_folders(root)}
    inner = {
        os.path.basename(path).lower(): os.path.basename(path)
        for folder in list_first_folders(root)
        for path in list_first_folders(folder)
    }
    words = "images and maps of segments"
    for images in IMAGE_FOLDERS:
        for labels in _SEGMENT_FOLDERS:
            if images in names and labels in names:
                for end in ("/{split}", ""):
                    yield LabelMapLayout(DATASET, words, f"{names[images]}{end}", f"{names[labels]}{end}", kind=IDS)
            if images in inner and labels in inner:
                yield LabelMapLayout(
                    DATASET, words, f"{{split}}/{inner[images]}", f"{{split}}/{inner[labels]}", kind=IDS
                )
