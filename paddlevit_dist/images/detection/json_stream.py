"""The elements of a large JSON file one by one, in memory for a few of them: COCO's annotations are 450 MB of text,
which as Python objects take 3 GB.

Bytes are taken for characters one to one, so that places in the text are places in the file; an element with other than
ASCII characters is decoded once more as UTF-8.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, BinaryIO, Dict, Iterator, NamedTuple, Optional, Union

from ...files import open_regular

WINDOW_BYTES = 1 << 22  # read at once
LARGEST_ELEMENT = 1 << 27  # bytes; a longer one is no annotation
_LONGEST_STRING = 1 << 24  # an error this far before the end of what was read is one, and no sign of more to come
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHITESPACE = re.compile(r"[ \t\n\r]*")
_MOST_DIGITS = 400  # of a whole number
_EXPONENT = len("e+")

Place = Union[str, "os.PathLike[str]"]


class Element(NamedTuple):
    """A value of the file.

    Attributes:
        name: of the member of the outermost object that it is, or is an element of; "" where that is a list.
        number: position in its list, from 0; -1: the member is no list, and this is its value.
        value: as ``json.loads`` has it.
        start, end: its first byte in the file, and the one after its last.
    """

    name: str
    number: int
    value: Any
    start: int
    end: int


def elements(path: Place, window_bytes: int = WINDOW_BYTES) -> Iterator[Element]:
    """The elements of all lists in the outermost object of a file, or of the outermost list.

    Raises:
        OSError: it cannot be read.
        ValueError: not JSON, not UTF-8, neither an object nor a list, or with too large an element; one line that says
            at which byte.
    """
    with open_regular(path, "rb") as stream:
        yield from _Reader(stream, window_bytes).document()


class _Reader:
    """Reads the file from front to back; ``_text`` is what is known of it behind byte ``_base``."""

    def __init__(self, stream: BinaryIO, window_bytes: int) -> None:
        self._stream = stream
        self._window_bytes = window_bytes
        self._text = ""
        self._base = self._at = 0  # of the text in the file, of the next character in the text
        self._is_ascii = self._is_over = False
        options: Dict[str, Any] = {} if sys.version_info >= (3, 11) else {"parse_int": _whole}  # later ones have limits
        self._decoder = json.JSONDecoder(**options)

    def document(self) -> Iterator[Element]:
        while len(self._text) < len(_BYTE_ORDER_MARK) and self._read_on():
            pass
        if self._text.startswith(_BYTE_ORDER_MARK.decode("latin-1")):
            self._at = len(_BYTE_ORDER_MARK)
        first = self._next_character()
        if first == "[":
            yield from self._list("")
        elif first == "{":
            yield from self._object()
        else:
            raise ValueError("it is neither a JSON object nor a list")
        if self._next_character():
            raise self._error("expected its end")

    def _object(self) -> Iterator[Element]:
        self._at += 1
        if self._next_character() == "}":
            self._at += 1
            return
        while True:
            if self._next_character() != '"':
                raise self._error("expected a name in quotes")
            name = self._value("", -1).value
            if self._next_character() != ":":
                raise self._error("expected ':'")
            self._at += 1
            if self._next_character() == "[":
                yield from self._list(name)
            else:
                yield self._value(name, -1)
            if not self._continues("}"):
                return

    def _list(self, name: str) -> Iterator[Element]:
        self._at += 1
        if self._next_character() == "]":
            self._at += 1
            return
        number = 0
        while True:
            self._next_character()
            yield self._value(name, number)
            number += 1
            if not self._continues("]"):
                return

    def _continues(self, closing: str) -> bool:
        """Whether another element follows; moves behind the comma, or behind the closing bracket."""
        character = self._next_character()
        if character not in (",", closing) or not character:
            raise self._error(f"expected ',' or '{closing}'")
        self._at += 1
        return character == ","

    def _next_character(self) -> str:
        """The next one that is no white space, without moving behind it; "" at the end of the file."""
        while True:
            self._at = _WHITESPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on():
                return ""

    def _value(self, name: str, number: int) -> Element:
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if error.pos < len(self._text) - _LONGEST_STRING or not self._read_on():
                    raise ValueError(f"byte {self._base + error.pos:,}: {error.msg}") from None
                continue
            except RecursionError:
                raise self._error("nested too deeply") from None
            except ValueError as error:  # a number of too many digits
                raise self._error(str(error).split(";")[0]) from None
            # A number that seems to end near the end of the text may go on behind it: 1 is the beginning of 1e+5.
            if end < len(self._text) - _EXPONENT or not self._read_on():
                break
        start, self._at = self._at, end
        if not self._is_ascii:
            value = self._as_unicode(value, self._text[start:end], self._base + start)
        return Element(name, number, value, self._base + start, self._base + end)

    def _as_unicode(self, value: Any, text: str, place: int) -> Any:
        if text.isascii():
            return value
        try:
            return self._decoder.decode(text.encode("latin-1").decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"byte {place + error.start:,}: not UTF-8") from None

    def _read_on(self) -> bool:
        """Read more and forget what is done with; False at the end of the file."""
        if self._is_over:
            return False
        rest = self._text[self._at :]
        if len(rest) > LARGEST_ELEMENT:
            raise self._error(f"an element of more than {LARGEST_ELEMENT:,} bytes")
        more = self._stream.read(max(self._window_bytes, len(rest)))
        if not more:
            self._is_over = True
            return False
        self._base += self._at
        self._at = 0
        self._text = rest + more.decode("latin-1")
        self._is_ascii = self._text.isascii()
        return True

    def _error(self, message: str) -> ValueError:
        return ValueError(f"byte {self._base + self._at:,}: {message}")


def _whole(digits: str) -> Optional[int]:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits")
    return int(digits)
