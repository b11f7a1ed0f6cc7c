"""Shared by the preparation of all kinds of raw scenes: the base class of readers, sources, splits and checks."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import count_by_suffix
from ...tasks.sample_groups import find_groups
from ..data.scene import CENTERED, IGNORED, Scene
from ..data.scene_store import SPLITS, read_lines
from ..data.scenes import GROUPS_BY
from .channels import WITHOUT, channels_in
from .coordinates import StoredPoints, as_given, center, coarse_steps

_LISTS = {f"{name}.txt" for name in (*SPLITS, "classes")}
VAL_EVERY = 5  # without lists or folders every fifth scene is held out


class RawScene(NamedTuple):
    """A scene before its preparation: its name, its files, and whether they contain labels."""

    name: str
    files: tuple[str, ...]
    labeled: bool


@dataclass(frozen=True)
class SceneChoices:
    """Choices of a user about scenes; the values here: none.

    Attributes:
        class_names: None: as many classes as the labels imply, named by their numbers, unless the format has its own.
        label, instance: column or array names; None: the first known one; "none": no such column.
        ignore_label: a label that means no class, besides all negative ones.
        gray: use gray if there are no colors.
        channels: see ``channels_in``.
        columns: names of the columns of files that do not name them.
        val_area: of S3DIS, the area that is for validation.
        two_hundred: of ScanNet, the classes of ScanNet200.
        coordinates: CENTERED or AS_GIVEN, for formats whose scenes are usually centered.
    """

    class_names: tuple[str, ...] | None = None
    label: str | None = None
    instance: str | None = None
    ignore_label: int = IGNORED
    gray: bool = False
    channels: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    val_area: int = 5
    two_hundred: bool = False
    coordinates: str = CENTERED


class SceneReader:
    """Reads raw scenes of one kind; sent to worker processes.

    Args:
        kind: of ``FORMATS``, for classes that read several.
    """

    kind: str
    #: of its files' names, in lower case
    ends: tuple[str, ...] = ()
    #: of a file, where its name alone is not enough
    example = ""
    #: of the format, if no others are chosen
    own_classes: tuple[str, ...] | None = None
    #: the split whose labels nobody has
    hidden = "test"
    #: whether a number of an instance is of one object, whatever class its points have; None: unknown, and told
    unique_instances: bool | None = True
    #: where its scenes are, whatever is chosen
    own_coordinates: str | None = None

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        self.choices = choices or SceneChoices()
        self.kind = kind or self.kind
        self.class_names = self.choices.class_names or self.own_classes
        self.coordinates = self.own_coordinates or self.choices.coordinates
        #: whether scenes have labels, but for those that are in the split ``hidden`` alone
        self.labeled = self.choices.label != WITHOUT
        self.remarks: list[str] = []  # on what has been read
        self.others: list[str] = []  # names of files without scenes, apart from text and hidden ones

    @property
    def settings(self) -> tuple[object, ...]:
        """Return what the prepared scenes depend on besides their files."""
        chosen = self.choices
        named = chosen.label, chosen.instance, chosen.ignore_label, chosen.gray, chosen.channels, chosen.columns
        return self.class_names and len(self.class_names), *named

    def scene_at(self, path: str) -> tuple[str, str] | None:
        """The name of the scene that a file is or belongs to, and the path to read it from; None for other files."""
        name = os.path.basename(path)
        end = next((end for end in self.ends if name.lower().endswith(end)), name)
        return (name[: -len(end)], path) if len(end) < len(name) else None

    def find(self, root: str) -> dict[str, str]:
        """Path of each scene below ``root``, by name; lists of scenes and classes are none, nor are hidden files.

        Raises:
            UserError: there is none, or two have the same name.
        """
        found: dict[str, str] = {}
        self.others = []
        for folder, subfolders, names in os.walk(root, followlinks=True):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for file in sorted(names):
                if file.startswith(".") or (folder == root and file in _LISTS):
                    continue
                name, path = self.scene_at(os.path.join(folder, file)) or ("", "")
                if not name:
                    self.others += [] if file.endswith(".txt") else [file]
                elif found.setdefault(name, path) != path:
                    raise UserError(
                        f"scene {name} exists twice, as {found[name]} and {path}; remove or rename one of them"
                    )
        if not found:
            what = self.example or f"file that ends in {' or '.join(self.ends)}"
            instead = f", but {count_by_suffix(self.others)}" if self.others else ""
            raise UserError(f"{root} holds no {what}{instead}; give the folder that holds the scenes")
        return found

    def splits(self, root: str, found: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        """The names of each split: of lists or folders, else every fifth is held out.

        Args:
            found: of ``find``.
            lists: the user's files by split.

        Raises:
            UserError: a list is wrong.
        """
        return split_scenes(root, found, lists) or hold_out(found, self.remarks)

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        """All files of the scene at ``path``, which is the first of them.

        Raises:
            UserError: one is missing.
        """
        return (path,)

    def sources(self, root: str, lists: dict[str, str | None]) -> dict[str, list[RawScene]]:
        """The scenes of each split that has any.

        Args:
            lists: the user's files by split.

        Raises:
            UserError: as ``find``, ``splits`` and ``files``, or no scene is in a split.
        """
        found = self.find(root)
        splits = {split: names for split, names in self.splits(root, found, lists).items() if names}
        if not splits:
            raise UserError(
                f"no split has any of the {len(found):,} scenes of {root}, such as {next(iter(found))}: say which are "
                "in which with --train_list and --val_list"
            )
        labeled = [names for split, names in splits.items() if split != self.hidden and self.labeled]
        known = {name for names in labeled for name in names}
        return {
            split: [RawScene(name, self.files(found[name], name in known), name in known) for name in names]
            for split, names in splits.items()
        }

    def read(self, source: RawScene) -> Scene:
        """A scene with its labels, if ``source`` has them.

        Raises:
            UserError: it cannot be read.
        """
        raise NotImplementedError

    def placed(self, path: str, xyz: np.ndarray) -> StoredPoints:
        """Points (points, 3) where scenes of this kind are."""
        return (center if self.coordinates == CENTERED else as_given)(path, xyz)

    def build_scene(
        self,
        source: RawScene,
        columns: Mapping[str, np.ndarray],
        semantic: np.ndarray | None = None,
        instance: np.ndarray | None = None,
        others: Sequence[str | None] = (),
    ) -> Scene:
        """A scene of the columns of its points.

        Args:
            columns: x, y, z, colors and channels, (points,) each.
            semantic, instance: numbers (points,) of the class and of the object, negative for none; None: unknown.
            others: columns that are no channels.

        Raises:
            UserError: something is missing or out of range.
        """
        path, chosen = source.files[0], self.choices
        columns, left_out = finite_points(columns)
        if len(left_out):
            self.remarks.append(f"{path}: {len(left_out):,} points without finite coordinates are left out")
            parts = (None if one is None else np.delete(one, left_out) for one in (semantic, instance))
            semantic, instance = parts
        xyz, rgb = read_points(path, columns, chosen.gray)
        self.remarks += coarse_steps(path, xyz)
        xyz, offset = self.placed(path, xyz)
        labels = objects = np.full(len(xyz), IGNORED, np.int16)
        if semantic is not None:
            labels = whole_labels(path, "label", semantic)
            labels = np.where(labels == chosen.ignore_label, IGNORED, labels)
            labels = check_classes(path, labels, self.class_names and len(self.class_names))
        if instance is not None:
            numbers = whole_labels(path, "instance", instance)
            if self.unique_instances is not True and semantic is not None:
                keyed = separate_classes(path, numbers, labels, self.remarks, self.unique_instances is None)
                numbers = numbers if self.unique_instances is None else keyed
            objects = number_instances(path, numbers)
        channels = channels_in(path, columns, chosen.channels, others)
        return Scene(xyz, rgb, labels, objects, source.name, offset, channels, tuple(left_out.tolist()))


def split_scenes(
    root: str, found: dict[str, str], lists: dict[str, str | None], list_name: str = "{}.txt"
) -> dict[str, list[str]] | None:
    """The names of each split: from the user's lists, from lists in ``root``, or from the folders ``train``, ``val``
    and ``test`` containing the scenes; None if there are none of these.

    Args:
        found: path of each scene.
        lists: the user's files by split.
        list_name: name of a list in ``root``, with ``{}`` for the split.

    Raises:
        UserError: a list cannot be read, or names a scene that was not found.
    """
    files = {split: path for split, path in lists.items() if path}
    if not files:
        candidates = {split: os.path.join(root, list_name.format(split)) for split in SPLITS}
        files = {split: path for split, path in candidates.items() if os.path.exists(path)}
    if files:
        return {split: _list(path, found, root) for split, path in files.items()}
    by_folder: dict[str, list[str]] = {}
    for name, path in found.items():
        parts = Path(os.path.relpath(path, root)).parts[:-1]
        split = next((split for split in SPLITS if split in parts), None)
        if split is None:
            return None
        by_folder.setdefault(split, []).append(name)
    return {split: sorted(by_folder[split]) for split in SPLITS if split in by_folder}


def hold_out(found: dict[str, str], remarks: list[str]) -> dict[str, list[str]]:
    """Every fifth scene for validation, the others for training; at least one of each. Scans of one place are on one
    side, where their names say which these are.

    Args:
        remarks: gets a line if they do.
    Raises:
        UserError: there is only one scene.
    """
    names = sorted(found)
    if len(names) < 2:
        raise UserError(
            f"scene {found[names[0]]} is the only one: at least one to train and one to validate are needed"
        )
    place, groups = find_groups(GROUPS_BY, names) or ("", names)
    occurring = sorted(set(groups))
    if place:
        remarks.append(f"every fifth {place} is for validation: the {len(names):,} scenes are of {len(occurring):,}")
    held_out = set(occurring[VAL_EVERY - 1 :: VAL_EVERY] or occurring[-1:])
    val = [name for name, group in zip(names, groups) if group in held_out]
    return {"train": [name for name in names if name not in set(val)], "val": val}


def _list(path: str, found: dict[str, str], root: str) -> list[str]:
    names = read_lines(path)
    if names is None:
        raise UserError(f"list {path} does not exist; expected a file with one scene name per line")
    names = [name if name in found else Path(name).stem for name in names]  # with folder and extension, too
    for name in names:
        if name not in found:
            raise UserError(f"{path} names scene {name}, which is not in {root}; add its file or remove the line")
    if not names:
        raise UserError(f"{path} names no scene; write one scene name per line")
    return names


def finite_points(columns: Mapping[str, np.ndarray]) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """The columns without the points that have a coordinate which is not finite, as those of depth cameras do where
    nothing was seen, and the rows of these, int64, ascending."""
    coordinates = [columns[name] for name in "xyz" if name in columns]
    bad = [~np.isfinite(one) for one in coordinates if one.dtype.kind == "f"]
    left_out = np.flatnonzero(np.logical_or.reduce(bad)) if bad else np.zeros(0, np.int64)
    return {name: np.delete(one, left_out) for name, one in columns.items()} if len(left_out) else columns, left_out


def read_points(path: str, columns: Mapping[str, np.ndarray], gray: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """xyz (points, 3), in the float type of the file, and uint8 rgb (points, 3) from the columns of a file.

    Args:
        gray: use mid-gray if there are no colors.

    Raises:
        UserError: coordinates or colors are missing, or there are no points.
    """
    missing = [name for name in "xyz" if name not in columns]
    if missing:
        raise UserError(f"{path} has no property {', '.join(missing)}; its points need x, y and z in meters")
    xyz = np.stack([columns[name] for name in "xyz"], axis=1)
    xyz = xyz if xyz.dtype.kind == "f" else xyz.astype(np.float64)
    if not len(xyz):
        raise UserError(f"{path} has no points with finite coordinates; leave it out")
    return xyz, _colors(path, columns, len(xyz), gray)


def _colors(path: str, columns: Mapping[str, np.ndarray], points: int, gray: bool) -> np.ndarray:
    for names in (("red", "green", "blue"), ("diffuse_red", "diffuse_green", "diffuse_blue"), ("r", "g", "b")):
        if all(name in columns for name in names):
            break
    else:
        if gray:
            return np.full((points, 3), 128, np.uint8)
        raise UserError(
            f"{path} has no colors (properties red, green and blue); add them, or take gray for all such scenes with "
            "--missing_colors=gray"
        )
    values = np.stack([columns[name] for name in names], axis=1)
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f" and values.max() <= 1.0:
        values = 255.0 * values
    if not (values.min() >= 0 and values.max() <= 255):
        is_16_bit = values.min() >= 0 and 255 < values.max() <= np.iinfo(np.uint16).max
        remedy = ": colors of 16 bits are divided by 257 and stored as uchar" if is_16_bit else ""
        raise UserError(
            f"{path} has colors from {values.min():g} to {values.max():g}; expected 0 to 255, or 0 to 1 as "
            f"float{remedy or '; export it again'}"
        )
    return np.rint(values).astype(np.uint8)


def whole_labels(path: str, what: str, values: np.ndarray) -> np.ndarray:
    """Labels as int64, with all negative ones as -100, and NaN too: CloudCompare writes it for unlabeled points.

    Raises:
        UserError: one is not an integer.
    """
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), values.dtype.type(IGNORED), values)
        wrong = ~(np.abs(values) < 2.0**31) | (np.rint(values) != values)
        if wrong.any():
            value = values[wrong.argmax()]
            raise UserError(f"{path} has {what} {value:g}, which is not a whole number; choose another property for it")
    labels = values.astype(np.int64)
    return np.where(labels < 0, IGNORED, labels)


def check_classes(path: str, labels: np.ndarray, num_classes: int | None) -> np.ndarray:
    """``labels`` as int16, each -100 or a class.

    Raises:
        UserError: one is out of range.
    """
    limit = np.iinfo(np.int16).max + 1 if num_classes is None else num_classes
    wrong = labels >= limit
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"{path}: point {row} has label {int(labels[row])}, which is out of range; with {limit} classes labels go "
            f"from 0 to {limit - 1}, negative ones are ignored"
        )
    return labels.astype(np.int16)


def separate_classes(
    path: str, instances: np.ndarray, labels: np.ndarray, remarks: list[str], only_tells: bool = False
) -> np.ndarray:
    """Number instances by their class and number where one number is used in several classes, as where numbers begin
    anew in each class. Points of such a number that have no class are of no instance.

    Args:
        instances: int64 (points,), negative for none.
        labels: int (points,), ``IGNORED`` for no class.
        remarks: gets a line if there are such numbers.
        only_tells: the line says that each of them is one instance.
    Returns:
        int64 (points,), negative for none.
    """
    known = (instances >= 0) & (labels != IGNORED)
    pairs = np.unique(np.stack([instances[known], labels[known].astype(np.int64)]), axis=1)
    numbers, classes = np.unique(pairs[0], return_counts=True)
    shared = numbers[classes > 1]
    if not len(shared):
        return instances
    names = ", ".join(map(str, pairs[1][pairs[0] == shared[0]]))
    remarks.append(
        f"{path}: {len(shared):,} of {len(numbers):,} instance numbers have points of several classes, such as number "
        f"{shared[0]} of classes {names}: "
        + ("each is one instance" if only_tells else "points of each class are an instance of their own")
    )
    is_shared = np.isin(instances, shared)
    keyed = instances + (labels.astype(np.int64) + 1) * (int(instances.max()) + 1)
    return np.where(is_shared, np.where(known, keyed, IGNORED), instances)


def number_instances(path: str, instances: np.ndarray) -> np.ndarray:
    """Instances renumbered contiguously from 0, int16, -100 for none."""
    occurring = np.unique(instances[instances >= 0])
    if len(occurring) > np.iinfo(np.int16).max:
        raise UserError(f"{path} has {len(occurring):,} instances; at most 32,767 are possible in a scene: cut it up")
    numbered = np.searchsorted(occurring, instances)
    return np.where(instances >= 0, numbered, IGNORED).astype(np.int16)
