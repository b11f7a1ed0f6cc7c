"""Names of classes, which are unique: scores, columns and files name a class by its name alone.

A list that a user writes with a name twice is refused (``require_unique``). Where a published format tells classes of
one name apart by something else, such as COCO's ids, it becomes part of the name (``make_unique``).
"""

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from ..registry.required_methods import is_builtin
from ..runtime.errors import UserError
from ..runtime.hints import find_similar
from ..runtime.printing import shorten
from ..settings.every_run import RunSettings
from .class_labels import show_value
from .sample_arrays import as_array

ALL_NAMES = ("all", "all together")  # see ``name_all``
_LONGEST = 60  # letters of a name in a message


def make_class_names(names: Any, what: str) -> Sequence[str]:
    """Return the names of classes as texts, without spaces around them, in their order; texts are returned unchanged.

    Raises UserError, in which ``what`` is the attribute with the names, such as "dataset bars: class_names": they are
    neither texts nor whole numbers in a list, a tuple, an array or a dictionary from 0, 1, 2 ..., or one is empty.
    """
    if isinstance(names, (list, tuple)) and all(type(name) is str and name == name.strip() and name for name in names):
        return names
    listed = names
    if isinstance(names, Mapping):
        listed = list(names.values()) if list(names) == list(range(len(names))) else None
    elif isinstance(names, (str, bytes, Set, Iterator)) or not hasattr(names, "__len__"):
        listed = None  # letters, without an order, or gone after they are read once
    try:
        texts = [] if listed is None else [_make_name(name) for name in listed]
    except Exception:  # of a user's class, or of an array without axes
        listed, texts = None, []
    if listed is None or "" in texts:
        wrong = names if listed is None else list(listed)[texts.index("")]
        raise UserError(
            f"{what} {'are' if listed is None else 'contain'} {show_value(wrong)}; expected a list of texts, one for "
            "each class, in the order of the labels"
        )
    return texts


def _make_name(name: Any) -> str:
    """Return a name as text; empty if it is not a text or a whole number."""
    if isinstance(name, (bytes, np.bytes_)):
        name = name.decode("utf-8", "replace")
    if isinstance(name, (str, int, np.integer, np.bool_)) and not isinstance(name, np.timedelta64):
        return str(name).strip()
    return ""


def make_num_classes(number: Any, what: str) -> int:
    """Return a number of classes as ``int``; raises UserError, in which ``what`` is the attribute that has it."""
    array = None if isinstance(number, (str, bytes, bool)) else as_array(number)
    value = array.reshape(-1)[0] if array is not None and array.size == 1 else None
    if not isinstance(value, (int, np.integer, np.floating)) or value != value or value in (np.inf, -np.inf):
        value = -1
    if value < 1 or value != int(value):
        raise UserError(f"{what} is {show_value(number)}; expected a whole number from 1 up")
    return int(value)


def require_classes(dataset: Any, name: str) -> None:
    """Raise a UserError unless a dataset says which classes it has; names an attribute that may be misspelled."""
    if dataset.num_classes or len(dataset.class_names or ()):
        return
    own = [vars(cls) for cls in dataset.own_class.__mro__ if not is_builtin(cls)]
    found = find_similar("class_names", {each for names in own for each in names if each[0] != "_"} - {"class_names"})
    raise UserError(
        f"{name} does not say which classes it has: give its class an attribute class_names, or num_classes if the "
        f"classes have no names{f' (it has {found[0]}, which is not read)' if found else ''}"
    )


def list_numbers(number: int) -> list[str]:
    """Return the names of classes that have none."""
    return [str(label) for label in range(number)]


def require_classes_of_own(dataset: Any, config: RunSettings) -> None:
    """Raise a UserError if neither a user's dataset nor the configuration says which classes there are."""
    if config.MODEL.NUM_CLASSES is None and not is_builtin(dataset.own_class):
        require_classes(dataset, f"dataset {config.DATA.DATASET}")


def require_unique(names: Iterable[str], places: str, numbers: Iterable[int] | None = None) -> None:
    """Raise a UserError that names the first two places of one name.

    Args:
        names: names of classes, or of landmarks.
        places: what has the names and what a place is, such as "classes.txt lines" or "dataset bars: classes".
        numbers: numbers of the places; None: from 0.
    """
    place_of: dict[str, int] = {}
    for place, name in zip(itertools.count() if numbers is None else numbers, names):
        if name in place_of:
            raise UserError(
                f"{places} {place_of[name]} and {place} are both '{shorten(name, _LONGEST)}'; each needs its own name"
            )
        place_of[name] = place


def make_unique(names: Sequence[str], marks: Sequence[str]) -> list[str]:
    """Return unique names: each name, followed by its mark in brackets if several classes have this name.

    Marks, such as "id 11", are unique.
    """
    times, taken, result = Counter(names), set(names), []
    for name, mark in zip(names, marks, strict=True):
        if times[name] > 1:
            name = f"{name} ({mark})"
            while name in taken:  # another class has this name
                name += "'"
            taken.add(name)
        result.append(name)
    return result


def name_all(names: Container[str]) -> str:
    """Return the name of what is computed from all classes, in a table or chart next to theirs."""
    return ALL_NAMES["all" in names]


def resolve_class_names(
    config: RunSettings,
    names: Sequence[str] | None,
    word: str = "classes",
    number: int | None = None,
    before: Sequence[str] = (),
) -> list[str]:
    """Return the names of a dataset's classes, followed by numbers up to MODEL.NUM_CLASSES.

    Args:
        config: the frozen configuration.
        names: names of the classes; None: they have none, but there are ``number`` classes.
        word: what the message calls classes.
        number: number of classes without names.
        before: names of another split, whose first ones these have to be; empty: unknown.

    Raises:
        UserError: MODEL.NUM_CLASSES is smaller than the number of classes, splits have different classes, or a name
            occurs twice.
    """
    require_unique(names or (), f"dataset {config.DATA.DATASET}: {word}")
    if before and names and list(names) != list(before)[: len(names)]:
        raise UserError(
            f"dataset {config.DATA.DATASET}: training and validation data name different {word}: {', '.join(before)} "
            f"and {', '.join(names)}; give both the same list of {word}"
        )
    names = names or list_numbers(number or 0)
    requested, existing = config.MODEL.NUM_CLASSES, len(names)
    if requested is not None and requested < existing:
        raise UserError(
            f"dataset {config.DATA.DATASET} has {existing} {word} but MODEL.NUM_CLASSES (-num_classes) is {requested}; "
            f"set it to {existing} or remove it"
        )
    return name_outputs(names, requested or existing)


def name_outputs(names: Sequence[object] | None, number: int) -> list[str]:
    """Name the outputs of a network: the first ones by ``names``, others by their number; no two have one name.

    A name that others have, too, as in lists of ImageNet's classes, is followed by the number of the output. A number
    that is also the name of a class follows the word "output".
    """
    first = [str(name) for name in names or ()][:number]
    first = make_unique(first, [f"output {place}" for place in range(len(first))])
    taken, more = set(first), []
    for place in range(len(first), number):
        name = str(place)
        while name in taken:
            name = f"output {name}"
        more.append(name)
    return [*first, *more]
