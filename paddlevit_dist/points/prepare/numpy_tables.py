"""Points in numpy's files: .npy and .npz."""

import io
from typing import Any

import numpy as np

from ...runtime.errors import UserError
from ...runtime.files import read_content

_POINTS = ("xyz", "coord", "coords", "points", "point", "pos", "positions")
_COLORS = ("rgb", "color", "colors", "color", "colors")
# Arrays of three columns, by their names.
_THREE = {**dict.fromkeys(_POINTS, "x y z"), **dict.fromkeys(_COLORS, "red green blue")}
_THREE |= {"normal": "nx ny nz", "normals": "nx ny nz"}


def read_arrays(path: str) -> dict[str, np.ndarray] | np.ndarray:
    """A table in an .npy file, with named columns (a structured array) or without; or the arrays of an .npz file, of
    which those of three columns are points, colors and normals by their names (coord, color, normal, ...).

    Raises:
        UserError: the file cannot be read, or holds something else; nothing in it is executed.
    """
    arrays = _load(path)
    if isinstance(arrays, np.ndarray) and not arrays.dtype.names:
        if arrays.ndim != 2 or arrays.dtype.kind not in "iuf":
            raise UserError(f"{path} is {arrays.dtype} {arrays.shape}; expected numbers of shape (points, columns)")
        return arrays
    parts = arrays if isinstance(arrays, dict) else {name.lower(): arrays[name] for name in arrays.dtype.names}
    columns: dict[str, np.ndarray] = {}
    for name, array in parts.items():
        columns.update(split_columns(path, name, array))
    if len({len(column) for column in columns.values()}) > 1:
        sizes = ", ".join(f"{name} {array.shape}" for name, array in parts.items())
        raise UserError(f"{path} has arrays of different lengths ({sizes}); each needs a row for every point")
    return columns


def load_array(path: str) -> np.ndarray:
    """The array in an .npy file; nothing in it is executed.

    Raises:
        UserError: there is none.
    """
    array = _load(path)
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} is not an array of numbers, but an archive of several; write it again")
    return array


def split_columns(path: str, name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of an array called ``name``: (points,), (points, 1), or several, which are numbered unless known.

    Raises:
        UserError: it has no such shape, or no numbers.
    """
    array = np.asarray(array)  # or bytes: what an archive holds beside arrays
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.dtype.kind not in "iufb" or array.ndim not in (1, 2):
        raise UserError(f"{path}: {name} is {array.dtype} {array.shape}; expected numbers, a row for each point")
    array = array.astype(np.float32) if array.dtype == np.float16 else array
    if array.ndim == 1:
        return {name: array}
    known = _THREE.get(name.lower(), "").split()
    if name.lower() in _POINTS and array.shape[1] >= 6:
        known = [*known, "red", "green", "blue"]
    if known and array.shape[1] < len(known):
        raise UserError(f"{path}: {name} is {array.shape}; expected at least {len(known)} columns, {', '.join(known)}")
    names = known + [f"{name}_{number}" for number in range(len(known), array.shape[1])]
    return dict(zip(names, array.T))


def _load(path: str) -> Any:
    """An array, or a dict of them by name."""
    content = read_content(path)
    try:
        found = np.load(io.BytesIO(content), allow_pickle=False)
        return found if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
    except Exception as error:  # of many kinds: numpy takes the header for Python
        raise UserError(
            f"{path} is not a file of numpy's arrays of numbers: {' '.join(str(error).split())}; write it again"
        ) from error
