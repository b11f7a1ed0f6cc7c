"""Points in numpy's files, .npy and .npz."""

import io
from typing import Any

import numpy as np

from ...core.runtime.errors import UserError
from ...core.runtime.files import read_content

_POINTS = ("xyz", "coord", "coords", "points", "point", "pos", "positions")
_COLORS = ("rgb", "color", "colors", "colour", "colours")
# Column names of arrays with three columns, by the arrays' names.
_COLUMN_NAMES = {**dict.fromkeys(_POINTS, "x y z"), **dict.fromkeys(_COLORS, "red green blue")}
_COLUMN_NAMES |= {"normal": "nx ny nz", "normals": "nx ny nz"}


def read_arrays(path: str) -> dict[str, np.ndarray] | np.ndarray:
    """Read a table (columns by name, or (points, columns) without names) from an .npy file, or the arrays of an .npz.

    An .npy file may have named columns (a structured array). In an .npz file, arrays of three columns are points,
    colors and normals by their names (coord, color, normal, ...). Nothing is executed. UserError if the file cannot be
    read, or has other content.
    """
    arrays = _load(path)
    if isinstance(arrays, np.ndarray) and not arrays.dtype.names:
        if arrays.ndim != 2 or arrays.dtype.kind not in "iuf":
            raise UserError(f"{path} is {arrays.dtype} {arrays.shape}; expected numbers of shape (points, columns)")
        return arrays
    parts = arrays if isinstance(arrays, dict) else {field.lower(): arrays[field] for field in arrays.dtype.names}
    if isinstance(arrays, np.ndarray) and len(parts) < len(arrays.dtype.names):
        raise UserError(
            f"{path} has two columns of the same name ({', '.join(arrays.dtype.names)}); rename one of them"
        )
    columns: dict[str, np.ndarray] = {}
    for name, array in parts.items():
        columns.update(split_columns(path, name, array))
    if len({len(column) for column in columns.values()}) > 1:
        sizes = ", ".join(f"{part_name} {values.shape}" for part_name, values in parts.items())
        raise UserError(f"{path} has arrays of different lengths ({sizes}); each needs a row for every point")
    return columns


def load_array(path: str) -> np.ndarray:
    """Load the array in an .npy file, executing nothing in it; UserError if it is not an array."""
    array = _load(path)
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} is not an array of numbers, but an archive of several; write it again")
    return array


def split_columns(path: str, name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Split an array, (points,) or (points, columns), into columns, which are numbered unless their names are known.

    UserError if it has a wrong shape, or is not of numbers.
    """
    array = np.asarray(array)  # an archive may also contain bytes
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.dtype.kind not in "iufb" or array.ndim not in (1, 2):
        raise UserError(f"{path}: {name} is {array.dtype} {array.shape}; expected numbers, a row for each point")
    array = array.astype(np.float32) if array.dtype == np.float16 else array
    if array.ndim == 1:
        return {name: array}
    column_names = _COLUMN_NAMES.get(name.lower(), "").split()
    if name.lower() in _POINTS and array.shape[1] >= 6:
        column_names = [*column_names, "red", "green", "blue"]
    if column_names and array.shape[1] < len(column_names):
        raise UserError(
            f"{path}: {name} is {array.shape}; expected at least {len(column_names)} columns, {', '.join(column_names)}"
        )
    names = column_names + [f"{name}_{number}" for number in range(len(column_names), array.shape[1])]
    return dict(zip(names, array.T))


def _load(path: str) -> Any:
    content = read_content(path)
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except Exception as error:  # of many types: numpy parses the header as Python
        raise UserError(
            f"{path} is not a file of numpy arrays of numbers: {' '.join(str(error).split())}; write it again"
        ) from error
