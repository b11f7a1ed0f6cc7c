"""Predictions of a detector for images, in tables, drawn and as files in COCO's format."""

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from PIL import Image

from ...runtime.files import atomic_file
from ...runtime.printing import shorten
from ...tasks.dataset import TransformedDataset
from ...tasks.prediction import InputSamples, PredictionRecord, PredictionWriter, Row
from ...tasks.sample_checks import BadSample
from ..data.data_warnings import count
from ..data.formats import stems
from ..data.inputs import IMAGES, AnnotatedImages
from .coco_files import CocoFile, Id, file_name
from .data.indexed_images import number_images
from .data.samples import DetectionSample
from .data.transforms import DetectionEvaluationTransform, whole_view
from .detections import BOXES, MASKS, DetectedObjects, as_written
from .drawing import draw_boxes
from .matched_names import match_categories, match_files, require_categories, require_images

_NO_BOXES = np.zeros((0, 4))
_COLUMNS = ("category", "score", "x", "y", "width", "height")
# Files of results. Masks are apart: COCO's tools take the boxes' areas where a result has both.
_FILES = {BOXES: "results.json", MASKS: "results_masks.json"}


class DetectionInput(NamedTuple):
    """An image without annotations as an evaluation would see it."""

    transform: DetectionEvaluationTransform

    def __call__(self, stored: Image.Image, generator: np.random.Generator) -> DetectionSample:
        nothing = np.zeros(0, np.int64)
        view = self.transform(whole_view(stored, _NO_BOXES, nothing), generator)
        image = np.ascontiguousarray(np.asarray(view.image).transpose(2, 0, 1))
        size = (stored.size[1], stored.size[0])
        return DetectionSample(-1, False, image, size, _NO_BOXES.astype(np.float32), nothing)


def build_rows(found: DetectedObjects, class_names: Sequence[str], least_score: float) -> list[Row]:
    """A row for each box with that score, best first, in pixels of the image; one without values where there is none.

    Raises:
        BadSample: a score or a box is not finite.
    """
    if not (np.isfinite(found.scores).all() and np.isfinite(found.boxes).all()):
        raise BadSample("the model's outputs for it are not finite")
    shown = found.only(found.scores >= least_score)
    rows = [
        dict(zip(_COLUMNS, (class_names[label], round(score, 4), *(round(value, 2) for value in box))))
        for label, score, box in zip(shown.labels.tolist(), shown.scores.tolist(), as_written(shown.boxes).tolist())
    ]
    return rows or [dict.fromkeys(_COLUMNS)]


class DetectionWriter(PredictionWriter):
    """Writes ``results.json``, and beside it ``results_masks.json`` where there are masks; draws the boxes on each
    image that has no annotations.

    Args:
        folder: exists.
        samples: of ``open_inputs``, or of a split.
        category_ids: of the labels from 0; None: boxes of such a label are in no file of results.
        least_score: of a box that is drawn; the files of results have all.
        names_known: ``class_names`` are names, and not numbers in their place.
        image_ids: of the inputs, as a file of annotations has them; None: made of the names of the inputs.
    """

    writes_evaluations = True

    def __init__(
        self,
        folder: Path,
        samples: TransformedDataset,
        class_names: Sequence[str],
        category_ids: Sequence[Id | None],
        least_score: float,
        names_known: bool = True,
        image_ids: Sequence[Id] | None = None,
    ) -> None:
        self.folder, self.samples, self.least_score = folder, samples, least_score
        self.class_names = list(class_names)
        self.category_ids = [own if own is None or isinstance(own, str) else int(own) for own in category_ids]
        self._named, self._are_given = self.class_names if names_known else [], image_ids is not None
        self._ids: Sequence[Id] | None = image_ids
        if image_ids is None and isinstance(samples, InputSamples):
            self._ids = number_images(stems(samples.names)).tolist()
        self._images = AnnotatedImages(folder, samples)

    def write(self, index: int, prediction: DetectedObjects, truth: Any = None) -> Row:
        shown = prediction.only(prediction.scores >= self.least_score)

        def draw(image: Image.Image) -> Image.Image:
            found = shown.boxes, shown.labels, self.class_names, shown.scores, shown.masks
            return Image.fromarray(draw_boxes(np.asarray(image), *found))

        name = self._images.write(index, draw)
        return {} if name is None else {"picture": name}

    def kept(self, index: int, prediction: DetectedObjects, truth: Any = None) -> dict[str, str]:
        """The lines of each file of results."""
        image_id = self.samples.dataset.image_id(index) if self._ids is None else self._ids[index]
        kinds = (BOXES,) if prediction.masks is None else (BOXES, MASKS)
        samples = self.samples
        name = samples.names[index] if isinstance(samples, InputSamples) else samples.name(index)
        name = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")  # what JSON can hold
        found = {
            kind: build_coco_results(image_id, prediction, self.category_ids, kind, name, self._named) for kind in kinds
        }
        return {_FILES[kind]: ",\n".join(map(json.dumps, entries)) for kind, entries in found.items()}

    def finish(self, entries: Iterable[PredictionRecord]) -> list[str]:
        number, any_shown = 0, False
        with contextlib.ExitStack() as stack:
            files: dict[str, BinaryIO] = {}
            for entry in entries:
                any_shown = any_shown or any(row["category"] is not None for row in entry.rows or ())
                for name, lines in (entry.kept or {}).items():
                    if name not in files:
                        files[name] = stack.enter_context(atomic_file(self.folder / name))
                        files[name].write(b"[")
                        stack.callback(files[name].write, b"\n]\n")
                    if lines:
                        files[name].write(f"{',' * (files[name].tell() > 1)}\n{lines}".encode())
                        number += (lines.count("\n") + 1) * (name == _FILES[BOXES])
        if not files:
            return []
        written = " and ".join(str(self.folder / name) for name in files)
        said = f"{number:,} detections are in {written}, in COCO's format"
        if self._ids is None:
            return [said]
        is_running = self._ids == list(range(1, len(self._ids) + 1))
        ids = "1, 2, 3 in the order of the inputs" if is_running else "the numbers that their files are called by"
        ids = "those of -annotations" if self._are_given else ids
        shown = f"boxes with a score of at least {self.least_score:g} (-least_score)"
        drawn = f"{shown} are in the tables and drawn on the images in {self.folder / IMAGES}"
        if not any_shown:
            drawn = f"there are no {shown}: the tables name none, and the images in {self.folder / IMAGES} have none"
        return [drawn, f"{said}; the images' ids are {ids}"]


