"""The objects of an image, made from what people have: lists, names, boxes in other formats, masks as arrays."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....core.runtime.printing import describe_value, shorten
from ....core.tasks.class_labels import make_class, show_value
from ....core.tasks.sample_arrays import as_array
from ....core.tasks.sample_checks import BadSample, require_finite
from ...run_lengths import are_plain_polygons, find_mask_runs, parse_segmentation, require_segmentation

FORMATS = ("xywh", "xyxy", "cxcywh")
_FORMAT_TEXT = '"xywh" (x, y, width, height), "xyxy" (corners, as torchvision\'s) or "cxcywh" (center), in pixels'
#: keys of others' dictionaries -> fields
OTHER_NAMES = {"area": "areas", "iscrowd": "is_crowd", "keypoints": "points"}
_NO_FIELDS = ("image_id",)  # keys that say nothing of objects
_FEW = 64  # objects for which Python's sums are faster than NumPy's
_FLOAT, _INTEGER, _BOOL = np.dtype(np.float64), np.dtype(np.int64), np.dtype(bool)
_VISIBILITIES = {0.0, 1.0, 2.0}
_JSON_TYPES = {list, dict, str, int, float, bool, type(None)}


class ImageAnnotations(NamedTuple):
    """Annotations of an image: n objects in the file's order, including objects that training skips."""

    boxes: np.ndarray  # float64 (n, 4), x, y of the upper left corner, width, height, in the stored image's pixels
    labels: np.ndarray  # int64 (n,), index of the category in the dataset's ``category_ids``
    # None, if it is not given, is what a user's class may return: ``make_annotations`` then makes these three
    areas: np.ndarray = None  # float64 (n,), square pixels, of the mask if there is one
    #: bool (n,), a group: not learned; detections of it are neither right nor wrong
    is_crowd: np.ndarray = None
    ids: np.ndarray = None  # int64 (n,), ids of the annotations in their file
    masks: list[Any] | None = None  # n masks as in COCO's JSON: a list of polygons, or a dictionary
    #: float64 (n, K, 3), x and y of K keypoints in the stored image's pixels, and COCO's visibility: 0 not labeled, 1
    #: hidden, 2 visible. K is the largest number of a category. As in COCO's files a pixel's center is at its integers
    points: np.ndarray | None = None

    @property
    def is_learnable(self) -> np.ndarray:
        """Mask of objects, bool (n,), that COCO's detectors train on: no crowds, and boxes with an area."""
        return ~self.is_crowd & self.has_area

    @property
    def has_area(self) -> np.ndarray:
        """Mask of objects whose box has an area, bool (n,); others are neither learned nor counted as boxes."""
        return (self.boxes[:, 2] > 0) & (self.boxes[:, 3] > 0)


class ObjectRules(NamedTuple):
    """What the objects of all images of a dataset have in common."""

    num_classes: int | None = None  # None: not known
    class_names: Sequence[str] | None = None
    num_points: int | None = None  # keypoints of each object; None: any number, or none
    needs_masks: bool = False


_NO_RULES = ObjectRules()


def make_annotations(
    given: object, rules: ObjectRules = _NO_RULES, size: tuple[int, int] | None = None
) -> ImageAnnotations:
    """Return the annotations of an image with arrays of the stated types, from what people have.

    Fields may be lists, tuples, arrays or tensors; labels may be names of classes. Without areas, the areas of masks or
    else of boxes are computed; without crowd flags there are no crowds, and without ids objects are counted from 1.
    Masks may be arrays (n, height, width), 0 outside. Nothing is guessed: labels count from 0, and only a dictionary
    may have boxes in another format, which it names. Arrays of the stated types are checked and returned unchanged.

    Args:
        given: ``ImageAnnotations``, or a dictionary of its fields with "box_format", also with COCO's and torchvision's
            names "iscrowd", "area" and "keypoints", and with "image_id", which is not used.
        rules: what is expected of each object.
        size: height and width of the image, which its masks have to have; None: not known.

    Raises:
        BadSample: a field is missing, of another form or length, not finite, or out of range.
    """
    if type(given) is ImageAnnotations:
        if _is_made(given, rules):
            return given
        fields: Mapping[str, Any] = given._asdict()
    elif isinstance(given, Mapping):
        fields = _read_fields(given)
    else:
        expected = "expected ImageAnnotations, or a dictionary with boxes, labels and box_format"
        raise BadSample(f"annotations are {describe_value(given)}: {expected}")
    labels = fields.get("labels")
    boxes = read_boxes(fields.get("boxes"), fields.get("box_format", FORMATS[0]), "boxes")
    number = len(boxes)
    masks = make_masks(fields.get("masks"), number, rules.needs_masks, size)
    return ImageAnnotations(
        boxes,
        read_labels(labels, number, rules.num_classes, rules.class_names, "labels"),
        _make_areas(fields.get("areas"), boxes, masks),
        _make_flags(fields.get("is_crowd"), number),
        _make_ids(fields.get("ids"), number),
        masks,
        _make_points(fields.get("points"), number, rules.num_points),
    )


