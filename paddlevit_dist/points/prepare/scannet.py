"""ScanNet v2 as downloaded.

Points and colors are in ``_vh_clean_2.ply``, classes in ``_vh_clean_2.labels.ply``, and objects in
``.aggregation.json``, as sets of segments of ``_vh_clean_2.0.010000.segs.json``. ScanNet200's classes are found by the
names of the objects, in ``scannetv2-labels.combined.tsv``.
"""

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.text_files import read_json, read_text
from ..data.ply import read_vertices
from ..data.scannet_classes import (
    CLASS_NAMES,
    NUM_NYU40,
    STUFF_CLASSES,
    TEST_FOLDER,
    TEST_SCENES,
    from_nyu40,
    load_scannet200_classes,
)
from ..data.scene import CENTERED, IGNORED, Scene
from .coordinates import StoredPoints, center_like_pointgroup
from .listing import RawScene, SceneChoices, SceneReader, parse_labels, split_scenes

POINTS = "_vh_clean_2.ply"
LABELS = "_vh_clean_2.labels.ply"
SEGMENTS = "_vh_clean_2.0.010000.segs.json"
OBJECTS = ".aggregation.json"
LIST_NAME = "scannetv2_{}.txt"
_MAX_LISTED = 5  # labels in a remark
TABLE = "scannetv2-labels.combined.tsv"


class ScanNetReader(SceneReader):
    """Reads raw ScanNet scenes, centered on their mean like PointGroup's; walls and floors are not instances."""

    kind = "scannet"
    meaning = "ScanNet v2 as downloaded"
    options = ("two_hundred",)
    suffixes = (POINTS,)
    class_names: tuple[str, ...]
    fixed_coordinates = CENTERED

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        super().__init__(choices, kind)
        self.class_names = tuple(load_scannet200_classes()) if self.choices.two_hundred else CLASS_NAMES
        self.class_by_name: dict[str, int] = {}  # by the names of objects; only for ScanNet200

    @property
    def settings(self) -> tuple[object, ...]:
        """Values that the prepared scenes depend on in addition to their files."""
        return tuple(sorted(self.class_by_name.items()))

    def splits(self, root: str, paths: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        """Return the names of each split; "test" needs no list if its scenes are in the download's folder for them."""
        self.class_by_name = read_class_table(os.path.join(root, TABLE)) if self.choices.two_hundred else {}
        splits = split_scenes(root, paths, lists, LIST_NAME)
        test_scenes = sorted(name for name, path in paths.items() if TEST_FOLDER in Path(path).parts)
        if splits is None and len(test_scenes) == len(paths):
            splits = {}
        if splits is not None and "test" not in splits and test_scenes and not any(lists.values()):
            splits["test"] = test_scenes
            self.remarks.append(
                f"no list names the test scenes: the {len(test_scenes):,} in {TEST_FOLDER} are used"
                + ("" if set(test_scenes) == set(TEST_SCENES) else f"; the benchmark has {len(TEST_SCENES)}")
            )
        if splits is None:
            raise UserError(
                f"{root} has no lists of splits: put ScanNet's lists {LIST_NAME.format('train')} and "
                f"{LIST_NAME.format('val')} there, or give --train_list and --val_list"
            )
        return splits

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        """Return the file of points and, if ``labeled``, the files of labels, segments and objects."""
        start = path.removesuffix(POINTS)
        files = [path, *(start + ending for ending in (LABELS, SEGMENTS, OBJECTS) if labeled)]
        for file in files[1:]:
            if not os.path.exists(file):
                name, suffix = os.path.basename(start), file.removeprefix(start)
                raise UserError(
                    f"{file} is missing, scene {name} needs it; download it with ScanNet's script (--id {name} "
                    f"--type {suffix}), or remove the scene from its list"
                )
        return tuple(files)

    def place_points(self, path: str, xyz: np.ndarray) -> StoredPoints:
        """Center points like PointGroup's preparation."""
        return center_like_pointgroup(path, xyz)

    def read(self, source: RawScene) -> Scene:
        """Read a scene, with labels if ``source`` has them."""
        columns = read_vertices(source.files[0])
        if not source.labeled:
            return self.build_scene(source, columns)
        _, labels, segments, objects = source.files
        number = len(columns.get("x", ()))
        groups = [group if isinstance(group, dict) else {} for group in _read_list(objects, "segGroups")]
        instance = _read_instances(segments, objects, groups, number)
        if self.choices.two_hundred:
            classes = [self.class_by_name.get(str(group.get("label")), IGNORED) for group in groups]
            semantic = np.array([*classes, IGNORED], np.int16)[np.where(instance < 0, len(classes), instance)]
        else:
            semantic = _read_classes(labels, number, self.remarks)
        stuff = [self.class_names.index(name) for name in STUFF_CLASSES]
        instance = np.where(_is_stuff(instance, np.isin(semantic, stuff)), IGNORED, instance)
        return self.build_scene(source, columns, semantic, instance)


def _read_classes(path: str, points: int, remarks: list[str]) -> np.ndarray:
    """Read the class of each point; append a remark if labels are not NYU40 ids."""
    columns = read_vertices(path)
    if "label" not in columns:
        raise UserError(f"{path} has no property 'label'; it is not the labels file of ScanNet v2: download it again")
    numbers = parse_labels(path, "label", columns["label"])
    if len(numbers) != points:
        raise UserError(
            f"{path} has {len(numbers):,} points, the scene has {points:,}; download both files of the scene again"
        )
    unknown = numbers > NUM_NYU40  # ScanNet's scene0270_00 has 50 and scene0384_00 149; its evaluation ignores them
    if unknown.any():
        examples = ", ".join(map(str, np.unique(numbers[unknown])[:_MAX_LISTED]))
        remarks.append(f"{path}: {unknown.sum():,} points have labels above {NUM_NYU40} ({examples}): no class")
    return from_nyu40(np.where(unknown | (numbers == IGNORED), 0, numbers))


def read_class_table(path: str) -> dict[str, int]:
    """Read ScanNet200's class of each object name; names without a class are omitted."""
    label_by_id = {number: label for label, number in enumerate(load_scannet200_classes().values())}
    try:
        rows = list(csv.DictReader(read_text(path).splitlines(), delimiter="\t"))
        id_by_name = {row["raw_category"]: int(row["id"]) for row in reversed(rows)}  # the first of several rows counts
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}; ScanNet200 needs it: download it with ScanNet's script "
            "(--label_map)"
        ) from error
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise UserError(f"{path} is damaged: no table with raw_category and id ({error}); download it again") from error
    return {name: label_by_id[number] for name, number in id_by_name.items() if number in label_by_id}


