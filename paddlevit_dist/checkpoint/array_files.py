"""Arrays in files of numpy (``.npz``) and safetensors, and how a file that cannot or must not be read is refused."""

import contextlib
import io
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
from ..runtime.printing import shorten

ARRAYS_OF_NUMPY, SAFETENSORS = "numpy.savez file", "safetensors file"
_ADVICE = "save it again with numpy.savez from numeric arrays"
_LARGEST_GAIN, _ALWAYS_ALLOWED = 16, 1 << 26  # how much larger than the file its arrays may be; but 64 MB always
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
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
        reason = shorten(" ".join(str(error).split()) or type(error).__name__)
        raise UserError(f"{name} is damaged or is not a {kind}: {reason}; copy or download it again") from error


# ---- numpy -------------------------------------------------------------------------------------------------------


def read_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Arrays by name; bfloat16, which JAX saves as two raw bytes, as its bits in uint16.

    Raises:
        UserError: unreadable, damaged, far larger than the file, or with objects instead of numbers.
    """
    with reading(str(path), ARRAYS_OF_NUMPY, _ADVICE), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > max(_ALWAYS_ALLOWED, _LARGEST_GAIN * os.path.getsize(path)):
            raise RefusedError("its arrays are far larger than the file")
        return {entry.filename.removesuffix(".npy"): _array(archive.read(entry)) for entry in entries}


def _array(content: bytes) -> np.ndarray:
    """An array as ``numpy.save`` writes it, on these bytes; ``numpy.load`` takes three times as long to copy them."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise RefusedError("it holds an array of a structured type")
    shape, is_fortran, dtype = _HEADERS[version](stream)
    dtype = np.dtype("<u2") if dtype == "V2" else dtype
    if dtype.kind not in "biuf":
        raise RefusedError(f"it holds an array of type {ascii(str(dtype))[:40]}")
    if math.prod(shape) * dtype.itemsize != len(content) - stream.tell():
        raise ValueError("an array in it does not have the bytes that its shape and type need")
    return np.frombuffer(content, dtype, -1, stream.tell()).reshape(shape, order="F" if is_fortran else "C")


# ---- safetensors -------------------------------------------------------------------------------------------------


def read_safetensors(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays by name, bfloat16 as its bits in uint16, and the metadata.

    Raises:
        UserError: unreadable or damaged.
    """
    from safetensors import SafetensorError, safe_open  # only now: most files are others

    with reading(str(path), SAFETENSORS):
        try:
            with safe_open(path, "np") as file:  # checks that shapes, types and places fit each other and the file
                metadata = file.metadata() or {}
        except SafetensorError as error:
            raise ValueError(str(error)) from None
        # The numbers are taken here: the library has none for bfloat16, and would hold them in memory twice.
        data = memoryview(Path(path).read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(bytes(data[8:start]))
        header.pop("__metadata__", None)
        return {name: _tensor(data[start:], about) for name, about in header.items()}, metadata


def _tensor(data: memoryview, about: Mapping[str, Any]) -> np.ndarray:
    """An array on the file's bytes."""
    if about["dtype"] not in _DTYPES:
        raise ValueError(f"its tensors have the unsupported type {ascii(about['dtype'])[:40]}")
    count, begin = math.prod(about["shape"]), about["data_offsets"][0]
    return np.frombuffer(data, _DTYPES[about["dtype"]], count, begin).reshape(about["shape"])


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