def _is_made(given: ImageAnnotations, rules: ObjectRules) -> bool:
    """Return whether all fields are of the stated types, finite and in range; in two microseconds for seven boxes."""
    boxes, labels, areas, is_crowd, ids, masks, points = given
    if not (type(boxes) is type(labels) is type(areas) is type(is_crowd) is type(ids) is np.ndarray):
        return False
    if boxes.dtype is not _FLOAT or areas.dtype is not _FLOAT or is_crowd.dtype is not _BOOL:
        return False
    number, shape = len(boxes), labels.shape
    if labels.dtype is not _INTEGER or ids.dtype is not _INTEGER or boxes.shape != (number, 4) or shape != (number,):
        return False
    if not shape == areas.shape == is_crowd.shape == ids.shape:
        return False
    if rules.needs_masks if masks is None else not _are_coco_masks(masks, number):
        return False
    if rules.num_points if points is None else not _are_points(points, number, rules.num_points):
        return False
    if not number:
        return True
    least, total, (low, high) = _summarize(boxes, areas, labels)
    limit = high + 1 if rules.num_classes is None else rules.num_classes
    return least >= 0 and math.isfinite(total) and 0 <= low and high < limit


def _summarize(boxes: np.ndarray, areas: np.ndarray, labels: np.ndarray) -> tuple[float, float, tuple[int, int]]:
    """Return the shortest side, a sum of all numbers, and the lowest and the highest label."""
    if len(labels) > _FEW:
        with np.errstate(invalid="ignore"):
            return boxes[:, 2:].min(), boxes.sum() + areas.sum(), (labels.min(), labels.max())
    values, numbers = boxes.ravel().tolist(), labels.tolist()
    least = min(min(values[2::4]), min(values[3::4]))
    return least, sum(values) + sum(areas.tolist()), (min(numbers), max(numbers))


def _are_coco_masks(masks: object, number: int) -> bool:
    """Return whether each object has something of a file of COCO as mask; its content is checked when it is drawn."""
    return type(masks) is list and len(masks) == number and set(map(type, masks)) <= _JSON_TYPES


def _are_points(points: Any, number: int, num_points: int | None) -> bool:
    """Return whether points are finite, float64 (n, K, 3), with COCO's visibilities."""
    if type(points) is not np.ndarray or points.dtype != _FLOAT or points.ndim != 3 or len(points) != number:
        return False
    if points.shape[2] != 3 or num_points not in (None, points.shape[1]):
        return False
    visibilities = points[:, :, 2]
    if number <= _FEW:
        total, is_known = float(np.vdot(points, points)), set(visibilities.ravel().tolist()) <= _VISIBILITIES
    else:
        with np.errstate(invalid="ignore"):
            total, is_known = points.sum(), bool(np.isin(visibilities, (0, 1, 2)).all())
    return is_known and math.isfinite(total)


def rename_fields(given: Mapping[str, Any], what: str = "") -> dict[str, Any]:
    """Return a dictionary by the names of fields; a BadSample if a field is in it by two names; ``what`` is for it."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        field = OTHER_NAMES.get(name, name)
        if field in fields:
            both = next(other for other in given if other != name and OTHER_NAMES.get(other, other) == field)
            raise BadSample(f"{what}'{both}' and '{name}' are the same field: give one of them")
        fields[field] = value
    return fields


def _read_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dictionary, which names the format of its boxes."""
    known = (*ImageAnnotations._fields, *OTHER_NAMES, "box_format", *_NO_FIELDS)
    unknown = [name for name in given if name not in known]
    if unknown:
        names = f"{', '.join(ImageAnnotations._fields)} and box_format"
        raise BadSample(f"annotations have {shorten(repr(unknown[0]), 60)}, which is not read: expected {names}")
    if "box_format" not in given:
        raise BadSample(f"annotations are a dictionary that does not name its box_format: add {_FORMAT_TEXT}")
    return rename_fields(given)


def read_array(values: object, name: str, is_finite: bool = True) -> np.ndarray:
    """Return numbers as an array, also of a tensor; a BadSample if they are something else, or not finite as asked."""
    array = as_array(values)
    if array is None or array.dtype.kind not in "biuf":
        raise BadSample(f"{name} are {describe_value(values)}: expected numbers")
    if is_finite:
        require_finite(array, name)
    return array


