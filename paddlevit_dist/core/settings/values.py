"""Parses the value of a key, by its kind."""

import math
import os
import re
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

from ..runtime.text_files import parse_yaml

NONE_WORDS = ("", "none", "null", "~")
_SWITCH_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}  # as in YAML
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


class InvalidValue(ValueError):
    """A value that its key does not allow."""


class OutOfRange(InvalidValue):
    """A number that its key allows, but that is too large for the libraries that read it."""


def _parse_int(value: object) -> int:
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


def _parse_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidValue("not a number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise InvalidValue("not a number") from None
    if not math.isfinite(number):
        raise InvalidValue("not a finite number")
    return number


def _parse_number(value: object) -> int | float:
    number = _parse_float(value)
    return int(number) if number.is_integer() else number


def read_word(value: object) -> bool | str:
    """Return true or false for their words, also in quotes, and other values in the spelling to compare."""
    word = str(value).strip().lower()
    return _SWITCH_WORDS.get(word, word)


def _parse_bool(value: object) -> bool:
    word = read_word(value)
    if not isinstance(word, bool):
        raise InvalidValue("neither true nor false")
    return word


def _parse_switch(value: object) -> bool | str:
    if isinstance(value, str) and value.strip().lower() in NONE_WORDS:
        return False
    word = read_word(value)
    return word if isinstance(word, bool) else _parse_text(value)


def _parse_text(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidValue("not a text")
    return value


def _parse_options(value: object) -> dict[str, Any]:
    try:
        value = parse_yaml(value) if isinstance(value, str) else value
    except ValueError:
        raise InvalidValue("not YAML") from None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) and name.isidentifier() for name in value):
        raise InvalidValue("not names with values")
    return {name: _parse_any(item) for name, item in value.items()}


def _parse_any(value: object) -> Any:
    """Return a plain value of YAML unchanged; as for other keys, the texts None and 1e-3 are null and a number."""
    if isinstance(value, (list, tuple)):
        return [_parse_any(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _parse_any(item) for name, item in value.items()}
    if not isinstance(value, (str, int, float, NoneType)) or value != value:
        raise InvalidValue("not a number, text, list, mapping or null")
    if isinstance(value, str) and _EXPONENT.fullmatch(value):  # a text in YAML 1.1, a number in 1.2
        return float(value)
    return None if value == "None" else value


PARSERS: dict[str, Callable[[Any], Any]] = {  # by kind; ``key.KINDS`` describes the kinds
    "int": _parse_int,
    "float": _parse_float,
    "number": _parse_number,
    "bool": _parse_bool,
    "text": _parse_text,
    "path": lambda value: os.path.expanduser(_parse_text(value)),
    "switch": _parse_switch,
    "options": _parse_options,
}
