"""The formats of raw scenes, and which of them files and folders are in; readers of PointGroup's and Pointcept's."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...checkpoint.torch_files import open_torch_file
from ...runtime.errors import UserError
from ...runtime.files import read_content
from ..data.scannet_classes import CLASS_NAMES, scannet200
from ..data.scene import AS_GIVEN, CENTERED, IGNORED, Scene
from . import s3dis
from .channels import ALL, USUAL
from .coordinates import StoredPoints, as_given
from .listing import SPLITS, RawScene, SceneChoices, SceneReader, hold_out, split_scenes
from .numpy_tables import load_array, split_columns
from .s3dis import S3disReader
from .scannet import ScanNetReader
from .semantic_kitti import SemanticKittiReader
from .tables import TABLES, TableReader

SUFFIXES = ("_inst_nostuff.pth", ".pth")  # of PointGroup's prepared scenes


class PthReader(SceneReader):
    """Reads files that ``torch.save`` wrote with two (test) or four numpy arrays. PointGroup's preparation has already
    centered each scene on its mean, so they are not moved."""

    kind = "pth"
    unique_instances = None
    ends = SUFFIXES
    own_classes = CLASS_NAMES
    own_coordinates = f"{AS_GIVEN}; PointGroup's preparation puts the {CENTERED}"

    def find(self, root: str) -> dict[str, str]:
        self.ends = SUFFIXES[:1]
        try:
            return super().find(root)
        except UserError:
            self.ends = SUFFIXES[1:]
            return super().find(root)

    def read(self, source: RawScene) -> Scene:
        """A scene with its labels, if ``source`` should have them. Colors from -1 to 1 are converted to bytes."""
        path = source.files[0]
        arrays = load_arrays(path)
        wanted = 4 if source.labeled else 2
        if len(arrays) < wanted or len(arrays) not in (2, 4):
            raise UserError(
                f"{path} holds {len(arrays)} arrays, expected 4 (xyz, rgb, class, instance), or 2 for a test scene; "
                "write it again with PointGroup's prepare_data_inst.py"
            )
        points = len(arrays[0])
        shapes = ((points, 3), (points, 3), (points,), (points,))
        for array, shape, what in zip(arrays, shapes, ("xyz", "rgb", "class", "instance")):
            if array.shape != shape or array.dtype.kind not in "iuf":
                raise UserError(f"{path}: its {what} is {array.dtype} {array.shape}, expected {shape}; write it again")
        columns = dict(zip("xyz", np.asarray(arrays[0]).T))
        colors = arrays[1] if arrays[1].dtype.kind != "f" else np.rint((arrays[1].astype(np.float64) + 1.0) * 127.5)
        columns.update(zip(("red", "green", "blue"), np.asarray(colors, np.int64).T))
        return self.build_scene(source, columns, *(arrays[2:] if source.labeled else ()))

    def placed(self, path: str, xyz: np.ndarray) -> StoredPoints:
        return as_given(path, xyz)


def load_arrays(path: str) -> list[np.ndarray]:
    """The tuple of numpy arrays in a file by ``torch.save``.

    Raises:
        UserError: unreadable, damaged, or not numpy arrays; nothing is executed.
    """
    read_content(path, 0)  # no pipe
    with open_torch_file(path) as value:
        if isinstance(value, (tuple, list)) and all(isinstance(item, np.ndarray) for item in value):
            return list(value)
    raise UserError(f"{path} is not a tuple of numpy arrays as PointGroup writes it; convert it to that or to PLY")


POINTS = "coord.npy"
_LABELS = ("segment20", "segment", "segment200")  # the first that is there is taken
_INSTANCE = "instance"


class PointceptReader(SceneReader):
    """Reads scenes that Pointcept's preprocessing has written. A label and channels are files of a scene, by their
    names; classes are ScanNet's for segment20 and segment200, S3DIS's in its areas, else numbers."""

    kind = "pointcept"
    unique_instances = None
    example = f"train/scene0000_00/{POINTS}"

    def __init__(self, choices: SceneChoices | None = None, kind: str | None = None) -> None:
        super().__init__(choices, kind)
        self.label = self.choices.label

    def scene_at(self, path: str) -> tuple[str, str] | None:
        """A folder's name, after that of its area or room unless it is the folder of a split."""
        *_, parent, scene, name = ("", "", *Path(path).parts)
        return (scene if parent in SPLITS else f"{parent}_{scene}", path) if name == POINTS else None

    def splits(self, root: str, found: dict[str, str], lists: dict[str, str | None]) -> dict[str, list[str]]:
        splits = split_scenes(root, found, lists)
        by_area = None if splits else s3dis.splits_by_area(found, self.choices.val_area)
        splits = splits or by_area or hold_out(found, self.remarks)
        labeled = [name for split, names in splits.items() if split != "test" for name in names]
        if self.label is None and labeled:
            folder = os.path.dirname(found[labeled[0]])
            self.label = next((name for name in _LABELS if os.path.exists(os.path.join(folder, f"{name}.npy"))), None)
        if self.class_names is None:
            known = {"segment20": CLASS_NAMES, "segment200": tuple(scannet200())}
            self.class_names = s3dis.CLASS_NAMES if by_area else known.get(self.label or "")
        return splits

    def files(self, path: str, labeled: bool) -> tuple[str, ...]:
        """Points, the class if ``labeled``, and the others that are there."""
        folder, channels = os.path.dirname(path), self.choices.channels or ()
        there = sorted(name.removesuffix(".npy") for name in os.listdir(folder) if name.endswith(".npy"))
        if labeled and self.label not in there:
            wanted = self.label or " or ".join(_LABELS)
            raise UserError(
                f"{folder} has no {wanted}.npy with the class of each point, only {', '.join(there)}; name it with "
                "--label, or give --label=none for scenes without labels"
            )
        wanted = {"color", *USUAL, *channels, *((self.label, _INSTANCE) if labeled else ())}
        if ALL in channels:
            wanted |= {name for name in there if not name.startswith(("segment", _INSTANCE))}
        return (path, *(os.path.join(folder, f"{name}.npy") for name in there if name in wanted and name != "coord"))

    def read(self, source: RawScene) -> Scene:
        columns: dict[str, np.ndarray] = {}
        for file in source.files:
            columns.update(split_columns(file, Path(file).stem, load_array(file)))
        if len({len(column) for column in columns.values()}) > 1:
            sizes = ", ".join(f"{name} {len(column):,}" for name, column in columns.items())
            raise UserError(
                f"{os.path.dirname(source.files[0])} has arrays of different lengths ({sizes}); write them again"
            )
        if not source.labeled or self.label is None:
            return self.build_scene(source, columns, others=(self.label, _INSTANCE))
        scene = self.build_scene(source, columns, columns[self.label], columns.get(_INSTANCE), (self.label, _INSTANCE))
        return scene._replace(instance=np.where(scene.semantic < 0, np.int16(IGNORED), scene.instance))


