"""Detect which dataset a folder contains, without Paddle, from names and the beginnings of files."""

import gzip
import itertools
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ...core.registry.lookup import annotation_type, annotation_types, find_package, is_bundled, list_names
from ...core.registry.manifest import (
    BOX_LABELS,
    CLASS_LABELS,
    KEYPOINT_LABELS,
    MASK_LABELS,
    NO_LABELS,
    SEGMENT_LABELS,
    TAG_LABELS,
)
from ...core.runtime.environment import program
from ...core.runtime.errors import UserError
from ...core.runtime.files import is_address
from ...core.runtime.printing import one_line
from ...core.runtime.text_files import read_json
from .box_layouts import (
    DatasetGuess,
    find_boxes,
    find_yolo_outlines,
    is_coco,
    is_yolo_description,
    list_first_folders,
    list_first_names,
    refuse_own_formats,
)
from .cifar import Cifar10, Cifar100, find_cifar
from .class_trees import ClassTree, find_class_tree, find_inner_folder, has_image, has_own_image, list_class_folders
from .formats import SPLIT_WORDS, split_in_name
from .hub.guessing import find_hub, metadata_decide
from .hub.layout import ARROW, PARQUET, is_pattern
from .hub.repository import guess_repository, is_repository
from .imagenet import FIRST_OF_KIT, LISTS
from .known_layouts import refuse_known
from .label_layouts import holds_boxes, holds_labels
from .label_rows import read_first_labels, read_split_words
from .map_layouts import find_label_maps
from .reading import SPLITS
from .small_sets import find_idx_file
from .table_columns import SUFFIXES as TABLE_SUFFIXES
from .table_columns import is_list
from .table_files import find_tables
from .tar_files import find_shards

_EVALUATED = ("val", "test")
_LAYOUTS = {  # what tasks read, for messages
    CLASS_LABELS: "class folders, alone or below train and val, a table or lists of labels, IDX files, tars",
    TAG_LABELS: "a table of labels, such as labels.csv",
    BOX_LABELS: "annotations of COCO, VOC or YOLO, or a table of boxes",
    MASK_LABELS: "folders of images and of label maps of the same names, or COCO's or YOLO's outlines",
    KEYPOINT_LABELS: "annotations of COCO or YOLO, or a table of points",
    SEGMENT_LABELS: "COCO's panoptic annotations, or Cityscapes' folders",
}
_SHORTEST_STEM = 3  # letters that folders of one set of images share, before their numbers
_VOLUME_SUFFIXES = (".nii", ".nii.gz", ".mha", ".mhd", ".nrrd", ".nhdr")
_ARRAY_SUFFIXES = (".npy", ".npz")  # volumes only if there are landmarks next to them
_LANDMARK_SUFFIXES = (".csv", ".json", ".fcsv")
_DICOM_SUFFIXES = (".dcm", ".dicom", ".ima")
# The first labels of the published files, which distinguish the two datasets that share a format.
_FIRST_LABELS = {
    bytes((5, 0, 4, 1, 9, 2, 1, 3, 1, 4)): "mnist",
    bytes((7, 2, 1, 0, 4, 1, 4, 9, 5, 9)): "mnist",
    bytes((9, 0, 0, 3, 0, 2, 7, 2, 5, 5)): "fashion_mnist",
    bytes((9, 2, 1, 1, 6, 1, 4, 6, 5, 7)): "fashion_mnist",
}


