"""Arrays in files of numpy (``.npz``) and safetensors, and how a file that cannot or must not be read is refused.

Source of safetensors: https://github.com/huggingface/safetensors, "Format". The length of the header comes first, 8
bytes; the header, in JSON, maps names to dtype, shape and the begin and end of the bytes; nothing in it is executed.
Read here because the format's own library copies every array once more, and drops the header's metadata.
"""

import contextlib
import json
import math
import os
import pickle
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.printing import shortened
from ..runtime.text_files import parse_json

ARRAYS_OF_NUMPY, SAFETENSORS = "numpy.savez file", "safetensors file"
_ADVICE = "save it again with numpy.savez from numeric arrays"
_LARGEST_GAIN, _ALWAYS_ALLOWED = 16, 1 << 26  # how much larger than the file its arrays may be; but 64 MB always
_LONGEST_HEADER = 10_000  # of an array of numpy
_HEADER = re.compile(
    r"\{'descr': '([^']{1,40})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,18}, ?)*\d{0,18})\),? ?\}"
)
_METADATA = "__metadata__"
_LARGEST_TABLE = 100_000_000  # bytes of a header of safetensors: the limit of the format's own library
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
_CODES = {np.dtype(dtype): code for code, dtype in _DTYPES.items() if code != "BF16"}

# What reading a damaged file may raise. Our own errors would be among them too: each reader's tests therefore read
# intact files, none of which may be called damaged. A RuntimeError is an archive that claims to be encrypted.
_SPOILT = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
    *(pickle.UnpicklingError, struct.error, zipfile.BadZipFile, zlib.error),
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
    with reading(str(path), ARRAYS_OF_NUMPY, _ADVICE), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
            raise RefusedError("its entries are compressed in a way that numpy does not use")
        if sum(entry.file_size for entry in entries) > max(_ALWAYS_ALLOWED, _LARGEST_GAIN * os.path.getsize(path)):
            raise RefusedError("its arrays are far larger than the file")
        return {entry.filename.removesuffix(".npy"): _array(archive.read(entry)) for entry in entries}


def _array(content: bytes) -> np.ndarray:
    """An array as ``numpy.save`` writes it.

    Source: numpy.lib.format, "Format Version 1.0" and "2.0": a magic string, the length of the header in 2 or 4 bytes,
    and a dictionary in Python's notation, always written in the same way, which is all that is understood here.
    """
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}.get(content[:8])
    if width is None:
        raise ValueError("an array in it does not begin as numpy's do")
    start = 8 + width + int.from_bytes(content[8 : 8 + width], "little")
    found = _HEADER.fullmatch(content[8 + width : min(start, 8 + width + _LONGEST_HEADER)].decode("latin1").strip())
    if found is None:
        raise RefusedError("it holds an array of a structured type, or damaged")
    code, is_fortran = found[1], found[2] == "True"
    if not re.fullmatch(r"[<>|=]?(?:b1|[iu][1248]|f[248]|V2)", code):
        raise RefusedError(f"it holds an array of type {ascii(code)[:40]}")
    dtype, shape = np.dtype("<u2" if code.endswith("V2") else code), tuple(map(int, re.findall(r"\d+", found[3])))
    if math.prod(shape) * dtype.itemsize != len(content) - start or len(shape) > 32:
        raise ValueError("an array in it does not have the bytes that its shape and type need")
    return np.frombuffer(content, dtype, math.prod(shape), start).reshape(shape, order="F" if is_fortran else "C")


# ---- safetensors -------------------------------------------------------------------------------------------------


def read_safetensors(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Arrays by name, bfloat16 as its bits in uint16, and the metadata.

    Raises:
        UserError: unreadable or damaged.
    """
    with reading(str(path), SAFETENSORS):
        content = memoryview(Path(path).read_bytes())
        length = int.from_bytes(content[:8], "little")
        if len(content) < 8 or length > min(len(content) - 8, _LARGEST_TABLE):
            raise ValueError(f"its header of {length} bytes does not fit into {len(content)}")
        header = parse_json(bytes(content[8 : 8 + length]), _without_duplicates)
        if not isinstance(header, dict):
            raise ValueError("its header is not a table")
        metadata = header.pop(_METADATA, {})
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is not a table")
        return _tensors(header, content[8 + length :]), {str(key): str(value) for key, value in metadata.items()}


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("its header has a name twice")
    return table


def _tensors(header: Mapping[str, Any], data: memoryview) -> dict[str, np.ndarray]:
    """Arrays on the file's bytes, which they have to cover without gaps and overlaps."""
    arrays, used = {}, [(0, 0), (len(data), len(data))]
    for name, about in header.items():
        if about["dtype"] not in _DTYPES:
            raise ValueError(f"its tensors have the unsupported type {ascii(about['dtype'])[:40]}")
        dtype, shape, (begin, end) = np.dtype(_DTYPES[about["dtype"]]), about["shape"], about["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)) or len(shape) > 32:
            raise ValueError("a tensor in it has no valid shape")
        if not begin <= end <= len(data) or math.prod(shape) * dtype.itemsize != end - begin:
            raise ValueError("a tensor's bytes are not what its shape and type need")
        used.append((begin, end))
        arrays[name] = np.frombuffer(data, dtype, math.prod(shape), begin).reshape(shape)
    used.sort()
    if any(end != begin for (_, end), (begin, _) in zip(used, used[1:])):
        raise ValueError("its tensors overlap or leave gaps, or bytes of it belong to no tensor")
    return arrays


def write_safetensors(
    path: str | os.PathLike, state: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays of the types above; the file appears complete or not at all.

    Raises:
        TypeError: an array of another type.
        UserError: the folder cannot be written.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    position = 0
    arrays = {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in state.items()}
    for name, array in arrays.items():
        if array.dtype not in _CODES:
            raise TypeError(f"{name}: safetensors cannot hold {array.dtype}")
        offsets = [position, position + array.nbytes]
        header[name] = {"dtype": _CODES[array.dtype], "shape": list(array.shape), "data_offsets": offsets}
        position += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8 bytes
    with atomic_file(Path(path)) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            stream.write(array.tobytes())
