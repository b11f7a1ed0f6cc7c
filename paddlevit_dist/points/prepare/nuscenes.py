"""nuScenes-lidarseg: its tables, files, sixteen challenge classes and splits.

Scans are ``samples/LIDAR_TOP/*.pcd.bin``, labels ``lidarseg/v1.0-trainval/TOKEN_lidarseg.bin``. Labels of Panoptic
nuScenes are ``panoptic/v1.0-trainval/TOKEN_panoptic.npz``: 1,000 times the category plus the number of the object. The
tables in ``v1.0-trainval``, ``v1.0-test`` or ``v1.0-mini`` connect them with drives, which nuScenes calls scenes.

Source: W. K. Fong et al., "Panoptic nuScenes: A Large-Scale Benchmark for LiDAR Panoptic Segmentation and Tracking",
arXiv 2109.03805; classes, splits and files are as in nuscenes-devkit (eval/lidarseg/utils.py, utils/splits.py,
eval/lidarseg/README.md).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import readable
from ...core.runtime.text_files import iterate_rows
from ..data.scene import AS_GIVEN, IGNORED
from .channels import WITHOUT
from .listing import SceneChoices, split_scenes
from .numpy_tables import read_arrays
from .scans import UNKNOWN, ScanReader, map_classes, read_numbers

_LINES = Path(__file__).with_name("nuscenes_classes.txt").read_text(encoding="ascii").splitlines()
# The categories of each class, and of no class; a class's number in predictions is its position, counted from 1.
_CATEGORIES = {name: categories for name, *categories in map(str.split, _LINES)}
_CLASS_OF_CATEGORY = dict.fromkeys(_CATEGORIES.pop("-"), IGNORED)
_CLASS_OF_CATEGORY |= {name: label for label, names in enumerate(_CATEGORIES.values()) for name in names}
CLASS_NAMES = tuple(_CATEGORIES)
STUFF_CLASSES = CLASS_NAMES[CLASS_NAMES.index("driveable_surface") :]  # classes without instances
# The 150 drives for validation; the other 700 of v1.0-trainval are for training, the 150 of v1.0-test for testing.
_VAL_DRIVES = (
    *(3, *range(12, 19), 35, 36, 38, 39, *range(92, 111), 221, *range(268, 279), *range(329, 333), 344, 345, 346),
    *(*range(519, 525), *range(552, 566), 625, 626, 627, 629, 630, *range(632, 639), 770, 771, 775, 777, 778),
    *(*range(780, 785), *range(794, 801), 802, *range(904, 918), *range(919, 932), 962, 963),
    *(*range(966, 970), 971, 972, *range(1059, 1074)),
)
_VAL_DRIVES_BY_VERSION = {"v1.0-trainval": _VAL_DRIVES, "v1.0-mini": (103, 916)}
_TEST_VERSION = "v1.0-test"
_SCANS = "samples/LIDAR_TOP/"  # in file names of sample_data.json; the other scans, sweeps, have no labels
SCAN_SUFFIX = ".pcd.bin"
LABEL_ENDING = "_lidarseg.bin"
LIDARSEG, PANOPTIC = "lidarseg", "panoptic"  # tables of labels, and their folders
SCENE_NAME = re.compile(r"scene-\d{4}_[0-9a-f]{32}")
_Table = TypeVar("_Table", bound=msgspec.Struct)


class _DriveRow(msgspec.Struct):
    token: str
    name: str


class _SampleRow(msgspec.Struct):
    token: str
    scene_token: str


class _SampleDataRow(msgspec.Struct):
    token: str
    sample_token: str
    filename: str
    timestamp: int


class _LabelRow(msgspec.Struct):
    sample_data_token: str
    filename: str


class _CategoryRow(msgspec.Struct):
    name: str
    index: int


class NuScenesReader(ScanReader):
    """Reads keyframes of the LIDAR_TOP scanner, in its coordinates.

    A scan is named by its drive and its token, such as scene-0061_9d9bf11fb0e144c8b446d54a8a00184f. Its channels are
    ``intensity`` (0 to 255) and ``ring``.
    """

    kind = "nuscenes"
    meaning = "nuScenes-lidarseg: v1.0-*/, samples/LIDAR_TOP, lidarseg"
    options = ("channels", "label")
    default_classes = CLASS_NAMES
    fixed_coordinates = AS_GIVEN
    suffixes = (SCAN_SUFFIX,)
    columns = ("x", "y", "z", "intensity", "ring")

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        super().__init__(choices, kind)
        self.label = self.choices.label or LIDARSEG
        if self.label not in (LIDARSEG, PANOPTIC, WITHOUT):
            raise UserError(f"--label={self.label}: expected {LIDARSEG}, {PANOPTIC} or {WITHOUT}")
        self.class_by_number: tuple[int, ...] = ()  # class of each number in the files of labels
        self._splits: dict[str, str] = {}  # by name of the scan
        self._label_files: dict[str, str] = {}  # by path of the scan

    def __getstate__(self) -> object:
        return {**self.__dict__, "_splits": {}, "_label_files": {}}  # large, and of no use in a worker process

    @property
    def settings(self) -> tuple[object, ...]:
        """Values that the prepared scenes depend on in addition to their files."""
        return (*super().settings, self.class_by_number)

    def find(self, root: str) -> dict[str, str]:
        """Return the path of each keyframe's scan in the tables below ``root``, by name, in the order of the drives.

        UserError if there are no tables, or one is missing or damaged.
        """
        labeled = next((each for each in _VAL_DRIVES_BY_VERSION if _has_tables(root, each)), None)
        versions = [labeled] if labeled else []
        versions += [_TEST_VERSION] if _has_tables(root, _TEST_VERSION) else []
        if not versions:
            raise UserError(
                f"{root} has no tables of nuScenes, such as v1.0-trainval/sample_data.json; extract the archive of "
                "metadata there, or give the folder that contains v1.0-trainval, v1.0-test or v1.0-mini"
            )
        paths: dict[str, str] = {}
        for version in versions:
            paths.update(self._read_version(root, version))
        return paths

    def _read_version(self, root: str, version: str) -> dict[str, str]:
        """Return the path of each scan of a version, by name, and keep splits and files of labels."""
        tables = os.path.join(root, version)
        drives = {entry.token: entry.name for entry in _read_table(tables, "scene", _DriveRow)}
        samples = {
            entry.token: drives.get(entry.scene_token, "") for entry in _read_table(tables, "sample", _SampleRow)
        }
        scans = []  # drive, time, name, path
        for row in _read_table(tables, "sample_data", _SampleDataRow):
            if not row.filename.startswith(_SCANS):
                continue
            drive = samples.get(row.sample_token, "")
            name = f"{drive}_{row.token}"
            if not SCENE_NAME.fullmatch(name):
                raise UserError(
                    f"{tables}/sample_data.json: {row.filename} has drive '{drive}' and token '{row.token}', expected "
                    "a name like scene-0061 and 32 hexadecimal digits; extract the archive of metadata again"
                )
            scans.append((drive, row.timestamp, name, os.path.join(root, row.filename)))
            self._splits[name] = _find_split(version, drive)
        if version != _TEST_VERSION and self.labeled:
            self._read_labels(root, tables, {get_token(file_name): path for *_, file_name, path in scans})
        return {file_name: path for _, _, file_name, path in sorted(scans)}

    def _read_labels(self, root: str, tables: str, paths: dict[str, str]) -> None:
        """Keep the file of labels of each scan (``paths`` are by token), and the class of each number in them."""
        for row in _read_table(tables, self.label, _LabelRow):
            if row.sample_data_token in paths:
                self._label_files[paths[row.sample_data_token]] = os.path.join(root, row.filename)
        classes = [UNKNOWN] * 256
        for category in _read_table(tables, "category", _CategoryRow):
            if category.name not in _CLASS_OF_CATEGORY or not 0 <= category.index < len(classes):
                raise UserError(
                    f"{tables}/category.json: category '{category.name}' with index {category.index} is not one of "
                    "nuScenes-lidarseg's; extract its archive again"
                )
            classes[category.index] = _CLASS_OF_CATEGORY[category.name]
        self.class_by_number = tuple(classes)

    def splits(self, root: str, paths: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        """Return the names of each split, from lists, else the official split of the drives."""
        return split_scenes(root, paths, lists) or {
            split: [name for name in paths if self._splits[name] == split] for split in ("train", "val", "test")
        }

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        """Return the file of the scan and, if ``labeled``, of its labels."""
        files = (path, self._label_files.get(path, "")) if labeled else (path,)
        if not files[-1]:
            raise UserError(f"{self.label}.json has no labels of {path}; extract the archive of these labels again")
        for file in files:
            if not os.path.exists(file):
                raise UserError(
                    f"{file} is missing, which the tables of nuScenes name; extract all archives into one folder, or "
                    "choose scans with --train_list and --val_list"
                )
        return files

    def read_labels(self, path: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Read the class of each point and, if they are panoptic, the number of its object."""
        classes, known = np.array(self.class_by_number, np.int16), "in category.json"
        if self.label == LIDARSEG:
            return map_classes(path, read_numbers(path, "u1"), classes, known), None
        arrays = read_arrays(path)
        labels = arrays.get("data") if isinstance(arrays, dict) else None
        if labels is None or labels.dtype != np.uint16:
            raise UserError(f"{path}: expected an array 'data' of uint16, a number for each point; extract it again")
        semantic = map_classes(path, labels // 1000, classes, known)
        return semantic, np.where((labels % 1000 > 0) & (semantic >= 0), labels.astype(np.int64), IGNORED)


def is_nuscenes(root: str) -> bool:
    """Return True if a folder has tables of nuScenes."""
    return any(_has_tables(root, version) for version in (*_VAL_DRIVES_BY_VERSION, _TEST_VERSION))


def get_token(name: str) -> str:
    """Return the token of a scan from its name, as ``NuScenesReader`` gives it."""
    return name.rpartition("_")[2]


def _has_tables(root: str, version: str) -> bool:
    return os.path.exists(os.path.join(root, version, "sample_data.json"))


def _find_split(version: str, drive: str) -> str:
    if version == _TEST_VERSION:
        return "test"
    return "val" if int(drive.removeprefix("scene-")) in _VAL_DRIVES_BY_VERSION[version] else "train"


def _read_table(folder: str, name: str, row: type[_Table]) -> Iterator[_Table]:
    """Iterate over the rows of a table; raise a ``UserError`` if it cannot be read."""
    path = os.path.join(folder, f"{name}.json")
    advice = "the archive of metadata"
    if name in (LIDARSEG, PANOPTIC, "category"):
        advice = f"the archive of {'Panoptic nuScenes' if name == PANOPTIC else 'nuScenes-lidarseg'}"
    with readable(path, f"; extract {advice} again"):
        yield from iterate_rows(path, row)
