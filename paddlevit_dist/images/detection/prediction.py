"""Predictions of a detector for images: tables, drawn images and files in COCO's format."""

import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import paddle
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.json_format import format_json
from ...core.runtime.printing import agree, count, shorten
from ...core.tasks.class_names import make_unique
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.prediction import ArrayMakers, InputSamples, PredictionRecord, PredictionWriter, Row
from ...core.tasks.protocols import AnnotationMatching, DatasetSaving
from ...core.tasks.sample_checks import BadSample
from ..backbone_prediction import BackbonePrediction
from ..data.formats import stems
from ..data.inputs import IMAGES, AnnotatedImages, InputImages
from ..run_lengths import decode
from .coco_files import CocoFile, Id, file_name
from .data.indexed_images import number_images
from .data.samples import DetectionSample, see_stored
from .data.transforms import DetectionEvaluationTransform, build_evaluation_transform, build_window_plan, whole_view
from .detections import BOXES, MASKS, RESULT_FILES, DetectedObjects, corners_to_boxes
from .drawing import draw_boxes
from .matched_ids import match_categories, match_files, require_categories, require_images
from .predicted_dataset import FOLDER, VOC, PredictedDataset, complete_ids, require_voc_names
from .task import Detection
from .windows import WindowPlan

_NO_BOXES = np.zeros((0, 4))
_COLUMNS = ("category", "score", "x", "y", "width", "height")


class ObjectPrediction(BackbonePrediction, AnnotationMatching, DatasetSaving):
    """Base class of predictions of objects; also with the ids of a file of annotations, or as a data set."""

    task: Any  # with ``class_names`` and ``category_ids``

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        self.annotation_ids: AnnotationIds | None = None  # set by ``load_annotation_ids``
        self.saved_as: str | None = None  # set by ``save_predictions_as``

    def save_predictions_as(self, layout: str) -> None:
        """Let ``prediction_writer`` also write a data set of the predictions, in one of its ``LAYOUTS``.

        Raises UserError if the layout cannot hold the names of the classes.
        """
        if layout == VOC:
            require_voc_names(self.task.class_names)
        self.saved_as = layout

    def load_annotation_ids(self, annotations: str, samples: InputSamples) -> list[str]:
        """Use the ids in an annotation file for inputs and classes, and return log lines."""
        names = self.list_named()
        if not names:
            raise UserError("predict -annotations: the weights have no class names: add -class_names=FILE")
        self.annotation_ids, lines = _find_annotation_ids(annotations, samples.names, names, self.task.category_ids)
        return lines

    def list_named(self) -> Sequence[str]:
        """Return the names of the first categories, which are names, not numbers instead of names."""
        return self.task.class_names

    def choose_ids(self, dataset: TransformedDataset) -> tuple[Sequence[Id] | None, Sequence[Id | None]]:
        """Return the ids of the inputs and of the categories in files of results; None: inputs are numbered."""
        if self.annotation_ids is not None and isinstance(dataset, InputSamples):
            return self.annotation_ids
        return None, self.task.category_ids


