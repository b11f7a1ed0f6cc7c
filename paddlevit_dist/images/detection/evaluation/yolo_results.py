"""Reads detections in YOLO's text files and the annotations of datasets, as ``scored_files`` compares them."""

import math
import os
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from ....core.runtime.errors import UserError
from ....core.runtime.files import readable
from ....core.runtime.printing import count, shorten
from ....core.runtime.spelling import compose
from ....core.runtime.text_files import read_bytes, to_utf8
from ....core.tasks.class_names import make_unique
from ...data.formats import list_folders, list_names, stems
from ...run_lengths import compress_runs, outline
from ..data.detection_dataset import DetectionDataset
from ..data.yolo import box_and_area
from ..detections import BOXES, MASKS
from .matching import AnnotationFile, BoxGroundTruth
from .scored_files import ResultFile

_SUFFIX = ".txt"
_INNER = "labels"  # folder of the files of Ultralytics
_NO_RESULTS = ("classes.txt",)  # labelImg's
_LARGEST_BYTES = 1 << 24
_MAX_FRACTION = 2.0  # larger values are pixels
_MARGIN = 0.05  # fraction of the image by which boxes of few detectors exceed it
_EXPECTED = "expected class x y width height confidence, as fractions of the image from 0 to 1 (save_txt and save_conf)"


def load_annotations(dataset: DetectionDataset, source: str, kind: str = BOXES) -> AnnotationFile:
    """Return a dataset's annotations; raise UserError if it has none, or no masks to compare."""
    if not dataset.labeled:
        raise UserError(f"{source} has no annotations to compare results with")
    if kind == MASKS and not dataset.has_masks:
        raise UserError(f"{source} has no masks to compare: no object has one")
    order = np.argsort(dataset.image_ids).tolist()
    annotations = [dataset.annotations(index) for index in order]
    sizes = dataset.sizes[order].reshape(-1, 2)
    masks: list[bytes] = []
    for index, annotation, size in zip(order, annotations, sizes.tolist() if kind == MASKS else ()):
        for id_, mask in zip(annotation.ids, annotation.masks or ()):
            try:
                masks.append(compress_runs(mask, *size))
            except ValueError as error:
                place = f"{source}: annotation {id_} of {dataset.describe(index)}"
                raise UserError(f"{place}: its segmentation {error}") from None
    columns = [
        np.concatenate([getattr(annotation, name) for annotation in annotations])
        for name in ("boxes", "labels", "areas", "is_crowd")
    ]
    names = list(map(str, dataset.class_names or ()))
    return AnnotationFile(
        source,
        dataset.image_ids[order].tolist(),
        sizes,
        list(dataset.category_ids),
        make_unique(names, [f"id {number}" for number in dataset.category_ids]),
        BoxGroundTruth(*columns),
        masks if kind == MASKS else None,
        np.cumsum([0, *(len(annotation.labels) for annotation in annotations)]),
        list(dataset.notices),
        file_names=[dataset.identity(index) for index in order],
        original_names=names,
        are_positions=not dataset.declares_ids and np.ptp(dataset.category_ids) < len(dataset.category_ids),
    )


class _DetectionRows(NamedTuple):
    """Detections of the files read so far; see ``ResultFile``."""

    boxes: array
    scores: array
    labels: array
    masks: list[bytes]


def has_files(path: str) -> bool:
    """Return whether a folder has YOLO's text files, perhaps in its folder ``labels``."""
    return os.path.isdir(path) and bool(_list_results(path) or os.path.isdir(os.path.join(path, _INNER)))


def _list_results(folder: str) -> list[str]:
    return [name for name in list_names(folder) if name.lower().endswith(_SUFFIX) and name.lower() not in _NO_RESULTS]