def guess(path: str, contents: str | None = None) -> DatasetGuess | None:
    """Detect the dataset at ``path``; None if nothing is recognized.

    ``contents`` are the annotations that the task reads, see ``lookup.annotation_type``: they decide if a folder has
    both boxes and label maps; None: boxes. A ``UserError`` says that the path does not exist, or lists the several
    kinds of data in it with their datasets.
    """
    if is_repository(path):
        return next(iter(guess_repository(path, lambda folder: list(filter(None, [guess(folder, contents)])))), None)
    if is_address(os.fspath(path)):
        return DatasetGuess("tar", one_line(f"{path} is an address, from which tar files are read"))
    root = os.path.abspath(os.path.expanduser(os.fspath(path)))
    shown = os.fspath(path).rstrip("/") or root
    if is_pattern(root):
        return find_hub(root, shown, contents)
    if not os.path.exists(root):
        raise UserError(f"data path {root} does not exist")
    if os.path.isfile(root):
        return _as_outlines(_detect_file(root, shown, contents), contents)
    found = _detect_folder(root, shown, contents)
    if found is not None and contents == CLASS_LABELS and contents not in annotation_types("dataset", found.dataset):
        found = _detect_table(root, shown) if _find_label_tables(root) else found  # classes next to label maps
    if found is not None:
        return found
    _refuse_point_clouds(root, shown)
    detect_table = _detect_nothing if contents in (BOX_LABELS, MASK_LABELS) else _detect_table
    found = find_hub(root, shown, contents, detect_table) or detect_table(root, shown)
    inner = "" if found else find_inner_folder(root)
    if inner and (found := guess(inner, contents)) is not None:
        reason = found.reason.replace(inner, os.path.join(shown, os.path.basename(inner)), 1)
        return found._replace(path=found.path or inner, reason=reason)
    if found is None:
        refuse_known(root)
    return found


def refuse_unknown(path: str, task: str, place: str) -> NoReturn:
    """Refuse what is at a path, after ``place``, with the layouts that the task reads."""
    contents = annotation_type("task", task)
    names = [name for name in list_names("dataset", contents) if not is_bundled(name)]
    own = [name for name in list_names("dataset") if find_package("dataset", name) is None]
    raise UserError(
        f"{place}: no dataset is named, and the files there are not recognized: TASK {task} reads "
        f"{_LAYOUTS.get(contents or '', contents)}; name one with -dataset=NAME: {', '.join([*names, *own])}"
    )


def _detect_folder(root: str, shown: str, contents: str | None) -> DatasetGuess | None:
    """Detect the dataset that a folder has in any other form than data files and tables; see ``guess``."""
    boxes, maps = find_boxes(root, shown), find_label_maps(root, shown)
    boxes = boxes or (_find_box_tables(root, shown) if contents == BOX_LABELS else [])
    annotated = maps if maps and (contents == MASK_LABELS or not boxes) else boxes
    guesses: list[DatasetGuess] = []
    for detect in _DETECTORS:
        try:
            guesses += filter(None, [detect(root, shown)])
        except UserError:  # of class folders, which annotations count more than
            if contents == CLASS_LABELS or not annotated:
                raise
    if annotated and contents in (BOX_LABELS, MASK_LABELS):  # other data are none of this task
        guesses = []
    if guesses and contents == CLASS_LABELS and not maps:
        annotated = []
    if maps or (boxes and not _has_several_classes(root)):  # folders called images and labels are not classes
        others = ("folder", "imagenet2012") if maps else ("folder",)
        guesses = [candidate for candidate in guesses if candidate.dataset not in others]
    if (contents == BOX_LABELS and not boxes) or (contents == MASK_LABELS and not annotated):
        refuse_own_formats(root)
    guesses += annotated
    _refuse_several(guesses)
    if [candidate.dataset for candidate in guesses] == ["folder"] and metadata_decide(root):
        guesses = []  # their folders are not their classes
    if not guesses:
        return None
    return _as_outlines(guesses[0]._replace(reason=one_line(guesses[0].reason)), contents)


def _has_several_classes(root: str) -> bool:
    """Return whether several folders, below a split or not, have images."""
    tree = find_class_tree(root)
    places = [tree.splits[split] for split in tree.labeled] or [tree.top]
    folders = ([os.path.join(root, place, name) for name in list_class_folders(root, place)] for place in places)
    return any(sum(map(has_image, paths)) > 1 for paths in folders)


