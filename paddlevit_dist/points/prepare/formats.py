"""The formats of raw scenes, and which of them files and folders are in."""

import os
from typing import NamedTuple

from ...runtime.errors import UserError
from .listing import Choices, SceneReader
from .pointcept import PointceptReader
from .pth import PthReader
from .s3dis import S3disReader
from .scannet import ScanNetReader
from .semantic_kitti import SemanticKittiReader
from .tables import TABLES, TableReader

_MOST_FOLDERS = 2_000  # that are looked into to find out the format


class Format(NamedTuple):
    """A format of scenes.

    Attributes:
        meaning: what it is, in a few words.
        reader: the class that reads it.
        takes: names of the ``Choices`` that matter to it.
    """

    meaning: str
    reader: type[SceneReader]
    takes: tuple[str, ...]


_OF_TABLES = ("class_names", "label", "instance", "ignore_label", "grey", "channels")
_OF_POINTCEPT = ("class_names", "label", "ignore_label", "grey", "channels", "val_area")
FORMATS = {
    "scannet": Format("ScanNet v2 as it is downloaded", ScanNetReader, ("two_hundred",)),
    "pth": Format("PointGroup's NAME_inst_nostuff.pth", PthReader, ("class_names",)),
    "s3dis": Format("S3DIS: Area_1/office_1/Annotations/chair_1.txt", S3disReader, ("val_area",)),
    "semantic_kitti": Format("SemanticKITTI: sequences/00/velodyne and labels", SemanticKittiReader, ("channels",)),
    "pointcept": Format("Pointcept's folders with coord.npy", PointceptReader, _OF_POINTCEPT),
    "ply": Format("PLY", TableReader, _OF_TABLES),
    "las": Format("LAS and LAZ, through laspy", TableReader, _OF_TABLES),
    "pcd": Format("PCD", TableReader, _OF_TABLES),
    "numpy": Format(".npy and .npz", TableReader, (*_OF_TABLES, "columns")),
    "text": Format(".txt, .xyz, .csv, .pts and .asc", TableReader, (*_OF_TABLES, "columns")),
}
_USUAL_READERS = {kind: each.reader(kind=kind) for kind, each in FORMATS.items()}


def reader_of(kind: str, choices: Choices) -> SceneReader:
    """The reader of a format.

    Raises:
        UserError: something was chosen that the format does not know.
    """
    for name, usual in vars(Choices()).items():
        if getattr(choices, name) != usual and name not in FORMATS[kind].takes:
            option = {"class_names": "classes", "grey": "missing_colors"}.get(name, name)
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
