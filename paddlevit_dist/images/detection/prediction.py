"""Predictions of a detector for images, in tables, drawn and as files in COCO's format."""

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from PIL import Image

from ...runtime.files import atomic_file
from ...tasks.dataset import Samples
from ...tasks.prediction import Entry, InputSamples, PredictionWriter, Row
from ...tasks.sample_checks import BadSample
from ..data.formats import stems
from ..data.inputs import IMAGES, AnnotatedImages
from .data.indexed_images import numbers_of
from .data.samples import DetectionSample
from .data.transforms import DetectionEvaluationTransform, whole_view
from .detections import BOXES, MASKS, Detections, as_written
from .drawing import draw_boxes

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


def rows_of(found: Detections, class_names: Sequence[str], least_score: float) -> list[Row]:
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
        category_ids: of the labels from 0.
        least_score: of a box that is drawn; the files of results have all.
    """

    writes_evaluations = True

    def __init__(
        self,
        folder: Path,
        samples: Samples,
        class_names: Sequence[str],
        category_ids: Sequence[int],
        least_score: float,
    ) -> None:
        self.folder, self.samples, self.least_score = folder, samples, least_score
        self.class_names, self.category_ids = list(class_names), list(category_ids)
        self._ids = numbers_of(stems(samples.names)).tolist() if isinstance(samples, InputSamples) else None
        self._images = AnnotatedImages(folder, samples)

    def write(self, index: int, prediction: Detections, truth: Any = None) -> Row:
        shown = prediction.only(prediction.scores >= self.least_score)

        def draw(image: Image.Image) -> Image.Image:
            found = shown.boxes, shown.labels, self.class_names, shown.scores, shown.masks
            return Image.fromarray(draw_boxes(np.asarray(image), *found))

        name = self._images.write(index, draw)
        return {} if name is None else {"picture": name}

    def kept(self, index: int, prediction: Detections, truth: Any = None) -> dict[str, str]:
        """The lines of each file of results."""
        image_id = self.samples.dataset.image_id(index) if self._ids is None else self._ids[index]
        kinds = (BOXES,) if prediction.masks is None else (BOXES, MASKS)
        return {
            _FILES[kind]: ",\n".join(map(json.dumps, results_of(image_id, prediction, self.category_ids, kind)))
            for kind in kinds
        }

    def finish(self, entries: Iterable[Entry]) -> list[str]:
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
        shown = f"boxes with a score of at least {self.least_score:g} (-least_score)"
        drawn = f"{shown} are in the tables and drawn on the images in {self.folder / IMAGES}"
        if not any_shown:
            drawn = f"there are no {shown}: the tables name none, and the images in {self.folder / IMAGES} have none"
        return [drawn, f"{said}; the images' ids are {ids}"]


def results_of(image_id: int, found: Detections, category_ids: Sequence[int], kind: str) -> list[dict[str, Any]]:
    """Return what COCO's format says of one image. Numbers are exact, so that scores are those of the network; what is
    not finite, and labels that stand for no category, are left out.

    Args:
        category_ids: of the labels from 0.
        kind: ``BOXES`` gives boxes; ``MASKS`` gives masks without boxes: COCO's tools would otherwise take the boxes'
            areas for small, medium and large.
    """
    found = found.finite()
    found = found.only(found.labels < len(category_ids))
    name, shapes = ("segmentation", found.masks) if kind == MASKS else ("bbox", as_written(found.boxes).tolist())
    return [
        {"image_id": image_id, "category_id": int(category_ids[label]), name: shape, "score": score}
        for label, shape, score in zip(found.labels.tolist(), shapes or (), found.scores.tolist())
    ]
