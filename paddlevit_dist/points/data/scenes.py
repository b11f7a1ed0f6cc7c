"""Datasets of scenes: the base class, and the scenes of a prepared store.

A store has ``classes.txt``, ``train.txt``, ``val.txt`` and ``scenes/NAME.scene``.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.data.path_index import PathIndex, ensure_path_index, make_batch
from ...core.runtime.environment import program
from ...core.runtime.errors import UserError
from ...core.tasks.class_names import require_unique
from ...core.tasks.dataset import Dataset, require_folder
from ...core.tasks.sample_arrays import read_fields
from .first_scenes import NUM_FIRST, describe_largest, describe_unit
from .scannet_classes import CLASS_NAMES
from .scene import AS_GIVEN, CENTERED, Scene
from .scene_fields import make_scene
from .scene_store import (
    CLASSES_FILE,
    SceneHeader,
    list_file,
    list_splits,
    read_header,
    read_lines,
    read_scene,
    scene_file,
    store_is_centered,
)

#: scans of the same place: a scene in ScanNet's naming, a drive in nuScenes's, an area in S3DIS's
GROUPS_BY = {"scene": r"(?:^|/)(scene\d{4})_\d\d", "drive": r"(?:^|/)(scene-\d{4})_", "area": r"(?:^|/)(Area_\d+)_"}


class SceneDataset(Dataset):
    """Scenes of points: ``read(index)`` returns a ``Scene``; the label ``IGNORED`` means no class or no instance.

    The ``read`` of a derived class may return what ``make_scene`` takes, as a ``Scene`` or as a dictionary.
    """

    holds = "scenes"
    #: coordinate convention: CENTERED if each scene is centered on the origin, else AS_GIVEN
    coordinates: str = AS_GIVEN
    #: classes shared by all datasets of this kind; None: each has its own
    fixed_classes: tuple[str, ...] | None = None
    #: names of the channels that all its scenes have; None: unknown
    channels: tuple[str, ...] | None = None
    #: by the name of a channel that only some of them have, a description of the others
    lacking: Mapping[str, str] = {}
    groups_by = GROUPS_BY
    #: the numbers of black and white in colors that are floating-point numbers, such as (0, 1); None: there are none
    rgb_range: tuple[float, float] | None = None

    def make_sample(self, sample: Any) -> Scene:
        """Return what ``read`` of a derived class returned as a ``Scene``; BadSample if a field is wrong."""
        fields = read_fields(sample, Scene, ("xyz", "name"), f"{self.own_class.__name__}.read")
        return make_scene(
            **fields, class_names=self.list_class_names(), num_classes=self.num_classes, rgb_range=self.rgb_range
        )

    def unit_notice(self, voxel_size_m: float) -> str | None:
        """Return a warning if the voxel size does not suit the unit of the first scenes; None if it does."""
        return describe_largest(self.first_scenes(), voxel_size_m)

    def first_scenes(self) -> list[Scene]:
        """Read the first few scenes."""
        return [self.read(index) for index in range(min(NUM_FIRST, len(self)))]


class PreparedScenes(SceneDataset):
    """Any prepared store, with its own class names. A loader process maps each scene on read."""

    dataset_name = "scenes"
    root: str

    def __init__(self, data_path: str | None, split: str, cache_folder: Path) -> None:
        """Open the list of ``split`` of a store; the index of its names is stored in ``cache_folder``.

        UserError if the folder is not a store, the split or a scene is missing, or a scene has too many classes.
        """
        self.root = self._folder(data_path)
        self.split = split
        class_names = self._class_names()
        names = self._names(split)
        headers = self._check_headers(names, len(class_names))
        #: for the whole store, so that all its splits agree: CENTERED if all its scenes are
        self.coordinates = CENTERED if store_is_centered(self.root) else AS_GIVEN
        unlabeled = [name for name, header in zip(names, headers) if not header.num_labeled]
        self.labeled = len(unlabeled) < len(names)
        if unlabeled and self.labeled:
            self.notices = [
                f"note: {len(unlabeled):,} of {len(names):,} scenes of {split} have no labels and are not part of any "
                f"loss or score, the first is {unlabeled[0]}"
            ]
        self.channels = tuple(
            name for name in headers[0].channels if all(name in header.channels for header in headers)
        )
        self.lacking = describe_lacking(names, headers)
        self._contents = repr([(header.num_points, header.checksum) for header in headers])
        self._largest = max(zip(headers, names), key=lambda pair: pair[0].spacing)
        self._index = self._ensure_index(names, class_names, cache_folder)
        self._verified: bytearray | None = None

    def __getstate__(self) -> Any:
        return {**self.__dict__, "_verified": None}

    def __len__(self) -> int:
        return len(self._index)

    def read(self, index: int) -> Scene:
        """Return scene ``index``, read-only views of its file, checked once per process; UserError if it is damaged."""
        if self._verified is None:
            self._verified = bytearray(len(self))
        name = self._index.path(index)
        scene = read_scene(scene_file(self.root, name), name, verify=not self._verified[index])
        self._verified[index] = 1
        return scene

    def describe(self, index: int) -> str:
        """Return the file of scene ``index``."""
        return scene_file(self.root, self._index.path(index))

    def listed(self) -> dict[str, Iterable[Any]]:
        """Return what identifies the dataset, including the checksums of its scenes."""
        return {**super().listed(), "points": [self._contents.encode()]}

    @property
    def class_names(self) -> list[str]:  # type: ignore[override] # stored in the index
        """Name of each class."""
        return self._index.class_names

    @property
    def num_classes(self) -> int:  # type: ignore[override] # follows from the names
        """Number of classes, without the ignored one."""
        return len(self.class_names)

    def unit_notice(self, voxel_size_m: float) -> str | None:
        """Return a warning if voxels are far too small for the scenes, as for scenes in millimeters."""
        header, name = self._largest
        return describe_unit(name, header, voxel_size_m)

    def _folder(self, data_path: str | None) -> str:
        layout = f"written by '{program('prepare')}' (scenes, scannet, ply or pth)"
        return require_folder(data_path, self.dataset_name, layout)

    def _class_names(self) -> tuple[str, ...]:
        names = read_lines(os.path.join(self.root, CLASSES_FILE))
        if not names:
            raise UserError(
                f"{self.root} has no {CLASSES_FILE} with one class name per line: it is not a prepared store, or its "
                f"preparation was not finished; run '{program('prepare')}' (scenes, scannet, ply or pth), which "
                "continues where it stopped"
            )
        require_unique(names, f"{os.path.join(self.root, CLASSES_FILE)}: classes")
        return tuple(names)

    def _names(self, split: str) -> list[str]:
        path = list_file(self.root, split)
        names = read_lines(path, lambda name: name != name.strip() and os.path.isfile(scene_file(self.root, name)))
        if names is None:
            splits = list_splits(self.root)
            raise UserError(
                f"{path}, the list of the scenes of '{split}', is missing; {self.root} has "
                f"{', '.join(splits) if splits else 'no list'}; write it with one scene name per line"
            )
        if not names:
            raise UserError(f"{path} is empty; write one scene name per line")
        if len(set(names)) < len(names):
            repeated = next(name for position, name in enumerate(names) if name in names[:position])
            raise UserError(f"{path} names scene {repeated} twice; remove one of the lines")
        return names

    def _ensure_index(self, names: list[str], class_names: tuple[str, ...], cache_folder: Path) -> PathIndex:
        key = hashlib.sha256(repr((self.root, names, class_names)).encode("utf-8", "surrogateescape"))
        encoded = [os.fsencode(name) for name in names]
        return ensure_path_index(
            cache_folder, f"scenes-{self.split}", key.digest(), lambda: [make_batch(encoded, 0)], list(class_names)
        )

    def _check_headers(self, names: list[str], num_classes: int) -> list[SceneHeader]:
        """Read all headers, so that an incomplete store is reported at the start and not after an hour."""
        headers = []
        for name in names:
            path = scene_file(self.root, name)
            headers.append(read_header(path))
            highest = headers[-1].highest_class
            if highest >= num_classes:
                raise UserError(
                    f"scene {path} has class {highest}, but {os.path.join(self.root, CLASSES_FILE)} names "
                    f"{num_classes}: classes go from 0 to {num_classes - 1}; add names or prepare the data again"
                )
        return headers


def describe_lacking(names: Sequence[str], headers: Sequence[SceneHeader]) -> dict[str, str]:
    """Describe the scenes that lack a channel of others, by its name: "scene b (1 of 5)" for one of five."""
    descriptions = {}
    for channel in dict.fromkeys(channel for header in headers for channel in header.channels):
        without = [name for name, header in zip(names, headers) if channel not in header.channels]
        if without:
            descriptions[channel] = f"scene {without[0]} ({len(without):,} of {len(names):,})"
    return descriptions


class ScanNet(PreparedScenes):
    """ScanNet v2 as written by ``prepare scannet`` or ``prepare pth``, with the benchmark's twenty classes."""

    dataset_name = "scannet"
    fixed_classes = CLASS_NAMES

    def _folder(self, data_path: str | None) -> str:
        folder = super()._folder(data_path)
        if not os.path.exists(os.path.join(folder, CLASSES_FILE)) and looks_raw(folder):
            raise UserError(
                f"{folder} contains ScanNet's raw files; prepare them once with '{program('prepare scannet')} "
                f"{folder} OUT' and set -data_path=OUT"
            )
        return folder

    def _class_names(self) -> tuple[str, ...]:
        names = super()._class_names()
        if names != CLASS_NAMES:
            raise UserError(
                f"{os.path.join(self.root, CLASSES_FILE)} does not name ScanNet's {len(CLASS_NAMES)} classes; use "
                "-dataset=scenes for other classes"
            )
        return names


def looks_raw(folder: str) -> bool:
    """Return True if a folder looks like a download of ScanNet."""
    entries = os.listdir(folder)
    return "scans" in entries or any(entry.startswith("scene") for entry in entries)