def _read_instances(segments_path: str, objects_path: str, groups: list[dict[str, Any]], points: int) -> np.ndarray:
    """Return the index in ``groups`` of each point's object, int64, -100 for none."""
    point_segments = _parse_integers(segments_path, "segIndices", _read_list(segments_path, "segIndices"))
    if len(point_segments) != points:
        raise UserError(
            f"{segments_path} has segments of {len(point_segments):,} points, the scene has {points:,}; "
            "download both files of the scene again"
        )
    segments, position = np.unique(point_segments, return_inverse=True)  # (segments,), (points,)
    segment_objects = np.full(len(segments), IGNORED, np.int64)
    seen_objects = set()
    for number, group in enumerate(groups):
        object_segments = np.unique(
            _parse_integers(objects_path, f"segments of object {number}", group.get("segments"))
        )
        if object_segments.tobytes() in seen_objects:  # one published scene lists its objects twice
            continue
        seen_objects.add(object_segments.tobytes())
        where = np.searchsorted(segments, object_segments)
        if (
            not len(object_segments)
            or where.max() >= len(segments)
            or not np.array_equal(segments[where], object_segments)
        ):
            raise UserError(
                f"{objects_path}: object {number} has segments missing in {segments_path}; download both files again"
            )
        segment_objects[where] = number
    return segment_objects[position.reshape(-1)]  # (points,)


def _is_stuff(instance: np.ndarray, stuff: np.ndarray) -> np.ndarray:
    """Return which points belong to objects, int64 (points,), that are mostly wall or floor, bool (points,).

    The classes of points decide, so that no table of ScanNet's several hundred object names is needed.
    """
    members = instance >= 0
    number = int(instance.max(initial=-1)) + 1
    points = np.bincount(instance[members])
    stuff_points = np.bincount(instance[members & stuff], minlength=number)
    return members & (2 * stuff_points > points)[np.where(members, instance, 0)] if number else members


def _read_list(path: str, name: str) -> list[Any]:
    try:
        value = read_json(path)[name]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged: not JSON with '{name}' ({error}); download it again") from error
    if not isinstance(value, list):
        raise UserError(f"{path} is damaged: '{name}' is not a list; download it again")
    return value


def _parse_integers(path: str, field: str, values: object) -> np.ndarray:
    """Convert a list of integers to int64 (length,)."""
    try:
        numbers = np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        numbers = None
    if numbers is None or numbers.ndim != 1:
        raise UserError(f"{path} is damaged: {field} is not a list of whole numbers; download it again")
    return numbers