def _read_column(values: object, number: int, name: str) -> np.ndarray:
    """Return a number for each of ``number`` objects."""
    array = read_array(values, name)
    if array.shape != (number,) and (number or array.size):
        raise BadSample(f"{name} of shape {array.shape} for {number} boxes: expected ({number},)")
    return array.reshape(number)


def read_boxes(values: object, box_format: object, name: str) -> np.ndarray:
    """Return boxes as x, y, width, height, float64 (n, 4); a BadSample if they are not boxes of the format.

    Args:
        values: (n, 4), or (4,) for one box; for no boxes None or an array of no rows.
        box_format: one of ``FORMATS``.
        name: of the field, for messages.
    """
    chosen = box_format.lower() if isinstance(box_format, str) else box_format
    if not isinstance(chosen, str) or chosen not in FORMATS:
        raise BadSample(f"box_format is {show_value(box_format)}: expected {_FORMAT_TEXT}")
    array = read_array([] if values is None else values, name)
    if not array.size and array.shape[0] == 0:
        return np.zeros((0, 4))
    array = array.reshape(1, 4) if array.shape == (4,) else array
    if array.dtype == _BOOL or array.ndim != 2 or array.shape[1] != 4:
        raise BadSample(f"{name} are {array.dtype} of shape {array.shape}: expected numbers (n, 4)")
    boxes = array.astype(np.float64)
    if chosen == "xyxy":
        wrong = np.flatnonzero((boxes[:, :2] > boxes[:, 2:]).any(axis=1))
        if len(wrong):
            x0, y0, x1, y1 = boxes[wrong[0]].tolist()
            corners = f"{x0:g}, {y0:g}, {x1:g}, {y1:g}, and x1 < x0 or y1 < y0"
            expected = "expected corners x0, y0, x1, y1, not x, y, width, height"
            raise BadSample(f"{name}[{wrong[0]}] is {corners}: {expected}")
        boxes[:, 2:] -= boxes[:, :2]
    wrong = np.flatnonzero((boxes[:, 2:] < 0).any(axis=1))
    if len(wrong):
        width, height = boxes[wrong[0], 2:].tolist()
        raise BadSample(f"{name}[{wrong[0]}] has width {width:g} and height {height:g}: expected 0 or more")
    if chosen == "cxcywh":
        boxes[:, :2] -= boxes[:, 2:] / 2
    require_finite(boxes, name)  # differences of large numbers
    return boxes


def read_labels(
    values: Any, number: int, num_classes: int | None, class_names: Sequence[str] | None, name: str
) -> np.ndarray:
    """Return the classes of ``number`` boxes, from 0, int64 (number,), each as ``make_class`` does.

    Raises:
        BadSample: a label is not a class, or there is not one for each box.
    """
    if values is None and number:
        raise BadSample(f"{name} are missing: expected a class of each of {number} boxes")
    array = as_array([] if values is None else values)
    if array is None or (array.shape != (number,) and (number or array.size)):
        given = describe_value(array if array is not None and array.ndim else values)
        raise BadSample(f"{name} are {given}: expected a class of each of {number} boxes")
    is_in_range = array.dtype.kind in "iu" and (
        not number or (array.min() >= 0 and (num_classes is None or array.max() < num_classes))
    )
    if is_in_range or not number:
        return array.reshape(number).astype(np.int64)
    labels = np.zeros(number, np.int64)
    for place, label in enumerate(values if isinstance(values, (list, tuple)) else array):
        try:
            labels[place] = make_class(label, num_classes, class_names or ())
        except BadSample as error:
            raise BadSample(f"{name}[{place}]: {error.reason}") from error
    return labels


def _make_areas(values: object, boxes: np.ndarray, masks: list[Any] | None) -> np.ndarray:
    if values is None and masks is not None:
        return np.array([_measure_mask(mask) for mask in masks], np.float64)
    if values is None:
        with np.errstate(over="ignore"):  # refused below
            areas = boxes[:, 2] * boxes[:, 3]
        require_finite(areas, "areas")
        return areas
    areas = _read_column(values, len(boxes), "areas").astype(np.float64)
    wrong = np.flatnonzero(areas < 0)
    if len(wrong):
        raise BadSample(f"areas[{wrong[0]}] is {areas[wrong[0]]:g}: expected square pixels, 0 or more")
    return areas


