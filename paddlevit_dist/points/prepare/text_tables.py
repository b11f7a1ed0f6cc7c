"""Tables of points as text (.txt, .xyz, .csv, .pts, .asc) and as arrays of numpy (.npy, .npz)."""

import re
import warnings
from collections.abc import Sequence

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import open_regular

_USUAL = {3: "x y z", 6: "x y z red green blue"}  # columns without names, where they are beyond doubt
_COMMENTS = ("#", "//")
_LONGEST_LINE = 1 << 16
_POINTS = ("xyz", "coord", "coords", "points", "point", "pos", "positions")  # arrays of three columns in an .npz
_THREE = {"rgb": "red green blue", "color": "red green blue", "colors": "red green blue", "colour": "red green blue"}
_THREE |= {"colours": "red green blue", "normal": "nx ny nz", "normals": "nx ny nz"}
_THREE |= dict.fromkeys(_POINTS, "x y z")


def read_text(path: str) -> dict[str, np.ndarray] | np.ndarray:
    """A table of numbers between spaces, commas, semicolons or tabs. Its first line may name the columns, also after #
    or //; a line with the number of points alone is passed over.

    Returns:
        Columns by name, or float64 (points, columns) if the file does not name them.

    Raises:
        UserError: the file cannot be read, or a line is not as many numbers as the others.
    """
    try:
        with open_regular(path, encoding="utf-8-sig", errors="replace") as stream:
            names, skipped, delimiter = _start_of(stream, path)
            stream.seek(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # no rows: reported below
                table = np.loadtxt(stream, delimiter=delimiter, skiprows=skipped, ndmin=2, comments=_COMMENTS)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        reason = why_no_table(error, skipped)
        raise UserError(f"{path} is not a table of numbers: {reason}; mend or remove the line") from error
    if not table.size:
        raise UserError(f"{path} has no points; leave it out")
    if names is None:
        return table
    if len(names) != table.shape[1]:
        raise UserError(
            f"{path} names {len(names)} columns, but its rows have {table.shape[1]} numbers; mend one of them"
        )
    return dict(zip(names, table.T))


def _start_of(stream: object, path: str) -> tuple[list[str] | None, int, str | None]:
    """Names of the columns, lines before the first point, and what stands between numbers."""
    names, number = None, 0
    for number in range(_LONGEST_LINE):
        line = stream.readline(_LONGEST_LINE)  # type: ignore[attr-defined]
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
            raise UserError(
                f"{path}, line {number + 1}: {text[:60]!r} is neither a row of numbers nor of names; mend or remove it"
            )
    raise UserError(f"{path} has no row of numbers in its first {number + 1:,} lines")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def why_no_table(error: ValueError, skipped: int = 0) -> str:
    """What ``numpy.loadtxt`` says of a file, with the line that it means, if ``skipped`` lines came before."""
    reason = " ".join(str(error).split("; ")[0].split())
    first = 0 if "columns changed" in reason else 1  # numpy counts those rows from 1, others from 0
    return re.sub(r"at row (\d+)", lambda row: f"in line {int(row[1]) + skipped + first}", reason)


def read_arrays(path: str) -> dict[str, np.ndarray] | np.ndarray:
    """A table in an .npy file, with named columns (a structured array) or without; or the arrays of an .npz file, of
    which those of three columns are points, colours and normals by their names (coord, color, normal, ...).

    Raises:
        UserError: the file cannot be read, or holds something else; nothing in it is executed.
    """
    try:
        with open_regular(path, "rb") as stream:
            content = np.load(stream, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return _table_of(path, content)
            arrays = {name: content[name] for name in content.files}
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    except UserError:
        raise
    except Exception as error:  # of many kinds: numpy takes the header for Python
        raise UserError(
            f"{path} is not a file of numpy's arrays of numbers: {' '.join(str(error).split())}; write it again"
        ) from error
    columns: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        columns.update(columns_of(path, name, array))
    if len({len(column) for column in columns.values()}) > 1:
        sizes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise UserError(f"{path} has arrays of different lengths ({sizes}); each needs a row for every point")
    return columns


def columns_of(path: str, name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of an array called ``name``: (points,), (points, 1), or several, which are numbered unless known.

    Raises:
        UserError: it has no such shape, or no numbers.
    """
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.dtype.kind not in "iufb" or array.ndim not in (1, 2):
        raise UserError(f"{path}: {name} is {array.dtype} {array.shape}; expected numbers, a row for each point")
    array = array.astype(np.float32) if array.dtype == np.float16 else array
    if array.ndim == 1:
        return {name: array}
    known = _THREE.get(name.lower(), "").split()
    if name.lower() in _POINTS and array.shape[1] >= 6:
        known = _USUAL[6].split()
    names = known + [f"{name}_{number}" for number in range(len(known), array.shape[1])]
    if known and array.shape[1] < len(known):
        raise UserError(f"{path}: {name} is {array.shape}; expected at least {len(known)} columns, {', '.join(known)}")
    return dict(zip(names, array.T))


def _table_of(path: str, array: np.ndarray) -> dict[str, np.ndarray] | np.ndarray:
    if array.dtype.names:
        return {name.lower(): array[name] for name in array.dtype.names}
    if array.ndim != 2 or array.dtype.kind not in "iuf":
        raise UserError(f"{path} is {array.dtype} {array.shape}; expected numbers of shape (points, columns)")
    return array


def named_columns(path: str, table: np.ndarray, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """Columns by name of a table (points, columns) without names; three are x, y, z, six also red, green, blue.

    Raises:
        UserError: ``names`` are not as many, or missing and needed.
    """
    number = table.shape[1]
    names = names or _USUAL.get(number, "").split()
    if not names:
        raise UserError(
            f"{path} has {number} columns without names: name them in its first line, or with --columns, such as "
            "x,y,z,intensity, and a dash for each that is to be left out"
        )
    if len(names) != number:
        raise UserError(f"{path} has {number} columns, but --columns names {len(names)} ({','.join(names)})")
    return {name: column for name, column in zip(names, table.T) if name != "-"}
