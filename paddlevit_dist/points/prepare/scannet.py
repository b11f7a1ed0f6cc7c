"""ScanNet v2 as downloaded: points and colors from ``_vh_clean_2.ply``, classes from ``_vh_clean_2.labels.ply``,
objects from ``.aggregation.json`` via the over-segmentation in ``_vh_clean_2.0.010000.segs.json``. The classes of
ScanNet200 are those of the objects, by their names in ``scannetv2-labels.combined.tsv``."""

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import UserError
from ...runtime.text_files import read_json, read_text
from ..data.ply import read_vertices
from ..data.scannet_classes import (
    CLASS_NAMES,
    NUM_NYU40,
    STUFF_CLASSES,
    TEST_FOLDER,
    TEST_SCENES,
    from_nyu40,
    scannet200,
)
from ..data.scene import CENTERED, IGNORED, Scene
from .coordinates import StoredPoints, center_as_the_original
from .listing import RawScene, SceneChoices, SceneReader, split_scenes, whole_labels

POINTS = "_vh_clean_2.ply"
LABELS = "_vh_clean_2.labels.ply"
SEGMENTS = "_vh_clean_2.0.010000.segs.json"
OBJECTS = ".aggregation.json"
LIST_NAME = "scannetv2_{}.txt"
_MOST_NAMED = 5  # labels in a line
TABLE = "scannetv2-labels.combined.tsv"


class ScanNetReader(SceneReader):
    """Reads raw ScanNet scenes, centered on their mean as in PointGroup's preparation; walls and floors are not
    instances."""

    kind = "scannet"
    ends = (POINTS,)
    own_coordinates = CENTERED

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        super().__init__(choices, kind)
        self.class_names = tuple(scannet200()) if self.choices.two_hundred else CLASS_NAMES
        self.class_of: dict[str, int] = {}  # of objects by their names; for the two hundred classes only

    @property
    def settings(self) -> tuple[object, ...]:
        return tuple(sorted(self.class_of.items()))

    def splits(self, root: str, found: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        """Those of "test" need no list if they are in the download's own folder for them."""
        self.class_of = _classes_by_name(os.path.join(root, TABLE)) if self.choices.two_hundred else {}
        splits = split_scenes(root, found, lists, LIST_NAME)
        hidden = sorted(name for name, path in found.items() if TEST_FOLDER in Path(path).parts)
        if splits is None and len(hidden) == len(found):
            splits = {}
        if splits is not None and "test" not in splits and hidden and not any(lists.values()):
            splits["test"] = hidden
            self.remarks.append(
                f"no list names the test scenes: the {len(hidden):,} in {TEST_FOLDER} are taken"
                + ("" if set(hidden) == set(TEST_SCENES) else f"; the benchmark has {len(TEST_SCENES)}")
            )
        if splits is None:
            raise UserError(
                f"{root} does not say which scenes are for training: put ScanNet's lists {LIST_NAME.format('train')} "
                f"and {LIST_NAME.format('val')} there, or give --train_list and --val_list"
            )
        return splits

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        start = path.removesuffix(POINTS)
        files = [path, *(start + suffix for suffix in (LABELS, SEGMENTS, OBJECTS) if labeled)]
        for file in files[1:]:
            if not os.path.exists(file):
                name, suffix = os.path.basename(start), file.removeprefix(start)
                raise UserError(
                    f"{file} is missing, which scene {name} needs; download it with ScanNet's script (--id {name} "
                    f"--type {suffix}), or remove the scene from its list"
                )
        return tuple(files)

    def placed(self, path: str, xyz: np.ndarray) -> StoredPoints:
        return center_as_the_original(path, xyz)

    def read(self, source: RawScene) -> Scene:
        columns = read_vertices(source.files[0])
        if not source.labeled:
            return self.build_scene(source, columns)
        _, labels, segments, objects = source.files
        number = len(columns.get("x", ()))
        groups = [group if isinstance(group, dict) else {} for group in _member(objects, "segGroups")]
        instance = _objects(segments, objects, groups, number)
        if self.choices.two_hundred:
            classes = [self.class_of.get(str(group.get("label")), IGNORED) for group in groups]
            semantic = np.array([*classes, IGNORED], np.int16)[np.where(instance < 0, len(classes), instance)]
        else:
            semantic = _classes(labels, number, self.remarks)
        stuff = [self.class_names.index(name) for name in STUFF_CLASSES]
        instance = np.where(_is_stuff(instance, np.isin(semantic, stuff)), IGNORED, instance)
        return self.build_scene(source, columns, semantic, instance)


def _classes(path: str, points: int, remarks: list[str]) -> np.ndarray:
    """Read the class of each point; ``remarks`` gets a line if points have numbers that are not NYU40's."""
    columns = read_vertices(path)
    if "label" not in columns:
        raise UserError(f"{path} has no property 'label'; it is not the labels file of ScanNet v2: download it again")
    numbers = whole_labels(path, "label", columns["label"])
    if len(numbers) != points:
        raise UserError(
            f"{path} has {len(numbers):,} points, the scene has {points:,}; download both files of the scene again"
        )
    unknown = numbers > NUM_NYU40  # ScanNet's scene0270_00 has 50 and scene0384_00 149, as its evaluation ignores
    if unknown.any():
        others = ", ".join(map(str, np.unique(numbers[unknown])[:_MOST_NAMED]))
        remarks.append(f"{path}: {unknown.sum():,} points have labels above {NUM_NYU40} ({others}): no class")
    return from_nyu40(np.where(unknown | (numbers == IGNORED), 0, numbers))


def _classes_by_name(path: str) -> dict[str, int]:
    """ScanNet200's class of each name that objects have, those of no class left out."""
    number_of = {number: label for label, number in enumerate(scannet200().values())}
    try:
        rows = list(csv.DictReader(read_text(path).splitlines(), delimiter="\t"))
        named = {row["raw_category"]: int(row["id"]) for row in reversed(rows)}  # of several rows the first counts
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}; ScanNet200 needs it: download it with ScanNet's script "
            "(--label_map)"
        ) from error
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise UserError(f"{path} is damaged: no table with raw_category and id ({error}); download it again") from error
    return {name: number_of[number] for name, number in named.items() if number in number_of}