class BoxPrediction(ObjectPrediction):
    """Predicts the objects in images."""

    task: Detection

    def predict_step(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[DetectedObjects]:
        """Return the detections in each image, in its pixels, best first."""
        return self.task.detect(model, batch)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Return samples of images to predict."""
        transform = DetectionInput(build_evaluation_transform(self.task.config), build_window_plan(self.task.config))
        return self._open_images(inputs, cache_folder, transform)

    def list_named(self) -> Sequence[str]:
        """Return the names of the first categories that have one."""
        return self.task.class_names[: min(len(self.task.category_ids), self.task.num_named)]

    def prediction_rows(self, prediction: DetectedObjects) -> list[Row]:
        """Return table rows of a prediction."""
        return build_rows(prediction, self.task.class_names, self.task.config.DETECTION.SCORE_THRESHOLD)

    def prediction_arrays(self, index: int, prediction: DetectedObjects, samples: Any) -> ArrayMakers:
        """Return the masks of the objects in the rows, if the network predicts masks."""
        if prediction.masks is None:
            return {}
        shown = prediction.only(prediction.scores >= self.task.config.DETECTION.SCORE_THRESHOLD)
        size = tuple(prediction.masks[0]["size"]) if prediction.masks else samples.image(index).size[::-1]
        return {"masks": partial(_decode_masks, shown.masks or (), size)}

    def prediction_writer(self, folder: Path, dataset: TransformedDataset) -> PredictionWriter:
        """Return the writer of predictions in a folder."""
        task = self.task
        least_score, names, saved = task.config.DETECTION.SCORE_THRESHOLD, task.class_names, None
        images, categories = self.choose_ids(dataset)
        if self.saved_as is not None and isinstance(dataset, InputImages):
            ids = complete_ids(categories, task.category_ids)
            saved = PredictedDataset(folder, dataset, self.saved_as, names, ids, least_score)
        return DetectionWriter(folder, dataset, names, categories, least_score, task.num_named, images, saved)


def _decode_masks(masks: Sequence[dict[str, Any]], size: tuple[int, int]) -> np.ndarray:
    """Decode run lengths to masks, uint8 (n, height, width), 1 inside."""
    return np.array([decode(mask, *size) for mask in masks], np.uint8).reshape(-1, *size)


class DetectionInput(NamedTuple):
    """Prepares an image without annotations as for an evaluation."""

    transform: DetectionEvaluationTransform
    window_plan: WindowPlan | None = None

    def __call__(self, stored: Image.Image, generator: np.random.Generator) -> DetectionSample:
        """Return the sample of a stored image; the generator is not used by the evaluation transform."""
        if self.window_plan is not None:
            return see_stored(stored, self.window_plan, self.transform, generator)
        no_objects = np.zeros(0, np.int64)
        view = self.transform(whole_view(stored, _NO_BOXES, no_objects), generator)
        image = np.ascontiguousarray(np.asarray(view.image).transpose(2, 0, 1))
        size = (stored.size[1], stored.size[0])
        return DetectionSample(-1, False, image, size, _NO_BOXES.astype(np.float32), no_objects)


def build_rows(detections: DetectedObjects, class_names: Sequence[str], least_score: float) -> list[Row]:
    """Return a row for each box of at least this score, best first; one empty row if there is none.

    Raises:
        BadSample: a score or a box is not finite.
    """
    if not (np.isfinite(detections.scores).all() and np.isfinite(detections.boxes).all()):
        raise BadSample("the model's outputs for it are not finite")
    shown = detections.only(detections.scores >= least_score)
    rows = [
        dict(zip(_COLUMNS, (class_names[label], round(score, 4), *(round(value, 2) for value in box))))
        for label, score, box in zip(
            shown.labels.tolist(), shown.scores.tolist(), corners_to_boxes(shown.boxes).tolist()
        )
    ]
    return rows or [dict.fromkeys(_COLUMNS)]


class DetectionWriter(PredictionWriter):
    """Writes results in COCO's format, and draws boxes on images without annotations.

    Boxes are in ``results.json``, masks, if there are any, in ``results_masks.json``. A subclass for objects with more
    than boxes extends ``draw`` and ``build_results``.

    Args:
        folder: an existing folder.
        samples: result of ``open_inputs``, or the samples of a split.
        category_ids: ids in the order of labels; None: boxes of this label are not written to files of results.
        least_score: lowest score of a box that is drawn; files of results contain all.
        num_named: number of ``class_names``, from the first, that are names, not numbers instead of names; None: all.
        image_ids: ids of the inputs from an annotation file; None: ids are made from the names of the inputs.
        dataset: also writes images and boxes as a data set; None: not.
    """

    writes_evaluations = True
    folders = (IMAGES, FOLDER)
    #: what is drawn and in the tables
    nouns = "boxes"

    def __init__(
        self,
        folder: Path,
        samples: TransformedDataset,
        class_names: Sequence[str],
        category_ids: Sequence[Id | None],
        least_score: float,
        num_named: int | None = None,
        image_ids: Sequence[Id] | None = None,
        dataset: PredictedDataset | None = None,
    ) -> None:
        self.folder, self.samples, self.least_score = folder, samples, least_score
        self.class_names = list(class_names)
        self.category_ids = [id_ if id_ is None or isinstance(id_, str) else int(id_) for id_ in category_ids]
        self.result_names, self._has_given_ids = self.class_names[:num_named], image_ids is not None
        self._ids: Sequence[Id] | None = image_ids
        if image_ids is None and isinstance(samples, InputSamples):
            self._ids = number_images(stems(samples.names)).tolist()
        self._images = AnnotatedImages(folder, samples)
        self.dataset = dataset

    def write(self, index: int, prediction: Any, truth: object = None) -> Row:
        """Draw the objects of an input image, and return the name of the drawing."""
        shown = prediction.only(prediction.scores >= self.least_score)
        if self.dataset is not None:
            self.dataset.write(index, prediction)
        name = self._images.write(index, lambda image: Image.fromarray(self.draw(np.asarray(image), shown)))
        return {} if name is None else {"picture": name}

    def draw(self, pixels: np.ndarray, shown: Any) -> np.ndarray:
        """Draw the shown objects on an image, uint8 (height, width, 3)."""
        return draw_boxes(pixels, shown.boxes, shown.labels, self.class_names, shown.scores, shown.masks)

    def summarize(self, index: int, prediction: Any, truth: object = None) -> dict[str, str]:
        """Return the lines of each file of results."""
        image_id = self.samples.dataset.image_id(index) if self._ids is None else self._ids[index]
        samples = self.samples
        name = samples.names[index] if isinstance(samples, InputSamples) else samples.name(index)
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")  # valid in JSON
        results = self.build_results(image_id, prediction, name)
        lines = {file: ",\n".join(map(format_json, entries)) for file, entries in results.items()}
        return lines if self.dataset is None else {**lines, FOLDER: self.dataset.describe(index, image_id, prediction)}

    def build_results(self, image_id: Id, prediction: Any, name: str) -> dict[str, list[dict[str, Any]]]:
        """Return the results of an image, with its name, in each file of results; the first file has all objects."""
        kinds = (BOXES,) if prediction.masks is None else (BOXES, MASKS)
        return {
            RESULT_FILES[kind]: build_coco_results(
                image_id, prediction, self.category_ids, kind, name, self.result_names
            )
            for kind in kinds
        }

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        """Write the files of results, and return lines on them."""
        number, any_shown, described = 0, False, []
        with contextlib.ExitStack() as stack:
            files: dict[str, BinaryIO] = {}
            for entry in entries:
                any_shown = any_shown or any(row["category"] is not None for row in entry.rows or ())
                for name, lines in (entry.summary or {}).items():
                    if name == FOLDER:
                        described.append(lines)
                        continue
                    if name not in files:
                        files[name] = stack.enter_context(atomic_file(self.folder / name))
                        files[name].write(b"[")
                        stack.callback(files[name].write, b"\n]\n")
                    if lines:
                        files[name].write(f"{',' * (files[name].tell() > 1)}\n{lines}".encode())
                        number += (lines.count("\n") + 1) * (name == next(iter(files)))
        if not files:
            return []
        written = " and ".join(str(self.folder / file_name) for file_name in files)
        message = f"{count(number, 'detection')} {agree(number)} in {written}, in COCO's format"
        if self._ids is None:
            return [message]
        is_running = self._ids == list(range(1, len(self._ids) + 1))
        running = f"{', '.join(map(str, self._ids[:3]))}{', ...' * (len(self._ids) > 3)} in the order of the inputs"
        ids = running if is_running else "the numbers in the names of their files"
        ids = "taken from -annotations" if self._has_given_ids else ids
        shown = f"{self.nouns} with a score of at least {self.least_score:g} (-least_score)"
        drawn_message = f"{shown} are in the tables and drawn on the images in {self.folder / IMAGES}"
        if not any_shown:
            drawn_message = f"there are no {shown}, so the tables and the images in {self.folder / IMAGES} have none"
        more = [] if self.dataset is None else self.dataset.finish(described)
        return [drawn_message, f"{message}; the images' ids are {ids}", *more, *self._images.notes()]


class AnnotationIds(NamedTuple):
    """Ids of inputs and classes in an annotation file."""

    images: list[Id]  # id of each input
    categories: list[Id | None]  # id of each class; None: the file does not have the class


def _find_annotation_ids(
    file: str, names: Sequence[str], class_names: Sequence[str], category_ids: Sequence[int]
) -> tuple[AnnotationIds, list[str]]:
    """Find inputs and classes in an annotation file by their names, and lines for the user; it may lack annotations.

    Args:
        names: paths of the inputs.
        category_ids: ids of the classes in training, which decide between categories of one name.

    Raises:
        UserError: the file cannot be read, or it lacks an input or all of the classes.
    """
    coco, before = CocoFile(file, allows_text_ids=True), "predict -annotations: "
    known_names = [file_name(image) or "" for image in coco.images]
    images = [image.id for image in coco.images]
    image_matches = match_files(names, known_names)
    require_images(names, image_matches, images, file, before)
    ids, categories = list(coco.categories), [category.name for category in coco.categories.values()]
    class_matches = match_categories(class_names, categories, make_unique(categories, [f"id {id_}" for id_ in ids]))
    for label, positions in enumerate(class_matches):
        same_ids = [position for position in positions if ids[position] == category_ids[label]]
        class_matches[label] = same_ids if len(positions) > 1 and len(same_ids) == 1 else positions
    require_categories(class_names, class_matches, categories, file, before)
    matched_ids = AnnotationIds(
        [images[matched[0]] for matched in image_matches],
        [ids[matched[0]] if matched else None for matched in class_matches],
    )
    missing = [name for name, category_id in zip(class_names, matched_ids.categories) if category_id is None]
    number = f"{len(class_names) - len(missing):,} of {count(len(class_names), 'category')}"
    lines = [f"ids are taken from {file}: {count(len(names), 'image')} and {number} matched by name"]
    if missing:
        examples = shorten(", ".join(missing[:3]))
        lines.append(f"note: {file} lacks {examples}: their boxes are in the tables, but not in files of results")
    return matched_ids, lines


def build_coco_results(
    image_id: Id,
    detections: DetectedObjects,
    category_ids: Sequence[Id | None],
    kind: str,
    path: str = "",
    category_names: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return the results for one image in COCO's format, with the names of image and category if there are any.

    The names allow matching with annotations with other ids. Numbers are exact, so that scores equal the network's.
    Values that are not finite, and labels without a category, are omitted.

    Args:
        category_ids: ids in the order of labels; None: the label has no category.
        kind: ``BOXES`` for boxes; ``MASKS`` for masks without boxes, since COCO's tools would otherwise use the areas
            of boxes for small, medium and large.
    """
    detections = detections.finite()
    has_category = np.array([category is not None for category in category_ids], bool)
    detections = detections.only(detections.labels < len(has_category))
    detections = detections.only(has_category[detections.labels])
    name, shapes = (
        ("segmentation", detections.masks) if kind == MASKS else ("bbox", corners_to_boxes(detections.boxes).tolist())
    )
    return [
        {
            "image_id": image_id,
            "category_id": category_ids[label],
            name: shape,
            "score": score,
            **({"file_name": path} if path else {}),
            **({"category_name": category_names[label]} if label < len(category_names) else {}),
        }
        for label, shape, score in zip(detections.labels.tolist(), shapes or (), detections.scores.tolist())
    ]
