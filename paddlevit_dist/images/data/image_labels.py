"""Labels of an image, made from what people have: several labels, and a label map; a class is ``class_labels``'.

Nothing is shifted or guessed: what can be read in two ways is refused.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from PIL import Image

from ...core.runtime.errors import UserError
from ...core.runtime.printing import describe_value
from ...core.tasks.class_labels import list_names, show_value
from ...core.tasks.sample_arrays import as_array
from ...core.tasks.sample_checks import BadSample

ANY, CLASS, LABELS = "", "class", "labels"  # what the label of an image is
IGNORED = 255  # label of a pixel without a class, so a dataset has at most 255 classes
_MAP_MODES = ("1", "L", "P", "I", "I;16", "I;16B", "I;16L")  # of Pillow, whose pixels are whole numbers


def make_labels(labels: Any, num_classes: int, class_names: Sequence[str] = ()) -> np.ndarray:
    """Return the labels of an image that has several, int8 (classes,): 1, 0, or -1 where it is not known.

    Args:
        labels: a row of ``num_classes`` numbers 1, 0 and -1, or of True and False; a list, tuple or set of the names
            that the image has, so that it has no others; a set of such numbers; a dictionary from all names to 1, 0
            and -1. A list of class numbers is refused, as it may look like a row.
        num_classes: number of classes.
        class_names: names of the classes, if they have any.

    Raises:
        BadSample: it is something else.
    """
    if isinstance(labels, Mapping):
        if set(labels) != set(class_names):
            raise _not_labels(labels, num_classes, class_names)
        return make_labels([labels[name] for name in class_names], num_classes)
    if isinstance(labels, Set) or (isinstance(labels, (list, tuple)) and not len(labels)):
        return _mark(labels, num_classes, class_names)
    array = as_array(labels)
    if array is not None and array.ndim == 1 and array.size and array.dtype.kind in "USO":
        return _mark(array.tolist(), num_classes, class_names)
    is_row = array is not None and array.size == num_classes and array.size == max(array.shape, default=0)
    if array is None or not is_row or array.dtype.kind not in "biuf":
        raise _not_labels(labels, num_classes, class_names)
    if not ((array == 1) | (array == 0) | (array == -1)).all():
        raise BadSample(f"its labels are {show_value(array.tolist())}, expected 1, 0, or -1 where it is not known")
    return array.reshape(-1).astype(np.int8)


def make_label_matrix(
    matrix: Any, num_classes: int | None, class_names: Sequence[str], where: Callable[[int], str]
) -> np.ndarray:
    """Return the labels of all images, int8 (samples, classes), from rows that ``make_labels`` takes.

    Raises UserError: a row is something else; ``where`` names its sample.
    """
    array = as_array(matrix)
    if array is not None and array.ndim == 2 and array.dtype.kind in "biuf":
        if num_classes is not None and array.shape[1] != num_classes:
            raise UserError(
                f"label_matrix has {array.shape[1]:,} columns, but there are {num_classes:,} classes: expected one each"
            )
        if ((array == 1) | (array == 0) | (array == -1)).all():
            is_made = isinstance(matrix, np.ndarray) and matrix.dtype == np.int8
            return matrix if is_made else array.astype(np.int8)
        num_classes = array.shape[1]
    listed: Any = matrix if isinstance(matrix, (list, tuple)) else array
    if num_classes is None or listed is None or (listed is array and not array.ndim):
        raise UserError(f"label_matrix is {show_value(matrix)}, expected a row of labels for each sample")
    rows = np.zeros((len(listed), num_classes), np.int8)
    for index, row in enumerate(listed):
        try:
            rows[index] = make_labels(row, num_classes, class_names)
        except BadSample as error:
            raise UserError(f"{where(index)}: {error}") from None
    return rows


def _mark(chosen: Any, num_classes: int, class_names: Sequence[str]) -> np.ndarray:
    """Return 1 for the classes that are named, or are numbers in a set, and 0 for the others."""
    marks, places = np.zeros(num_classes, np.int8), {name: place for place, name in enumerate(class_names)}
    for each in chosen:
        place = places.get(each.strip()) if isinstance(each, str) else None
        is_number = isinstance(each, (int, np.integer)) and not isinstance(each, (bool, np.timedelta64))
        if is_number and isinstance(chosen, Set) and 0 <= each < num_classes:
            place = int(each)
        if place is None:
            raise _not_labels(chosen, num_classes, class_names)
        marks[place] = 1
    return marks


def _not_labels(labels: Any, num_classes: int, class_names: Sequence[str]) -> BadSample:
    names = f", or the names that it has ({list_names(class_names)})" if class_names else ""
    return BadSample(
        f"its labels are {show_value(labels)}, expected a row of {num_classes} numbers, 1, 0, or -1 where it is not "
        f"known{names}"
    )


def make_label_map(labels: Any, num_classes: int | None, size: tuple[int, int] | None = None) -> np.ndarray:
    """Return the class of each pixel, or ``IGNORED``, uint8 (height, width).

    Args:
        labels: an image of mode 1, L, P (its entries) or I, or anything with whole numbers (height, width), also with
            one more axis of length 1.
        num_classes: number of classes; None: unknown.
        size: height and width of the image; None: unknown.

    Raises:
        BadSample: it is something else, of another size, or a label is out of range.
    """
    if isinstance(labels, Image.Image) and labels.mode not in _MAP_MODES:
        raise BadSample(f"its labels are an image of mode {labels.mode}: expected the number of a class in each pixel")
    array = None if isinstance(labels, (str, bytes)) else as_array(labels)
    if array is None or array.dtype.kind not in "biuf" or (size is None and array.ndim < 2):
        raise BadSample(f"its labels are {describe_value(labels)}: expected the number of a class for each pixel")
    if array.ndim == 3 and 1 in (array.shape[0], array.shape[2]):
        array = array[..., 0] if array.shape[2] == 1 and size in (None, array.shape[:2]) else array[0]
    if array.ndim != 2 or (size is not None and array.shape != size):
        expected = "(height, width)" if size is None else f"{size}, like the image"
        raise BadSample(f"its labels are {describe_value(labels)}: expected {expected}")
    last = IGNORED if num_classes is None else num_classes - 1
    if array.dtype == np.uint8 and (last == IGNORED or int((array + np.uint8(1)).max(initial=0)) <= last + 1):
        return array  # ``IGNORED`` has become 0, and each label is one larger
    if array.size and not 0 <= array.min() <= array.max() <= last:  # False if one is NaN
        wrong = ~(((array >= 0) & (array <= last)) | (array == IGNORED))
        if wrong.any():
            row, column = (int(place) for place in np.argwhere(wrong)[0])
            raise BadSample(
                f"pixel ({row}, {column}) has class {array[row, column]}, as {np.count_nonzero(wrong):,} of "
                f"{array.size:,} pixels are out of range: with {last + 1} classes labels go from 0 to {last}, and "
                f"{IGNORED} means no class"
            )
    if array.dtype.kind == "f" and (array != np.floor(array)).any():
        raise BadSample(f"its labels are {describe_value(labels)} with fractions: expected the numbers of classes")
    return array.astype(np.uint8)
