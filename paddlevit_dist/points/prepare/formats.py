"""The formats of raw scenes, their detection from files and folders, and readers of PointGroup's and Pointcept's."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...checkpoint.torch_files import open_torch_file
from ...runtime.errors import UserError
from ...runtime.files import read_content
from ..data.scannet_classes import CLASS_NAMES, load_scannet200_classes
from ..data.scene import AS_GIVEN, CENTERED, IGNORED, Scene
from . import s3dis
from .channels import ALL, USUAL
from .coordinates import StoredPoints, as_given
from .listing import ROUNDING, SPLITS, RawScene, SceneChoices, SceneReader, hold_out, split_scenes
from .numpy_tables import load_array, split_columns
from .nuscenes import NuScenesReader, is_nuscenes
from .s3dis import S3disReader
from .scannet import ScanNetReader
from .semantic_kitti import SemanticKittiReader
from .tables import TABLES, TableReader

SUFFIXES = ("_inst_nostuff.pth", ".pth")  # of PointGroup's prepared scenes


class PthReader(SceneReader):
    """Reads files that ``torch.save`` wrote with two (test) or four numpy arrays.

    Scenes are not moved, because PointGroup's preparation has already centered each scene on its mean.
    """

    kind = "pth"
    unique_instances = None
    suffixes: tuple[str, ...] = SUFFIXES
    default_classes = CLASS_NAMES
    fixed_coordinates = f"{AS_GIVEN}; PointGroup's preparation puts the {CENTERED}"

    def find(self, root: str) -> dict[str, str]:
        """Return the path of each scene below ``root``, by name."""
        self.suffixes = SUFFIXES[:1]
        try:
            return super().find(root)
        except UserError:
            self.suffixes = SUFFIXES[1:]
            return super().find(root)

    def read(self, source: RawScene) -> Scene:
        """Read a scene, with labels if ``source`` has them. Colors from -1 to 1 are converted to bytes."""
        path = source.files[0]
        arrays = load_arrays(path)
        num_required = 4 if source.labeled else 2
        if len(arrays) < num_required or len(arrays) not in (2, 4):
            raise UserError(
                f"{path} contains {len(arrays)} arrays, expected 4 (xyz, rgb, class, instance), or 2 for a test scene; "
                "write it again with PointGroup's prepare_data_inst.py"
            )
        points = len(arrays[0])
        shapes = ((points, 3), (points, 3), (points,), (points,))
        for array, shape, field in zip(arrays, shapes, ("xyz", "rgb", "class", "instance")):
            if array.shape != shape or array.dtype.kind not in "iuf":
                raise UserError(f"{path}: its {field} is {array.dtype} {array.shape}, expected {shape}; write it again")
        columns = dict(zip("xyz", np.asarray(arrays[0]).T))
        colors = arrays[1]
        if colors.dtype.kind == "f":
            low, high = colors.min(initial=0.0), colors.max(initial=0.0)
            if not (low >= -1 - ROUNDING and high <= 1 + ROUNDING):
                raise UserError(f"{path} has colors from {low:g} to {high:g}; expected -1 to 1 as float, or 0 to 255")
            if high > 0 == low:
                self.remarks.append(f"{path}: its colors are from 0 to {high:g}, taken as parts of -1 to 1")
            colors = np.clip(np.rint((colors.astype(np.float64) + 1.0) * 127.5), 0, 255).astype(np.uint8)
        columns.update(zip(("red", "green", "blue"), colors.T))
        return self.build_scene(source, columns, *(arrays[2:] if source.labeled else ()))

    def place_points(self, path: str, xyz: np.ndarray) -> StoredPoints:
        """Return points unchanged, or centered if float32 would lose a millimeter."""
        return as_given(path, xyz)


def load_arrays(path: str) -> list[np.ndarray]:
    """Load a tuple of numpy arrays that ``torch.save`` wrote, executing nothing; UserError if it is anything else."""
    read_content(path, 0)  # rejects pipes
    with open_torch_file(path) as value:
        if isinstance(value, (tuple, list)) and all(isinstance(item, np.ndarray) for item in value):
            return list(value)
    raise UserError(f"{path} is not a tuple of numpy arrays in PointGroup's format; convert it to that or to PLY")


POINTS = "coord.npy"
_LABELS = ("segment20", "segment", "segment200")  # the first existing one is used
_INSTANCE = "instance"


class PointceptReader(SceneReader):
    """Reads scenes that Pointcept's preprocessing has written.

    A label and channels are files of a scene, by their names. Classes are ScanNet's for segment20 and segment200,
    S3DIS's in its areas, else numbers.
    """

    kind = "pointcept"
    unique_instances = None
    example = f"train/scene0000_00/{POINTS}"

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        super().__init__(choices, kind)
        self.label = self.choices.label

    def identify(self, path: str) -> tuple[str, str] | None:
        """Return a folder's name, preceded by its area or room unless it is in the folder of a split."""
        *_, parent, scene, name = ("", "", *Path(path).parts)
        return (scene if parent in SPLITS else f"{parent}_{scene}", path) if name == POINTS else None

    def splits(self, root: str, paths: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        """Return the names of each split: from lists, folders or areas, else every fifth scene is held out."""
        splits = split_scenes(root, paths, lists)
        by_area = None if splits else s3dis.split_by_area(paths, self.choices.val_area)
        splits = splits or by_area or hold_out(paths, self.remarks)
        labeled = [name for split, names in splits.items() if split != "test" for name in names]
        if self.label is None and labeled:
            folder = os.path.dirname(paths[labeled[0]])
            self.label = next((name for name in _LABELS if os.path.exists(os.path.join(folder, f"{name}.npy"))), None)
        if self.class_names is None:
            classes_by_label = {"segment20": CLASS_NAMES, "segment200": tuple(load_scannet200_classes())}
            self.class_names = s3dis.CLASS_NAMES if by_area else classes_by_label.get(self.label or "")
        return splits

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        """Return the files of points, of the class if ``labeled``, and of other existing channels."""
        folder, channels = os.path.dirname(path), self.choices.channels or ()
        available = sorted(name.removesuffix(".npy") for name in os.listdir(folder) if name.endswith(".npy"))
        if labeled and self.label not in available:
            label_names = self.label or " or ".join(_LABELS)
            raise UserError(
                f"{folder} has no {label_names}.npy with the class of each point, only {', '.join(available)}; name it "
                "with --label, or set --label=none for scenes without labels"
            )
        selected = {"color", *USUAL, *channels, *((self.label, _INSTANCE) if labeled else ())}
        if ALL in channels:
            selected |= {name for name in available if not name.startswith(("segment", _INSTANCE))}
        return (
            path,
            *(os.path.join(folder, f"{name}.npy") for name in available if name in selected and name != "coord"),
        )

    def read(self, source: RawScene) -> Scene:
        """Read a scene, with labels if ``source`` has them."""
        columns: dict[str, np.ndarray] = {}
        for file in source.files:
            columns.update(split_columns(file, Path(file).stem, load_array(file)))
        if len({len(column) for column in columns.values()}) > 1:
            sizes = ", ".join(f"{name} {len(column):,}" for name, column in columns.items())
            raise UserError(
                f"{os.path.dirname(source.files[0])} has arrays of different lengths ({sizes}); write them again"
            )
        if not source.labeled or self.label is None:
            return self.build_scene(source, columns, excluded=(self.label, _INSTANCE))
        scene = self.build_scene(source, columns, columns[self.label], columns.get(_INSTANCE), (self.label, _INSTANCE))
        return scene._replace(instance=np.where(scene.semantic < 0, np.int16(IGNORED), scene.instance))


_MAX_FOLDERS = 2_000  # that are searched to detect the format


class SceneFormat(NamedTuple):
    """A format of scenes."""

    meaning: str  # a short description
    reader: type[SceneReader]
    options: tuple[str, ...]  # names of the ``SceneChoices`` that apply to it


_TABLE_OPTIONS = ("class_names", "label", "instance", "ignore_label", "gray", "channels")
_POINTCEPT_OPTIONS = ("class_names", "label", "ignore_label", "gray", "channels", "val_area")
FORMATS = {
    "scannet": SceneFormat("ScanNet v2 as downloaded", ScanNetReader, ("two_hundred",)),
    "pth": SceneFormat("PointGroup's NAME_inst_nostuff.pth", PthReader, ("class_names",)),
    "s3dis": SceneFormat("S3DIS: Area_1/office_1/Annotations/chair_1.txt", S3disReader, ("val_area",)),
    "semantic_kitti": SceneFormat(
        "SemanticKITTI: sequences/00/velodyne and labels", SemanticKittiReader, ("channels",)
    ),
    "nuscenes": SceneFormat(
        "nuScenes-lidarseg: v1.0-*/, samples/LIDAR_TOP, lidarseg", NuScenesReader, ("channels", "label")
    ),
    "pointcept": SceneFormat("Pointcept's folders with coord.npy", PointceptReader, _POINTCEPT_OPTIONS),
    "ply": SceneFormat("PLY", TableReader, _TABLE_OPTIONS),
    "las": SceneFormat("LAS and LAZ, through laspy", TableReader, _TABLE_OPTIONS),
    "pcd": SceneFormat("PCD", TableReader, _TABLE_OPTIONS),
    "numpy": SceneFormat(".npy and .npz", TableReader, (*_TABLE_OPTIONS, "columns")),
    "text": SceneFormat(".txt, .xyz, .csv, .pts and .asc", TableReader, (*_TABLE_OPTIONS, "columns")),
}
_DEFAULT_READERS = {kind: scene_format.reader(kind=kind) for kind, scene_format in FORMATS.items()}


def get_reader(kind: str, choices: SceneChoices) -> SceneReader:
    """Return the reader of a format, a key of ``FORMATS``; UserError if a choice does not apply to it."""
    for name, default in vars(SceneChoices()).items():
        if getattr(choices, name) != default and name not in FORMATS[kind].options:
            option = {"class_names": "classes", "gray": "missing_colors"}.get(name, name)
            raise UserError(f"--{option} is not for scenes of format {kind} ({FORMATS[kind].meaning}); drop --{option}")
    return FORMATS[kind].reader(choices, kind)


def identify_file(path: str) -> tuple[str, str] | None:
    """Return the format of a file, by its name and folder, and the name of its scene; None for other files."""
    for kind, reader in _DEFAULT_READERS.items():
        scene = reader.identify(path)
        if scene is not None:
            return kind, scene[0]
    return None


def detect_format(root: str) -> str:
    """Detect the format of scenes by names of folders and files below a folder; UserError if none or several fit."""
    if is_nuscenes(root):  # instead of walking through its millions of files
        return NuScenesReader.kind
    examples_by_format: dict[str, str] = {}
    for number, (folder, subfolders, names) in enumerate(os.walk(root, followlinks=True)):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for path in (os.path.join(folder, name) for name in sorted(names) if not name.startswith(".")):
            examples_by_format.setdefault((identify_file(path) or ("", ""))[0], path)
        if number >= _MAX_FOLDERS:
            break
    examples_by_format.pop("", None)
    for kind in FORMATS:
        if kind in examples_by_format and kind not in TABLES:
            return kind
    tables = [format_name for format_name in examples_by_format if format_name != "text"] or list(examples_by_format)
    if len(tables) == 1:
        return tables[0]
    descriptions = "; ".join(f"{format_name}: {scene_format.meaning}" for format_name, scene_format in FORMATS.items())
    if tables:
        examples = ", ".join(f"{examples_by_format[format_name]} ({format_name})" for format_name in tables)
        raise UserError(f"{root} contains scenes of several formats, {examples}: select one with --format")
    raise UserError(f"{root} contains no scenes of a known format ({descriptions}); give the folder with the scenes")
