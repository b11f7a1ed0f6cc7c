"""Tables of points as text: .txt, .xyz, .csv, .pts, .asc."""

import io
import itertools
import re
import warnings
from typing import TextIO

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import read_content
from ...core.runtime.tables import is_number
from ...core.runtime.text_files import to_utf8

_COMMENTS = ("#", "//")
_MAX_LINE_LENGTH = 1 << 16
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r"))  # between two numbers in a line of S3DIS's Area_5/hallway_6
_SPACES = bytes.maketrans(_CONTROL, b" " * len(_CONTROL))


def read_text(path: str, remarks: list[str] | None = None) -> dict[str, np.ndarray] | np.ndarray:
    """Read columns by name, or float64 (points, columns) without, separated by spaces, commas, semicolons or tabs.

    The first line may name the columns, also after # or //; a line with only the number of points is skipped. A line is
    appended to ``remarks`` if control characters were replaced by spaces; None: they are an error. UserError if the
    file cannot be read, or lines have different numbers of values.
    """
    content = to_utf8(read_content(path), "replace")
    if remarks is not None and (cleaned := content.translate(_SPACES)) != content:
        remarks.append(f"{path} has control characters, like a line of Area_5/hallway_6: replaced by spaces")
        content = cleaned
    stream = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", errors="replace")
    names, skipped, delimiter = _find_start(stream, path)
    stream.seek(0)
    comments = _COMMENTS if b"//" in content else "#"  # numpy is half as fast with two of them
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no rows: reported below
            table = np.loadtxt(stream, delimiter=delimiter, skiprows=skipped, ndmin=2, comments=comments)
    except ValueError as error:
        reason = _explain_error(error, skipped)
        raise UserError(f"{path} is not a table of numbers: {reason}; fix or remove the line") from error
    if not table.size:
        raise UserError(f"{path} has no points; remove it")
    if names is None:
        return table
    if len(names) != table.shape[1]:
        raise UserError(
            f"{path} names {len(names)} columns, but its rows have {table.shape[1]} numbers; fix one of them"
        )
    if len(set(names)) < len(names):
        raise UserError(f"{path} has two columns of the same name ({', '.join(names)}); rename one of them")
    return dict(zip(names, table.T))


def read_text_comments(path: str) -> list[str]:
    """Return the comments before the first point, without their signs; UserError if the file cannot be read."""
    lines = to_utf8(read_content(path, _MAX_LINE_LENGTH), "replace").decode("utf-8", "replace").splitlines()
    comments = itertools.takewhile(lambda line: not line.strip() or line.lstrip().startswith(_COMMENTS), lines)
    return [line.strip().lstrip("#/ ") for line in comments]


def is_note(path: str) -> bool:
    """Return whether a file does not begin like a table of points; False if it cannot be read."""
    try:
        content = to_utf8(read_content(path, _MAX_LINE_LENGTH), "replace").translate(_SPACES)
    except UserError:
        return False
    lines = content.decode("utf-8", "replace").splitlines()
    rows = ([word for word in re.split(r"[\s,;]+", line) if word] for line in lines)
    return not any(len(row) > 2 and all(map(is_number, row)) for row in rows)


def _find_start(stream: TextIO, path: str) -> tuple[list[str] | None, int, str | None]:
    """Return the names of columns, the number of lines before the first point, and the delimiter."""
    names, number = None, 0
    for number in range(_MAX_LINE_LENGTH):
        line = rest = stream.readline(_MAX_LINE_LENGTH)
        while len(rest) == _MAX_LINE_LENGTH and not rest.endswith("\n"):  # a long line is known by its beginning
            rest = stream.readline(_MAX_LINE_LENGTH)
        if not line:
            raise UserError(f"{path} has no points; remove it")
        text = line.strip().lstrip("#/ ")
        delimiter = next((sign for sign in (",", ";") if sign in text), None)
        words = [word.strip().strip("\"'").lower() for word in text.split(delimiter)] if text else []
        is_comment = line.lstrip().startswith(_COMMENTS)
        if not is_comment and len(words) > 1 and all(map(is_number, words)):
            return names, number, delimiter
        if len(words) > 1 and not any(map(is_number, words)) and (not is_comment or {"x", "y", "z"} <= set(words)):
            names = words
        elif not is_comment and words and not (len(words) == 1 and words[0].isdigit()):
            decimals = "; decimals need a point, not a comma" if re.search(r"\d,\d", text) else ""
            raise UserError(
                f"{path}, line {number + 1}: {text[:60]!r} is neither a row of numbers nor of names; fix or remove "
                f"it{decimals}"
            )
    raise UserError(f"{path} has no row of numbers in its first {number + 1:,} lines")


def _explain_error(error: ValueError, skipped: int) -> str:
    """Return ``numpy.loadtxt``'s message with the line number in the file, after ``skipped`` lines."""
    reason = " ".join(str(error).split("; ")[0].split())
    first = 0 if "columns changed" in reason else 1  # numpy counts those rows from 1, others from 0
    return re.sub(r"at row (\d+)", lambda row: f"in line {int(row[1]) + skipped + first}", reason)
