"""Checks of a split of images with boxes: missing files, masks, odd objects, and objects too many or too few."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ....core.runtime.errors import UserError
from ....core.runtime.outages import find_missing_folder
from ....core.runtime.printing import count
from ...data.data_warnings import DataWarnings
from ...data.held_out import write_rows
from ...data.reading import UnreadableImage
from ...run_lengths import parse_segmentation
from ..odd_objects import POINT_OUTSIDE, find_outside, note_boxes, require_pixel_points, require_sides
from .detection_dataset import DetectionDataset

_MANY_CROWDS = 0.5  # share of the objects
_FIRST, _SECONDS = 200, 5.0  # images of a user's dataset, and the time for them


def note_crowded(
    dataset: DetectionDataset, split: str, model_limit: tuple[str, int] | None, max_detections: int | None
) -> list[str]:
    """Return notices on images with more objects than the model detects, or more of a category than count.

    Args:
        model_limit: see ``Detector.most_objects``.
        max_detections: detections per image and category that the evaluation counts; None for training.
    """
    objects, lines = dataset.object_counts(), []
    limits = (
        [(0, "objects", model_limit[1], f"that the model detects in an image ({model_limit[0]})")]
        if model_limit
        else []
    )
    if max_detections is not None:
        limits.append((1, "objects of a category", max_detections, "counted detections (-max_detections)"))
    for column, kind, most, reason in limits:
        crowded = objects[:, column][objects[:, column] > most]
        if len(crowded):
            lines.append(
                f"{len(crowded):,} of {count(len(objects), f'{split} image')} with more {kind} than the {most:,} "
                f"{reason}, up to {crowded.max():,}: {(crowded - most).sum():,} objects exceed this limit"
            )
    return lines


def check_files(dataset: DetectionDataset, split: str, is_replaced: bool) -> list[str]:
    """Return notices on unlabeled images and replaced missing files; raise UserError if they are not replaced."""
    unannotated = dataset.list_unannotated()
    lines = []
    if unannotated:
        number = count(len(unannotated), "image")
        lines = [f"{number} without annotations in the folder of {split} skipped, such as {unannotated[0]}"]
    missing = dataset.missing()
    if not len(missing):
        return lines
    dataset.absent_folders = frozenset(filter(None, map(find_missing_folder, map(dataset.describe, missing))))
    shown = ", ".join(map(dataset.describe, missing[:3]))
    scope = f"{len(missing):,} of {len(dataset):,} images of {split} are missing, such as {shown}"
    if is_replaced and len(missing) < len(dataset):
        return [*lines, f"{scope}: the next images replace them (DATA.ON_INVALID_SAMPLE skip)"]
    skip = ", or set DATA.ON_INVALID_SAMPLE skip" if split == "train" else ""
    raise UserError(f"{scope}: restore them, remove them from the annotations{skip}")


def select_usable(
    dataset: DetectionDataset, split: str, is_skipped: bool, part: Callable[[Any, Path], Any], cache_folder: Path
) -> tuple[Any, list[str]]:
    """Return the ``part`` of a dataset without the images whose masks cannot be used, and a notice on them.

    Raises UserError, which names the first of them, unless ``is_skipped``.
    """
    broken = dataset.find_broken_masks()
    if not is_skipped or len(broken) == len(dataset):
        can_skip = split == "train" and len(broken) < len(dataset)
        skip = ", or set DATA.ON_INVALID_SAMPLE skip to exclude such images" if can_skip else ""
        require_masks(dataset, split, f"correct or remove the object{skip}")
    if not len(broken):
        return dataset, []
    rows = write_rows(cache_folder, "images-usable", np.setdiff1d(np.arange(len(dataset)), broken))
    number, example = count(len(broken), "training image"), _describe_broken_mask(dataset, broken[0])
    notice = f"{number} with a mask that cannot be used excluded (DATA.ON_INVALID_SAMPLE skip), such as {example}"
    return part(dataset, rows), [notice]


def require_masks(dataset: DetectionDataset, split: str, advice: str = "correct or remove the object") -> None:
    """Raise UserError, which names image, object and reason, if a mask is known to be unusable."""
    broken = dataset.find_broken_masks()
    if len(broken):
        raise UserError(
            f"{split}: {count(len(broken), 'image')} with a mask that cannot be used, such as "
            f"{_describe_broken_mask(dataset, broken[0])}; {advice}"
        )


def _describe_broken_mask(dataset: DetectionDataset, index: int) -> str:
    """Name an image, its first object whose mask cannot be used, and the reason."""
    annotations, size = dataset.annotations(index), dataset.size(index)
    for number, mask in zip(annotations.ids.tolist(), annotations.masks or ()):
        try:
            parse_segmentation(mask, *size)
        except ValueError as error:
            return f"{dataset.describe(index)}: the segmentation of its object {number} {error}"
    return dataset.describe(index)


def explain_nothing_learned(dataset: DetectionDataset) -> str:
    """Say why no object of a dataset is learned, and what to do."""
    images = [dataset.annotations(index) for index in range(len(dataset))]
    total = sum(len(image.labels) for image in images)
    if not total:
        return "its annotations have none; is this the annotated folder, or was it exported before labeling?"
    crowds = int(sum(image.is_crowd.sum() for image in images))
    flat = int(sum((~image.has_area & ~image.is_crowd).sum() for image in images))
    others = total - crowds - flat
    kinds = (
        (crowds, "crowd", ", not learned (iscrowd 1 in COCO's files, difficult in VOC's)"),
        (flat, "box", " without area"),
        (others, "object", " without a labeled point"),
    )
    reasons = [f"{count(number, kind)}{reason}" for number, kind, reason in kinds if number]
    advice = "set iscrowd to 0 for those that are one object each, such as masks of CVAT's brush"
    if not crowds:
        advice = "expected objects with a box and a labeled point" if others else "expected boxes with an area"
    return f"its {count(total, 'object')} {'is' if total == 1 else 'are'} {', '.join(reasons)}; {advice}"


def list_crowds(dataset: DetectionDataset) -> list[str]:
    """Return a line on the crowds among the objects whose box has an area, if there are any."""
    crowds, total = dataset.count_crowds(), int(dataset.class_counts()[:, 0].sum())
    verb = "is a crowd" if crowds == 1 else "are crowds"
    return [f"{crowds:,} of {count(total, 'object')} {verb}, not learned"] if crowds else []


def note_first_objects(dataset: DetectionDataset, split: str, name: str) -> list[str]:
    """Return notices on the objects in the first images of a split, also of a user's dataset called ``name``.

    Raises:
        UserError: boxes cannot be x, y, width, height in pixels, or points no pixels.
    """
    first = np.arange(min(len(dataset), _FIRST))
    if not dataset.reports_odd_objects:
        lines, crowds, total = _look_at(dataset, first, name)
    elif dataset.reading is not None:
        lines, crowds, total = [], dataset.count_crowds(first), int(dataset.class_counts(first)[:, 0].sum())
    else:  # images that this package draws
        return []
    if crowds >= _MANY_CROWDS * total > 0:
        verb = "is a crowd" if crowds == 1 else "are crowds"
        lines.append(f"{crowds:,} of {count(total, 'object')} {verb}, not learned (iscrowd, difficult)")
    of = "" if len(first) == len(dataset) else f" (in the first {len(first):,} of {len(dataset):,} images)"
    return [f"{split}: {line}{of}" for line in lines]


def _look_at(dataset: DetectionDataset, indices: np.ndarray, name: str) -> tuple[list[str], int, int]:
    """Read images of a user's dataset, as far as time allows; return lines on objects, the crowds, and all objects."""
    found, places, sizes = [], list[int](), list[tuple[int, int]]()
    end = time.monotonic() + _SECONDS
    for index in indices.tolist():
        if time.monotonic() > end:
            break
        try:
            image, annotations = dataset.read(index)
        except UnreadableImage:  # reported when it is decoded
            continue
        found.append(annotations)
        places += [index] * len(annotations.boxes)
        sizes += [(image.height, image.width)] * len(annotations.boxes)
    if not places:
        return [], 0, 0
    boxes, all_sizes, odd = np.concatenate([each.boxes for each in found]), np.array(sizes, np.int64), DataWarnings()
    examples = np.array([dataset.describe(index) for index in places], dtype=object)
    kept = (boxes[:, 2:] > 0).all(axis=1)
    advice = ', or return a dictionary with box_format "xyxy"'
    require_sides(f"dataset {name}: a box", boxes[kept], all_sizes[kept], advice)
    note_boxes(odd, examples[kept], boxes[kept], all_sizes[kept])
    points = [each.points for each in found if each.points is not None]
    if len(points) == len(found):
        all_points = np.concatenate(points)
        require_pixel_points(f"dataset {name}, points", all_points, all_sizes)
        odd.note_all("object", POINT_OUTSIDE, examples[find_outside(all_points, all_sizes)])
    crowds = sum(int((each.is_crowd & each.has_area).sum()) for each in found)
    return odd.lines(), crowds, int(kept.sum())
