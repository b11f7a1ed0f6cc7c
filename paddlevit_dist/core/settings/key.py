"""Keys as fields of classes: type, default, range, help, effect and flag of a key are at its field.

    class Train(Section):
        BASE_LR: float = key(1e-3, "learning rate after warm-up", ABOVE_0)
        GRAD_CLIP: float | None = key(None, "largest global norm of the gradients", ABOVE_0)

    class Settings(Section):
        TRAIN: Train

A package that adds keys to a section derives its own class from the class of the package below. Readers name these
classes as the type of a configuration, so that mypy knows each key and its type. At run time a configuration is a
frozen ``CfgNode`` of this shape, which also holds the keys of users; the classes are never instantiated.
"""

import math
import re
import reprlib
from collections.abc import Callable, ItemsView, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from .values import NONE_WORDS, PARSERS, InvalidValue, OutOfRange, read_word

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: bool) -> Callable[[type], type]:
        """Return classes unchanged: only type checkers need the decorator."""
        return lambda cls: cls


# Kind of a key -> what its value is called, singular and plural. A new kind: a row here, in ``_KIND_OF_TYPES``, and in
# ``values.PARSERS``.
KINDS = {
    "int": ("a whole number", "whole numbers"),
    "float": ("a number", "numbers"),
    "number": ("a number", "numbers"),
    "bool": ("true or false", "true or false"),
    "text": ("text", "texts"),
    "path": ("text", "texts"),
    "switch": ("true, false or text", "true, false or texts"),
    "options": ("values by name, such as {width: 24, pool: average}", "values by name"),
}
OPTIONS = "MODEL.OPTIONS"  # the only key of the kind "options"

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 100
_short.maxlist = _short.maxtuple = _short.maxdict = 8
_short.maxlevel = 3

_LIST_ITEM = re.compile(r"""(\s*'(?:[^']|'')*'\s*|\s*"[^"]*"\s*|[^,]*),""")  # a comma in quotes is part of it
_LARGEST = 2**31 - 1  # the limit of libraries, where a key has none


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; an open end excludes its bound; ``also`` lists single numbers outside it."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    also: tuple[float, ...] = ()

    def __contains__(self, number: float) -> bool:
        above = number > self.low if self.low_open else number >= self.low
        below = number < self.high if self.high_open else number <= self.high
        return (above and below) or number in self.also

    def __str__(self) -> str:
        ends = []
        if self.low > -math.inf:
            ends.append(f"{'>' if self.low_open else '>='} {self.low:g}")
        if self.high < math.inf:
            ends.append(f"{'<' if self.high_open else '<='} {self.high:.10g}")
        return " or ".join([" and ".join(ends), *(f"{number:g}" for number in self.also)])


AT_LEAST_0 = Range(low=0)
AT_LEAST_1 = Range(low=1)
ABOVE_0 = Range(low=0, low_open=True)
SHARE = Range(low=0, high=1)
SHARE_BELOW_1 = Range(low=0, high=1, high_open=True)
SHARE_ABOVE_0 = Range(low=0, high=1, low_open=True)
SEEDS = Range(low=0, high=2**31 - 1)


SIZE = "SIZE"  # placeholder of a flag that takes pixels, 512 or HEIGHTxWIDTH, for a key of height and width


class Flag(NamedTuple):
    """A flag of the command line. Keys of several tasks may have the same: it sets the key of the run's task."""

    name: str  # without hyphens
    argument: str | None  # placeholder of its value; None for a switch
    group: str  # section of the help page
    place: int = 99  # position in this section; flags without one come last
    meaning: str = ""  # what it does, in a few words; empty: the key's meaning
    key: str | None = None  # the key that it sets; None for a flag of the command itself


EFFECTS = {  # effect of a key -> what another value changes
    "network": "what the weights compute",
    "score": "training and evaluation results",
    "training": "training results, but not the score of given weights",
    "data": "training results; a None that follows from the data is not compared",
    "neutral": "no result",
    "machine": "no result; may differ between machines",
    "start": "one start of a run, but not its results",
    "place": "one start of a run; may differ between machines",
}
_EFFECTS_BY_SECTION = {"MODEL": "network", "TRAIN": "training", "DATA": "training"}


