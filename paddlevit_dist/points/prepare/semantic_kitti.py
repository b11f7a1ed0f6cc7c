"""SemanticKITTI: ``sequences/00/velodyne/000000.bin`` and ``sequences/00/labels/000000.label``, nineteen classes, the
standard split of the sequences; and predictions in the form that its benchmark takes.

Source: J. Behley et al., "SemanticKITTI: A Dataset for Semantic Scene Understanding of LiDAR Sequences", ICCV 2019,
arXiv 1904.01416; the numbers of its classes are those of the authors' configuration (semantic-kitti.yaml).
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import atomic_file, read_regular
from ..data.scene import CENTRED, IGNORED, Scene
from .channels import channels_in
from .coordinates import as_given, centred
from .listing import RawScene, SceneReader, no_labels, number_instances, points_of, split_scenes

# Each class with its numbers in the files: first the one that predictions are written with.
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
_NO_CLASS = (0, 1, 52, 99)  # unlabelled, outlier, other structure, other object
_SEQUENCES = {"train": (*range(8), 9, 10), "val": (8,), "test": range(11, 22)}
_POINTS, _LABELS = "velodyne", "labels"
BIN, LABEL = ".bin", ".label"
_BYTES = 16  # of a point: x, y, z and the share of light that came back


class SemanticKittiReader(SceneReader):
    """Reads scans; their channel ``intensity`` goes from 0 to 1, and they have no colours: all points are grey.

    Args:
        channels: see ``channels_in``.
        coordinates: CENTRED or AS_GIVEN.
    """

    kind = "semantic_kitti"

    def __init__(self, channels: Sequence[str] | None = None, coordinates: str = CENTRED) -> None:
        super().__init__(list(CLASS_NAMES))
        self.channels, self.coordinates = channels, coordinates

    @property
    def settings(self) -> tuple[object, ...]:
        return (self.channels,)

    def find(self, root: str) -> dict[str, str]:
        """Scans by sequence and number: 08_000000."""
        found = {}
        for folder, subfolders, names in os.walk(root, followlinks=True):
            subfolders.sort()
            if os.path.basename(folder) == _POINTS:
                scans = sorted(name for name in names if name.endswith(BIN))
                found.update({scan_name(os.path.join(folder, name)): os.path.join(folder, name) for name in scans})
        if not found:
            raise UserError(
                f"{root} has no scans such as sequences/00/{_POINTS}/000000{BIN}; give the folder with them"
            )
        return found

    def sources(self, root: str, lists: dict[str, str | None]) -> dict[str, list[RawScene]]:
        found = self.find(root)
        splits = split_scenes(root, found, lists, "{}.txt") or {
            split: [name for name in found if name.split("_")[0] in {f"{number:02d}" for number in numbers}]
            for split, numbers in _SEQUENCES.items()
        }
        return {
            split: [RawScene(name, _files(found[name], split != "test"), split != "test") for name in names]
            for split, names in splits.items()
            if names
        }

    def read(self, source: RawScene) -> Scene:
        path = source.files[0]
        table = _numbers(path, np.dtype("<f4"), _BYTES).reshape(-1, 4)
        columns = dict(zip(("x", "y", "z", "intensity"), table.T))
        xyz, rgb = points_of(path, columns, grey=True)
        xyz, offset = (centred if self.coordinates == CENTRED else as_given)(path, xyz)
        semantic = instance = no_labels(len(xyz))
        if source.labelled:
            labels = _numbers(source.files[1], np.dtype("<u4"), 4)
            if len(labels) != len(xyz):
                raise UserError(
                    f"{source.files[1]} has {len(labels):,} labels, its scan {len(xyz):,} points; extract both again"
                )
            semantic = _classes(source.files[1], labels & 0xFFFF)
            is_object = (labels >> 16 > 0) & (semantic >= 0)
            instance = number_instances(path, np.where(is_object, labels.astype(np.int64), IGNORED))
        return Scene(xyz, rgb, semantic, instance, source.name, offset, channels_in(path, columns, self.channels))


def scan_name(path: str) -> str:
    """Of sequences/08/velodyne/000000.bin: 08_000000."""
    return f"{Path(path).parent.parent.name}_{Path(path).stem}"


def prediction_name(path: str) -> str:
    """Where the benchmark and its tools look for the prediction of a scan sequences/11/velodyne/000000.bin."""
    return os.path.join("sequences", Path(path).parent.parent.name, "predictions", Path(path).stem + LABEL)


def write_labels(path: Path, classes: np.ndarray) -> None:
    """Write predictions with the numbers of the data set's own files; folders are made.

    Args:
        classes: integers (points,), numbers of ``CLASS_NAMES``.
    """
    own = [numbers[0] for numbers in _CLASSES.values()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(np.array(own, "<u4")[classes].tobytes())


def _files(path: str, labelled: bool) -> tuple[str, ...]:
    scans = Path(path).parent
    label = scans.parent / _LABELS / (Path(path).stem + LABEL)
    if labelled and not label.exists():
        raise UserError(f"{label} is missing, the labels of {path}; extract data_odometry_labels.zip beside the scans")
    return (path, str(label)) if labelled else (path,)


def _numbers(path: str, dtype: np.dtype, item_bytes: int) -> np.ndarray:
    try:
        content = read_regular(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) % item_bytes:
        raise UserError(f"{path} has {len(content):,} bytes, which are no whole number of {item_bytes}; copy it again")
    return np.frombuffer(content, dtype)


def _classes(path: str, numbers: np.ndarray) -> np.ndarray:
    """The class of each number in the files, int16 (points,)."""
    unknown = IGNORED - 1
    table = np.full(1 << 16, unknown, np.int16)
    table[list(_NO_CLASS)] = IGNORED
    for label, own in enumerate(_CLASSES.values()):
        table[list(own)] = label
    classes = table[numbers]
    wrong = classes == unknown
    if wrong.any():
        row = int(wrong.argmax())
        raise UserError(f"{path}: point {row} has the number {numbers[row]}, which is no class of SemanticKITTI")
    return classes
