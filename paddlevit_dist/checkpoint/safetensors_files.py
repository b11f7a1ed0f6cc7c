"""Reading and writing safetensors: a header in JSON, then the tensors' bytes.

Source: https://github.com/huggingface/safetensors, "Format". The length of the header comes first, 8 bytes; the header
maps names to dtype, shape and the begin and end of the bytes; nothing in it can be executed.
Written by hand because the safetensors package gives numpy no bfloat16 and accepts a header with duplicate names.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Mapping, Optional, Tuple, Union

import numpy as np

from ..files import atomic_file
from ..text_files import parse_json
from .refusal import reading

KIND = "safetensors file"
_METADATA = "__metadata__"
_LONGEST_HEADER = 100_000_000  # bytes, the limit of the format's own library
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


def read_safetensors(path: Union[str, os.PathLike]) -> Tuple[Dict[str, np.ndarray], Dict[str, str]]:
    """Arrays by name, bfloat16 as its bits in uint16, and the metadata.

    Raises:
        UserError: unreadable or damaged.
    """
    with reading(str(path), KIND), open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        header, start = _read_header(stream, size)
        metadata = header.pop(_METADATA, {})
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is not a table")
        data = stream.read(size - start)
        if len(data) != size - start:
            raise EOFError("it became shorter while being read")
        return _arrays(header, data), {str(key): str(value) for key, value in metadata.items()}


def _read_header(stream: BinaryIO, size: int) -> Tuple[Dict[str, Any], int]:
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > min(size - 8, _LONGEST_HEADER):
        raise ValueError(f"its header of {length} bytes does not fit into {size}")
    header = parse_json(stream.read(length), _without_duplicates)
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    return header, 8 + length


def _without_duplicates(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("its header has a name twice")
    return table


def _arrays(header: Mapping[str, Any], data: bytes) -> Dict[str, np.ndarray]:
    arrays, used = {}, []
    for name, about in header.items():
        dtype = np.dtype(_DTYPES[about["dtype"]]) if about["dtype"] in _DTYPES else None
        if dtype is None:
            raise ValueError(f"its tensors have the unsupported type {ascii(about['dtype'])[:40]}")
        shape, (begin, end) = about["shape"], about["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)) or len(shape) > 32:
            raise ValueError("a tensor in it has no valid shape")
        if not begin <= end <= len(data) or math.prod(shape) * dtype.itemsize != end - begin:
            raise ValueError("a tensor's bytes are not what its shape and type need")
        used.append((begin, end))
        arrays[name] = np.frombuffer(data, dtype, math.prod(shape), begin).reshape(shape)
    position = 0
    for begin, end in sorted(used):
        if begin != position:
            raise ValueError("its tensors overlap or leave gaps")
        position = end
    if position != len(data):
        raise ValueError(f"{len(data) - position} bytes of it belong to no tensor")
    return arrays


def write_safetensors(
    path: Union[str, os.PathLike], state: Mapping[str, np.ndarray], metadata: Optional[Mapping[str, str]] = None
) -> None:
    """Write arrays of the types above; the file appears complete or not at all.

    Raises:
        TypeError: an array of another type.
        UserError: the folder cannot be written.
    """
    header: Dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    position = 0
    arrays = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in state.items()}
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<")
        if dtype not in _CODES:
            raise TypeError(f"{name}: safetensors cannot hold {array.dtype}")
        offsets = [position, position + array.nbytes]
        header[name] = {"dtype": _CODES[dtype], "shape": list(array.shape), "data_offsets": offsets}
        position += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8 bytes
    with atomic_file(Path(path)) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            stream.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
