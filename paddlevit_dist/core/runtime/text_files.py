"""Untrusted text, JSON and YAML, read within limits of size, nesting and digits, with errors of one line.

A short file can demand a lot: 541 bytes of YAML whose merges refer to one another grow to gigabytes, a hundred thousand
brackets exhaust the stack, a number of a million digits takes minutes. These readers keep the size of the result in
proportion to the size of the file.
"""

import codecs
import json
import os
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

import yaml

from .errors import UserError
from .files import open_regular, read_regular, readable
from .outages import name_in_errors, read_through_outages
from .printing import shorten

LARGEST_BYTES = 1 << 28  # of a text or JSON file; regular ones list a segment for each of some million points
LARGEST_YAML_BYTES = 1 << 23  # takes half a minute; 20,000 class names take 1 MB
MOST_NODES = 250_000  # of a YAML file with its aliases expanded
MOST_CONTAINERS = 4_000_000  # of a JSON file: an empty list takes 2 bytes there and 64 here
_DEEPEST = 100  # nested lists and mappings
_MOST_DIGITS = 400  # of a number: no float64 has more before its decimal point

Place = str | os.PathLike[str]
Row = TypeVar("Row")
Facts = TypeVar("Facts")


def read_bytes(path: Place, largest: int = LARGEST_BYTES) -> bytes:
    """Read a file: an OSError if it cannot be read, a ValueError if it is longer than ``largest`` bytes."""

    def read_once() -> bytes:
        with open_regular(path, "rb") as stream, name_in_errors(path):
            return stream.read(largest + 1)

    content = read_through_outages(read_once)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest:,} bytes, far more than such files need")
    return content


def to_utf8(content: bytes, errors: str = "strict") -> bytes:
    """Return text as UTF-8 without a byte order mark, which may announce UTF-16; a ValueError if it is not that."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors).encode()
    return content.removeprefix(codecs.BOM_UTF8)


def read_text(path: Place, largest: int = LARGEST_BYTES) -> str:
    """Read a text file within a limit, without its byte order mark, and without converting line ends.

    Raises:
        OSError: it cannot be read.
        ValueError: it is too long, neither UTF-8 nor UTF-16 with a mark, or has a null byte.
    """
    content = to_utf8(read_bytes(path, largest))
    text = content.decode()
    refuse_null_bytes(content)
    return text


def split_lines(text: str) -> list[str]:
    r"""Return the lines of a text, which end with \n, \r\n or \r, without these ends.

    ``str.splitlines`` also divides lines at eight rarer signs, such as U+0085 and U+2028, which names may contain.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def refuse_null_bytes(content: bytes) -> None:
    """Raise ValueError with the line if UTF-8 text has a null byte: no path has one, but UTF-16 without a mark does."""
    if b"\0" in content:
        line = content.count(b"\n", 0, content.index(b"\0")) + 1
        raise ValueError(f"line {line} has a null byte; remove it, or save the file as UTF-8")


def read_json(path: Place) -> Any:
    """Read the value in a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: not Unicode, not JSON, too long, too deeply nested, or a number has too many digits; one line.
    """
    return parse_json(read_bytes(path))


def read_json_facts(file: Place) -> dict[str, Any]:
    """Read what a JSON file says about weights; empty if it is not a mapping. Raises UserError if it is damaged."""
    with readable(file, "; restore it or remove it"):
        content = read_json(file)
    return content if isinstance(content, dict) else {}


def convert_facts(
    values: object, kind: type[Facts], source: Place, advice: str = "remove the file to continue without it"
) -> Facts:
    """Convert plain values that a file says about weights to ``kind``, a ``msgspec.Struct``, which bounds them.

    Raises UserError with the file, the first wrong value and what was expected.
    """
    import msgspec  # as above

    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{source}: {shorten(error)}; {advice}") from error


def parse_json(content: str | bytes, pairs: Callable[[Any], Any] | None = None) -> Any:
    """Parse a JSON text; ``pairs`` creates an object from its (name, value) pairs, by default a dictionary.

    Raises:
        ValueError: as in ``read_json``; a ``json.JSONDecodeError`` if it is not JSON.
    """
    containers = (b"[", b"{") if isinstance(content, bytes) else ("[", "{")
    if sum(content.count(opening) for opening in containers) > MOST_CONTAINERS:  # type: ignore[misc, arg-type]
        raise ValueError(f"it has more than {MOST_CONTAINERS:,} lists and objects")
    try:
        content = content.removeprefix("\ufeff") if isinstance(content, str) else content
        return json.loads(content, object_pairs_hook=pairs, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def iterate_rows(path: Place, row: type[Row]) -> Iterator[Row]:
    """Iterate over the objects of the list in a JSON file of any size.

    Only the text and the current object are in memory. As dictionaries, the millions of rows of nuScenes's largest
    table would take more than three times the size of the text. ``row`` is a ``msgspec.Struct`` with the fields to
    read; other fields are skipped.

    Raises:
        OSError: it cannot be read.
        ValueError: not JSON, or not a list of objects with these fields; also raised while rows are read.
    """
    import msgspec  # not at the top: options and configuration are read without it

    content = to_utf8(read_regular(path))
    try:
        parts = msgspec.json.decode(content, type=list[msgspec.Raw])
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    decode = msgspec.json.Decoder(row).decode
    for number, part in enumerate(parts):
        try:
            yield decode(part)
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from error


def is_whole(text: str) -> bool:
    """Return whether a text is the decimal digits of a whole number, short enough for ``int``."""
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"it has a number of {len(digits):,} digits")
    return int(digits)