def find_classes(path: str, shown: str) -> list[DatasetGuess]:
    """Return the dataset of images with classes at a path: class folders, with the dataset of ImageNet's, a table, ...

    A ``UserError`` says that several are there.
    """
    root = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if not is_repository(path) and (is_address(path) or not (is_pattern(root) or os.path.exists(root))):
        return []  # the dataset reports it
    found = guess(path, CLASS_LABELS)
    held = () if found is None else annotation_types("dataset", found.dataset)
    if found is None:
        return []
    if CLASS_LABELS not in held:
        kind = held[0] if held else f"dataset {found.dataset}"
        raise UserError(
            f"{found.reason} (-dataset={found.dataset}), and no images with classes: choose a recipe for {kind}, or "
            "name the folder of class folders with -data_path"
        )
    return [found, *([found._replace(dataset="imagenet2012")] if found.dataset == "folder" else [])]


def find_box_layouts(root: str, shown: str) -> list[DatasetGuess]:
    """Find the datasets of images with boxes at a path, ``shown`` in messages, also in data files."""
    if is_repository(root):
        return guess_repository(root, lambda folder: find_box_layouts(folder, folder))
    if is_yolo_description(os.path.expanduser(root), needs_places=False):
        return [DatasetGuess("yolo", one_line(f"{shown} names classes and images with YOLO's labels"))]
    if os.path.isfile(root) and root.lower().endswith(TABLE_SUFFIXES) and holds_boxes(root):
        return [DatasetGuess("box_table", one_line(f"{shown} is a table of boxes"))]
    found = (find_boxes(root, shown) or _find_box_tables(root, shown)) if os.path.isdir(root) else []
    found = found or _find_hub_only(root, BOX_LABELS)
    inner = "" if found or not os.path.isdir(root) else find_inner_folder(os.path.abspath(root))
    if not found:
        refuse_known(root, inner)
    return [each._replace(path=each.path or inner) for each in find_box_layouts(inner, inner)] if inner else found


def find_hub_maps(root: str, shown: str) -> list[DatasetGuess]:
    """Return the dataset of images with label maps in data files, if nothing else is at a path; usually none."""
    return _find_hub_only(root, MASK_LABELS)


def find_hub_images(root: str, shown: str) -> list[DatasetGuess]:
    """Return the dataset of images in data files for tasks without labels, if no image is in a file; usually none."""
    if is_repository(root):

        def find(folder: str) -> list[DatasetGuess]:
            images = DatasetGuess("unlabeled", one_line(f"{folder} has images"))
            return find_hub_images(folder, folder) or [images]

        return guess_repository(root, find)
    if has_image(os.path.abspath(os.path.expanduser(root))):
        return []
    return [found for found in _find_hub_only(root, NO_LABELS) if found.dataset == "hub"]


def _find_hub_only(path: str, contents: str) -> list[DatasetGuess]:
    """Return the dataset of data files or metadata of images at a path, if nothing else is there; usually none.

    A ``UserError`` says what is wrong with them. What is wrong with anything else, the dataset that is named reports.
    """
    root = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if is_repository(path):
        found = guess(path, contents)
    elif is_pattern(root) or (os.path.isfile(root) and root.lower().endswith((*PARQUET, *ARROW))):
        found = find_hub(root, path, contents)
    elif os.path.isdir(root):
        try:
            if _detect_folder(root, path, contents) is not None:
                return []
        except UserError:
            return []
        found = find_hub(root, path, contents)
    else:
        return []
    return [] if found is None else [found]


def _as_outlines(found: DatasetGuess | None, contents: str | None) -> DatasetGuess | None:
    """Return the dataset that reads COCO's outlines as label maps if the task needs these."""
    is_coco_file = found is not None and found.dataset == "coco" and contents == MASK_LABELS
    return found._replace(dataset="coco_outlines") if found is not None and is_coco_file else found


