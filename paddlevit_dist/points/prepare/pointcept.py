"""Folders of Pointcept: ``train/scene0000_00/coord.npy``, ``color.npy``, ``normal.npy``, ``segment20.npy``,
``segment200.npy`` or ``segment.npy``, ``instance.npy``; and of S3DIS ``Area_1/office_1/coord.npy`` and so on."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import open_regular
from ..data.scannet_classes import CLASS_NAMES, scannet200
from ..data.scene import CENTRED, IGNORED, Scene
from . import s3dis
from .channels import ALL, USUAL, channels_in
from .coordinates import as_given, centred, coarse_steps
from .listing import (
    SPLITS,
    RawScene,
    SceneReader,
    check_classes,
    hold_out,
    no_labels,
    number_instances,
    points_of,
    split_scenes,
    whole_labels,
)
from .text_tables import columns_of

POINTS = "coord.npy"
_LABELS = ("segment20", "segment", "segment200")  # the first that is there is taken
_INSTANCE = "instance"


class PointceptReader(SceneReader):
    """Reads scenes that Pointcept's preprocessing has written.

    Args:
        class_names: None: ScanNet's for segment20 and segment200, S3DIS's in its areas, else their numbers.
        label: name of the file with the class; None: the first known one.
        grey: use grey if there are no colours.
        val_area: of S3DIS, the area that is for validation.
        channels: see ``channels_in``; any file of the folder, by its name.
        coordinates: CENTRED or AS_GIVEN.
    """

    kind = "pointcept"

    def __init__(
        self,
        class_names: list[str] | None = None,
        label: str | None = None,
        grey: bool = False,
        val_area: int = s3dis.USUAL_VAL_AREA,
        channels: Sequence[str] | None = None,
        coordinates: str = CENTRED,
    ) -> None:
        super().__init__(class_names)
        self.label, self.grey, self.val_area = label, grey, val_area
        self.channels, self.coordinates = channels, coordinates

    @property
    def settings(self) -> tuple[object, ...]:
        return self.label, self.grey, self.channels

    def find(self, root: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for folder, subfolders, names in os.walk(root, followlinks=True):
            subfolders.sort()
            if POINTS in names:
                parent = Path(folder).parent.name
                name = Path(folder).name if parent in SPLITS or folder == root else f"{parent}_{Path(folder).name}"
                if name in found:
                    raise UserError(f"scene {name} exists twice, as {found[name]} and {folder}; rename one of them")
                found[name] = os.path.join(folder, POINTS)
        if not found:
            raise UserError(f"{root} has no folder with {POINTS}; give the folder that Pointcept's preprocessing wrote")
        return found

    def sources(self, root: str, lists: dict[str, str | None]) -> dict[str, list[RawScene]]:
        found = self.find(root)
        splits = split_scenes(root, found, lists, "{}.txt")
        by_area = None if splits else s3dis.splits_by_area(found, self.val_area)
        splits = splits or by_area or hold_out(found)
        labelled = [name for split, names in splits.items() if split != "test" for name in names]
        if self.label is None and labelled:
            folder = os.path.dirname(found[labelled[0]])
            self.label = next((name for name in _LABELS if os.path.exists(os.path.join(folder, f"{name}.npy"))), None)
        if self.class_names is None:
            known = {"segment20": list(CLASS_NAMES), "segment200": list(scannet200())}
            self.class_names = s3dis.CLASS_NAMES if by_area else known.get(self.label or "")
        return {
            split: [RawScene(name, self._files(found[name], split != "test"), split != "test") for name in names]
            for split, names in splits.items()
        }

    def _files(self, path: str, labelled: bool) -> tuple[str, ...]:
        """The files that a scene is read from: points, the class if ``labelled``, and the others that are there."""
        folder = os.path.dirname(path)
        there = sorted(name.removesuffix(".npy") for name in os.listdir(folder) if name.endswith(".npy"))
        if labelled and self.label not in there:
            wanted = self.label or " or ".join(_LABELS)
            raise UserError(
                f"{folder} has no {wanted}.npy with the class of each point, only {', '.join(there)}; name it with "
                "--label"
            )
        wanted = {"color", *USUAL, *(self.channels or ()), *((self.label, _INSTANCE) if labelled else ())}
        if self.channels is not None and ALL in self.channels:
            wanted |= {name for name in there if not name.startswith(("segment", _INSTANCE))}
        names = [name for name in there if name in wanted and name != "coord"]
        return (path, *(os.path.join(folder, f"{name}.npy") for name in names))

    def read(self, source: RawScene) -> Scene:
        path = source.files[0]
        files = source.files if len(source.files) > 1 else self._files(path, source.labelled)
        columns = {name: column for file in files for name, column in _columns(file).items()}
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            sizes = ", ".join(f"{name} {len(column):,}" for name, column in columns.items())
            raise UserError(f"{os.path.dirname(path)} has arrays of different lengths ({sizes}); write them again")
        xyz, rgb = points_of(path, columns, self.grey)
        self.remarks += coarse_steps(path, xyz)
        xyz, offset = (centred if self.coordinates == CENTRED else as_given)(path, xyz)
        semantic = instance = no_labels(len(xyz))
        if source.labelled and self.label is not None:
            number = None if self.class_names is None else len(self.class_names)
            semantic = check_classes(path, whole_labels(path, "label", columns[self.label]), number)
            if _INSTANCE in columns:
                instance = number_instances(path, whole_labels(path, _INSTANCE, columns[_INSTANCE]))
                instance = np.where(semantic < 0, np.int16(IGNORED), instance)
        channels = channels_in(path, columns, self.channels, (self.label, _INSTANCE))
        return Scene(xyz, rgb, semantic, instance, source.name, offset, channels)


def _columns(path: str) -> dict[str, np.ndarray]:
    try:
        with open_regular(path, "rb") as stream:
            array = np.load(stream, allow_pickle=False)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except Exception as error:  # of many kinds: numpy takes the header for Python
        raise UserError(f"{path} is not an array of numbers: {' '.join(str(error).split())}; write it again") from error
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} is not an array of numbers, but an archive of several; write it again")
    return columns_of(path, Path(path).stem, array)
