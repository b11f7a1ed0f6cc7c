"""Reads arrays from numpy (``.npz``) and safetensors files; reports damaged and rejected files in one line."""

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

NPZ, SAFETENSORS = "numpy.savez file", "safetensors file"
_ADVICE = "save it again with numpy.savez from numeric arrays"
_LARGEST_GAIN, _ALWAYS_ALLOWED = 16, 1 << 26  # arrays may be 16 times as large as the file, or 64 MB
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # as bits, as in all readers
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U8": "<u1",
    "BOOL": "?",
}
_WRITTEN = {np.dtype(dtype) for code, dtype in _DTYPES.items() if code != "BF16"}

# Exceptions of reading a damaged file. Bugs of this package raise some of them, too; each reader's tests therefore read
# intact files, which must not be reported as damaged. RuntimeError: an archive that claims to be encrypted.
_DAMAGE_ERRORS = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError),
    *(ValueError, pickle.UnpicklingError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


class RefusedError(Exception):
    """The file needs something that weights do not need, such as a function call."""


@contextlib.contextmanager
def reading(name: str, kind: str, advice: str = "save it again with paddle.save") -> Iterator[None]:
    """Convert exceptions in the block to a one-line UserError about the unreadable, damaged or rejected file ``name``.

    ``kind``: the expected format, such as "paddle.save file"; ``advice``: what the author of a rejected file can do.
    """
    try:
        yield
    except RefusedError as refusal:
        raise UserError(
            f"{name} is rejected: {refusal}, which weights do not need; no code was executed. "
            f"Get the file from a source you trust and {advice}"
        ) from None
    except (*_DAMAGE_ERRORS, OSError) as error:
        if isinstance(error, OSError):
            raise UserError(f"{name} cannot be read: {error.strerror or error}") from error
        reason = shorten(" ".join(str(error).split()) or type(error).__name__)
        raise UserError(f"{name} is damaged or is not a {kind}: {reason}; copy or download it again") from error


def read_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Read arrays by name; bfloat16, which JAX saves as two raw bytes, as its bits in uint16.

    Raises UserError if the file is unreadable, damaged, contains objects, or its arrays are far larger than the file.
    """
    with reading(str(path), NPZ, _ADVICE), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > max(_ALWAYS_ALLOWED, _LARGEST_GAIN * os.path.getsize(path)):
            raise RefusedError("its arrays are far larger than the file")
        return {entry.filename.removesuffix(".npy"): _array(archive.read(entry)) for entry in entries}


def _array(content: bytes) -> np.ndarray:
    """Parse an array in the format of ``numpy.save`` without copying; ``numpy.load`` takes three times as long."""
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


def read_safetensors(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read arrays by name, bfloat16 as its bits in uint16, and the metadata. Raises UserError if damaged."""
    from safetensors import SafetensorError, safe_open  # imported late: most files have other formats

    with reading(str(path), SAFETENSORS):
        try:
            with safe_open(path, "np") as file:  # checks shapes, dtypes and offsets
                metadata = file.metadata() or {}
        except SafetensorError as error:
            raise ValueError(str(error)) from None
        # Read the arrays here: the library does not support bfloat16 in numpy, and would hold them in memory twice.
        data = memoryview(Path(path).read_bytes())
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(bytes(data[8:start]))
        header.pop("__metadata__", None)
        return {name: _tensor(data[start:], about) for name, about in header.items()}, metadata


def _tensor(data: memoryview, about: Mapping[str, Any]) -> np.ndarray:
    """Return an array that shares memory with the file's bytes."""
    if about["dtype"] not in _DTYPES:
        raise ValueError(f"its tensors have the unsupported type {ascii(about['dtype'])[:40]}")
    count, begin = math.prod(about["shape"]), about["data_offsets"][0]
    return np.frombuffer(data, _DTYPES[about["dtype"]], count, begin).reshape(about["shape"])


def write_safetensors(
    path: str | os.PathLike, state: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays of the supported dtypes; the file appears complete or not at all.

    Raises TypeError if an array has another dtype, and UserError if the file cannot be written.
    """
    from safetensors.numpy import save_file

    arrays = {key: np.asarray(item, item.dtype.newbyteorder("<"), order="C") for key, item in state.items()}
    for name, array in arrays.items():
        if array.dtype not in _WRITTEN:
            raise TypeError(f"{name}: safetensors cannot hold {array.dtype}")
    with atomic_file(Path(path)) as stream:
        save_file(arrays, stream.name, dict(metadata) if metadata else None)
