"""A configuration key: what it may hold, and how a value from a file or the command line becomes that; and the table in
which those keys stand that one package reads."""

import math
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from yacs.config import CfgNode

NONE_WORDS = ("", "none", "null", "~")

KINDS = {  # kind -> (one of them, several of them)
    "int": ("a whole number", "whole numbers"),
    "float": ("a number", "numbers"),
    "number": ("a number", "numbers"),
    "bool": ("true or false", "true or false"),
    "text": ("text", "texts"),
    "path": ("text", "texts"),
    "switch": ("true, false or text", "true, false or texts"),
}

_short = reprlib.Repr()
_short.maxstring = _short.maxother = 100
_short.maxlist = _short.maxtuple = _short.maxdict = 8
_short.maxlevel = 3


_LARGEST = 2**31 - 1  # what libraries take, where a key has no limit of its own


class InvalidValue(ValueError):
    """The value is not what its key may hold."""


class OutOfRange(InvalidValue):
    """The number fits its key, but nothing that would read it."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``; an open end excludes its bound, ``also`` are single numbers outside it."""

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


@dataclass(frozen=True)
class Key:
    """A row of the table of keys.

    Args:
        name: dotted, as written on the command line.
        default: value when neither a file nor the command line sets the key; its type (list, tuple) is kept.
        kind: of the value or of each item: "int", "float", "number" (an int where it is whole), "bool", "text", "path"
            (a text in which ``~`` is the home folder) or "switch" (a bool, or a text that says more).
        meaning: one line for people.
        within: the numbers allowed, None for any finite one.
        choices: the values allowed, None for any; texts are compared without case.
        many: the value is a sequence; ``length`` items if that is not None.
        optional: None is allowed and means "not set".
        words: texts allowed in place of a sequence.
        or_many: the value is one item or a list of them, such as a number for each stage.
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

    def expected(self) -> str:
        """Say what the key may hold, in words that follow "expected "."""
        one, several = KINDS[self.kind]
        if self.choices:
            words = f"one of {', '.join(_format_value(choice) for choice in self.choices)}"
        elif self.many:
            words = f"a list of {self.length or ''} {several}".replace("  ", " ")
            words += f", each {self.within}" if self.within else ""
            words = ", ".join([*self.words, words])
        else:
            words = f"{one} {self.within}" if self.within else one
            words += " or a list of them" if self.or_many else ""
        return words + (", or None" if self.optional else "")

    def parse(self, value: Any) -> Any:
        """The value as this key holds it.

        Raises:
            Mismatch: it is of another type, out of range, or none of the choices.
        """
        if value is None or (self.optional and isinstance(value, str) and value.strip().lower() in NONE_WORDS):
            if self.optional:
                return None
            raise InvalidValue("a value is needed")
        if self.or_many and (isinstance(value, (list, tuple)) or re.search(r"[,\[(]", str(value))):
            return [self._parse_one(item) for item in self._items(value)]
        if not self.many:
            return self._parse_one(value)
        if isinstance(value, str) and value.strip().lower() in self.words:
            return value.strip().lower()
        items = [self._parse_one(item) for item in self._items(value)]
        if self.length is not None and len(items) != self.length:
            raise InvalidValue(f"{len(items)} items")
        return (list if self.default is None else type(self.default))(items)

    def _items(self, value: Any) -> list[Any]:
        if isinstance(value, str):
            inner = value.strip()
            if (inner[:1], inner[-1:]) in (("(", ")"), ("[", "]")):
                inner = inner[1:-1].strip()
            inner = inner.removesuffix(",")
            return [item.strip() for item in inner.split(",")] if inner else []
        if isinstance(value, (list, tuple)):
            return list(value)
        return [value]

    def _parse_one(self, value: Any) -> Any:
        if self.choices:
            for choice in self.choices:  # of several kinds, such as off and numbers
                if str(choice).lower() == str(value).strip().lower():
                    return choice
        parsed = _PARSERS[self.kind](value)
        if self.choices:
            raise InvalidValue("none of the choices")
        if self.within is not None and parsed not in self.within:
            raise InvalidValue("out of range")
        has_limit = self.within is not None and self.within.high < math.inf
        if self.kind == "int" and not has_limit and abs(parsed) > _LARGEST:
            raise OutOfRange(f"numbers beyond {_LARGEST} are not taken")
        return parsed


def show(value: Any) -> str:
    """The value as an error message or notice shows it: on one line and not long."""
    return _short.repr(value)


def _format_value(choice: Any) -> str:
    """As YAML has it, which knows more than true and false."""
    return {True: "on", False: "off"}[choice] if isinstance(choice, bool) else str(choice)


def _parse_int(value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            value = _parse_float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue("not a whole number")
    return value


def _parse_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidValue("not a number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise InvalidValue("not a number") from None
    if not math.isfinite(number):
        raise InvalidValue("not a finite number")
    return number


def _parse_number(value: Any) -> int | float:
    number = _parse_float(value)
    return int(number) if number.is_integer() else number


def _parse_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue("neither true nor false")
    return value


def _parse_switch(value: Any) -> bool | str:
    if isinstance(value, str) and value.strip().lower() in NONE_WORDS:
        return False
    return value if isinstance(value, bool) else _parse_text(value)


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidValue("not a text")
    return value


def _parse_path(value: Any) -> str:
    return os.path.expanduser(_parse_text(value))


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "int": _parse_int,
    "float": _parse_float,
    "number": _parse_number,
    "bool": _parse_bool,
    "text": _parse_text,
    "path": _parse_path,
    "switch": _parse_switch,
}


COMMAND_LINE = "command line"
SettingsT = TypeVar("SettingsT")  # a class of settings, see ``section``


@dataclass(frozen=True)
class KeySetting:
    """``source`` is "command line" or the file; ``place`` is for messages: file and line, or the flag; ``is_base``: the
    file is one that BASE names; ``is_implied``: nobody wrote it (``KeyTable.infer``)."""

    name: str
    value: Any
    source: str
    place: str
    is_base: bool = False
    is_implied: bool = False


class ConfigView(Generic[SettingsT]):
    """The merged values, and who set them: ``given[name]`` names key, value and place in a message, ``name in given``
    says whether anybody set it. A rule names the settings that it looks at: ``ConfigView[RunSettings]``."""

    def __init__(self, values: SettingsT, settings: Mapping[str, KeySetting]) -> None:
        self.values = values
        self.settings = settings

    def __getitem__(self, name: str) -> str:
        setting = self.settings.get(name)
        return f"{name} {get_value(self.values, name)} ({setting.place if setting else 'default'})"

    def __contains__(self, name: str) -> bool:
        return name in self.settings


def get_value(values: CfgNode, name: str) -> Any:
    """The value of the dotted ``name``."""
    for part in name.split("."):
        values = values[part]
    return values


class IgnoredKeys(NamedTuple):
    """Keys that nobody reads because of the value of another key, ``because``; ``why`` says more, with {} in its place.

    A name that ends with a dot means all keys of that section.
    """

    names: tuple[str, ...]
    because: str
    why: str


def _nothing(*_: Any) -> Any:
    return ()


EFFECTS = {  # of keys -> what another value changes
    "network": "what the weights compute",
    "score": "the course of a training, and what an evaluation finds",
    "training": "the course of a training, and no score of given weights",
    "data": "the same; None follows from the data, and is not compared",
    "neutral": "no number",
    "machine": "no number, and each machine may have its own",
    "start": "one start, and not the training",
    "place": "one start, and each machine may have its own",
}
_BY_SECTION = {"MODEL": "network", "TRAIN": "training", "DATA": "training"}
_Files = Sequence[Mapping[str, KeySetting]]  # the settings of each file by name


@dataclass(frozen=True, eq=False)
class KeyTable:
    """The keys that one package reads, and its rules for them. It is in a Paddle-free module beside the reader;
    the registry names it for each task that reads it.

    Args:
        keys: the rows; defaults are nowhere else.
        training: names of those that an evaluation does not read; a dot at the end means a whole section.
        effects: one of ``EFFECTS`` -> names of the keys that have it; a dot at the end means a whole section. Others
            have "training" if ``training`` names them, else that of their section: MODEL "network", TRAIN and DATA
            "training", any other "score".
        infer: ``infer(files, own)`` recognizes a form of files by the settings of each, and returns where values
            come from that go without saying in it, and these values; ("", {}) for other files. ``own`` are those that
            are not recipes of this package.
        complete: ``resolve_defaults(values, settings, all_settings)`` fits values that nobody set to those that
            somebody did, in place, and returns notices; ``settings`` are those that count, ``all_settings`` also those
            they replaced.
        check: ``check(given)`` raises ``UserError`` where two values contradict each other, and returns notices.
        find_ignored: ``find_ignored(given)`` yields the keys that this run does not read, whoever set them.
        renamed: keys of PaddleViT's files -> what they are called here.
        renamed_values: (key, value in PaddleViT's files in small letters) -> the value here.
        ignored_keys: keys of PaddleViT's files that change no number -> why they are not needed.
    """

    keys: tuple[Key, ...]
    training: tuple[str, ...] = ()
    effects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    infer: Callable[[_Files, _Files], tuple[str, Mapping[str, Any]]] = lambda files, own: ("", {})
    resolve_defaults: Callable[[CfgNode, Mapping[str, KeySetting], Sequence[KeySetting]], Sequence[str]] = _nothing
    check: Callable[[ConfigView[Any]], Sequence[str]] = _nothing
    find_ignored: Callable[[ConfigView[Any]], Iterator[IgnoredKeys]] = _nothing
    renamed: Mapping[str, str] = field(default_factory=dict)
    renamed_values: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    ignored_keys: Mapping[str, str] = field(default_factory=dict)

    def find_effect(self, name: str) -> str:
        """Which of ``EFFECTS`` another value of its key ``name`` has."""
        named = next((effect for effect, names in self.effects.items() if covers(names, name)), None)
        in_section = _BY_SECTION.get(name.partition(".")[0], "score") if "." in name else "score"
        return named or ("training" if covers(self.training, name) else in_section)

    def of_training(self) -> set[str]:
        """Names of the keys that an evaluation does not read."""
        return {key.name for key in self.keys if covers(self.training, key.name)}


def covers(names: Sequence[str], name: str) -> bool:
    """Whether ``name`` is one of the names, or in one of the sections among them."""
    return any(name == other or (other.endswith(".") and name.startswith(other)) for other in names)