class GivenIds(NamedTuple):
    """Ids that a file of annotations has for inputs and classes.

    Attributes:
        images: of each input.
        categories: of each class; None: the file does not have it.
    """

    images: list[Id]
    categories: list[Id | None]


def ids_in(
    file: str, names: Sequence[str], class_names: Sequence[str], category_ids: Sequence[int]
) -> tuple[GivenIds, list[str]]:
    """Find inputs and classes in a file of annotations by their names; its annotations need not be there.

    Args:
        names: paths of the inputs.
        category_ids: of the classes where they were learned, which decides between categories of one name.
    Returns:
        Their ids, and lines for the user.
    Raises:
        UserError: the file cannot be read, or an input or none of the classes is in it by its name.
    """
    coco, before = CocoFile(file, takes_texts=True), "predict -annotations: "
    known = [file_name(image) or "" for image in coco.images]
    images = [image.id for image in coco.images]
    found = match_files(names, known)
    require_images(names, found, images, file, before)
    ids, categories = list(coco.categories), [category.name for category in coco.categories.values()]
    of_classes = match_categories(class_names, categories)
    for label, positions in enumerate(of_classes):
        same = [position for position in positions if ids[position] == category_ids[label]]
        of_classes[label] = same if len(positions) > 1 and len(same) == 1 else positions
    require_categories(class_names, of_classes, categories, file, before)
    given = GivenIds(
        [images[positions[0]] for positions in found],
        [ids[positions[0]] if positions else None for positions in of_classes],
    )
    missing = [name for name, own in zip(class_names, given.categories) if own is None]
    number = f"{len(class_names) - len(missing):,} of {count(len(class_names), 'category')}"
    lines = [f"ids are those of {file}: {count(len(names), 'image')} and {number} found by name"]
    if missing:
        shown = shorten(", ".join(missing[:3]))
        lines.append(f"note: {file} does not have {shown}: their boxes are in the tables, and in no file of results")
    return given, lines


def build_coco_results(
    image_id: Id,
    found: DetectedObjects,
    category_ids: Sequence[Id | None],
    kind: str,
    path: str = "",
    category_names: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return what COCO's format says of one image, and beside it the names of image and category, by which the result
    can be scored against annotations with other ids. Numbers are exact, so that scores are those of the network; what
    is not finite, and labels that stand for no category, are left out.

    Args:
        category_ids: of the labels from 0; None: the label stands for no category.
        kind: ``BOXES`` gives boxes; ``MASKS`` gives masks without boxes: COCO's tools would otherwise take the boxes'
            areas for small, medium and large.
        path: of the image; "": not written.
        category_names: of the labels; none: not written.
    """
    found = found.finite()
    own = np.array([category is not None for category in category_ids], bool)
    found = found.only(found.labels < len(own))
    found = found.only(own[found.labels])
    name, shapes = ("segmentation", found.masks) if kind == MASKS else ("bbox", as_written(found.boxes).tolist())
    return [
        {
            "image_id": image_id,
            "category_id": category_ids[label],
            name: shape,
            "score": score,
            **({"file_name": path} if path else {}),
            **({"category_name": category_names[label]} if category_names else {}),
        }
        for label, shape, score in zip(found.labels.tolist(), shapes or (), found.scores.tolist())
    ]