def _objects(segments_path: str, objects_path: str, groups: list[dict[str, Any]], points: int) -> np.ndarray:
    """The object of each point, int64, -100 for none: its number in ``groups``."""
    segment_of_point = _numbers(segments_path, "segIndices", _member(segments_path, "segIndices"))
    if len(segment_of_point) != points:
        raise UserError(
            f"{segments_path} has segments of {len(segment_of_point):,} points, the scene has {points:,}; "
            "download both files of the scene again"
        )
    segments, position = np.unique(segment_of_point, return_inverse=True)  # (segments,), (points,)
    object_of_segment = np.full(len(segments), IGNORED, np.int64)
    before = set()
    for number, group in enumerate(groups):
        own = np.unique(_numbers(objects_path, f"segments of object {number}", group.get("segments")))
        if own.tobytes() in before:  # one published scene lists its objects twice
            continue
        before.add(own.tobytes())
        where = np.searchsorted(segments, own)
        if not len(own) or where.max() >= len(segments) or not np.array_equal(segments[where], own):
            raise UserError(
                f"{objects_path}: object {number} has segments missing in {segments_path}; download both files again"
            )
        object_of_segment[where] = number
    return object_of_segment[position.reshape(-1)]  # (points,)


def _is_stuff(instance: np.ndarray, stuff: np.ndarray) -> np.ndarray:
    """Points of objects that are mostly wall or floor, bool (points,): by the classes of their points, which avoids a
    table of ScanNet's several hundred names.

    Args:
        stuff: bool (points,), which are wall or floor.
    """
    members = instance >= 0
    number = int(instance.max(initial=-1)) + 1
    points = np.bincount(instance[members], minlength=number)
    of_stuff = np.bincount(instance[members & stuff], minlength=number)
    return members & (2 * of_stuff > points)[np.where(members, instance, 0)] if number else members


def _member(path: str, name: str) -> list[Any]:
    try:
        value = read_json(path)[name]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: not JSON with '{name}' ({error}); download it again") from error
    if not isinstance(value, list):
        raise UserError(f"{path} is damaged: '{name}' is not a list; download it again")
    return value


def _numbers(path: str, what: str, values: Any) -> np.ndarray:
    """A list of integers as int64 (length,)."""
    try:
        numbers = np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        numbers = None
    if numbers is None or numbers.ndim != 1:
        raise UserError(f"{path} is damaged: {what} is not a list of whole numbers; download it again")
    return numbers
