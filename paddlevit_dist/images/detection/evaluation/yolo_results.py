"""Boxes that others have found, in YOLO's text files, and what is annotated in any data set with boxes, as
``scored_files`` compares them."""

import math
import os
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from ....runtime.errors import UserError
from ....runtime.printing import shorten
from ....runtime.text_files import read_bytes
from ...data.data_warnings import count
from ...data.formats import list_names, stems
from ...run_lengths import compress_runs, outline
from ..coco_files import Id
from ..data.detection_dataset import DetectionDataset
from ..data.yolo import box_and_area
from ..detections import BOXES, MASKS
from .matching import BoxGroundTruth
from .scored_files import AnnotationFile, ResultFile, different_names

_SUFFIX = ".txt"
_NO_RESULTS = ("classes.txt",)  # labelImg's
_LARGEST_BYTES = 1 << 24
_FARTHEST = 2.0  # shares beyond it are pixels
_MARGIN = 0.05  # share of the image by which few detectors' boxes reach beyond it
_EXPECTED = "expected class x y width height confidence, shares of the image from 0 to 1 (save_txt and save_conf)"


def load_annotations(dataset: DetectionDataset, source: str, kind: str = BOXES) -> AnnotationFile:
    """Return what is annotated in the images of a data set.

    Args:
        source: what it is called, for messages.
        kind: ``BOXES`` or ``MASKS``, what is going to be compared.
    Raises:
        UserError: nothing is annotated in it, or it has no masks to compare.
    """
    if not dataset.labeled:
        raise UserError(f"{source} does not say what is in its images: there is nothing to compare with")
    if kind == MASKS and not dataset.has_masks:
        raise UserError(f"{source}: no object has a mask, and masks are to be compared")
    order = np.argsort(dataset.image_ids, kind="stable").tolist()
    found = [dataset.annotations(index) for index in order]
    sizes = dataset.sizes[order].reshape(-1, 2)
    masks = None
    if kind == MASKS:
        masks = [compress_runs(mask, *size) for one, size in zip(found, sizes.tolist()) for mask in one.masks or ()]
    columns = [
        np.concatenate([getattr(one, name) for one in found]) for name in ("boxes", "labels", "areas", "is_crowd")
    ]
    names: dict[Id, str] = dict(zip(dataset.category_ids, dataset.class_names or ()))
    return AnnotationFile(
        source,
        dataset.image_ids[order].tolist(),
        sizes,
        list(dataset.category_ids),
        different_names(names),
        BoxGroundTruth(*columns),
        masks,
        np.cumsum([0, *(len(one.labels) for one in found)]),
        list(dataset.notices),
        file_names=[dataset.identity(index) for index in order],
        own_names=list(map(str, dataset.class_names or ())),
    )


class _DetectionRows(NamedTuple):
    """Detections that are read file by file; see ``ResultFile``."""

    boxes: array
    scores: array
    labels: array
    masks: list[bytes]