def _detect_file(file: str, shown: str, contents: str | None) -> DatasetGuess | None:
    """Detect the dataset that a file is; raise a ``UserError`` if its folder is the dataset."""
    if file.lower().endswith(".tar"):
        raise UserError(f"data path {shown} is a tar file; give its folder: {os.path.dirname(file)}")
    if is_coco(file):
        return DatasetGuess("coco", one_line(f"{shown} contains annotations in COCO's format"))
    if is_yolo_description(file, needs_places=False) and contents in (None, BOX_LABELS):
        return find_box_layouts(file, shown)[0]
    if is_yolo_description(file) and contents == MASK_LABELS and find_yolo_outlines(os.path.dirname(file)):
        return DatasetGuess("yolo_outlines", one_line(f"{shown} names classes and outlines"))
    if file.lower().endswith((".json", ".ndjson", ".yaml", ".yml", ".xml")):
        refuse_own_formats(file)
        raise UserError(
            f"data path {shown} is a file; give the folder with this file and the images: {os.path.dirname(file)}"
        )
    hub = find_hub(file, shown, contents) if file.lower().endswith((*PARQUET, *ARROW)) else None
    if hub is not None:
        return hub
    if file.lower().endswith(TABLE_SUFFIXES) and contents in (None, BOX_LABELS) and holds_boxes(file):
        return find_box_layouts(file, shown)[0]
    if file.lower().endswith(TABLE_SUFFIXES) or (is_list(file) and holds_labels(file)):
        return DatasetGuess("table", one_line(f"{shown} is a table, read as one of labels"))
    return _detect_cifar(file, shown)


def _detect_images(root: str, shown: str) -> DatasetGuess | None:
    """Detect class folders, PaddleViT's lists or tar files; the most specific description of the images wins."""
    lists = [name for name in LISTS.values() if os.path.isfile(os.path.join(root, name))]
    class_folders = _detect_classes(root, shown)
    tars = _detect_tars(root, shown, or_packed=class_folders is None and not lists)
    if lists and (tars is None or _lists_files(os.path.join(root, lists[0]), root)):
        return DatasetGuess(
            "imagenet2012",
            f"{shown} has {' and '.join(lists)}, lists of 'path label' for 1,000 or -num_classes classes",
        )
    _refuse_several([candidate for candidate in (class_folders, tars) if candidate is not None])
    return tars or class_folders


def _detect_classes(root: str, shown: str) -> DatasetGuess | None:
    """Detect class folders, or the tables that say of their images what the folders do not.

    Tables are found next to the class folders, or in a folder that contains these and no others. Class folders stay
    classes if each has one label in the tables, unless these have a split of evaluation that the folders lack. A
    ``UserError`` says that both may be meant, or that folders of the same classes, or groups of classes, are there.
    """
    tree = find_class_tree(root)
    if os.path.exists(os.path.join(root, tree.top, "val", FIRST_OF_KIT)):
        where = "class folders below train and " if "train" in tree.labeled else ""
        reason = f"{shown} has {where}{os.path.join(tree.top, 'val', FIRST_OF_KIT)}, ImageNet's validation images"
        return DatasetGuess("imagenet2012", reason, os.path.join(root, tree.top) if tree.top else "")
    splits = [tree.splits[split] for split in SPLIT_WORDS if split in tree.labeled]
    place = splits[0] if splits else tree.top
    paths = [os.path.join(root, place, name) for name in list_class_folders(root, place)]
    classes = [os.path.basename(path) for path in paths if has_image(path)]
    if len(classes) < (1 if splits else 2) or (tree.splits and not splits):
        return None
    for above in dict.fromkeys(("", *itertools.accumulate(tree.top.split("/"), os.path.join))):
        found = _compare_tables(root, shown, above, tree)
        if found is not None:
            return found
    refuse_known(root, tree.top)
    if splits:
        return DatasetGuess("folder", f"{shown} has class folders below {' and '.join(splits[:2])}")
    _refuse_groups(root, shown, place, classes)
    more = ", …" if len(classes) > 3 else ""
    where = f"{shown}/{place}" if place else shown
    return DatasetGuess(
        "folder", f"{where} has class folders {', '.join(classes[:3])}{more}, not split into train and val"
    )