def read_yolo(folder: str, annotations: AnnotationFile, label_map: Mapping[int, int], kind: str = BOXES) -> ResultFile:
    """Read a folder of YOLO's results, with a file NAME.txt for each image, perhaps in its folder ``labels``.

    A line is ``class x y width height confidence`` for a box, or ``class x1 y1 x2 y2 ... confidence`` for an outline.
    Detectors write no file where they find nothing, so an image without one has no detections. In a comparison of
    masks, a box without an outline is its own mask. ``label_map`` maps class numbers in the files to labels.

    Raises:
        UserError: there are no such files, a file belongs to no image, or a line is invalid.
    """
    names, inner = _list_results(folder), os.path.join(folder, _INNER)
    if not names and os.path.isdir(inner):
        return read_yolo(inner, annotations, label_map, kind)
    if not names:
        remark = ", and those in its folders are not read" if list_folders(folder, may_be_absent=False) else ""
        raise UserError(f"{folder} has no {_SUFFIX} files{remark}; {_EXPECTED}")
    files = dict(zip(map(compose, stems(names)), names))
    images = list(map(compose, stems(annotations.file_names)))
    _require_known(folder, files, images, annotations)
    rows, first = _DetectionRows(array("d"), array("d"), array("q"), []), [0]
    for image, stem in enumerate(tqdm(images, desc="reading", unit="file", delay=1.0, disable=None, leave=False)):
        if stem in files:
            height, width = annotations.get_size(image)
            _read(os.path.join(folder, files[stem]), (height, width), label_map, kind, rows)
        first.append(len(rows.scores))
    boxes = np.array(rows.boxes).reshape(-1, 4)
    missing = len(images) - len(files)
    notices = [f"{folder}: {count(missing, 'image')} without a file, taken as without detections"] if missing else []
    limits = np.repeat(annotations.sizes.reshape(-1, 2)[:, ::-1], np.diff(first), axis=0)  # width, height
    is_outside = (boxes[:, :2] < -_MARGIN * limits) | (boxes[:, :2] + boxes[:, 2:] > (1 + _MARGIN) * limits)
    number = int(is_outside.any(axis=1).sum())
    if number > len(boxes) / 4:
        message = f"{number:,} of {count(len(boxes), 'box')} are far outside their images"
        notices.append(f"{folder}: {message}: is the column order different, or are corners given? {_EXPECTED}")
    return ResultFile(
        folder,
        boxes,
        boxes[:, 2] * boxes[:, 3],
        np.array(rows.scores),
        np.array(rows.labels, np.int64),
        rows.masks if kind == MASKS else None,
        np.array(first),
        notices,
    )


def _require_known(folder: str, files: Mapping[str, str], images: Sequence[str], annotations: AnnotationFile) -> None:
    """Check that every file belongs to one image of the annotations."""
    if not all(images):
        raise UserError(f"{annotations.path} has images without a file_name, which YOLO's results are matched by")
    image_stems = set(images)
    if len(image_stems) < len(images):
        duplicate = next(stem for stem in images if images.count(stem) > 1)
        raise UserError(f"{annotations.path}: several images are called {duplicate}, so YOLO's results are ambiguous")
    unknown = sorted(set(files) - image_stems)
    if unknown:
        message = f"{count(len(unknown), 'file')} without an image in {annotations.path}, such as {files[unknown[0]]}"
        raise UserError(f"{folder}: {message}; an image there is called {images[0]}, for example")


def _read(file: str, size: tuple[int, int], label_map: Mapping[int, int], kind: str, rows: _DetectionRows) -> None:
    """Add the detections of an image of this height and width."""
    with readable(file):
        content = to_utf8(read_bytes(file, _LARGEST_BYTES))
    for number, line in enumerate(content.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            label, fractions, score = _line([float(word) for word in words], label_map)
        except ValueError as error:
            excerpt = shorten(line.decode("utf-8", "backslashreplace"), 80)
            reason = str(error) if not str(error).startswith("could not convert") else _EXPECTED
            raise UserError(f"{file}, line {number}: '{excerpt}': {reason}") from None
        box, _ = box_and_area(fractions, *size)
        rows.boxes.extend(box)
        rows.scores.append(score)
        rows.labels.append(label)
        if kind == MASKS:
            shape = (
                outline(box)
                if len(fractions) == 4
                else [(np.reshape(fractions, (-1, 2)) * size[::-1]).ravel().tolist()]
            )
            rows.masks.append(compress_runs(shape, *size))


def _line(values: list[float], label_map: Mapping[int, int]) -> tuple[int, list[float], float]:
    """Parse a line into label, box or outline, and confidence; raise ValueError if it is not a result."""
    if len(values) < 6 or len(values) % 2:
        hint = "no confidence: save_conf=True writes it; " if len(values) in (5, 7, 9) else ""
        raise ValueError(f"{len(values)} numbers: {hint}{_EXPECTED}")
    number, *fractions, score = values
    label = label_map.get(int(number)) if math.isfinite(number) and number == int(number) else None
    if label is None:
        raise ValueError(
            f"there is no class {number:g}: {len(label_map):,} are known, from {min(label_map)} to {max(label_map)}"
        )
    if not all(abs(fraction) < _MAX_FRACTION for fraction in fractions) or (
        len(fractions) == 4 and min(fractions[2:]) < 0
    ):
        raise ValueError(f"expected fractions of the image from 0 to 1, not pixels; {_EXPECTED}")
    if not 0 <= score <= 1:
        raise ValueError(f"the confidence is {score:g}; {_EXPECTED}")
    return label, fractions, score
