"""Unlabeled scenes for prediction: files of points, in all formats that ``prepare`` reads or writes."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.runtime.errors import UserError
from ..core.tasks.prediction import InputSamples, find_inputs, note_counted, output_names
from .data.samples import SceneSamples, VoxelizedSample
from .data.scene import CENTERED, IGNORED, Scene
from .data.scene_store import CLASSES_FILE, SCENES_FOLDER, SUFFIX, build_header, is_hidden, read_scene
from .data.scenes import SceneDataset
from .prepare.coordinates import find_remarks
from .prepare.formats import get_format, identify_file, list_readers
from .prepare.listing import RawScene, SceneChoices
from .prepare.nuscenes import LABEL_ENDING
from .prepare.scannet import LABELS
from .prepare.semantic_kitti import BIN, LABEL, get_scan_name
from .prepare.tables import TextReader
from .prepare.text_tables import is_note

KITTI, LAS, _PREPARED = "semantic_kitti", "las", "prepared"
_LABELS = (LABELS, LABEL_ENDING, LABEL)  # of ScanNet, nuScenes and SemanticKITTI
# Formats of other files of a dataset: ScanNet's finer meshes, Pointcept's colors, SemanticKITTI's poses, nuScenes'
# radar and labels. They are in the folder of a scene; or in the dataset's, two above the scans' folder of this name.
_COMPANIONS = {
    "scannet": ("", ("ply", "text")),
    "pointcept": ("", ("numpy", "text")),
    KITTI: ("velodyne", ("text",)),
    "nuscenes": ("LIDAR_TOP", ("pcd", "numpy", "text")),
}
_CHECK_SECONDS = 10.0  # time limit for checking scenes before a prediction


class SceneFile(NamedTuple):
    """A scene to be predicted: its path, the kind of its file, and its name without the kind's suffix."""

    path: str
    kind: str
    name: str


def find_scenes(inputs: Sequence[str]) -> tuple[list[SceneFile], list[tuple[str, str]], list[str]]:
    """Return the scenes in paths, sorted within folders, of all formats; see ``find_inputs``."""
    suffixes = dict.fromkeys(suffix for reader in list_readers().values() for suffix in reader.suffixes)
    expected = f"expected {', '.join(suffixes)}, a prepared {SUFFIX}, or a folder of these"
    return find_inputs(inputs, _find_in_folder, _find_kind, what="scene", expected=expected)


def _find_kind(path: str) -> SceneFile | None:
    name = os.path.basename(path)
    if name.endswith(SUFFIX):
        return SceneFile(path, _PREPARED, name.removesuffix(SUFFIX))
    if name.endswith(_LABELS):
        return None
    kind, scene = identify_file(os.path.abspath(path)) or (None, "")
    if kind is None and name.endswith(BIN):  # in any folder
        return SceneFile(path, KITTI, get_scan_name(os.path.abspath(path)))
    if kind is None:
        return None
    if kind == "s3dis":  # a single object of a room
        kind, scene = "text", os.path.splitext(name)[0]
    elif kind == "pointcept":
        scene = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return SceneFile(path, kind, scene)


def _find_in_folder(folder: str, others: list[str]) -> Iterator[SceneFile]:
    if os.path.exists(os.path.join(folder, CLASSES_FILE)) and os.path.isdir(os.path.join(folder, SCENES_FOLDER)):
        folder = os.path.join(folder, SCENES_FOLDER)
    scenes = []
    for place, subfolders, names in os.walk(folder, followlinks=True):
        subfolders[:] = sorted(name for name in subfolders if not is_hidden(name))
        for path in (os.path.join(place, name) for name in sorted(names) if not is_hidden(name)):
            scene = _find_kind(path)
            if scene is not None:
                scenes.append(scene)
            elif not path.endswith(_LABELS):
                others.append(path)
    companions = {companion for scene in scenes for companion in _list_companions(scene)}
    has_others = any(scene.kind != TextReader.kind for scene in scenes)
    for scene in scenes:
        parents = Path(os.path.abspath(scene.path)).parents
        is_companion = any((str(parent), scene.kind) in companions for parent in parents)
        if not is_companion and not (has_others and scene.kind == TextReader.kind and is_note(scene.path)):
            yield scene


def _list_companions(scene: SceneFile) -> list[tuple[str, str]]:
    """List a folder with each format whose files below it belong to this scene's dataset, and are not scenes."""
    name, kinds = _COMPANIONS.get(scene.kind, ("", ()))
    folder = os.path.dirname(os.path.abspath(scene.path))
    if name and os.path.basename(folder) != name:
        return []
    return [(os.path.dirname(os.path.dirname(folder)) if name else folder, kind) for kind in kinds]