def _compare_tables(root: str, shown: str, above: str, tree: ClassTree) -> DatasetGuess | None:
    """Return the tables in a folder above the class folders, if these decide; None if the class folders do."""
    place = os.path.join(root, above) if above else root
    tables = _find_label_tables(place)
    labels_of_class, has_lists = dict[str, set[str]](), False
    folders = sorted((tree.top, *tree.splits.values()), key=len, reverse=True)
    for split, table in tables.items():
        if os.path.basename(table).startswith("metadata."):  # see ``metadata_decide``
            return None
        for path, label in read_first_labels(table, place, split):
            path = os.path.normpath(os.path.join(above, path))
            folder = next((each for each in folders if path.startswith(os.path.join(each, ""))), "")
            inside = os.path.relpath(path, folder or ".")
            if "/" in inside:
                has_lists = has_lists or label is None
                labels_of_class.setdefault(inside.split("/")[0], set()).add(path if label is None else label)
    if not labels_of_class:
        return None
    names = [os.path.relpath(path, root) for path in tables.values()]
    found = DatasetGuess(
        "table", f"{shown} has {' and '.join(names[:2])}, labels of the images there", place if above else ""
    )
    stems = {re.sub(r"\d+", "", name) for name in labels_of_class}
    are_parts = len(stems) == 1 < len(labels_of_class) and len(stems.pop()) >= _SHORTEST_STEM  # images_1 and images_2
    if has_lists and not are_parts:
        return None
    if not has_lists and all(len(labels) == 1 for labels in labels_of_class.values()):
        adds_split = len(tables) > 1 or bool({"val", "test"} & set().union(*map(read_split_words, tables.values())))
        return found if adds_split and not {"val", "test"} & tree.labeled else None
    if are_parts and not has_lists:
        return found
    raise UserError(
        f"{shown} has class folders such as {', '.join(sorted(labels_of_class)[:3])} (-dataset=folder), and "
        f"{' and '.join(names[:2])} with other labels of their images (-dataset=table -data_path={place}): add one"
    )


def _find_label_tables(place: str) -> dict[str, str]:
    """Return the tables in a folder with labels of images that exist; a ``UserError`` if several may be meant."""

    def labels_images(path: str) -> bool:
        split = split_in_name(os.path.splitext(os.path.basename(path))[0], is_whole=False) or ""
        return holds_labels(path) and bool(read_first_labels(path, place, split))

    return find_tables(place, labels_images, needs_wanted=True)


def _refuse_groups(root: str, shown: str, place: str, classes: list[str]) -> None:
    """Raise a UserError if folders have splits, or all have folders of the same classes, or each a group of classes."""
    deep = [name for name in classes if not has_own_image(os.path.join(root, place, name))]
    trees = {name: find_class_tree(os.path.join(root, place, name)) for name in deep}
    inner = {os.path.normpath(os.path.join(place, name, tree.top)): tree for name, tree in trees.items()}
    names = {where: list_class_folders(root, where) for where in inner}
    several = f"{shown} has folders {', '.join(sorted(classes)[:3])}"
    paths = " or ".join(f"-data_path={os.path.join(root, where)}" for where in list(inner)[:3])
    end = f"add -dataset=folder if the classes are {', '.join(sorted(classes)[:3])}"
    test = next(
        (name for name in classes if not split_in_name(name) and split_in_name(name, False) in _EVALUATED), None
    )
    if test is not None:
        raise UserError(f"{several}, and {test} may have images to evaluate: move it away, or {end}")
    split = next((where for where, tree in inner.items() if len(tree.splits) > 1), None)
    if split is not None:
        raise UserError(
            f"{several}, and in {split} {' and '.join(inner[split].splits)}: name one with {paths}, or {end}"
        )
    common = set.intersection(*map(set, names.values())) if len(deep) == len(classes) else set()
    if len(common) > 1:
        raise UserError(
            f"{several}, all with such as {' and '.join(sorted(common)[:2])} in them: add {paths}, or {end}"
        )
    groups = [os.path.join(where, name) for where, each in names.items() for name in each]
    are_groups = deep == classes and min(map(len, names.values())) > 1
    if are_groups and all(has_own_image(os.path.join(root, group)) for group in groups):
        raise UserError(
            f"{several}, each with folders of images such as {', '.join(map(os.path.basename, groups[:2]))}: {end}, "
            "or move the folders in them next to each other"
        )


