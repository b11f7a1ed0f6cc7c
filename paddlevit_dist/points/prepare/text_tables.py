"""Tables of points as text: .txt, .xyz, .csv, .pts, .asc."""

import io
import re
import warnings
from codecs import BOM_UTF8
from typing import TextIO

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import read_content

_COMMENTS = ("#", "//")
_LONGEST_LINE = 1 << 16
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r"))  # stand between two numbers in a line of S3DIS's Area_5/hallway_6
_SPACES = bytes.maketrans(_CONTROL, b" " * len(_CONTROL))


def read_text(path: str, remarks: list[str] | None = None) -> dict[str, np.ndarray] | np.ndarray:
    """A table of numbers between spaces, commas, semicolons or tabs. Its first line may name the columns, also after #
    or //; a line with the number of points alone is passed over.

    Args:
        remarks: gets a line if control characters were taken for spaces; None: they are refused.

    Returns:
        Columns by name, or float64 (points, columns) if the file does not name them.

    Raises:
        UserError: the file cannot be read, or a line is not as many numbers as the others.
    """
    content = read_content(path)
    if remarks is not None and (mended := content.translate(_SPACES)) != content:
        remarks.append(f"{path} has control characters, as one line of Area_5/hallway_6 has: taken for spaces")
        content = mended
    stream = io.TextIOWrapper(io.BytesIO(content.removeprefix(BOM_UTF8)), encoding="utf-8", errors="replace")
    names, skipped, delimiter = _find_start(stream, path)
    stream.seek(0)
    comments = _COMMENTS if b"//" in content else "#"  # numpy is half as fast with two of them
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # no rows: reported below
            table = np.loadtxt(stream, delimiter=delimiter, skiprows=skipped, ndmin=2, comments=comments)
    except ValueError as error:
        reason = _why_no_table(error, skipped)
        raise UserError(f"{path} is not a table of numbers: {reason}; mend or remove the line") from error
    if not table.size:
        raise UserError(f"{path} has no points; leave it out")
    if names is None:
        return table
    if len(names) != table.shape[1]:
        raise UserError(
            f"{path} names {len(names)} columns, but its rows have {table.shape[1]} numbers; mend one of them"
        )
    if len(set(names)) < len(names):
        raise UserError(f"{path} has two columns of one name ({', '.join(names)}); rename one of them")
    return dict(zip(names, table.T))


def _find_start(stream: TextIO, path: str) -> tuple[list[str] | None, int, str | None]:
    """Names of the columns, lines before the first point, and what stands between numbers."""
    names, number = None, 0
    for number in range(_LONGEST_LINE):
        line = stream.readline(_LONGEST_LINE)
        if not line:
            raise UserError(f"{path} has no points; leave it out")
        text = line.strip().lstrip("#/ ")
        delimiter = next((sign for sign in (",", ";") if sign in text), None)
        words = [word.strip().strip("\"'").lower() for word in text.split(delimiter)] if text else []
        is_comment = line.lstrip().startswith(_COMMENTS)
        if not is_comment and len(words) > 1 and all(map(_is_number, words)):
            return names, number, delimiter
        if len(words) > 1 and not any(map(_is_number, words)) and (not is_comment or {"x", "y", "z"} <= set(words)):
            names = words
        elif not is_comment and words and not (len(words) == 1 and words[0].isdigit()):
            decimals = "; decimals need a point, not a comma" if re.search(r"\d,\d", text) else ""
            raise UserError(
                f"{path}, line {number + 1}: {text[:60]!r} is neither a row of numbers nor of names; mend or remove "
                f"it{decimals}"
            )
    raise UserError(f"{path} has no row of numbers in its first {number + 1:,} lines")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _why_no_table(error: ValueError, skipped: int) -> str:
    """Say what ``numpy.loadtxt`` says of a file, with the line that it means, if ``skipped`` lines came before."""
    reason = " ".join(str(error).split("; ")[0].split())
    first = 0 if "columns changed" in reason else 1  # numpy counts those rows from 1, others from 0
    return re.sub(r"at row (\d+)", lambda row: f"in line {int(row[1]) + skipped + first}", reason)
