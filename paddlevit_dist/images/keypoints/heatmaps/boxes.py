"""Boxes of the objects whose keypoints are found: of annotations, of whole images, in a file, or by a detector."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paddle

from ....core.inference.trained import TrainedWeights, build_trained, open_source, prepare_task
from ....core.runtime.errors import UserError
from ....core.runtime.files import atomic_file, map_array
from ....core.runtime.printing import count, shorten
from ...detection.data.image_annotations import ImageAnnotations
from ...detection.detections import DetectedObjects
from ...detection.evaluation.scored_files import read_results
from ...detection.evaluation.yolo_results import load_annotations
from ...detection.prediction import DetectionInput, build_evaluation_transform, build_window_plan
from ...detection.task import Detection
from ..data.keypoint_dataset import KeypointDataset, is_posed
from .settings import HeatmapKeys


class ObjectBoxes(NamedTuple):
    """The n objects of an image whose keypoints are found."""

    boxes: np.ndarray  # float64 (n, 4), x and y of the corner at the top left, width, height
    labels: np.ndarray  # int64 (n,), categories from 0
    scores: np.ndarray  # float64 (n,), of the detections; 1 of annotations

    def only(self, chosen: np.ndarray) -> "ObjectBoxes":
        """Return the ``chosen`` objects."""
        return ObjectBoxes(*(column[chosen] for column in self))


#: finds the objects of an image by its index, (height, width) and annotations; pickled to loader processes
FindObjects = Callable[[int, tuple[int, int], ImageAnnotations], ObjectBoxes]


class ChosenBoxes(NamedTuple):
    """Where an evaluation takes the boxes of objects from."""

    find: FindObjects
    protocol: str = ""  # behind the score
    notices: Sequence[str] = ()  # lines for the log


def choose_boxes(
    keys: HeatmapKeys, dataset: KeypointDataset, cache_folder: Path, whole_images: "WholeImages | None"
) -> ChosenBoxes:
    """Choose the boxes of HEATMAPS.BOX_FILE, of whole images, or of annotations.

    Raises:
        UserError: the file cannot be read, or names other images.
    """
    if keys.BOX_FILE is not None:
        file = BoxFile(keys.BOX_FILE, dataset, cache_folder, keys.BOX_SCORE)
        return ChosenBoxes(file, notices=file.notices)
    if whole_images is not None:
        return ChosenBoxes(whole_images, "in whole images")
    return ChosenBoxes(find_annotated, "in the boxes of the annotations")


def find_annotated(index: int, size: tuple[int, int], annotations: ImageAnnotations) -> ObjectBoxes:
    """Return the objects of an image that have a labeled point, or all if the image has no points."""
    is_used = annotations.is_learnable if annotations.points is None else is_posed(annotations)
    boxes, labels = annotations.boxes[is_used], annotations.labels[is_used].astype(np.int64)
    return ObjectBoxes(boxes, labels, np.ones(len(labels)))


@dataclass(frozen=True)
class WholeImages:
    """Takes whole images as one object of each category; the scores show which it is."""

    labels: Sequence[int]

    def __call__(self, index: int, size: tuple[int, int], annotations: object) -> ObjectBoxes:
        """Return the objects of an image of this height and width."""
        number = len(self.labels)
        boxes = np.tile(np.array([0.0, 0.0, size[1], size[0]]), (number, 1))
        return ObjectBoxes(boxes, np.array(self.labels, np.int64), np.ones(number))


class BoxFile:
    """Boxes of a file of detections in COCO's result format, kept in a memory-mapped file.

    Args:
        path: the file.
        dataset: the images and categories that its entries name.
        cache_folder: folder for the memory-mapped file.
        least_score: lowest score of a box.

    Raises:
        UserError: the file cannot be read, or names other images.
    """

    def __init__(self, path: str, dataset: KeypointDataset, cache_folder: Path, least_score: float) -> None:
        if not os.path.isfile(path):
            raise UserError(f"HEATMAPS.BOX_FILE {path}: there is no such file")
        known = load_annotations(dataset, "the split")._replace(are_positions=False)  # a detector may find more
        results = read_results(path, known)
        places = np.argsort(np.argsort(dataset.image_ids))  # of each image among the ascending ids
        is_used = (results.labels >= 0) & (results.scores >= least_score) & (results.boxes[:, 2:] > 0).all(axis=1)
        images = np.repeat(np.arange(len(places)), np.diff(results.first))
        rows = np.column_stack([images, results.labels, results.scores, results.boxes])[is_used]
        self.starts = np.searchsorted(rows[:, 0], places)
        self.ends = np.searchsorted(rows[:, 0], places, side="right")
        self.file = str(cache_folder / "keypoint-boxes.npy")
        with atomic_file(Path(self.file)) as out:
            np.save(out, rows, allow_pickle=False)
        self.notices = [*results.notices, f"boxes: {count(len(rows), 'detection')} of {path}"]
        self._rows: np.ndarray | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": None}

    def __call__(self, index: int, size: object, annotations: object) -> ObjectBoxes:
        """Return the detections in image ``index``, in the order of the file."""
        if self._rows is None:
            self._rows = map_array(self.file)
        rows = self._rows[self.starts[index] : self.ends[index]]
        return ObjectBoxes(rows[:, 3:], rows[:, 1].astype(np.int64), rows[:, 2])


class BoxDetector:
    """A trained detector that finds the objects in stored images.

    Built in the parent process; the network is built on the device of the first step that needs it.

    Args:
        run: a run's folder, or weights with stored settings.
        least_score: lowest score of a box.

    Raises:
        UserError: the run does not exist, or is not of a detector.
    """

    def __init__(self, run: str, least_score: float) -> None:
        self.run, self.least_score = run, least_score
        self._source: TrainedWeights = open_source(run, "-detector", words=())
        task = prepare_task(self._source)
        if not isinstance(task, Detection):
            raise UserError(f"-detector={run} is a run of {self._source.config.TASK}: expected a detector's")
        self.task = task
        self._labels: np.ndarray | None = None
        self._model: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None}

    def match_categories(self, class_names: Sequence[str]) -> list[str]:
        """Map the detector's categories to those with keypoints by name, and return a line; UserError if none fits."""
        ours = {name.strip().casefold(): label for label, name in enumerate(class_names)}
        theirs = self.task.class_names
        labels = np.array([ours.get(name.strip().casefold(), -1) for name in theirs], np.int64)
        if len(theirs) == len(class_names) == 1:
            labels = np.zeros(1, np.int64)
        if not (labels >= 0).any():
            raise UserError(
                f"-detector={self.run} finds {shorten(', '.join(theirs), 200)}, and none of the categories with "
                f"keypoints: {shorten(', '.join(class_names), 200)}"
            )
        self._labels = labels
        used = [name for name, label in zip(theirs, labels) if label >= 0]
        return [f"boxes: detector {self.run} finds {', '.join(used)}"]

    @property
    def prepare(self) -> DetectionInput:
        """The function that makes the detector's sample of a stored image, in a loader process."""
        config = self.task.config
        return DetectionInput(build_evaluation_transform(config), build_window_plan(config))

    @paddle.no_grad()
    def detect(self, batch: dict[str, Any]) -> list[ObjectBoxes]:
        """Find the objects in each image of a collated batch of the detector."""
        if self._model is None:
            self._model = build_trained(self.task, self._source)[0]
        return [self.choose(objects.finite()) for objects in self.task.detect(self._model, batch)]

    def choose(self, objects: DetectedObjects) -> ObjectBoxes:
        """Return the detections of an image that are boxes of a category, with scores that are high enough."""
        assert self._labels is not None, "match_categories precedes"
        labels = self._labels[objects.labels]
        corners = objects.boxes.astype(np.float64)
        boxes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
        is_used = (labels >= 0) & (objects.scores >= self.least_score) & (boxes[:, 2:] > 0).all(axis=1)
        return ObjectBoxes(boxes, labels, objects.scores.astype(np.float64)).only(is_used)