def _detect_tars(root: str, shown: str, or_packed: bool) -> DatasetGuess | None:
    shards: list[str] = []
    for split in LISTS:
        try:
            shards += find_shards(root, split)[:1]
        except UserError:  # compressed files: reported only if there is nothing else
            if or_packed:
                raise
    if not shards:
        return None
    return DatasetGuess("tar", f"{shown} has tar files such as {' and '.join(shards)}")


def _lists_files(list_file: str, root: str) -> bool:
    """Return whether the first image on a list exists in the folder."""
    with open(list_file, "rb") as stream:
        fields = stream.readline(4096).removeprefix(b"\xef\xbb\xbf").strip().rsplit(None, 1)
    return bool(fields) and os.path.isfile(os.path.join(os.fsencode(root), fields[0]))


def _detect_cifar(root: str, shown: str) -> DatasetGuess | None:
    guesses: list[DatasetGuess] = []
    for dataset in (Cifar10, Cifar100):
        try:
            source, publication = find_cifar(Path(root), dataset.publications)
        except UserError:  # it does not exist
            continue
        name = publication.archive if source.is_file() else publication.folder
        guesses.append(DatasetGuess(dataset.name, f"{shown} is or has CIFAR's published {name}"))
    _refuse_several(guesses)
    return guesses[0] if guesses else None


def _detect_idx(root: str, shown: str) -> DatasetGuess | None:
    """Detect MNIST or Fashion-MNIST, which share file names, by their first labels, else by the path."""
    parts = {
        part: [file for split in SPLITS if (file := find_idx_file(Path(root), split, part))]
        for part in ("labels", "images")
    }
    if not any(parts.values()):
        return None
    for file in parts["labels"]:
        dataset = _FIRST_LABELS.get(_read_first_labels(file))
        if dataset:
            return DatasetGuess(dataset, f"{shown} has IDX files that begin with the labels of {dataset}")
    if "fashion" in root.lower():
        return DatasetGuess("fashion_mnist", f"{shown} has IDX files, and its name contains fashion")
    return DatasetGuess("mnist", f"{shown} has IDX files, read as mnist since its name does not contain fashion")


def _read_first_labels(file: Path) -> bytes:
    try:
        with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as stream:
            return stream.read(18)[8:]
    except (OSError, EOFError, zlib.error):  # the dataset reports the damage
        return b""


def _detect_table(root: str, shown: str) -> DatasetGuess | None:
    """Detect a table of labels with images below its folder; None if there is none."""
    if not has_image(root):
        return None
    tables = _find_label_tables(root)
    if not tables and (boxes := _find_box_tables(root, shown)):
        return boxes[0]
    if not tables:  # the only one is the nearest, and says what it lacks
        try:
            tables = find_tables(root)
        except UserError:
            return None
    if not tables:
        return None
    names = [os.path.relpath(path, root) for path in tables.values()]
    return DatasetGuess("table", one_line(f"{shown} has {' and '.join(names[:2])}, read as labels of the images there"))


def _find_box_tables(root: str, shown: str) -> list[DatasetGuess]:
    """Return the dataset of tables of boxes in a folder with images; usually none."""
    tables = find_tables(root, holds_boxes, needs_wanted=True) if has_image(root) else {}
    names = [os.path.relpath(path, root) for path in tables.values()]
    reason = f"{shown} has {' and '.join(names[:2])}, with boxes of the images there"
    return [DatasetGuess("box_table", one_line(reason))] if tables else []


def _detect_nothing(root: str, shown: str) -> DatasetGuess | None:
    """Return None, where tables are not read."""


