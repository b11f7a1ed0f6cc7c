"""The formats of raw scenes, and which of them a folder is in."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.errors import UserError
from . import pointcept, pth, scannet
from .listing import SceneReader
from .pointcept import PointceptReader
from .pth import PthReader
from .s3dis import USUAL_VAL_AREA, S3disReader
from .scannet import ScanNetReader
from .semantic_kitti import SemanticKittiReader
from .table_formats import TABLES
from .tables import TableReader

_MOST_FOLDERS = 2_000  # that are looked into to find out the format


@dataclass
class Choices:
    """What a user may say about scenes; None and the values here: nothing.

    Attributes:
        class_names, label, instance, ignore_label, grey, channels, columns: see ``TableReader``.
        val_area: see ``S3disReader``.
    """

    class_names: list[str] | None = None
    label: str | None = None
    instance: str | None = None
    ignore_label: int = -100
    grey: bool = False
    channels: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    val_area: int = USUAL_VAL_AREA


class Format(NamedTuple):
    """A format of scenes.

    Attributes:
        meaning: what it is, in a few words.
        takes: names of the ``Choices`` that matter to it.
    """

    meaning: str
    takes: tuple[str, ...]


_OF_TABLES = ("class_names", "label", "instance", "ignore_label", "grey", "channels")
FORMATS = {
    "scannet": Format("ScanNet v2 as it is downloaded", ()),
    "pth": Format("PointGroup's NAME_inst_nostuff.pth", ("class_names",)),
    "s3dis": Format("S3DIS: Area_1/office_1/Annotations/chair_1.txt", ("val_area",)),
    "semantic_kitti": Format("SemanticKITTI: sequences/00/velodyne and labels", ("channels",)),
    "pointcept": Format("Pointcept's folders with coord.npy", ("class_names", "label", "grey", "channels", "val_area")),
    "ply": Format("PLY", _OF_TABLES),
    "las": Format("LAS and LAZ, through laspy", _OF_TABLES),
    "pcd": Format("PCD", _OF_TABLES),
    "numpy": Format(".npy and .npz", (*_OF_TABLES, "columns")),
    "text": Format(".txt, .xyz, .csv, .pts and .asc", (*_OF_TABLES, "columns")),
}


def reader_of(kind: str, choices: Choices) -> SceneReader:
    """The reader of a format.

    Raises:
        UserError: something was chosen that the format does not know.
    """
    for name, usual in vars(Choices()).items():
        if getattr(choices, name) != usual and name not in FORMATS[kind].takes:
            option = {"class_names": "classes", "grey": "missing_colors"}.get(name, name)
            raise UserError(f"--{option} is not for scenes of format {kind} ({FORMATS[kind].meaning}); leave it out")
    if kind == "scannet":
        return ScanNetReader()
    if kind == "pth":
        return PthReader(choices.class_names)
    if kind == "s3dis":
        return S3disReader(choices.val_area)
    if kind == "semantic_kitti":
        return SemanticKittiReader(choices.channels)
    if kind == "pointcept":
        names = choices.class_names, choices.label, choices.grey, choices.val_area, choices.channels
        return PointceptReader(*names)
    names = choices.class_names, choices.label, choices.instance, choices.ignore_label, choices.grey
    return TableReader(*names, kind=kind, channels=choices.channels, columns=choices.columns)


def format_in(root: str) -> str:
    """The format of the scenes below a folder, by the names of folders and files.

    Raises:
        UserError: there is none, or there are several of them.
    """
    found: dict[str, str] = {}
    for folder, names in _looked_at(root):
        for name in names:
            kind = _kind_of(folder, name)
            if kind is not None:
                found.setdefault(kind, os.path.join(folder, name))
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


def _looked_at(root: str) -> Iterator[tuple[str, list[str]]]:
    for number, (folder, subfolders, names) in enumerate(os.walk(root, followlinks=True)):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        yield folder, sorted(name for name in names if not name.startswith("."))
        if number >= _MOST_FOLDERS:
            return


def _kind_of(folder: str, name: str) -> str | None:
    if name.endswith(scannet.POINTS):
        return "scannet"
    if name.endswith(pth.SUFFIXES):
        return "pth"
    if name.endswith(".txt") and os.path.basename(folder) == "Annotations":
        return "s3dis"
    if name.endswith(".bin") and os.path.basename(folder) == "velodyne":
        return "semantic_kitti"
    if name == pointcept.POINTS:
        return "pointcept"
    return next((kind for kind, table in TABLES.items() if name.lower().endswith(table.suffixes)), None)