class InputScenes(SceneDataset):
    """Scenes without labels, in files, see ``find_scenes``.

    ``coordinates`` is the convention for PLY scenes, CENTERED or AS_GIVEN, as in the network's training data. Without
    ``needs_colors``, scenes without colors are gray. ``channels`` are names of the channels that scenes must have.
    ``unit_m`` is meters in a unit of the training data, DATA.UNIT_M.
    """

    labeled = False

    def __init__(
        self,
        scenes: Sequence[SceneFile],
        coordinates: str | None,
        needs_colors: bool,
        class_names: Sequence[str],
        channels: Sequence[str] = (),
        unit_m: float = 1.0,
    ) -> None:
        self.scenes, self.unit_m = list(scenes), unit_m
        stems = [scene.name for scene in scenes]
        self.names = output_names(stems)
        self.notices = note_counted(stems, self.names, "scene")
        self.coordinates = coordinates or CENTERED
        self.needs_colors = needs_colors
        self.required_channels = tuple(channels)
        self.class_names = list(class_names)
        self.num_classes = len(self.class_names)

    def __len__(self) -> int:
        return len(self.scenes)

    def describe(self, index: int) -> str:
        """Return the path of scene ``index``."""
        return self.scenes[index].path

    def unit_notice(self, voxel_size_m: float) -> str | None:
        """Return None: ``remarks`` has what is known of the unit."""
        return None

    def read(self, index: int) -> Scene:
        """Return scene ``index`` as ``prepare`` would have written it, without labels."""
        return self._read(index)[0]

    def remarks(self) -> list[str]:
        """Return remarks of ``prepare`` about the scenes, such as unexpected units; checking stops after a time limit.

        Scenes that cannot be read are reported during prediction.
        """
        lines: list[str] = []
        headers: dict[str, dict[str, Any]] = {}  # by kind, then by path
        end = time.monotonic() + _CHECK_SECONDS
        for index, (path, kind, _) in enumerate(self.scenes):
            if time.monotonic() > end:
                break
            try:
                scene, remarks = self._read(index)
            except (UserError, OSError, ValueError):
                continue
            lines += remarks
            headers.setdefault(kind, {})[path] = build_header(scene, labeled=False)
        for kind, headers_of_kind in headers.items():
            lines += find_remarks(kind, list(headers_of_kind), list(headers_of_kind.values()))
        return lines

    def _read(self, index: int) -> tuple[Scene, list[str]]:
        """Read a scene; return it with remarks on its file."""
        path, kind, _ = self.scenes[index]
        if kind == _PREPARED:
            scene = read_scene(path, self.names[index])
            unlabeled = np.full(len(scene.xyz), IGNORED, np.int16)
            return scene._replace(semantic=unlabeled, instance=unlabeled), []
        reader = get_format(kind)(
            SceneChoices(
                gray=not self.needs_colors,
                channels=self.required_channels,
                coordinates=self.coordinates,
                unit_m=self.unit_m,
            ),
            kind,
        )
        try:
            scene = reader.read(RawScene(self.names[index], reader.files(path, labeled=False), False))
        except UserError as error:
            message = re.split(", or (take gray|with --columns|request)", str(error))[0]  # advice for preparation
            raise UserError(message) from error
        return scene, reader.remarks


class SceneInputs(InputSamples):
    """Scenes of ``InputScenes``, voxelized as in an evaluation; ``unreadable`` are other paths, with reasons."""

    def __init__(self, samples: SceneSamples, unreadable: Sequence[tuple[str, str]], notices: Sequence[str]) -> None:
        self.samples, self.dataset = samples, samples.dataset
        self.names = [scene.path for scene in samples.dataset.scenes]  # type: ignore[attr-defined]
        self.unreadable = list(unreadable)
        self.notices = list(notices)
        self.labeled = False

    def sample(self, index: int, generator: np.random.Generator) -> VoxelizedSample:
        """Return scene ``index`` as network input."""
        return self.samples.sample(index, generator)


def count_points(classes: np.ndarray, class_names: Sequence[str]) -> dict[str, Any]:
    """Return a table row: the number of points of a scene, in total and by class, for integers (points,)."""
    numbers = np.bincount(classes, minlength=len(class_names)).tolist()
    return {"points": len(classes), **{f"points_{name}": number for name, number in zip(class_names, numbers)}}
