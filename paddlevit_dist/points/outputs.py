"""Files that the point cloud tasks write of scenes, in an evaluation and by ``predict``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.errors import UserError
from ..tasks.dataset import TransformedDataset
from ..tasks.prediction import PredictionRecord, PredictionWriter, Row
from .data.samples import SceneSamples
from .data.scannet_classes import CLASS_NAMES, TEST_SCENES, submitted_numbers
from .data.scene import Scene
from .inputs import KITTI, LAS, InputScenes, SceneInputs
from .prepare.las import write_classified
from .prepare.semantic_kitti import CLASS_NAMES as KITTI_CLASSES
from .prepare.semantic_kitti import prediction_name, scan_name, write_labels


class SceneWriter(PredictionWriter):
    """Reads each scene once more and writes its files, with the coordinates of its source.

    Args:
        folder: must exist.
        class_names: one per class.

    Raises:
        UserError: the samples are a program's own, whose scenes cannot be read again.
    """

    writes_evaluations = True
    #: what the files of a scene called NAME are
    files: str

    def __init__(self, folder: Path, samples: TransformedDataset, class_names: Sequence[str]) -> None:
        if not isinstance(samples, (SceneSamples, SceneInputs)):
            raise UserError("SAVE_PREDICTIONS is for samples of this package, whose scenes can be read again")
        self.folder, self.dataset, self.number = folder, samples.dataset, len(samples)
        self.class_names = list(class_names)
        self.numbers, self.kind = submitted_numbers(class_names)
        known = {LAS, KITTI} if tuple(class_names) == KITTI_CLASSES else {LAS}
        scenes = self.dataset.scenes if isinstance(self.dataset, InputScenes) else ()
        #: formats of the scenes in which their classes are written as well
        self.as_source = known & {scene.kind for scene in scenes}

    def write(self, index: int, prediction: Any, truth: Any = None) -> Row:
        scene = self.dataset.read(index)
        names = self.write_scene(scene, prediction, truth)
        ends = {"ply": ".ply", "picture": ".png", "text": ".txt"}
        row = {kind: next((name for name in names if name.endswith(end)), None) for kind, end in ends.items()}
        if not self.as_source:
            return row
        labels = (None if one is None else scene.as_source(one) for one in self.point_labels(prediction))
        return {**row, "as_source": self._as_source(index, *labels)}

    def point_labels(self, prediction: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """The class and the instance of each point, integers (P,), in what ``predict_step`` gives of a scene; instances
        are from 0, negative for none, None where they are not predicted."""
        return prediction, None

    def _as_source(self, index: int, classes: np.ndarray, instances: np.ndarray | None) -> str | None:
        """Write the labels in the format of the scene's file; returns the name, None for other formats."""
        path, kind, _ = self.dataset.scenes[index]
        name = self.dataset.names[index]
        if kind not in self.as_source:
            return None
        if kind == LAS:
            name = f"{name}_classified{Path(path).suffix.lower()}"
            write_classified(path, self.folder / name, classes, instances)
        else:  # of two scans of one name the second cannot be where the benchmark expects it
            name = prediction_name(path) if name == scan_name(path) else f"{name}.label"
            write_labels(self.folder / name, classes, instances)
        return name

    def write_scene(self, scene: Scene, prediction: Any, true: Any = None) -> list[str]:
        """Write the files of a scene of P points; returns the names of those in the folder itself, the prediction's
        before the truth's.

        Args:
            scene: its labels are not looked at.
            prediction: of ``predict_step``.
            true: integers (P,), negative for none; None: unknown.
        """
        raise NotImplementedError

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        if not self.number:
            return []
        lines = [f"for each scene in {self.folder}: {self.files} with {self.kind}"]
        if LAS in self.as_source:
            lines.append(f"laser scans are in {self.folder} once more, as NAME_classified.las or .laz")
        if KITTI in self.as_source:
            lines.append(f"for SemanticKITTI's benchmark and tools: {self.folder / 'sequences'}")
        names = self.dataset.names if isinstance(self.dataset, InputScenes) else ()
        if not set(TEST_SCENES).isdisjoint(names) and tuple(self.class_names) == CLASS_NAMES:
            lines.append(f"for ScanNet's benchmark, in {self.folder}: zip -r submission.zip scene*.txt predicted_masks")
        return lines
