"""What a detector says of pictures without labels."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from pathlib import Path
from typing import Any, Iterable, List, NamedTuple, Optional, Sequence

import numpy as np
from PIL import Image

from ...contracts.prediction import InputSamples, OutputWriter, Row
from ...contracts.sample_checks import BadSample
from ..data.annotated import PICTURES, AnnotatedPictures, stems
from ..data.inputs import picture_inputs
from ..data.reading import Reading
from .data.samples import DetectionSample
from .data.transforms import EvaluationTransform, evaluation_transform
from .data.views import whole_view
from .drawing import draw_boxes
from .evaluation.annotation_file import BOXES, MASKS
from .evaluation.detections import Detections, as_written
from .metrics import only
from .writer import MASK_RESULTS, RESULTS, ResultParts, join_results

_UNFINISHED = "unfinished"  # what is needed until a prediction ends; the journal removes it
_NO_BOXES = np.zeros((0, 4))
_COLUMNS = ("category", "score", "x", "y", "width", "height")


class AsEvaluated(NamedTuple):
    """A picture without annotations as an evaluation would see it."""

    transform: EvaluationTransform

    def __call__(self, picture: Image.Image, generator: np.random.Generator) -> DetectionSample:
        nothing = np.zeros(0, np.int64)
        view = self.transform(whole_view(picture, _NO_BOXES, nothing), generator)
        image = np.ascontiguousarray(np.asarray(view.picture).transpose(2, 0, 1))
        size = (picture.size[1], picture.size[0])
        return DetectionSample(-1, False, image, size, _NO_BOXES.astype(np.float32), nothing)


def open_inputs(data: Any, inputs: Sequence[Any], cache_folder: Path, turned: bool) -> InputSamples:
    """Pictures at paths, or in memory, as an evaluation with this configuration would see them.

    Args:
        data: the configuration's DATA.
        turned: as their EXIF orientation says.
    Raises:
        UserError: paths and pictures in memory are mixed.
    """
    reading = Reading(turned, data.MAX_PIXELS)
    return picture_inputs(inputs, cache_folder, AsEvaluated(evaluation_transform(data)), "RGB", reading)


def rows_of(found: Detections, class_names: Sequence[str], least_score: float) -> List[Row]:
    """A row for each box with that score, best first, in pixels of the picture; one without values where there is none.

    Raises:
        BadSample: a score or a box is not finite.
    """
    if not (np.isfinite(found.scores).all() and np.isfinite(found.boxes).all()):
        raise BadSample("the model's outputs for it are not finite")
    shown = only(found, found.scores >= least_score)
    rows = [
        dict(zip(_COLUMNS, (class_names[label], round(score, 4), *(round(value, 2) for value in box))))
        for label, score, box in zip(shown.labels.tolist(), shown.scores.tolist(), as_written(shown.boxes).tolist())
    ]
    return rows or [dict.fromkeys(_COLUMNS)]


def image_ids_of(names: Sequence[str]) -> List[int]:
    """Numbers of pictures for COCO's format: those that their files are called by, as COCO's own are; if any is not
    called by a number, or two by the same, 1, 2, 3 and so on."""
    called = stems(names)
    if all(stem.isascii() and stem.isdigit() and len(stem) < 19 for stem in called):
        numbers = [int(stem) for stem in called]
        if len(set(numbers)) == len(numbers):
            return numbers
    return list(range(1, len(names) + 1))


class DetectionOutputs(OutputWriter):
    """Draws the boxes on each picture, and writes ``results.json``.

    Args:
        folder: exists.
        least_score: of a box that is drawn; ``results.json`` has all.
    """

    def __init__(
        self,
        folder: Path,
        samples: InputSamples,
        class_names: Sequence[str],
        category_ids: Sequence[int],
        least_score: float,
    ) -> None:
        self.folder, self.samples, self.least_score = folder, samples, least_score
        self.class_names = list(class_names)
        self._ids: Optional[List[int]] = None
        self._pictures = AnnotatedPictures(folder, samples)
        self._parts = ResultParts(folder / _UNFINISHED, f"{{kind}}-{_this_process()}.part", category_ids)

    def write(self, index: int, prediction: Detections) -> Row:
        shown = only(prediction, prediction.scores >= self.least_score)

        def drawn(picture: Image.Image) -> Image.Image:
            found = shown.boxes, shown.labels, self.class_names, shown.scores, shown.masks
            return Image.fromarray(draw_boxes(np.asarray(picture), *found))

        name = self._pictures.write(index, drawn)
        if name is None:
            return {}
        if self._ids is None:
            self._ids = image_ids_of(self.samples.names)
        self._parts.add(index, self._ids[index], prediction)
        return {"picture": name}

    def finish(self, rows: Iterable[Row]) -> List[str]:
        written = []
        for kind, name in ((BOXES, RESULTS), (MASKS, MASK_RESULTS)):
            parts = sorted((self.folder / _UNFINISHED).glob(f"{kind}-*.part"))
            if parts:
                join_results(parts, self.folder / name)
                written.append(str(self.folder / name))
        if not written:
            return []
        running = list(range(1, len(self.samples) + 1))
        is_running = image_ids_of(self.samples.names) == running
        ids = "1, 2, 3 in the order of the inputs" if is_running else "the numbers that their files are called by"
        shown = f"boxes with a score of at least {self.least_score:g} (-least_score)"
        said = f"{shown} are in the tables and drawn on the pictures in {self.folder / PICTURES}"
        if all(row.get("category") is None for row in rows):
            said = f"there are no {shown}: the tables name none, and the pictures in {self.folder / PICTURES} have none"
        return [said, f"all boxes are in {' and '.join(written)}, in COCO's format; the pictures' ids are {ids}"]


def _this_process() -> str:
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
    return f"{host}-{os.getpid()}-{time.time_ns()}"