def read_yolo(folder: str, annotations: AnnotationFile, label_of: Mapping[int, int], kind: str = BOXES) -> ResultFile:
    """Read a folder of YOLO's results: a file NAME.txt for each image, with a line ``class x y width height
    confidence`` for each box, or ``class x1 y1 x2 y2 ... confidence`` for each outline. As detectors write no file
    where they find nothing, an image without one has no detections.

    Args:
        folder: with these files, or with a folder ``labels`` of them.
        annotations: of the images, with their file names.
        label_of: label of each number of a class.
        kind: ``BOXES`` or ``MASKS``, what is going to be compared; a box has no outline, and is its own mask.
    Raises:
        UserError: there are no such files, one is of no image, or a line is none of these.
    """
    names = [name for name in list_names(folder) if name.endswith(_SUFFIX) and name not in _NO_RESULTS]
    inner = os.path.join(folder, "labels")
    if not names and os.path.isdir(inner):
        return read_yolo(inner, annotations, label_of, kind)
    if not names:
        raise UserError(f"{folder} has no {_SUFFIX} files; {_EXPECTED}")
    files = dict(zip(stems(names), names))
    images = stems(annotations.file_names)
    _require_known(folder, files, images, annotations)
    rows, first = _DetectionRows(array("d"), array("d"), array("q"), []), [0]
    for image, stem in enumerate(tqdm(images, desc="reading", unit="file", delay=1.0, disable=None, leave=False)):
        if stem in files:
            height, width = annotations.get_size(image)
            _read(os.path.join(folder, files[stem]), (height, width), label_of, kind, rows)
        first.append(len(rows.scores))
    boxes = np.array(rows.boxes).reshape(-1, 4)
    missing = len(images) - len(files)
    notices = [f"{folder}: {count(missing, 'image')} without a file: nothing found in them"] if missing else []
    limits = np.repeat(annotations.sizes.reshape(-1, 2)[:, ::-1], np.diff(first), axis=0)  # width, height
    beyond = (boxes[:, :2] < -_MARGIN * limits) | (boxes[:, :2] + boxes[:, 2:] > (1 + _MARGIN) * limits)
    number = int(beyond.any(axis=1).sum())
    if number > len(boxes) / 4:
        said = f"{number:,} of {count(len(boxes), 'box')} reach far beyond their images"
        notices.append(f"{folder}: {said}: are columns in another order, or corners in place of a middle? {_EXPECTED}")
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
    if not all(images):
        raise UserError(f"{annotations.path} has images without a file_name, by which YOLO's results are found")
    known = set(images)
    if len(known) < len(images):
        twice = next(stem for stem in images if images.count(stem) > 1)
        raise UserError(f"{annotations.path}: several images are called {twice}: YOLO's results tell them not apart")
    unknown = sorted(set(files) - known)
    if unknown:
        said = f"{count(len(unknown), 'file')} of no image of {annotations.path}, as {files[unknown[0]]}"
        raise UserError(f"{folder}: {said}; images are called {images[0]} there, for example")


def _read(file: str, size: tuple[int, int], label_of: Mapping[int, int], kind: str, rows: _DetectionRows) -> None:
    """Add the detections of an image of this height and width."""
    try:
        content = read_bytes(file, _LARGEST_BYTES)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    for number, line in enumerate(content.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            label, shares, score = _line([float(word) for word in words], label_of)
        except ValueError as error:
            shown = shorten(line.decode("utf-8", "backslashreplace"), 80)
            reason = str(error) if not str(error).startswith("could not convert") else _EXPECTED
            raise UserError(f"{file}, line {number}: '{shown}': {reason}") from None
        box, _ = box_and_area(shares, *size)
        rows.boxes.extend(box)
        rows.scores.append(score)
        rows.labels.append(label)
        if kind == MASKS:
            outlined = (
                outline(box) if len(shares) == 4 else [(np.reshape(shares, (-1, 2)) * size[::-1]).ravel().tolist()]
            )
            rows.masks.append(compress_runs(outlined, *size))


def _line(values: list[float], label_of: Mapping[int, int]) -> tuple[int, list[float], float]:
    """Label, shares and confidence.

    Raises:
        ValueError: it is none of a result.
    """
    if len(values) < 6 or len(values) % 2:
        hint = "no confidence: save_conf=True writes it; " if len(values) in (5, 7, 9) else ""
        raise ValueError(f"{len(values)} numbers: {hint}{_EXPECTED}")
    number, *shares, score = values
    label = label_of.get(int(number)) if math.isfinite(number) and number == int(number) else None
    if label is None:
        raise ValueError(
            f"there is no class {number:g}: {len(label_of):,} are known, {min(label_of)} to {max(label_of)}"
        )
    if not all(abs(share) < _FARTHEST for share in shares) or (len(shares) == 4 and min(shares[2:]) < 0):
        raise ValueError(f"expected shares of the image from 0 to 1, not pixels; {_EXPECTED}")
    if not 0 <= score <= 1:
        raise ValueError(f"the confidence is {score:g}; {_EXPECTED}")
    return label, shares, score