def _measure_mask(mask: Any) -> float:
    """Return the pixels of run lengths, or the area inside of polygons, which COCO's files have, too."""
    if isinstance(mask, dict) or (mask and isinstance(mask[0], dict)):
        return float(parse_segmentation(mask).area)
    polygons = mask if not mask or np.ndim(mask[0]) else [mask]
    total = 0.0
    for polygon in polygons:
        x, y = np.array(polygon[: len(polygon) // 2 * 2], np.float64).reshape(-1, 2).T
        total += abs(float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum())) / 2
    return total


def _make_flags(values: object, number: int) -> np.ndarray:
    if values is None:
        return np.zeros(number, bool)
    flags = _read_column(values, number, "is_crowd")
    wrong = np.flatnonzero((flags != 0) & (flags != 1))
    if len(wrong):
        raise BadSample(f"is_crowd[{wrong[0]}] is {flags[wrong[0]]}: expected true or false, or 1 or 0")
    return flags.astype(bool)


def _make_ids(values: object, number: int) -> np.ndarray:
    if values is None:
        return np.arange(1, number + 1, dtype=np.int64)
    ids = _read_column(values, number, "ids")
    wrong = np.flatnonzero((ids % 1 != 0) | (np.abs(ids.astype(np.float64)) > 2**53))
    if len(wrong) or (ids.dtype == _BOOL and number):
        raise BadSample("ids have to be whole numbers; without ids they are counted from 1")
    return ids.astype(np.int64)


def _make_points(values: object, number: int, num_points: int | None) -> np.ndarray | None:
    """Return points, float64 (n, K, 3); a row of COCO's file, x, y and visibility of all points, is taken, too."""
    if values is None and (not num_points or not number):
        return np.zeros((0, num_points, 3)) if num_points else None
    expected = f"expected ({number}, {num_points or 'K'}, 3): x, y and visibility of each point"
    if values is None:
        raise BadSample(f"points are missing: {expected}")
    array = read_array(values, "points")
    if not number and not array.size:
        return np.zeros((0, num_points or 0, 3))
    if num_points and array.shape == (number, 3 * num_points):
        array = array.reshape(number, num_points, 3)
    is_form = array.ndim == 3 and len(array) == number and array.shape[2] == 3 and num_points in (None, array.shape[1])
    if not is_form or array.dtype == _BOOL:
        raise BadSample(f"points are {array.dtype} of shape {array.shape}: {expected}")
    wrong = np.argwhere(~np.isin(array[:, :, 2], (0, 1, 2)))
    if len(wrong):
        row, point = wrong[0].tolist()
        known = "expected 0 (not labeled), 1 (hidden) or 2 (visible)"
        raise BadSample(f"points[{row}, {point}] has visibility {array[row, point, 2]:g}: {known}")
    return array.astype(np.float64)


def make_masks(values: Any, number: int, is_needed: bool, size: tuple[int, int] | None) -> list[Any] | None:
    """Return a mask of each of ``number`` boxes in a form of COCO, see ``make_annotations``; None without masks."""
    if values is None and (not is_needed or not number):
        return [] if is_needed else None
    if values is None:
        raise BadSample(f"masks are missing: expected one for each of {number} boxes")
    if not isinstance(values, (list, tuple)):
        values = read_array(values, "masks")
        if values.ndim != 3 and values.size:
            raise BadSample(f"masks of shape {values.shape}: expected (n, height, width)")
    if len(values) != number:
        raise BadSample(f"{len(values)} masks of {number} boxes: expected one for each")
    return [_make_mask(mask, f"masks[{place}]", size) for place, mask in enumerate(values)]


def _make_mask(mask: Any, name: str, size: tuple[int, int] | None) -> Any:
    """Return a mask in a form of COCO: polygons or run lengths that are valid, or the run lengths of pixels."""
    if isinstance(mask, (list, dict)):
        if isinstance(mask, list) and any(hasattr(part, "numpy") for part in mask):
            mask = [read_array(part, name).tolist() for part in mask]
        if not are_plain_polygons(mask):
            try:
                require_segmentation(mask, *(size or (None, None)))
            except ValueError as error:
                raise BadSample(f"{name} cannot be used: its segmentation {error}") from error
        return mask
    pixels = read_array(mask, name)
    if pixels.ndim != 2 or not pixels.size or (size is not None and pixels.shape != size):
        expected = f"expected {size}, the image's" if size else "expected (height, width)"
        raise BadSample(f"{name} is of shape {pixels.shape}: {expected}, or polygons or run lengths as of COCO")
    inside = pixels[pixels != 0]
    if inside.size and (inside != inside[0]).any():
        low, high = inside.min(), inside.max()
        raise BadSample(f"{name} has values from {low:g} to {high:g} inside: expected 0 and one other value, 1 or 255")
    return find_mask_runs(pixels).listed()
