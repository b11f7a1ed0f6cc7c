"""What a detector says of pictures, in tables, drawn and as files in COCO's format.

Of these files a process appends a line per picture, its number and its results, to one of its own; they are joined at
the end. So an evaluation of any size takes no memory, and a prediction that was interrupted goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import json
import os
import socket
import time
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
from PIL import Image

from ...contracts.prediction import InputSamples, OutputWriter, Row
from ...contracts.sample_checks import BadSample
from ...contracts.task import PredictionWriter
from ...errors import UserError
from ...files import atomic_file, why_not_written
from ...parallel import all_gather, is_main, rank
from ..data.annotated import PICTURES, AnnotatedPictures, stems
from ..data.inputs import picture_inputs
from ..data.reading import Reading
from .data.samples import DetectionSample
from .data.transforms import EvaluationTransform, evaluation_transform
from .data.views import whole_view
from .drawing import draw_boxes
from .evaluation.annotation_file import BOXES, MASKS
from .evaluation.detections import Detections, as_written

_UNFINISHED = "unfinished"  # what is needed until a prediction ends; the journal removes it
_NO_BOXES = np.zeros((0, 4))
_COLUMNS = ("category", "score", "x", "y", "width", "height")
# Files of results. Masks are apart: COCO's tools take the boxes' areas where a result has both.
_FILES = {BOXES: "results.json", MASKS: "results_masks.json"}


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
    shown = found.only(found.scores >= least_score)
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
        shown = prediction.only(prediction.scores >= self.least_score)

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
        for kind, name in _FILES.items():
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


def results_of(image_id: int, found: Detections, category_ids: Sequence[int], kind: str) -> List[Dict[str, Any]]:
    """What COCO's format says of one picture. Numbers are exact, so that scores are those of the network; what is not
    finite, and labels that stand for no category, are left out.

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


class ResultParts:
    """The files of one process, one for each kind of result that its detections have: for each picture its number, a
    tab, and its results as JSON on a line.

    Args:
        folder: exists once there is something to write.
        name: of a file, with ``{kind}`` in it.
        category_ids: of the labels from 0.
    """

    def __init__(self, folder: Path, name: str, category_ids: Sequence[int]) -> None:
        self._folder, self._name, self._category_ids = folder, name, list(category_ids)
        self._streams: Dict[str, BinaryIO] = {}

    def add(self, index: int, image_id: int, found: Detections) -> None:
        """Append a picture, in ascending order of the index; it outlives the process.

        Raises:
            UserError: the file system refuses.
        """
        for kind in (BOXES, *((MASKS,) if found.masks is not None else ())):
            results = ",".join(map(json.dumps, results_of(image_id, found, self._category_ids, kind)))
            with _told(self._file(kind)):
                if kind not in self._streams:
                    self._streams[kind] = open(self._file(kind), "wb")  # noqa: SIM115 - closed by ``close``
                self._streams[kind].write(f"{index}\t{results}\n".encode())
                self._streams[kind].flush()

    def _file(self, kind: str) -> Path:
        return self._folder / self._name.format(kind=kind)

    def close(self) -> Dict[str, str]:
        """Nothing is added any more; the name of the file of each kind."""
        for kind, stream in self._streams.items():
            with _told(self._file(kind)):
                stream.close()
        return {kind: self._file(kind).name for kind in self._streams}


def join_results(files: Sequence[Path], target: Path) -> None:
    """Write a file of results from those of all processes, in the order of the pictures; a picture that is in several
    files, because it was computed again after an interruption, counts once.

    Raises:
        UserError: the file system refuses; an older file is unchanged.
    """
    with _told(target), contextlib.ExitStack() as stack:
        streams = [stack.enter_context(open(file, "rb")) for file in files]
        out = stack.enter_context(atomic_file(target))
        out.write(b"[")
        last, between = -1, b"\n"
        for index, text in heapq.merge(*map(_read, streams), key=lambda line: line[0]):
            if index > last and text:
                out.write(between + text)
                between = b",\n"
            last = max(last, index)
        out.write(b"\n]\n")


def _read(stream: BinaryIO) -> Iterator[Tuple[int, bytes]]:
    for line in stream:
        number, tab, text = line.partition(b"\t")
        if not line.endswith(b"\n") or not tab:
            return  # the half line of a process that was killed
        yield int(number), text[:-1]


@contextlib.contextmanager
def _told(where: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {where}: {why_not_written(error)}") from error


class DetectionWriter(PredictionWriter):
    """Writes ``results.json`` of an evaluated split, and beside it ``results_masks.json`` where there are masks.

    Args:
        folder: exists once there is something to write.
        category_ids: of the labels from 0.
    """

    def __init__(self, folder: Path, category_ids: Sequence[int]) -> None:
        self.folder = folder
        self._number = 0
        self._parts = ResultParts(folder, f".results-{{kind}}-{rank():04d}.part", category_ids)

    def add(self, index: int, image_id: int, found: Detections) -> None:
        """Keep what was found in picture ``index`` of the split."""
        self._number += len(found.scores)
        self._parts.add(index, image_id, found)

    def finish(self) -> List[str]:
        """Join the files of all ranks. Every rank must call this."""
        parts = all_gather((self._parts.close(), self._number))
        if not is_main():
            return []
        said = []
        for kind, name in _FILES.items():
            files = [self.folder / names[kind] for names, _ in parts if kind in names]
            if files or kind == BOXES:
                join_results(files, self.folder / name)
                said.append(str(self.folder / name))
            for file in files:
                file.unlink()
        return [f"{sum(number for _, number in parts):,} detections in {' and '.join(said)}, in COCO's format"]
