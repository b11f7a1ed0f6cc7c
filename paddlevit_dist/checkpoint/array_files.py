"""Arrays in files of numpy (``.npz``) and safetensors, and how a file that cannot or must not be read is refused."""

import contextlib
import json
import math
import os
import pickle
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.printing import shortened

ARRAYS_OF_NUMPY, SAFETENSORS = "numpy.savez file", "safetensors file"
_ADVICE = "save it again with numpy.savez from numeric arrays"
_LARGEST_GAIN, _ALWAYS_ALLOWED = 16, 1 << 26  # how much larger than the file its arrays may be; but 64 MB always
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # as its bits, as in all readers
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U8": "<u1",
    "BOOL": "?",
}
_WRITTEN = {np.dtype(dtype) for code, dtype in _DTYPES.items() if code != "BF16"}

# What reading a damaged file may raise. Our own errors would be among them too: each reader's tests therefore read
# intact files, none of which may be called damaged. A RuntimeError is an archive that claims to be encrypted.
_SPOILT = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError),
    *(ValueError, pickle.UnpicklingError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


class RefusedError(Exception):
    """The file asks for something that weights do not need."""


@contextlib.contextmanager
def reading(name: str, kind: str, advice: str = "save it again with paddle.save") -> Iterator[None]:
    """Turn what goes wrong inside into one line about the file ``name``.

    Args:
        kind: what the file was expected to be, such as "paddle.save file".
        advice: what the author of a refused file can do.

    Raises:
        UserError: the file is unreadable, damaged or refused.
    """
    try:
        yield
    except RefusedError as refusal:
        raise UserError(
            f"{name} is refused: {refusal}, which weights do not need; nothing was executed. "
            f"Take the file from a source you trust and {advice}"
        ) from None
    except (*_SPOILT, OSError) as error:
        if isinstance(error, OSError):
            raise UserError(f"{name} cannot be read: {error.strerror or error}") from error
        reason = shortened(" ".join(str(error).split()) or type(error).__name__)
        raise UserError(f"{name} is damaged or is not a {kind}: {reason}; copy or download it again") from error


# ---- numpy -------------------------------------------------------------------------------------------------------


def read_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Arrays by name; bfloat16, which JAX saves as two raw bytes, as its bits in uint16.

    Raises:
        UserError: unreadable, damaged, far larger than the file, or with objects instead of numbers.
    """
    with reading(str(path), ARRAYS_OF_NUMPY, _ADVICE), open(path, "rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is one array, not an archive of arrays")
        size = sum(entry.file_size for entry in archive.zip.infolist())
        if size > max(_ALWAYS_ALLOWED, _LARGEST_GAIN * os.path.getsize(path)):
            raise RefusedError("its arrays are far larger than the file")
        return {name: _numbers(archive, name) for name in archive.files}


def _numbers(archive: Any, name: str) -> np.ndarray:
    try:
        array = archive[name]
    except ValueError as error:
        if "allow_pickle" in str(error):
            raise RefusedError("it holds an array of objects") from None
        raise
    array = array.view(np.uint16) if getattr(array, "dtype", None) == "V2" else array
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise RefusedError(f"it holds {ascii(name[:40])}, which is no array of numbers")
    return array


# ---- safetensors -------------------------------------------------------------------------------------------------


def read_safetensors(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays by name, bfloat16 as its bits in uint16, and the metadata.

    Raises:
        UserError: unreadable or damaged.
    """
    from safetensors import SafetensorError, safe_open  # only now: most files are others

    with reading(str(path), SAFETENSORS), open(path, "rb") as stream:
        try:
            with safe_open(path, "np") as file:  # checks that shapes, types and places fit each other and the file
                metadata = file.metadata() or {}
        except SafetensorError as error:
            raise ValueError(str(error)) from None
        # The numbers are read here: the library has none for bfloat16, and would hold them in memory twice.
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
        header.pop("__metadata__", None)
        return {name: _tensor(stream, 8 + length, about) for name, about in header.items()}, metadata


def _tensor(stream: Any, start: int, about: Mapping[str, Any]) -> np.ndarray:
    if about["dtype"] not in _DTYPES:
        raise ValueError(f"its tensors have the unsupported type {ascii(about['dtype'])[:40]}")
    stream.seek(start + about["data_offsets"][0])
    return np.fromfile(stream, _DTYPES[about["dtype"]], math.prod(about["shape"])).reshape(about["shape"])


def write_safetensors(
    path: str | os.PathLike, state: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays of the types above; the file appears complete or not at all.

    Raises:
        TypeError: an array of another type.
        UserError: the folder cannot be written.
    """
    from safetensors.numpy import save_file

    arrays = {name: np.asarray(array, array.dtype.newbyteorder("<"), order="C") for name, array in state.items()}
    for name, array in arrays.items():
        if array.dtype not in _WRITTEN:
            raise TypeError(f"{name}: safetensors cannot hold {array.dtype}")
    with atomic_file(Path(path)) as stream:
        save_file(arrays, stream.name, dict(metadata) if metadata else None)
