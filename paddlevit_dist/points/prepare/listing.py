"""Base class of readers of raw scenes, and functions for splits and checks that several readers use."""

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.runtime.column_roles import COLORS, find_together
from ...core.runtime.errors import UserError
from ...core.runtime.files import count_by_suffix
from ...core.runtime.printing import agree, count
from ...core.runtime.spelling import find_suffix
from ...core.tasks.sample_groups import find_groups
from ..data.scene import CENTERED, IGNORED, Scene
from ..data.scene_store import SPLITS, is_hidden, read_lines
from ..data.scenes import GROUPS_BY
from .channels import WITHOUT, select_channels
from .coordinates import StoredPoints, as_given, center, check_resolution

_LISTS = {f"{name}.txt" for name in (*SPLITS, "classes")}
ROUNDING, _MAX_HDR = 1e-3, 16.0  # of colors: the error of a conversion, and the largest likely one of 0 to 1
VAL_EVERY = 5  # without lists or folders, every fifth scene is held out


class RawScene(NamedTuple):
    """A scene before preparation: its name, its files, and whether they contain labels; None: if they have any."""

    name: str
    files: tuple[str, ...]
    labeled: bool | None


@dataclass(frozen=True)
class SceneChoices:
    """A user's choices about scenes; the defaults mean no choice."""

    # None: one class for each number up to the largest label, named by number, unless the format has class names
    class_names: tuple[str, ...] | None = None
    # label, instance: column or array names; None: the first known one; "none": no such column
    label: str | None = None
    instance: str | None = None
    ignore_label: int = IGNORED  # a label that means no class, in addition to all negative ones
    gray: bool = False  # use gray if there are no colors, or their range is unknown
    channels: tuple[str, ...] | None = None  # see ``channels.select_channels``
    columns: tuple[str, ...] | None = None  # names of the columns of files that do not name them
    val_area: int = 5  # for S3DIS, the validation area
    two_hundred: bool = False  # for ScanNet, use the classes of ScanNet200
    unit_m: float = 1.0  # meters in a unit of the coordinates that readers return, if a file declares its own
    coordinates: str = CENTERED  # CENTERED or AS_GIVEN, for formats whose scenes are usually centered


