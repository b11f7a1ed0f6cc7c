"""SemanticKITTI: its files, nineteen classes, and standard split; and predictions in its benchmark's format.

Scans are ``sequences/00/velodyne/000000.bin``, labels ``sequences/00/labels/000000.label``. Source: J. Behley et al.,
"SemanticKITTI: A Dataset for Semantic Scene Understanding of LiDAR Sequences", ICCV 2019, arXiv 1904.01416; the numbers
of its classes are from the authors' configuration (semantic-kitti.yaml).
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import atomic_file, read_content
from ..data.scene import IGNORED, Scene
from .listing import RawScene, SceneChoices, SceneReader, split_scenes

# Numbers of each class in the files; predictions are written with the first one.
_CLASSES = {
    "car": (10, 252),
    "bicycle": (11,),
    "motorcycle": (15,),
    "truck": (18, 258),
    "other-vehicle": (20, 13, 16, 256, 257, 259),
    "person": (30, 254),
    "bicyclist": (31, 253),
    "motorcyclist": (32, 255),
    "road": (40, 60),
    "parking": (44,),
    "sidewalk": (48,),
    "other-ground": (49,),
    "building": (50,),
    "fence": (51,),
    "vegetation": (70,),
    "trunk": (71,),
    "terrain": (72,),
    "pole": (80,),
    "traffic-sign": (81,),
}
CLASS_NAMES = tuple(_CLASSES)
STUFF_CLASSES = CLASS_NAMES[CLASS_NAMES.index("road") :]  # classes without instances
_UNLABELED_NUMBERS = (0, 1, 52, 99)  # unlabeled, outlier, other structure, other object
_SEQUENCES = {"train": (*range(8), 9, 10), "val": (8,), "test": range(11, 22)}
_POINTS, _LABELS = "velodyne", "labels"
BIN, LABEL = ".bin", ".label"


class SemanticKittiReader(SceneReader):
    """Reads scans; their channel ``intensity`` is between 0 and 1, and they have no colors: all points are gray."""

    kind = "semantic_kitti"
    meaning = "SemanticKITTI: sequences/00/velodyne and labels"
    options = ("channels",)
    suffixes = (BIN,)
    example = f"scan such as sequences/00/{_POINTS}/000000{BIN}"
    default_classes = CLASS_NAMES

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        super().__init__(replace(choices or SceneChoices(), gray=True), kind)

    def identify(self, path: str) -> tuple[str, str] | None:
        """Return the name of a scan by sequence and number, such as 08_000000, and its path."""
        is_scan = path.endswith(BIN) and Path(path).parent.name == _POINTS
        return (get_scan_name(path), path) if is_scan else None

    def splits(self, root: str, paths: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        """Return the names of each split, from lists or folders, else the standard split of the sequences."""
        return split_scenes(root, paths, lists) or {
            split: [name for name in paths if name.split("_")[0] in {f"{number:02d}" for number in numbers}]
            for split, numbers in _SEQUENCES.items()
        }

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        """Return the file of the scan and, if ``labeled``, of its labels."""
        label = Path(path).parents[1] / _LABELS / (Path(path).stem + LABEL)
        if labeled and not label.exists():
            raise UserError(
                f"{label} is missing, the labels of {path}; extract data_odometry_labels.zip into the scans' folder"
            )
        return (path, str(label)) if labeled else (path,)

    def read(self, source: RawScene) -> Scene:
        """Read a scan, with labels if ``source`` has them."""
        table = _read_numbers(source.files[0], "<f4", 4).reshape(-1, 4)
        columns = dict(zip(("x", "y", "z", "intensity"), table.T))
        if not source.labeled:
            return self.build_scene(source, columns)
        labels = _read_numbers(source.files[1], "<u4", 1)
        if len(labels) != len(table):
            raise UserError(
                f"{source.files[1]} has {len(labels):,} labels, its scan {len(table):,} points; extract both again"
            )
        semantic = _map_classes(source.files[1], labels & 0xFFFF)
        is_object = (labels >> 16 > 0) & (semantic >= 0)
        return self.build_scene(source, columns, semantic, np.where(is_object, labels.astype(np.int64), IGNORED))


def get_scan_name(path: str) -> str:
    """Return the name of a scan: 08_000000 for sequences/08/velodyne/000000.bin."""
    return f"{Path(path).parent.parent.name}_{Path(path).stem}"


def get_prediction_path(path: str) -> str:
    """Return where the benchmark expects a prediction, such as sequences/11/predictions/000000.label."""
    return os.path.join("sequences", Path(path).parent.parent.name, "predictions", Path(path).stem + LABEL)


def write_labels(path: Path, classes: np.ndarray, instances: np.ndarray | None = None) -> None:
    """Write predictions, numbers of ``CLASS_NAMES``, with the dataset's class numbers; folders are created.

    Classes are negative for none, which is 0 in the file. Instances, from 0 to 65,534, negative for none, are counted
    from 1 in the upper 16 bits.
    """
    labels = np.array([*(numbers[0] for numbers in _CLASSES.values()), 0], "<u4")[np.maximum(classes, -1)]
    if instances is not None:
        labels |= (np.maximum(instances, -1) + 1).astype("<u4") << 16
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(labels.tobytes())


def _read_numbers(path: str, dtype: str, values_per_point: int) -> np.ndarray:
    content = read_content(path)
    item_bytes = 4 * values_per_point
    if len(content) % item_bytes:
        raise UserError(f"{path} has {len(content):,} bytes, not a multiple of {item_bytes}; copy it again")
    return np.frombuffer(content, dtype)


def _map_classes(path: str, numbers: np.ndarray) -> np.ndarray:
    """Return the class of each number in the files, int16 (points,)."""
    unknown = IGNORED - 1
    table = np.full(1 << 16, unknown, np.int16)
    table[list(_UNLABELED_NUMBERS)] = IGNORED
    for label, class_numbers in enumerate(_CLASSES.values()):
        table[list(class_numbers)] = label
    classes = table[numbers]
    wrong = classes == unknown
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(f"{path}: point {row} has the number {numbers[row]}, which is not a class of SemanticKITTI")
    return classes