class YamlLoader(yaml.SafeLoader):
    """PyYAML's safe loader for files that may be hostile.

    Raises ``yaml.YAMLError`` also where PyYAML raises ``RecursionError``, and if the content with expanded aliases and
    merges would be larger than ``MOST_NODES``.
    """

    def __init__(self, content: str | bytes, text_keys: Collection[str] = ()) -> None:
        if len(content) > LARGEST_YAML_BYTES:
            raise yaml.YAMLError(f"it has more than {LARGEST_YAML_BYTES:,} bytes")
        super().__init__(content)
        self._depth = 0
        self._nodes = 0  # so far, with aliases expanded
        self._sizes: dict[int, int] = {}  # id of each complete node -> its nodes, including itself
        self._text_keys = text_keys

    def compose_node(self, parent: object, index: object) -> Any:
        """Compose a node within the limits."""
        event = self.peek_event()
        before = self._nodes
        self._depth += 1
        if self._depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=event.start_mark)
        self._nodes += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                raise yaml.MarkedYAMLError(
                    problem=f"the value of *{event.anchor} contains itself", problem_mark=event.start_mark
                )
            self._nodes += self._sizes[id(node)]
        else:
            self._sizes[id(node)] = self._nodes - before
        if self._nodes > MOST_NODES:
            raise yaml.MarkedYAMLError(
                problem=f"more than {MOST_NODES:,} values with its aliases expanded", problem_mark=event.start_mark
            )
        if isinstance(index, yaml.ScalarNode) and index.value in self._text_keys:
            _keep_words(node)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct an object; turn errors of values into errors of YAML."""
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:  # a bad !!int, 2001-99-99
            shown = str(node.value)[:40] if isinstance(node, yaml.ScalarNode) else "a list or mapping"
            problem = f"{ascii(shown)} is not {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error

    def construct_number(self, node: yaml.Node) -> Any:
        """Construct an integer or a float as a reader expects it: 0040 is 40, where YAML 1.1 has 32.

        Numbers to other bases in YAML (0x10, 0b11, 1:30) stay text, which is an error where a number is expected.
        """
        value = self.construct_scalar(node)
        if len(value) > _MOST_DIGITS:
            raise yaml.MarkedYAMLError(problem=f"a number of {len(value):,} characters", problem_mark=node.start_mark)
        if ":" in value or value.lstrip("+-")[:2] in ("0x", "0b"):
            return value
        return self.construct_yaml_float(node) if node.tag.endswith(":float") else int(value)


def _keep_words(node: yaml.Node) -> None:
    """Keep a value, or each value of a list or mapping, as written; an empty one, or a null outside, is nothing."""
    is_single = isinstance(node, yaml.ScalarNode) and not node.tag.endswith(":null")
    values = [item for _, item in node.value] if isinstance(node, yaml.MappingNode) else node.value
    for value in [node] if is_single else values:
        if isinstance(value, yaml.ScalarNode) and value.value:
            value.tag = yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG


for _tag in ("int", "float"):
    YamlLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", YamlLoader.construct_number)


def parse_yaml(content: str | bytes, text_keys: Collection[str] = ()) -> Any:
    """Parse a YAML text with one document, like ``yaml.safe_load``.

    ``text_keys`` are keys of words, or of a list or mapping of words, which stay as written: no, on, 007, 1.50, null.

    Raises:
        ValueError: not YAML, or beyond the limits; one line.
    """
    try:
        return YamlLoader(content, text_keys).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise ValueError(f"{line}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error).split("\n")[0]) from error


def read_yaml(path: Place, text_keys: Collection[str] = ()) -> Any:
    """Read the value of a YAML file; raises an OSError if it cannot, and a ValueError as ``parse_yaml`` does."""
    return parse_yaml(read_bytes(path, LARGEST_YAML_BYTES), text_keys)
