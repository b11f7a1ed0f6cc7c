"""A configuration key: its allowed values, the parsing of a value, and the table of the keys that one package reads."""

import math
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from yacs.config import CfgNode

NONE_WORDS = ("", "none", "null", "~")

KINDS = {  # kind -> (singular, plural)
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


_LARGEST = 2**31 - 1  # the limit of libraries, where a key has none


class InvalidValue(ValueError):
    """A value that its key does not allow."""


class OutOfRange(InvalidValue):
    """A number that its key allows, but that is too large for the libraries that read it."""


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


@dataclass(frozen=True)
class Key:
    """A row of the table of keys.

    Args:
        name: dotted, as written on the command line.
        default: value when neither a file nor the command line sets the key; its type (list, tuple) is kept.
        kind: type of the value or of each item: "int", "float", "number" (an int if it is whole), "bool", "text",
            "path" (``~`` is the home folder) or "switch" (a bool, or a text that says more).
        meaning: what the key sets, in one line.
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
            words += " or a list of them" if self.or_many else ""
        return words + (", or None" if self.optional else "")

    def parse(self, value: Any) -> Any:
        """Return the value in the type of this key.

        Raises:
            InvalidValue: it has another type, is out of range, or is not one of the choices.
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
            raise OutOfRange(f"numbers beyond {_LARGEST} are not supported")
        return parsed


def show(value: Any) -> str:
    """Format a value for an error message or notice: short, on one line."""
    return _short.repr(value)


def _format_value(choice: Any) -> str:
    """Return a choice as YAML writes it: on and off for true and false."""
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
    """The value of one key and its origin.

    Attributes:
        source: "command line" or the file.
        origin: for messages: file and line, or the flag.
        is_base: the file is one that BASE names.
        is_implied: the value was inferred, not written (``KeyTable.infer``).
    """

    name: str
    value: Any
    source: str
    origin: str
    is_base: bool = False
    is_implied: bool = False


class ConfigView(Generic[SettingsT]):
    """The merged values and their origins, as rules see them: ``ConfigView[RunSettings]`` names the settings they read.

    ``config[name]`` describes key, value and origin for a message; ``name in config`` is true if the key was set.
    """

    def __init__(self, values: SettingsT, settings: Mapping[str, KeySetting]) -> None:
        self.values = values
        self.settings = settings

    def __getitem__(self, name: str) -> str:
        setting = self.settings.get(name)
        return f"{name} {get_value(self.values, name)} ({setting.origin if setting else 'default'})"

    def __contains__(self, name: str) -> bool:
        return name in self.settings


def get_value(values: CfgNode, name: str) -> Any:
    """Return the value of the dotted ``name``."""
    for part in name.split("."):
        values = values[part]
    return values


class IgnoredKeys(NamedTuple):
    """Keys that a run does not read because of the value of another key.

    Args:
        names: the ignored keys; a dot at the end means a whole section.
        condition: name of the other key.
        reason: why they are ignored; {} is replaced with the description of ``condition``.
    """

    names: tuple[str, ...]
    condition: str
    reason: str


def _nothing(*_: Any) -> Any:
    return ()


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
_BY_SECTION = {"MODEL": "network", "TRAIN": "training", "DATA": "training"}
_Files = Sequence[Mapping[str, KeySetting]]  # the settings of each file by name


@dataclass(frozen=True, eq=False)
class KeyTable:
    """The keys that one package reads, and its rules for them.

    It is in a module without Paddle next to the reader; the registry names it for each task that reads it.

    Args:
        keys: the rows; they alone define the defaults.
        training: names of the keys that an evaluation does not read; a dot at the end means a whole section.
        effects: one of ``EFFECTS`` -> names of the keys that have it; a dot at the end means a whole section. Any other
            key has "training" if ``training`` names it, else the effect of its section: MODEL "network", TRAIN and DATA
            "training", all others "score".
        infer: ``infer(files, user_files)`` recognizes a kind of files by the settings of each. It returns a source and
            the values that these files imply, or ("", {}). ``user_files`` excludes the recipes of this package.
        resolve_defaults: ``resolve_defaults(values, settings, all_settings)`` adapts values that were not set to those
            that were, in place, and returns notices. ``all_settings`` also has the settings that others override.
        check: ``check(config)`` raises ``UserError`` where two values contradict each other, and returns notices.
        find_ignored: ``find_ignored(config)`` yields the keys that this run does not read.
        renamed: key in PaddleViT's files -> its name here.
        renamed_values: (key, value in PaddleViT's files in lower case) -> the value here.
        ignored_keys: keys of PaddleViT's files without effect on results -> why they are not needed.
        is_optional: whether ``resolve_defaults`` and ``check`` apply only if a key has another value than its default.
    """

    keys: tuple[Key, ...]
    training: tuple[str, ...] = ()
    effects: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    infer: Callable[[_Files, _Files], tuple[str, Mapping[str, Any]]] = lambda files, user_files: ("", {})
    resolve_defaults: Callable[[CfgNode, Mapping[str, KeySetting], Sequence[KeySetting]], Sequence[str]] = _nothing
    check: Callable[[ConfigView[Any]], Sequence[str]] = _nothing
    find_ignored: Callable[[ConfigView[Any]], Iterator[IgnoredKeys]] = _nothing
    renamed: Mapping[str, str] = field(default_factory=dict)
    renamed_values: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    ignored_keys: Mapping[str, str] = field(default_factory=dict)
    is_optional: bool = False

    def applies(self, values: CfgNode) -> bool:
        """Return whether ``resolve_defaults`` and ``check`` apply to these values (see ``is_optional``)."""
        return not self.is_optional or any(get_value(values, key.name) != key.default for key in self.keys)

    def find_effect(self, name: str) -> str:
        """Return the effect of another value of the key ``name``, one of ``EFFECTS``."""
        named = next((effect for effect, names in self.effects.items() if covers(names, name)), None)
        in_section = _BY_SECTION.get(name.partition(".")[0], "score") if "." in name else "score"
        return named or ("training" if covers(self.training, name) else in_section)

    def training_names(self) -> set[str]:
        """Return the names of the keys that an evaluation does not read."""
        return {key.name for key in self.keys if covers(self.training, key.name)}


def covers(names: Sequence[str], name: str) -> bool:
    """Return whether ``name`` is one of the names or in one of the sections among them."""
    return any(name == other or (other.endswith(".") and name.startswith(other)) for other in names)
