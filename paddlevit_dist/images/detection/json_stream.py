"""The elements of large JSON files one by one: COCO's files have up to millions, which would take gigabytes at once."""

from __future__ import annotations

import codecs
import json
import os
from typing import Any, Callable, Iterator, NamedTuple, Optional, Union

from ...files import open_regular

_CHUNK_BYTES = 1 << 20
_LONGEST = 1 << 24  # characters of one element; honest ones are shorter by far
_NEAR_THE_END = 16  # characters; what is wrong there may be only that the text is not all there yet
_SPACE = " \t\n\r"

Place = Union[str, "os.PathLike[str]"]
BEGINS = -1
WHOLE = -2


class Part(NamedTuple):
    """What stands in a file, in its order.

    Attributes:
        name: of the list or value; "" for a file that is itself a list.
        position: ``BEGINS`` where a list begins (the value is None), then 0, 1, ... for its elements; ``WHOLE`` for a
            value that is not a list.
        value: the element or value.
    """

    name: str
    position: int
    value: Any


def parts(path: Place, progress: Optional[Callable[[int], None]] = None) -> Iterator[Part]:
    """The parts of a JSON file that is a list, or an object with lists in it; one element is in memory at a time.

    Args:
        path: a plain file in UTF-8, with or without a mark at its start.
        progress: called now and then with the bytes that were read since the last call.
    Raises:
        OSError: it cannot be read.
        ValueError: it is no such JSON; one line that continues the file's name.
    """
    with open_regular(path, "rb") as stream:
        reader = _Reader(stream, progress)
        if reader.next() == "[":
            yield from reader.list_of("")
        elif reader.next() == "{":
            yield from reader.object()
        else:
            raise ValueError("is empty" if reader.next() == "" else "is not JSON with a list or an object")
        if reader.next():
            raise reader.error("there is more after its end")


class _Reader:
    """A text of which only the part that is being read is held."""

    def __init__(self, stream: Any, progress: Optional[Callable[[int], None]]) -> None:
        self.stream, self.progress = stream, progress
        self.decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self.text, self.place, self.lines, self.is_complete = "", 0, 0, False
        self.parse = json.JSONDecoder().raw_decode

    def more(self) -> None:
        """Read on; what was passed is dropped."""
        content = self.stream.read(max(_CHUNK_BYTES, len(self.text) - self.place))
        self.is_complete = not content
        try:
            fresh = self.decode(content, self.is_complete)
        except UnicodeDecodeError:
            raise ValueError("is not text in UTF-8, as JSON is") from None
        self.lines += self.text.count("\n", 0, self.place)
        self.text, self.place = self.text[self.place :] + fresh, 0
        if self.progress is not None and content:
            self.progress(len(content))

    def next(self) -> str:
        """The next character that is not space, "" at the end; stays before it."""
        while True:
            text, place = self.text, self.place
            while place < len(text) and text[place] in _SPACE:
                place += 1
            self.place = place
            if place < len(text):
                return text[place]
            if self.is_complete:
                return ""
            self.more()

    def expect(self, expected: str) -> str:
        """Pass one of these characters."""
        found = self.next()
        if found not in expected or not found:
            what = f"'{found}'" if found else "its end"
            raise self.error(f"expected {' or '.join(expected)}, there is {what}")
        self.place += 1
        return found

    def value(self) -> Any:
        """Pass a value."""
        self.next()
        while True:
            try:
                value, end = self.parse(self.text, self.place)
            except json.JSONDecodeError as error:
                may_go_on = error.pos > len(self.text) - _NEAR_THE_END or error.msg.startswith("Unterminated string")
                if self.is_complete or not may_go_on:
                    raise self.error(error.msg, error.pos) from None
            except RecursionError:
                raise self.error("nested too deeply") from None
            except ValueError as error:  # a number of too many digits
                raise self.error(str(error)) from None
            else:
                if end < len(self.text) or self.is_complete:
                    self.place = end
                    return value
            if len(self.text) - self.place > _LONGEST:
                raise self.error(f"an element of more than {_LONGEST:,} characters, or one that is not JSON, begins")
            self.more()

    def list_of(self, name: str) -> Iterator[Part]:
        self.expect("[")
        yield Part(name, BEGINS, None)
        if self.next() == "]":
            self.place += 1
            return
        position = 0
        while True:
            yield Part(name, position, self.value())
            position += 1
            if self.expect(",]") == "]":
                return

    def object(self) -> Iterator[Part]:
        self.expect("{")
        if self.next() == "}":
            self.place += 1
            return
        while True:
            if self.next() != '"':
                raise self.error("expected a name in quotation marks")
            name = self.value()
            self.expect(":")
            if self.next() == "[":
                yield from self.list_of(name)
            else:
                yield Part(name, WHOLE, self.value())
            if self.expect(",}") == "}":
                return

    def error(self, problem: str, place: Optional[int] = None) -> ValueError:
        line = self.lines + self.text.count("\n", 0, self.place if place is None else place) + 1
        return ValueError(f"is not complete JSON: line {line}: {problem}")