def _detect_scenes(root: str, shown: str) -> DatasetGuess | None:
    if not (os.path.isfile(os.path.join(root, "classes.txt")) and os.path.isdir(os.path.join(root, "scenes"))):
        return None
    try:
        kind = read_json(Path(root, "prepared.json"))["kind"]
    except (OSError, ValueError, KeyError, TypeError):  # the dataset reports the damage
        kind = None
    return DatasetGuess(
        "scannet" if kind in ("scannet", "pth") else "scenes",
        f"{shown} has classes.txt and scenes, point clouds for recipes such as configs/pointgroup_scannet.yaml",
    )


def _lists_volumes(file: str) -> bool:
    try:
        listed = read_json(Path(file))["dataset"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return isinstance(listed, dict) and all(isinstance(case, dict) and "images" in case for case in listed.values())


def _detect_volumes(root: str, shown: str) -> DatasetGuess | None:
    if os.path.isfile(os.path.join(root, "dataset.json")):
        if os.path.isdir(os.path.join(root, "imagesTr")):
            return DatasetGuess("nnunet", f"{shown} has dataset.json and imagesTr, volumes in nnU-Net's layout")
        if _lists_volumes(os.path.join(root, "dataset.json")):
            return DatasetGuess("nnunet", f"{shown} has a dataset.json that lists volumes, as nnU-Net reads them")
    for split in ("train", "val"):
        folder = os.path.join(root, split)
        names = [name.lower() for name in list_first_names(folder)]
        files = [name for name in names if name.endswith(_VOLUME_SUFFIXES)]
        files += [f"{os.path.basename(path)}/*.dcm" for path in list_first_folders(folder) if _is_series(path)]
        if any(name.endswith(_LANDMARK_SUFFIXES) for name in names):
            files += [name for name in names if name.endswith(_ARRAY_SUFFIXES)]
        if files:
            recipe = "for recipes such as configs/landmark_unet3d.yaml"
            return DatasetGuess("landmarks", f"{shown} has volumes below {split} such as {min(files)}, {recipe}")
    return None


def _is_series(folder: str) -> bool:
    """Return whether the first file in a folder is a slice of a DICOM series, by its suffix or first bytes."""
    files = filter(os.path.isfile, (os.path.join(folder, name) for name in list_first_names(folder)))
    first = next(files, None)
    if first is None or first.lower().endswith(_DICOM_SUFFIXES):
        return first is not None
    try:
        with open(first, "rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:  # the dataset reports the damage
        return False


def _refuse_point_clouds(root: str, shown: str) -> None:
    """Raise an error with the command that converts raw point clouds to a dataset."""
    for folder in (root, *list_first_folders(root)):
        names = list_first_names(folder)
        formats = (("_vh_clean_2.ply", "scannet"), ("_inst_nostuff.pth", "pth"), (".ply", "ply"))
        for suffix, command in (*formats, *((ending, "scenes") for ending in (".las", ".laz", ".pcd"))):
            example = next((name for name in names if name.endswith(suffix)), None)
            if example is not None:
                dataset = "scannet" if command in ("scannet", "pth") else "scenes"
                raise UserError(
                    f"{shown} contains point clouds such as {example}: convert them once with "
                    f"'{program('prepare')} {command} {shown} OUT', then train with -dataset={dataset} -data_path=OUT "
                    "and a recipe such as configs/pointgroup_scannet.yaml"
                )


def _refuse_several(guesses: list[DatasetGuess]) -> None:
    if len({candidate.dataset for candidate in guesses}) > 1:
        kinds = ", and ".join(f"{candidate.reason} (-dataset={candidate.dataset})" for candidate in guesses)
        raise UserError(f"{kinds}: select one with -dataset, or move them to separate folders")


_DETECTORS: tuple[Callable[[str, str], DatasetGuess | None], ...] = (
    _detect_images,
    _detect_idx,
    _detect_cifar,
    _detect_scenes,
    _detect_volumes,
)
