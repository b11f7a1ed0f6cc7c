"""Files that the point cloud tasks write for each scene, in an evaluation and by ``predict``."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..core.runtime.errors import UserError
from ..core.tasks.dataset import TransformedDataset
from ..core.tasks.prediction import PredictionRecord, PredictionWriter, Row, claim_file_name
from .data.images import UNLABELED_PIXELS
from .data.ply import write_colored_ply
from .data.samples import SceneSamples
from .data.scannet_classes import CLASS_NAMES, TEST_SCENES, submitted_numbers
from .data.scene import Scene
from .data.scenes import PreparedScenes
from .inputs import KITTI, LAS, InputScenes, SceneInputs
from .nuscenes_submission import is_submittable, write_submission_labels, write_submission_meta
from .prepare.las import write_classified
from .prepare.semantic_kitti import CLASS_NAMES as KITTI_CLASSES
from .prepare.semantic_kitti import get_prediction_path, get_scan_name, write_labels


class SceneWriter(PredictionWriter):
    """Reads each scene of this package's samples again and writes its files, with the coordinates of its source.

    UserError if the samples are user-defined, so their scenes cannot be read again, or if a user's dataset gives two
    scenes one name, by which the files are named.
    """

    writes_evaluations = True
    #: whether the task predicts instances
    has_instances = False
    #: description of the files of a scene called NAME
    files: str

    def __init__(self, folder: Path, samples: TransformedDataset, class_names: Sequence[str]) -> None:
        if not isinstance(samples, (SceneSamples, SceneInputs)):
            raise UserError("SAVE_PREDICTIONS needs the samples of this package, whose scenes can be read again")
        self.folder, self.dataset, self.number = folder, samples.dataset, len(samples)
        self.class_names = list(class_names)
        self.numbers, self.kind = submitted_numbers(class_names)
        writable_kinds = {LAS, KITTI} if tuple(class_names) == KITTI_CLASSES else {LAS}
        scenes = self.dataset.scenes if isinstance(self.dataset, InputScenes) else ()
        #: formats of the scenes in which the classes are also written
        self.source_kinds = writable_kinds & {scene.kind for scene in scenes}
        #: the split in whose folder nuScenes's benchmark expects the classes; None: they are not of its scans
        self.nuscenes_split: str | None = None
        if isinstance(self.dataset, PreparedScenes) and self.number:
            is_scan = is_submittable(Path(self.dataset.describe(0)).stem, self.class_names)
            self.nuscenes_split = self.dataset.split if is_scan else None

    def write(self, index: int, prediction: Any, truth: np.ndarray | None = None) -> Row:
        """Write the files of scene ``index``; return their names for the table of predictions."""
        scene = self.dataset.read(index)
        if not isinstance(self.dataset, (PreparedScenes, InputScenes)):  # whose names differ
            claim_file_name(self.folder, scene.name, index, "scene")
        names = self.write_scene(scene, prediction, truth)
        if self.nuscenes_split is not None:
            labels = self._source_labels(scene, self.segment_labels(prediction))
            write_submission_labels(self.folder, self.nuscenes_split, scene.name, *labels)
        suffixes = {"ply": ".ply", "picture": ".png", "text": ".txt"}
        row = {kind: next((name for name in names if name.endswith(suffix)), None) for kind, suffix in suffixes.items()}
        if not self.source_kinds:
            return row
        return {**row, "as_source": self._write_in_source_format(index, scene, prediction)}

    def point_labels(self, prediction: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return class and instance of each point, integers (P,), from a result of ``predict_step``.

        Instances start at 0, negative for none; None if the task does not predict them.
        """
        return prediction, None

    def segment_labels(self, prediction: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """Return class and instance of each point as benchmarks of laser scans count them.

        All points of an instance have its class there; by default the result of ``point_labels``.
        """
        return self.point_labels(prediction)

    def write_ply(
        self, name: str, scene: Scene, colors: np.ndarray, labels: np.ndarray, classes: np.ndarray | None = None
    ) -> None:
        """Write a colored PLY file with a row for each row of the source; skipped ones have NaN and no label."""
        xyz, rgb = scene.to_source_rows(scene.xyz, np.nan), scene.to_source_rows(colors, UNLABELED_PIXELS[0])
        labels, classes = (None if part is None else scene.to_source_rows(part) for part in (labels, classes))
        write_colored_ply(self.folder / name, xyz, rgb, labels, scene.offset, classes)

    def _source_labels(
        self, scene: Scene, labels: tuple[np.ndarray, np.ndarray | None]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return class and instance of each row of the scene's file."""
        classes, instances = labels
        return scene.to_source_rows(classes), None if instances is None else scene.to_source_rows(instances)

    def _write_in_source_format(self, index: int, scene: Scene, prediction: Any) -> str | None:
        """Write the labels in the format of the scene's file; return the name, or None for other formats."""
        if not isinstance(self.dataset, InputScenes):
            return None
        path, kind, _ = self.dataset.scenes[index]
        name = self.dataset.names[index]
        if kind not in self.source_kinds:
            return None
        if kind == LAS:
            name = f"{name}_classified{Path(path).suffix.lower()}"
            write_classified(path, self.folder / name, *self._source_labels(scene, self.point_labels(prediction)))
        else:  # if two scans have the same name, only the first is written where the benchmark expects it
            name = get_prediction_path(path) if name == get_scan_name(path) else f"{name}.label"
            write_labels(self.folder / name, *self._source_labels(scene, self.segment_labels(prediction)))
        return name

    def write_scene(self, scene: Scene, prediction: Any, true: np.ndarray | None = None) -> list[str]:
        """Write the files of a scene of P points; return the names of those directly in the folder, prediction first.

        The scene's labels are ignored; ``true`` is integers (P,), negative for none, or None if unknown.
        """
        raise NotImplementedError

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        """Return lines about the written files for the log."""
        if not self.number:
            return []
        lines = [f"for each scene in {self.folder}: {self.files} with {self.kind}"]
        if LAS in self.source_kinds:
            lines.append(f"laser scans are also in {self.folder} as NAME_classified.las or .laz")
        if KITTI in self.source_kinds:
            lines.append(f"for SemanticKITTI's benchmark and tools: {self.folder / 'sequences'}")
        if self.nuscenes_split is not None:
            labels = write_submission_meta(self.folder, self.nuscenes_split, self.has_instances)
            lines.append(
                f"for nuScenes's benchmark, in {self.folder}: zip -r submission.zip {labels} {self.nuscenes_split}"
            )
        names = self.dataset.names if isinstance(self.dataset, InputScenes) else ()
        if not set(TEST_SCENES).isdisjoint(names) and tuple(self.class_names) == CLASS_NAMES:
            lines.append(f"for ScanNet's benchmark, in {self.folder}: zip -r submission.zip scene*.txt predicted_masks")
        return lines