@dataclass(frozen=True)
class Key:
    """A row of the table of keys.

    Args:
        name: dotted, as written on the command line.
        default: value when neither a file nor the command line sets the key; its type (list, tuple) is kept.
        kind: type of the value or of each item: "int", "float", "number" (an int if it is whole), "bool", "text",
            "path" (``~`` is the home folder), "switch" (a bool, or a text that says more) or, for MODEL.OPTIONS only,
            "options" (values by name; MODEL.OPTIONS.NAME sets one).
        meaning: what the key sets, in one line.
        within: the numbers allowed, None for any finite one.
        choices: the values allowed, None for any; texts are compared without case.
        many: the value is a sequence; ``length`` items if that is not None.
        optional: None is allowed and means "not set".
        words: texts allowed in place of a sequence.
        or_many: the value is one item or a list of them, such as a number for each stage; with ``length``, a list of
            equal items becomes one item.
        training_only: an evaluation does not read the key.
        effect: what another value changes, one of ``EFFECTS``. Empty: "training" with ``training_only``, else the
            effect of its section: MODEL "network", TRAIN and DATA "training", all others "score".
        flag: the flag that also sets the key, if any. Only keys of this package have one.
        counts: "epochs" or "updates" of a whole training run, if the key is a part of one. A recipe's value that is not
            shorter than a run is shortened with it (``engine.settings``).
    """

    name: str
    default: Any
    kind: str
    meaning: str
    within: Range | None = None
    choices: tuple[Any, ...] | None = None
    many: bool = False
    length: int | None = None
    optional: bool = False
    words: tuple[str, ...] = ()
    or_many: bool = False
    training_only: bool = False
    effect: str = ""
    flag: Flag | None = None
    counts: Literal["", "epochs", "updates"] = ""

    def __post_init__(self) -> None:
        if not self.effect:
            section, dot, _ = str(self.name).partition(".")
            in_section = _EFFECTS_BY_SECTION.get(section, "score") if dot else "score"
            object.__setattr__(self, "effect", "training" if self.training_only else in_section)

    def expected(self) -> str:
        """Describe the allowed values, in words that follow "expected "."""
        singular, plural = KINDS[self.kind]
        if self.choices:
            words = f"one of {', '.join(_format_value(choice) for choice in self.choices)}"
        elif self.many:
            words = f"a list of {self.length or ''} {plural}".replace("  ", " ")
            words += f", each {self.within}" if self.within else ""
            words = ", ".join([*self.words, words])
        else:
            words = f"{singular} {self.within}" if self.within else singular
            number = f"{self.length} of " if self.length else ""
            words += f" or a list of {number}them" if self.or_many else ""
        return words + (", or None" if self.optional else "")

    def parse(self, value: object) -> Any:
        """Return the value in the type of this key.

        Raises:
            InvalidValue: it has another type, is out of range, or is not one of the choices.
        """
        if value is None or (self.optional and isinstance(value, str) and value.strip().lower() in NONE_WORDS):
            if self.optional:
                return None
            raise InvalidValue("a value is needed")
        is_list = self.or_many and (isinstance(value, (list, tuple)) or re.search(r"[,\[(]", str(value)))
        if not (self.many or is_list):
            return self._parse_one(value)
        if isinstance(value, str) and value.strip().lower() in self.words:
            return value.strip().lower()
        items = [self._parse_one(item) for item in self._items(value)]
        if self.length is not None and len(items) != self.length:
            raise InvalidValue(f"{len(items)} items")
        if is_list and self.length is not None and len(set(items)) == 1:
            return items[0]
        return (type(self.default) if self.many and self.default is not None else list)(items)

    def _items(self, value: object) -> list[Any]:
        if isinstance(value, str):
            inner = value.strip()
            if (inner[:1], inner[-1:]) in (("(", ")"), ("[", "]")):
                inner = inner[1:-1].strip()
            inner = inner.removesuffix(",")
            return [_unquote(match[1].strip()) for match in _LIST_ITEM.finditer(f"{inner},")] if inner else []
        if isinstance(value, (list, tuple)):
            return list(value)
        return [value]

    def _parse_one(self, value: object) -> Any:
        if self.choices:
            for choice in self.choices:  # of several kinds, such as off and numbers
                if read_word(choice) == read_word(value):
                    return choice
        parsed = PARSERS[self.kind](value)
        if self.choices:
            raise InvalidValue("none of the choices")
        if self.within is not None and parsed not in self.within:
            raise InvalidValue("out of range")
        has_limit = self.within is not None and self.within.high < math.inf
        if self.kind == "int" and not has_limit and abs(parsed) > _LARGEST:
            raise OutOfRange(f"numbers beyond {_LARGEST} are not supported")
        return parsed


def _unquote(item: str) -> str:
    """Return a list's item without the quotes of YAML and Python; others are part of the item."""
    if len(item) < 2 or item[0] not in "'\"" or item[-1] != item[0]:
        return item
    return item[1:-1].replace("''", "'") if item[0] == "'" else item[1:-1]


def show(value: object) -> str:
    """Format a value for an error message or notice: short, on one line."""
    return _short.repr(value)


