"""The class of a sample: what people have for it, as a whole number from 0 that is never shifted."""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import one_line, shorten
from .sample_arrays import as_array
from .sample_checks import BadSample, describe_classes, require_finite

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?")
_MOST_CLASSES = 1 << 63  # of what an index of samples holds
_LONGEST, _MOST_NAMED = 60, 8  # characters of a value, and classes, in a message


def make_class(label: Any, num_classes: int | None, class_names: Sequence[str] = ()) -> int:
    """Return the class of a sample as a number from 0.

    Args:
        label: a whole number of any type, also alone in a list or an array; a class's name; a whole number as text, if
            no class is named by a number; a row of ``num_classes`` with a single 1 and else 0. True is 1, False 0.
        num_classes: number of classes; None: unknown, so that there is no upper limit.
        class_names: names of the classes, if they have any.

    Raises:
        BadSample: it is something else, or out of range.
    """
    value = label if type(label) is int else _find_scalar(label, num_classes)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return _find_named(value, num_classes, class_names)
    if (
        not isinstance(value, (int, float, np.floating))
        or value != value
        or value in (np.inf, -np.inf)
        or value != int(value)
    ):
        expected = f" or the name of a class ({list_names(class_names)})" if class_names else " of a class"
        raise BadSample(
            f"label is {show_value(label)}, expected the whole number{expected}; repair or remove the sample"
        )
    number = int(value)
    if number < 0 or number >= (_MOST_CLASSES if num_classes is None else num_classes):
        raise BadSample(f"label {number} is out of range: {describe_classes(num_classes)}")
    return number


def make_classes(
    labels: Any, num_classes: int | None, class_names: Sequence[str], where: Callable[[int], str]
) -> np.ndarray:
    """Return the class of each sample, integers (samples,), from anything that ``make_class`` takes for one.

    An array of integers (samples,) is returned unchanged, without a check of their range. Raises UserError: a label is
    not a class; ``where`` names its sample.
    """
    array = as_array(labels)
    if array is not None and array.ndim and array.dtype.kind in "iu" and array.size == len(array):
        return labels if isinstance(labels, np.ndarray) and labels.ndim == 1 else array.reshape(-1)
    if array is None or not array.ndim:
        raise UserError(f"labels are {show_value(labels)}, expected the number of each sample's class, (samples,)")
    classes = np.zeros(len(array), np.int64)
    for index, label in enumerate(labels if isinstance(labels, (list, tuple)) else array):
        try:
            classes[index] = make_class(label, num_classes, class_names)
        except BadSample as error:
            raise UserError(f"{where(index)}: {error}") from None
    return classes


def require_label(label: object, num_classes: int | None) -> None:
    """Check the class of a sample. Several numbers, the shares of all classes, must be finite.

    Args:
        label: what ``make_class`` takes, or an array of shares.
        num_classes: number of classes; None: unknown, so that there is no upper limit.

    Raises:
        BadSample: the label is not a valid class.
    """
    array = as_array(label)
    if array is not None and array.size > 1:
        if array.dtype.kind not in "biuf":
            raise BadSample(f"label is {show_value(label)}, expected the class, or a share of each class")
        require_finite(array, "label")
    else:
        make_class(label, num_classes)


def require_class_numbers(
    results: str,
    found: Collection[int],
    source: str,
    known: Collection[int],
    count_right: Callable[[int], int],
    advice: str,
    is_closed: bool = True,
) -> None:
    """Refuse results that number the classes in another way than the ground truth.

    Where a number is only a position in a list, nothing else shows that a program counts from 1: scores are near 0.

    Args:
        results, source: names of the results and of the ground truth in the message.
        found, known: numbers in the results, and numbers of all classes.
        count_right: returns how many results are right if this, 1 or -1, is first subtracted from each number. It is
            only called where a number at the end of ``known`` is never found.
        advice: what else to do, at the end of the message.
        is_closed: whether a number outside ``known`` is refused; else it is another class, which does not count.

    Raises:
        UserError: a number is not known, or more results are right with all numbers one lower or higher.
    """
    if not found or not known:
        return
    (low, high), (first, last) = ((min(numbers), max(numbers)) for numbers in (found, known))
    unknown, is_range = set(found).difference(known) if is_closed else set(), last - first == len(known) - 1
    if unknown and not is_range:
        theirs, ours = (shorten(", ".join(map(str, sorted(numbers))), _LONGEST) for numbers in (unknown, known))
        raise UserError(f"{results} has classes {theirs}, but {source} only {ours}: {advice}")
    theirs, ours = (f"{a} to {b}" if a < b else f"{a}" for a, b in ((low, high), (first, last)))
    ranges = f"{results} numbers the classes {theirs}, but {source} {ours}"
    advised = {1: f"subtract 1 from each number, or {advice}", -1: f"add 1 to each number, or {advice}"}
    if unknown:
        off = next((off for off in advised if first <= low - off and high - off <= last), 0)
        raise UserError(f"{ranges}: {advised.get(off, advice)}")
    for off, end in ((1, first), (-1, last)):
        if is_range and end not in found and (shifted := count_right(off)) > (right := count_right(0)):
            fit = f"{shifted:,} are right with each number one {'lower' if off > 0 else 'higher'}, {right:,} unchanged"
            raise UserError(f"{ranges}, and {fit}: {advised[off]}")


def _find_named(text: str, num_classes: int | None, class_names: Sequence[str]) -> int:
    names = list(class_names)
    for spelling in (text, text.strip()):
        if spelling in names:
            return names.index(spelling)
    has_numbers = any(_WHOLE.fullmatch(name.strip()) for name in names)
    if not has_numbers and _WHOLE.fullmatch(text.strip()):
        return make_class(int(text.strip().partition(".")[0]), num_classes)
    named = f"the name of a class ({list_names(names)})" if names else "the whole number of a class"
    raise BadSample(f"label is {show_value(text)}, expected {named}; repair or remove the sample")


def _find_scalar(label: Any, num_classes: int | None) -> Any:
    """Return the number or text in a label; None if there is none, or there are several."""
    array = as_array(label)
    if array is None or array.size == 0:
        return None
    if array.size == 1:
        value = array.reshape(-1)[0]
        return value.item() if isinstance(value, np.generic) else value
    is_row = array.size == num_classes and array.size == max(array.shape) and array.dtype.kind in "biuf"
    if is_row and np.isin(array, (0, 1)).all() and np.count_nonzero(array) == 1:
        return int(np.argmax(array))
    return None


def show_value(value: Any) -> str:
    """Return a value for a message, on one line and shortened."""
    try:
        text = repr(value.item() if isinstance(value, np.generic) else value)
    except Exception:  # a user's class may raise anything
        text = type(value).__name__
    return shorten(one_line(" ".join(text.split())), _LONGEST)


def list_names(names: Sequence[str]) -> str:
    """Return the first names of classes for a message."""
    more = f", … {len(names):,} in all" if len(names) > _MOST_NAMED else ""
    return shorten(", ".join(names[:_MOST_NAMED]), 2 * _LONGEST) + more
