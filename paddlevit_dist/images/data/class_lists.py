"""Names, numbers and colors of classes, from the usual list files or as published."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import readable
from ...core.runtime.spelling import compose
from ...core.runtime.text_files import read_json, read_text
from .label_pixels import pack_colors

FILES = (
    *("classes.txt", "labelmap.txt", "labels.txt", "class_names.txt", "label_colors.txt"),
    *("classes.csv", "_classes.csv", "class_dict.csv", "labels.csv", "labelmap.csv"),
    *("classes.json", "labels.json", "id2label.json", "class_dict.json", "meta.json"),
)
_PUBLISHED = Path(__file__).with_name("label_map_classes.txt")
_NOT_LEARNED = ("__ignore__", "ignore", "ignored", "void", "unlabeled", "unlabelled")
_BETWEEN = r"\s*[,;\t ]\s*"
_LONG_BLANK = re.compile(r"\s{5,}")  # which the patterns would divide in many ways
_COLOR = _BETWEEN.join(rf"(?P<{channel}>\d+)" for channel in "rgb")
# Patterns of a line; the first pattern that fits all lines of a file is used.
LINES = (
    r"(?P<name>[^:]+):(\s*(?P<r>\d+),(?P<g>\d+),(?P<b>\d+))?(:[^:]*)*",  # CVAT: name:red,green,blue:parts:actions
    rf"(?P<number>\d+){_BETWEEN}(?P<name>\D.*?){_BETWEEN}{_COLOR}",
    rf"(?P<name>.*[^\s,;])\s*[,;\t]\s*{_COLOR}",
    rf"(?P<name>.*\D){_BETWEEN}{_COLOR}",
    rf"{_COLOR}{_BETWEEN}(?P<name>\D.*)",
    r"(?P<number>\d+)\s*[:,;\t ]\s*(?P<name>\D.*)",
    r"(?P<name>.*[^\s,;])\s*[,;\t]\s*(?P<number>\d+)",
    r"(?P<name>((?![,;\t]\s*\d).)+)",
)


class ListedClass(NamedTuple):
    """A class in a list, with its number and its color (red, green, blue) if the list has them."""

    name: str
    number: int | None = None
    color: tuple[int, int, int] | None = None


class ClassList(NamedTuple):
    """Classes in the order of their labels.

    Attributes:
        numbers: number of each class in label maps of numbers.
        colors: int32 (classes,), color of each class in label maps, see ``pack_colors``; None: the list has none.
        ignored, ignored_colors: numbers and colors of pixels without a class.
        file: the list's file; "": a published list.
        is_numbered: the list contains numbers.
    """

    names: list[str]
    numbers: list[int]
    colors: np.ndarray | None = None
    ignored: tuple[int, ...] = ()
    ignored_colors: tuple[int, ...] = ()
    file: str = ""
    is_numbered: bool = False

    @property
    def palette(self) -> np.ndarray | None:
        """Red, green and blue of each class, uint8 (classes, 3)."""
        return None if self.colors is None else (self.colors[:, None] >> np.array([0, 8, 16]) & 255).astype(np.uint8)

    def by_number(self) -> list[str]:
        """Return a name for each number from 0 to the largest: the class name, or the number if it is not a class."""
        name_of_number = dict(zip(self.numbers, self.names))
        return [name_of_number.get(number, str(number)) for number in range(max(self.numbers, default=-1) + 1)]


def published_classes(section: str, first: int | None, offset: int) -> ClassList:
    """Return the classes of a published dataset, a section of the table of published classes.

    ``first`` is the number of class 0, followed by the others; None: the numbers in the published files, plus
    ``offset``.
    """
    lines = (line.split("\t") for line in _PUBLISHED.read_text(encoding="ascii").splitlines())
    rows = [row for row in lines if row[0] == section]
    colors = [_parse_color(row[3].split()) for row in rows if row[3]]
    numbers = [int(row[1]) + offset if first is None else first + at for at, row in enumerate(rows)]
    return _build_list([ListedClass(row[2], numbers[at], *colors[at : at + 1]) for at, row in enumerate(rows)], "")


def _parse_color(channels: Iterable[str]) -> tuple[int, int, int]:
    red, green, blue = map(int, channels)
    return red, green, blue


def find_class_list(folders: Iterable[str]) -> ClassList | None:
    """Read the first list of classes in the folders; None if there is none."""
    for folder in folders:
        for name in FILES:
            if os.path.isfile(os.path.join(folder, name)):
                return read_class_list(os.path.join(folder, name))
    return None


def read_class_list(file: str) -> ClassList:
    """Read the classes from a file: lines of text, CSV, or JSON.

    A ``UserError`` says that it cannot be read, or that a name, number or color is invalid or occurs twice.
    """
    with readable(file):
        entries = _parse_json(read_json(file)) if file.lower().endswith(".json") else _parse_lines(read_text(file))
    if not entries:
        raise UserError(
            f"{file} lists no classes; expected a line per class: its name, or name,red,green,blue, or number,name"
        )
    return _build_list(entries, file)


def _build_list(entries: Sequence[ListedClass], file: str) -> ClassList:
    entries = [row._replace(name=compose(row.name)) for row in entries]
    _require_valid(entries, file)
    listed_numbers = [row.number for row in entries if row.number is not None]
    is_numbered = len(listed_numbers) == len(entries)
    start = -1 if entries and entries[0].name == "__ignore__" else 0  # Labelme's numbering
    rows = list(zip(entries, listed_numbers if is_numbered else range(start, start + len(entries))))
    learned = [(row, number) for row, number in rows if row.name.lower() not in _NOT_LEARNED]
    ignored = [(row, number) for row, number in rows if row.name.lower() in _NOT_LEARNED]
    has_colors = all(row.color is not None for row in entries)
    colors = [[row.color for row, _ in part] if has_colors else [] for part in (learned, ignored)]
    packed = [pack_colors(np.array(part_colors).reshape(-1, 3)) for part_colors in colors]
    return ClassList(
        [row.name for row, _ in learned],
        [number for _, number in learned],
        packed[0] if has_colors else None,
        tuple(number for _, number in ignored),
        tuple(packed[1].tolist()),
        file,
        is_numbered,
    )


def _require_valid(entries: Sequence[ListedClass], file: str) -> None:
    for field, values in zip(("name", "number", "color"), zip(*entries)):
        present = [value for value in values if value is not None]
        duplicate = next((value for value, number in Counter(present).items() if number > 1), None)
        if duplicate is not None and file:  # ADE20K's authors give some classes one color
            first, second = [place for place, value in enumerate(values) if value == duplicate][:2]
            raise UserError(
                f"{file} has {field} {duplicate} twice, for classes {first} and {second}; each class needs its own"
            )
    for entry in entries:
        if max(entry.color or (0,)) > 255 or (entry.number or 0) > 65_535:
            raise UserError(f"{file}: {entry.name}: expected colors from 0 to 255, and numbers to 65535")


def shorten_blanks(line: str) -> str:
    """Return a line with a tab or space in place of each long run of them."""
    return _LONG_BLANK.sub(lambda run: "\t" if "\t" in run[0] else " ", line)


def _parse_lines(text: str) -> list[ListedClass]:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    lines = list(map(shorten_blanks, lines))
    if lines and not re.search(r"\d", lines[0]) and all(re.search(r"\d", line) for line in lines[1:2]):
        candidates = [lines[1:], lines]  # a heading, such as name,r,g,b
    else:
        candidates = [lines]
    for rows in candidates:
        for pattern in LINES:
            matches = [re.fullmatch(pattern, row) for row in rows]
            if matches and all(matches) and (rows is lines or pattern != LINES[-1]):
                return [_entry(match.groupdict()) for match in matches if match]
    return []


def _entry(fields: dict[str, Any]) -> ListedClass:
    number: str | None = fields.get("number")
    color: list[Any] = [fields.get(channel) for channel in "rgb"]
    return ListedClass(
        fields["name"].strip(" \"',;"),
        None if number is None else int(number),
        None if None in color else _parse_color(color),
    )


def _parse_json(content: object) -> list[ListedClass]:
    """Parse a list of names, names with colors, numbers with names, or objects with a name, a color and maybe an id."""
    if isinstance(content, dict):
        for key in ("classes", "labels", "categories", "id2label"):
            if isinstance(content.get(key), (list, dict)):
                return _parse_json(content[key])
        if all(name.isascii() and name.isdigit() for name in content):
            return [ListedClass(str(name), int(number)) for number, name in content.items()]
        return [ListedClass(name, *_parse_value(value)) for name, value in content.items()]
    if not isinstance(content, list):
        raise ValueError("expected a list of names, or an object with names, numbers or colors")
    return [ListedClass(item) if isinstance(item, str) else _parse_object(item) for item in content]


def _parse_object(value: object) -> ListedClass:
    if not isinstance(value, dict):
        raise ValueError(f"expected a class name, or an object with a name, found {value!r}")
    alternatives = (("name", "title", "label"), ("color", "colour", "rgb"), ("id", "value"))
    name, color, number = (next((value[key] for key in keys if key in value), None) for keys in alternatives)
    if not isinstance(name, str):
        raise ValueError(f"expected a name in {value!r}")
    return ListedClass(name, number if type(number) is int else None, _parse_value(color)[1])


def _parse_value(value: object) -> tuple[int | None, tuple[int, int, int] | None]:
    if type(value) is int or value is None:
        return value, None
    if isinstance(value, str) and re.fullmatch(r"#[0-9a-fA-F]{6}", value):
        value = list(bytes.fromhex(value[1:]))
    if isinstance(value, (list, tuple)) and len(value) == 3 and all(type(part) is int and part >= 0 for part in value):
        return None, (value[0], value[1], value[2])
    raise ValueError(f"expected a number, or a color such as [255, 0, 0] or '#ff0000', found {value!r}")