_MOST_FOLDERS = 2_000  # that are looked into to find out the format


class SceneFormat(NamedTuple):
    """A format of scenes.

    Attributes:
        meaning: what it is, in a few words.
        reader: the class that reads it.
        takes: names of the ``SceneChoices`` that matter to it.
    """

    meaning: str
    reader: type[SceneReader]
    takes: tuple[str, ...]


_OF_TABLES = ("class_names", "label", "instance", "ignore_label", "gray", "channels")
_OF_POINTCEPT = ("class_names", "label", "ignore_label", "gray", "channels", "val_area")
FORMATS = {
    "scannet": SceneFormat("ScanNet v2 as it is downloaded", ScanNetReader, ("two_hundred",)),
    "pth": SceneFormat("PointGroup's NAME_inst_nostuff.pth", PthReader, ("class_names",)),
    "s3dis": SceneFormat("S3DIS: Area_1/office_1/Annotations/chair_1.txt", S3disReader, ("val_area",)),
    "semantic_kitti": SceneFormat(
        "SemanticKITTI: sequences/00/velodyne and labels", SemanticKittiReader, ("channels",)
    ),
    "pointcept": SceneFormat("Pointcept's folders with coord.npy", PointceptReader, _OF_POINTCEPT),
    "ply": SceneFormat("PLY", TableReader, _OF_TABLES),
    "las": SceneFormat("LAS and LAZ, through laspy", TableReader, _OF_TABLES),
    "pcd": SceneFormat("PCD", TableReader, _OF_TABLES),
    "numpy": SceneFormat(".npy and .npz", TableReader, (*_OF_TABLES, "columns")),
    "text": SceneFormat(".txt, .xyz, .csv, .pts and .asc", TableReader, (*_OF_TABLES, "columns")),
}
_USUAL_READERS = {kind: each.reader(kind=kind) for kind, each in FORMATS.items()}


def get_reader(kind: str, choices: SceneChoices) -> SceneReader:
    """The reader of a format.

    Raises:
        UserError: something was chosen that the format does not know.
    """
    for name, usual in vars(SceneChoices()).items():
        if getattr(choices, name) != usual and name not in FORMATS[kind].takes:
            option = {"class_names": "classes", "gray": "missing_colors"}.get(name, name)
            raise UserError(f"--{option} is not for scenes of format {kind} ({FORMATS[kind].meaning}); leave it out")
    return FORMATS[kind].reader(choices, kind)


def scene_at(path: str) -> tuple[str, str] | None:
    """The format of a file by its name and its folder's, and the name of its scene; None if it is none."""
    for kind, reader in _USUAL_READERS.items():
        scene = reader.scene_at(path)
        if scene is not None:
            return kind, scene[0]
    return None


def format_in(root: str) -> str:
    """The format of the scenes below a folder, by the names of folders and files.

    Raises:
        UserError: there is none, or there are several of them.
    """
    found: dict[str, str] = {}
    for number, (folder, subfolders, names) in enumerate(os.walk(root, followlinks=True)):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        for path in (os.path.join(folder, name) for name in sorted(names) if not name.startswith(".")):
            found.setdefault((scene_at(path) or ("", ""))[0], path)
        if number >= _MOST_FOLDERS:
            break
    found.pop("", None)
    for kind in FORMATS:
        if kind in found and kind not in TABLES:
            return kind
    tables = [kind for kind in found if kind != "text"] or list(found)
    if len(tables) == 1:
        return tables[0]
    known = "; ".join(f"{kind}: {each.meaning}" for kind, each in FORMATS.items())
    if tables:
        examples = ", ".join(f"{found[kind]} ({kind})" for kind in tables)
        raise UserError(f"{root} holds scenes of several formats, {examples}: choose one with --format")
    raise UserError(f"{root} holds no scenes of a known format ({known}); give the folder that holds them")
