"""Scenes that are to be predicted, without labels: files of points and whatever ``prepare`` reads or has written."""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from ..tasks.prediction import InputSamples, find_inputs, output_names
from .data.samples import PointSample, SceneSamples
from .data.scene import CENTERED, IGNORED, Scene
from .data.scene_store import CLASSES_FILE, SCENES_FOLDER, SUFFIX, load_header, read_scene
from .data.scenes import SceneDataset
from .prepare.coordinates import remarks_on
from .prepare.formats import FORMATS, scene_at
from .prepare.listing import RawScene, SceneChoices
from .prepare.scannet import LABELS
from .prepare.semantic_kitti import BIN, scan_name
from .prepare.tables import TABLES

KITTI, LAS, _PREPARED = "semantic_kitti", "las", "prepared"
_EXPECTED = (
    f"expected {', '.join(suffix for table in TABLES.values() for suffix in table.suffixes)}, ScanNet's "
    "_vh_clean_2.ply, PointGroup's .pth, Pointcept's coord.npy, SemanticKITTI's .bin, a prepared .scene, or a folder "
    "of these"
)

_SECONDS = 10.0  # that scenes are looked at before a prediction


class SceneFile(NamedTuple):
    """A scene to be predicted: its file, what kind of file that is, and its name without the kind's suffix."""

    path: str
    kind: str
    name: str


def find_scenes(inputs: Sequence[str]) -> tuple[list[SceneFile], list[tuple[str, str]]]:
    """The scenes in paths, in their order and sorted within folders; and the paths that hold none, with reasons."""
    return find_inputs(inputs, _of_folder, _find_kind, what="scene", expected=_EXPECTED)


def _find_kind(path: str) -> SceneFile | None:
    name = os.path.basename(path)
    if name.endswith(SUFFIX):
        return SceneFile(path, _PREPARED, name.removesuffix(SUFFIX))
    if name.endswith(BIN):  # in whatever folder
        return SceneFile(path, KITTI, scan_name(os.path.abspath(path)))
    kind, scene = scene_at(os.path.abspath(path)) or (None, "")
    if kind is None or name.endswith(LABELS):
        return None
    if kind == "s3dis":  # an object by itself
        kind, scene = "text", os.path.splitext(name)[0]
    elif kind == "pointcept":
        scene = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return SceneFile(path, kind, scene)


def _of_folder(folder: str) -> Iterator[SceneFile]:
    if os.path.exists(os.path.join(folder, CLASSES_FILE)) and os.path.isdir(os.path.join(folder, SCENES_FOLDER)):
        folder = os.path.join(folder, SCENES_FOLDER)
    candidates = []
    for place, subfolders, names in os.walk(folder, followlinks=True):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        candidates += [_find_kind(os.path.join(place, name)) for name in sorted(names) if not name.startswith(".")]
    scenes = [candidate for candidate in candidates if candidate is not None]
    # Of several kinds the first: ScanNet's download holds further meshes, and text, the last, may be notes.
    kind = next((kind for kind in (_PREPARED, *FORMATS) if any(scene.kind == kind for scene in scenes)), None)
    yield from (scene for scene in scenes if scene.kind == kind)


class InputScenes(SceneDataset):
    """Scenes without labels, in files.

    Args:
        scenes: see ``find_scenes``.
        coordinates: where PLY scenes are put, as those were that the network was trained on: CENTERED or AS_GIVEN.
        needs_colors: else scenes without colors are gray.
        channels: names of those that scenes need to have.
    """

    labeled = False

    def __init__(
        self,
        scenes: Sequence[SceneFile],
        coordinates: str | None,
        needs_colors: bool,
        class_names: Sequence[str],
        channels: Sequence[str] = (),
    ) -> None:
        self.scenes = list(scenes)
        self.names = output_names([scene.name for scene in scenes])
        self.coordinates = coordinates or CENTERED
        self.needs_colors = needs_colors
        self.wanted = tuple(channels)
        self.class_names = list(class_names)
        self.num_classes = len(self.class_names)

    def __len__(self) -> int:
        return len(self.scenes)

    def describe(self, index: int) -> str:
        return self.scenes[index].path

    def read(self, index: int) -> Scene:
        """Scene ``index``, as ``prepare`` would have written it, without labels."""
        return self._read(index)[0]

    def remarks(self) -> list[str]:
        """Say what ``prepare`` says of such scenes: units and coordinates that networks do not expect. As many are
        looked at as time allows; those that cannot be read are told when they are predicted."""
        lines: list[str] = []
        headers: dict[str, dict[str, Any]] = {}  # of each kind, by path
        end = time.monotonic() + _SECONDS
        for index, (path, kind, _) in enumerate(self.scenes):
            if time.monotonic() > end:
                break
            try:
                scene, own = self._read(index)
            except (UserError, OSError, ValueError):
                continue
            lines += own
            headers.setdefault(kind, {})[path] = load_header(scene, labeled=False)
        for kind, of_kind in headers.items():
            lines += remarks_on(kind, list(of_kind), list(of_kind.values()))
        return lines

    def _read(self, index: int) -> tuple[Scene, list[str]]:
        """A scene, and remarks on its file."""
        path, kind, _ = self.scenes[index]
        if kind == _PREPARED:
            scene = read_scene(path, self.names[index])
            nothing = np.full(len(scene.xyz), IGNORED, np.int16)
            return scene._replace(semantic=nothing, instance=nothing), []
        reader = FORMATS[kind].reader(
            SceneChoices(gray=not self.needs_colors, channels=self.wanted, coordinates=self.coordinates), kind
        )
        try:
            scene = reader.read(RawScene(self.names[index], reader.files(path, labeled=False), False))
        except UserError as error:
            said = str(error).split(", or take gray")[0]  # that is for a preparation
            raise UserError(said.split(", or with --columns")[0]) from error
        return scene, reader.remarks


class SceneInputs(InputSamples):
    """Scenes to be predicted, voxelized as in an evaluation.

    Args:
        samples: of ``InputScenes``.
        unreadable: paths without scenes, with reasons.
    """

    def __init__(self, samples: SceneSamples, unreadable: Sequence[tuple[str, str]], notices: Sequence[str]) -> None:
        self.samples, self.dataset = samples, samples.dataset
        self.names = [scene.path for scene in samples.dataset.scenes]  # type: ignore[attr-defined]
        self.unreadable = list(unreadable)
        self.notices = list(notices)
        self.labeled = False

    def sample(self, index: int, generator: np.random.Generator) -> PointSample:
        return self.samples.sample(index, generator)


def describe_points(classes: np.ndarray, class_names: Sequence[str]) -> dict[str, Any]:
    """How many points a scene has, and how many of each class: a row about integers (points,)."""
    numbers = np.bincount(classes, minlength=len(class_names)).tolist()
    return {"points": len(classes), **{f"points_{name}": number for name, number in zip(class_names, numbers)}}