def _format_value(choice: object) -> str:
    """Return a choice as YAML writes it: on and off for true and false."""
    return {True: "on", False: "off"}[choice] if isinstance(choice, bool) else str(choice)


Item = TypeVar("Item")
PathText = Annotated[str, "path"]  # ~ in it means the user's home folder
Pair = Annotated[list[Item], 2]
Triple = Annotated[list[Item], 3]

_KIND_OF_TYPES = {  # types of the value, or of its choices -> kind of the key
    frozenset({int}): "int",
    frozenset({float}): "float",
    frozenset({int, float}): "number",
    frozenset({bool}): "bool",
    frozenset({str}): "text",
    frozenset({bool, str}): "switch",
    frozenset({bool, int}): "switch",
    frozenset({Mapping[str, Any]}): "options",
}


class _SectionField(NamedTuple):
    default: Any
    meaning: str
    within: Range | None
    training_only: bool | None
    effect: str
    flag: Flag | None
    counts: Literal["", "epochs", "updates"]


def key(
    default: object,
    meaning: str,
    within: Range | None = None,
    *,
    training_only: bool | None = None,
    effect: str = "",
    flag: Flag | None = None,
    counts: Literal["", "epochs", "updates"] = "",
) -> Any:
    """Define a key as a field of a ``Section``; the arguments are as in ``Key``.

    Its annotation defines the type: ``int``, ``float``, ``int | float``, ``bool``, ``str``, ``PathText``, ``bool |
    str`` or a ``Literal`` of the choices; a list of these, a ``Pair``, ``Triple`` or tuple of them; ``int | list[int]``
    for one or a list; ``list[float] | Literal["balanced"]`` for a list or a word; and ``| None`` for an optional key.
    ``training_only`` None: only a key of TRAIN is.
    """
    return _SectionField(default, meaning, within, training_only, effect, flag, counts)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Section:
    """Keys, and sections inside; the names of its fields are in capitals."""

    if TYPE_CHECKING:  # what every CfgNode has

        def __getitem__(self, name: str) -> Any: ...

        def get(self, name: str, default: object = None) -> Any:
            """Return the value of a key or section."""

        def items(self) -> ItemsView[str, Any]:
            """Return names and values."""

        def clone(self) -> Any:
            """Return a copy."""


def rows(section: type[Section], above: str = "") -> tuple[Key, ...]:
    """Return the rows of the keys that a class and its sections declare, in order, without inherited ones."""
    found: list[Key] = []
    for name, annotation in section.__dict__.get("__annotations__", {}).items():
        if name in section.__dict__:
            found.append(_row(f"{above}{name}", annotation, section.__dict__[name]))
        else:
            found += rows(annotation, f"{above}{name}.")
    return tuple(found)


def _row(name: str, annotation: object, field: _SectionField) -> Key:
    """Return the row of a field, whose annotation is a union of types.

    For ``list[Literal["low", "high"]] | Literal["all"] | None``, the only sequence is the list, its ``items`` have the
    ``choices`` low and high, ``others`` is the word all, and the value is optional. ``int | list[int]`` has ``others``,
    too, but no words: its value is one item or many.
    """
    every = _members(annotation)
    members = [member for member in every if member is not NoneType]
    sequences = {member: found for member in members if (found := _sequence(member))}
    sequence = next(iter(sequences.values()), None)
    others = [member for member in members if member not in sequences]
    words = tuple(word for member in others for word in get_args(member)) if sequence else ()
    items, length = (_members(sequence[0]), sequence[1]) if sequence else (members, None)
    choices = get_args(items[0]) if get_origin(items[0]) is Literal else None
    is_named = get_origin(items[0]) is Annotated
    return Key(
        name,
        field.default,
        get_args(items[0])[1] if is_named else _KIND_OF_TYPES[frozenset(map(type, choices) if choices else items)],
        field.meaning,
        field.within,
        choices,
        many=sequence is not None and (not others or bool(words)),
        length=length,
        optional=NoneType in every,
        words=words,
        or_many=sequence is not None and bool(others) and not words,
        training_only=name.startswith("TRAIN.") if field.training_only is None else field.training_only,
        effect=field.effect,
        flag=None if field.flag is None else field.flag._replace(key=name),
        counts=field.counts,
    )


def _members(annotation: object) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _sequence(member: object) -> tuple[Any, int | None] | None:
    """Return the item type and the length of a list or tuple; None for any other type."""
    plain, length = get_args(member) if get_origin(member) is Annotated else (member, None)
    items = get_args(plain)
    if get_origin(plain) is tuple:
        return items[0], len(items)
    return (items[0], length) if get_origin(plain) is list else None
