"""SemanticKITTI: its files, nineteen classes, and standard split; and predictions in its benchmark's format.

Scans are ``sequences/00/velodyne/000000.bin``, labels ``sequences/00/labels/000000.label``. Source: J. Behley et al.,
"SemanticKITTI: A Dataset for Semantic Scene Understanding of LiDAR Sequences", ICCV 2019, arXiv 1904.01416; the numbers
of its classes are from the authors' configuration (semantic-kitti.yaml).
"""

import os
from pathlib import Path

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ..data.scene import IGNORED
from .listing import split_scenes
from .scans import UNKNOWN, ScanReader, map_classes, read_numbers

_LINES = Path(__file__).with_name("semantic_kitti_classes.txt").read_text(encoding="ascii").splitlines()
# Numbers of each class in the files; predictions are written with the first one.
_CLASSES = {name: list(map(int, numbers)) for name, *numbers in map(str.split, _LINES)}
_UNLABELED_NUMBERS = _CLASSES.pop("-")  # unlabeled, outlier, other structure, other object
CLASS_NAMES = tuple(_CLASSES)
STUFF_CLASSES = CLASS_NAMES[CLASS_NAMES.index("road") :]  # classes without instances
_SEQUENCES = {"train": (*range(8), 9, 10), "val": (8,), "test": range(11, 22)}
_POINTS, _LABELS = "velodyne", "labels"
BIN, LABEL = ".bin", ".label"


class SemanticKittiReader(ScanReader):
    """Reads scans; their channel ``intensity`` is between 0 and 1."""

    kind = "semantic_kitti"
    meaning = "SemanticKITTI: sequences/00/velodyne and labels"
    options = ("channels",)
    suffixes = (BIN,)
    example = f"scan such as sequences/00/{_POINTS}/000000{BIN}"
    default_classes = CLASS_NAMES
    columns = ("x", "y", "z", "intensity")

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

    def read_labels(self, path: str) -> tuple[np.ndarray, np.ndarray]:
        """Read the class and the number of the object of each point."""
        labels = read_numbers(path, "<u4")
        classes = np.full(1 << 16, UNKNOWN, np.int16)
        classes[_UNLABELED_NUMBERS] = IGNORED
        for label, numbers in enumerate(_CLASSES.values()):
            classes[numbers] = label
        semantic = map_classes(path, labels & 0xFFFF, classes, "a class of SemanticKITTI")
        return semantic, np.where((labels >> 16 > 0) & (semantic >= 0), labels.astype(np.int64), IGNORED)


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