class SceneReader:
    """Reads raw scenes of one format; sent to worker processes. ``kind`` is its name in the registry."""

    kind = ""
    #: a short description, for the help
    meaning = ""
    #: names of the ``SceneChoices`` that apply to it; by default those that ``build_scene`` reads
    options: tuple[str, ...] = ("class_names", "ignore_label", "gray", "channels")
    #: of its files' names, in lower case
    suffixes: tuple[str, ...] = ()
    #: example of a file, if a suffix is not enough
    example = ""
    #: class names of the format, used if the user does not choose others
    default_classes: tuple[str, ...] | None = None
    #: the split whose scenes need no labels; they are read where files have them
    unlabeled_split = "test"
    #: whether an instance number is one object, even if its points have several classes; None: unknown, with a warning
    unique_instances: bool | None = True
    #: coordinate convention of the format, which overrides the user's choice
    fixed_coordinates: str | None = None

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        self.choices = choices or SceneChoices()
        self.kind = kind or self.kind
        self.class_names = self.choices.class_names or self.default_classes
        self.coordinates = self.fixed_coordinates or self.choices.coordinates
        #: whether scenes have labels, except those that are only in the split ``unlabeled_split``
        self.labeled = self.choices.label != WITHOUT
        self.remarks: list[str] = []  # on the scenes read so far
        self.other_files: list[str] = []  # names of files without scenes, except the usual lists and hidden files

    @property
    def settings(self) -> tuple[object, ...]:
        """Values that the prepared scenes depend on in addition to their files."""
        choices = self.choices
        values = choices.label, choices.instance, choices.ignore_label, choices.gray, choices.channels, choices.columns
        return self.class_names and len(self.class_names), *values

    def identify(self, path: str) -> tuple[str, str] | None:
        """Return the name of the scene that a file belongs to, and the path to read it from; None for other files."""
        name = os.path.basename(path)
        suffix = next((ending for ending in self.suffixes if name.lower().endswith(ending)), name)
        return (name[: -len(suffix)], path) if len(suffix) < len(name) else None

    def find(self, root: str) -> dict[str, str]:
        """Return the path of each scene below ``root``, by name; lists and hidden files are skipped.

        UserError if there is no scene, or two have the same name.
        """
        paths: dict[str, str] = {}
        self.other_files = []
        for folder, subfolders, names in os.walk(root, followlinks=True):
            subfolders[:] = sorted(entry for entry in subfolders if not is_hidden(entry))
            for file in sorted(names):
                if is_hidden(file) or (folder == root and file.lower() in _LISTS):
                    continue
                name, path = self.identify(os.path.join(folder, file)) or ("", "")
                if "\n" in name or "\r" in name:
                    raise UserError(
                        f"{path!r}: a scene's name is a line of a list, so it has no line breaks: rename it"
                    )
                if not name:
                    self.other_files.append(file)
                elif paths.setdefault(name, path) != path:
                    raise UserError(
                        f"scene {name} exists twice, as {paths[name]} and {path}; remove or rename one of them"
                    )
        if not paths:
            expected = self.example or f"file that ends in {' or '.join(self.suffixes)}"
            alternatives = f", but {count_by_suffix(self.other_files)}" if self.other_files else ""
            raise UserError(f"{root} contains no {expected}{alternatives}; give the folder with the scenes")
        return paths

    def splits(self, root: str, paths: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        """Return the names of each split: from the user's lists or from folders, else every fifth scene is held out.

        ``paths`` is from ``find``. UserError if a list is wrong.
        """
        return split_scenes(root, paths, lists) or hold_out(paths, self.remarks)

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        """Return the files of a scene, ``path`` first, with or without labels; UserError if one is missing."""
        return (path,)

    def sources(self, root: str, lists: dict[str, str | None]) -> dict[str, list[RawScene]]:
        """Return the scenes of each split that is not empty.

        UserError if scenes, lists or files are missing or wrong, or no scene is in a split.
        """
        paths = self.find(root)
        splits = {split: names for split, names in self.splits(root, paths, lists).items() if names}
        if not splits:
            raise UserError(
                f"no split has any of the {len(paths):,} scenes of {root}, such as {next(iter(paths))}: assign them "
                "with --train_list and --val_list"
            )
        if "train" in splits and "val" not in splits:
            self.remarks.append(
                "no scene is for validation: name some of train in a file for --val_list, the others for --train_list"
            )
        labeled_splits = [names for split, names in splits.items() if split != self.unlabeled_split and self.labeled]
        labeled_names = {name for names in labeled_splits for name in names}

        def find_source(name: str) -> RawScene:
            if name in labeled_names:
                return RawScene(name, self.files(paths[name], True), True)
            files = self.files(paths[name], False)
            if not self.labeled:
                return RawScene(name, files, False)
            try:
                with_labels = self.files(paths[name], True)
            except UserError:  # no file of labels
                return RawScene(name, files, False)
            return RawScene(name, with_labels, None if with_labels == files else True)

        return {split: list(map(find_source, names)) for split, names in splits.items()}

    @abstractmethod
    def read(self, source: RawScene) -> Scene:
        """Read a scene, with labels if ``source`` has them; UserError if it cannot be read."""

    def place_points(self, path: str, xyz: np.ndarray) -> StoredPoints:
        """Apply the coordinate convention of this kind of scenes to points (points, 3)."""
        return (center if self.coordinates == CENTERED else as_given)(path, xyz)

    def build_scene(
        self,
        source: RawScene,
        columns: Mapping[str, np.ndarray],
        semantic: np.ndarray | None = None,
        instance: np.ndarray | None = None,
        excluded: Sequence[str | None] = (),
    ) -> Scene:
        """Build a scene from the columns x, y, z, colors and channels of its points, (points,) each.

        Class and object numbers are negative for none; None: unknown. ``excluded`` columns are not channels. UserError
        if a column is missing, or values are out of range.
        """
        path, choices = source.files[0], self.choices
        lengths = {name: len(values) for name, values in columns.items()}
        lengths |= {} if semantic is None else {"class": len(semantic)}
        lengths |= {} if instance is None else {"instance": len(instance)}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {number:,}" for name, number in lengths.items())
            raise UserError(f"{path} has columns of different lengths ({listed}): each needs a value for each point")
        columns, skipped = drop_nonfinite(columns)
        if len(skipped):
            points = f"{count(len(skipped), 'point')} without finite coordinates"
            self.remarks.append(f"{path}: {points} {agree(len(skipped))} skipped")
            parts = (None if values is None else np.delete(values, skipped) for values in (semantic, instance))
            semantic, instance = parts
        xyz, rgb = read_points(path, columns, choices.gray, self.remarks)
        self.remarks += check_resolution(path, xyz)
        xyz, offset = self.place_points(path, xyz)
        labels = objects = np.full(len(xyz), IGNORED, np.int16)
        if semantic is not None:
            labels = parse_labels(path, "label", semantic)
            labels = np.where(labels == choices.ignore_label, IGNORED, labels)
            num_classes = None if self.class_names is None else len(self.class_names)
            labels = check_classes(path, labels, num_classes)
        if instance is not None:
            numbers = parse_labels(path, "instance", instance)
            if self.unique_instances is not True and semantic is not None:
                separated = separate_classes(path, numbers, labels, self.remarks, self.unique_instances is None)
                numbers = numbers if self.unique_instances is None else separated
            objects = number_instances(path, numbers)
        channels = select_channels(path, columns, choices.channels, excluded)
        return Scene(xyz, rgb, labels, objects, source.name, offset, channels, tuple(skipped.tolist()))


def split_scenes(
    root: str, paths: dict[str, str], lists: dict[str, str | None], list_name: str = "{}.txt"
) -> dict[str, list[str]] | None:
    """Return the names of each split, or None if there are no lists and no folders of splits.

    The user's lists come first, then lists in ``root``, called ``list_name`` with ``{}`` for the split, then the
    folders ``train``, ``val`` and ``test`` that contain the scenes. UserError if a list cannot be read, or names a
    scene that does not exist.
    """
    files = {subset: file for subset, file in lists.items() if file}
    if not files:
        candidates = {subset: find_suffix(os.path.join(root, list_name.format(subset))) for subset in SPLITS}
        files = {subset: file for subset, file in candidates.items() if os.path.exists(file)}
    if files:
        return {subset: _read_list(file, paths, root) for subset, file in files.items()}
    by_folder: dict[str, list[str]] = {}
    for name, path in paths.items():
        parts = Path(os.path.relpath(path, root)).parts[:-1]
        split = next((subset for subset in SPLITS if subset in parts), None)
        if split is None:
            return None
        by_folder.setdefault(split, []).append(name)
    return {subset: sorted(by_folder[subset]) for subset in SPLITS if subset in by_folder}


def hold_out(paths: dict[str, str], remarks: list[str]) -> dict[str, list[str]]:
    """Select every fifth scene for validation, the others for training; at least one of each.

    Scans of the same place are in the same split, if their names identify the place; a remark is then appended.
    UserError if there is only one scene.
    """
    names = sorted(paths)
    if len(names) < 2:
        raise UserError(
            f"scene {paths[names[0]]} is the only one: at least one for training and one for validation are needed"
        )
    group_kind, groups = find_groups(GROUPS_BY, names) or ("", names)
    unique_numbers = sorted(set(groups))
    if group_kind:
        remarks.append(
            f"every fifth {group_kind} is for validation: the {len(names):,} scenes are of {len(unique_numbers):,}"
        )
    held_out = set(unique_numbers[VAL_EVERY - 1 :: VAL_EVERY] or unique_numbers[-1:])
    val = [name for name, group in zip(names, groups) if group in held_out]
    return {"train": [name for name in names if name not in set(val)], "val": val}


def _read_list(path: str, paths: dict[str, str], root: str) -> list[str]:
    names = read_lines(path, paths.__contains__)
    if names is None:
        raise UserError(f"list {path} does not exist; expected a file with one scene name per line")
    of_files = {os.path.basename(place): name for name, place in paths.items()}
    names = [each if each in paths else _remove_suffix(os.path.basename(each), of_files) for each in names]
    for name in names:
        if name not in paths:
            raise UserError(f"{path} names scene {name}, which is not in {root}; add its file or remove the line")
    if not names:
        raise UserError(f"{path} is empty; write one scene name per line")
    return names


def _remove_suffix(file: str, of_files: dict[str, str]) -> str:
    """Return the scene of a file's name, which may have the suffix of another format; a number is part of the name."""
    stem, suffix = os.path.splitext(file)
    return of_files.get(file, file if suffix[1:].isdigit() else stem)


def drop_nonfinite(columns: Mapping[str, np.ndarray]) -> tuple[Mapping[str, np.ndarray], np.ndarray]:
    """Return the columns without points that have a non-finite coordinate, and the rows of these, int64, ascending.

    Depth cameras write such points where they measured no depth.
    """
    bad = [~np.isfinite(columns[name]) for name in "xyz" if name in columns]
    skipped = np.flatnonzero(np.logical_or.reduce(bad))
    return {name: np.delete(values, skipped) for name, values in columns.items()} if len(skipped) else columns, skipped


def read_points(
    path: str, columns: Mapping[str, np.ndarray], gray: bool, remarks: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return xyz (points, 3), in the float type of the file, and uint8 rgb (points, 3) from the columns of a file.

    ``gray`` uses mid-gray if there are no colors, or none of a known range. ``remarks`` get a line if a file leaves the
    range of colors open.
    UserError if coordinates or colors are missing, or there are no points.
    """
    missing = [name for name in "xyz" if name not in columns]
    if missing:
        raise UserError(f"{path} has no property {', '.join(missing)}; its points need x, y and z in meters")
    xyz = np.stack([columns[name] for name in "xyz"], axis=1)
    xyz = xyz if xyz.dtype.kind == "f" else xyz.astype(np.float64)
    if not len(xyz):
        raise UserError(f"{path} has no points with finite coordinates; remove it")
    return xyz, _read_colors(path, columns, len(xyz), gray, remarks)


def _read_colors(
    path: str, columns: Mapping[str, np.ndarray], points: int, gray: bool, remarks: list[str]
) -> np.ndarray:
    gray_colors = np.full((points, 3), 128, np.uint8) if gray else None
    advice = ", or take gray for all such scenes with --missing_colors=gray"
    headings = list(columns)
    places = find_together(COLORS, headings)
    if not places:
        if gray_colors is not None:
            return gray_colors
        raise UserError(f"{path} has no colors (properties red, green and blue); add them{advice}")
    values = np.stack([columns[headings[place]] for place in places], axis=1)
    if values.dtype == np.uint8:
        return values
    low, high, largest = values.min(), values.max(), 255.0
    if values.dtype == np.uint16 and high > 255:
        largest = 65535.0
    elif values.dtype.kind == "f" and high <= 1 + ROUNDING:
        largest = 1.0
    is_whole = not (values % 1).any()
    if 0 < high <= 255 and (values.dtype == np.uint16 or (largest == 1 and is_whole)):
        remarks.append(f"{path}: its colors reach {high:g}, in fields of {values.dtype}: taken as parts of {largest:g}")
    is_unclear = largest == 255 and not is_whole and (np.median(values) <= 1 or high <= _MAX_HDR)
    if not (low >= -ROUNDING * largest and high <= (1 + ROUNDING) * largest) or is_unclear:
        found = f"{path} has colors from {low:g} to {high:g}"
        if gray_colors is not None:
            remarks.append(f"{found}, whose range is unknown: gray instead")
            return gray_colors
        mend = "clip them to 1, or round them if they are of 255" if is_unclear else "export it again"
        mend = "divide values of 16 bits by 257" if high > 255 else mend
        raise UserError(f"{found}; expected 0 to 255, 0 to 1 as float, or 16 bits as ushort: {mend}{advice}")
    return np.rint(values * (255.0 / largest)).astype(np.uint8)


def parse_labels(path: str, kind: str, values: np.ndarray) -> np.ndarray:
    """Convert labels to int64, with -100 for all negative ones and NaN, which CloudCompare writes for unlabeled points.

    UserError if a label is not an integer.
    """
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), values.dtype.type(IGNORED), values)
        wrong = ~(np.abs(values) < 2.0**31) | (np.rint(values) != values)
        if wrong.any():
            value = values[wrong.argmax()]
            raise UserError(f"{path} has {kind} {value:g}, which is not a whole number; choose another property for it")
    labels = values.astype(np.int64)
    return np.where(labels < 0, IGNORED, labels)


def check_classes(path: str, labels: np.ndarray, num_classes: int | None) -> np.ndarray:
    """Return ``labels`` as int16, each -100 or a class; UserError if one is out of range."""
    limit = np.iinfo(np.int16).max + 1 if num_classes is None else num_classes
    wrong = labels >= limit
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(
            f"{path}: point {row} has label {int(labels[row])}, which is out of range; with {limit} classes labels go "
            f"from 0 to {limit - 1}; negative ones are ignored, and the number given by -ignore_label"
        )
    return labels.astype(np.int16)


def separate_classes(
    path: str, instances: np.ndarray, labels: np.ndarray, remarks: list[str], warn_only: bool = False
) -> np.ndarray:
    """Renumber instances, int64 (points,), negative for none, by class and number if several classes share a number.

    Some files restart instance numbers in each class. Points of such a number without a class, ``IGNORED``, get no
    instance. A line is then appended to ``remarks``; with ``warn_only`` it says that each of them is one instance.
    """
    is_valid = (instances >= 0) & (labels != IGNORED)
    pairs = np.unique(np.stack([instances[is_valid], labels[is_valid].astype(np.int64)]), axis=1)
    numbers, classes = np.unique(pairs[0], return_counts=True)
    shared = numbers[classes > 1]
    if not len(shared):
        return instances
    names = ", ".join(map(str, pairs[1][pairs[0] == shared[0]]))
    remarks.append(
        f"{path}: {len(shared):,} of {len(numbers):,} instance numbers have points of several classes, such as number "
        f"{shared[0]} of classes {names}: "
        + ("each is one instance" if warn_only else "points of each class are a separate instance")
    )
    is_shared = np.isin(instances, shared)
    keyed = instances + (labels.astype(np.int64) + 1) * (int(instances.max()) + 1)
    return np.where(is_shared, np.where(is_valid, keyed, IGNORED), instances)


def number_instances(path: str, instances: np.ndarray) -> np.ndarray:
    """Renumber instances contiguously from 0, int16, -100 for none."""
    unique_numbers = np.unique(instances[instances >= 0])
    if len(unique_numbers) > np.iinfo(np.int16).max:
        raise UserError(
            f"{path} has {len(unique_numbers):,} instances; at most 32,767 are possible in a scene: split it"
        )
    numbered = np.searchsorted(unique_numbers, instances)
    return np.where(instances >= 0, numbered, IGNORED).astype(np.int16)
