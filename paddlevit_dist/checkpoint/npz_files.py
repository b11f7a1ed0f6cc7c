"""Reading archives of numpy arrays without what numpy may unpickle in them."""

from __future__ import annotations

import math
import os
import re
import zipfile
from typing import Dict, Tuple, Union

import numpy as np

from .refusal import RefusedError, reading

KIND, ADVICE = "file of numpy.savez", "save it again with numpy.savez from numeric arrays"
_LARGEST_GAIN, _ALWAYS_ALLOWED = 16, 1 << 26  # how much larger than the file its arrays may be; but 64 MB always
_LONGEST_HEADER = 10_000
_HEADER = re.compile(
    r"\{'descr': '([^']{1,40})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,18}, ?)*\d{0,18})\),? ?\}"
)


def read_npz(path: Union[str, os.PathLike]) -> Dict[str, np.ndarray]:
    """Arrays by name; bfloat16, which JAX saves as two raw bytes, as its bits in uint16.

    Raises:
        UserError: unreadable, damaged, far larger than the file, or with objects instead of numbers.
    """
    with reading(str(path), KIND, ADVICE), zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
            raise RefusedError("its entries are compressed in a way that numpy does not use")
        allowed = max(_ALWAYS_ALLOWED, _LARGEST_GAIN * os.path.getsize(path))
        if sum(entry.file_size for entry in entries) > allowed:
            raise RefusedError("its arrays are far larger than the file")
        return {_name(entry.filename): _array(archive.read(entry)) for entry in entries}


def _name(filename: str) -> str:
    return filename[: -len(".npy")] if filename.endswith(".npy") else filename


def _array(content: bytes) -> np.ndarray:
    code, fortran_order, shape, start = _header(content)
    if not re.fullmatch(r"[<>|=]?(?:b1|[iu][1248]|f[248]|V2)", code):
        raise RefusedError(f"it holds an array of type {ascii(code)[:40]}")
    dtype = np.dtype("<u2" if code.endswith("V2") else code)
    if math.prod(shape) * dtype.itemsize != len(content) - start or len(shape) > 32:
        raise ValueError("an array in it has not the bytes that its shape and type need")
    array = np.frombuffer(content, dtype, math.prod(shape), start)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def _header(content: bytes) -> Tuple[str, bool, Tuple[int, ...], int]:
    """Type, whether the first axis runs fastest, shape, and where the numbers begin.

    Source: numpy.lib.format, "Format Version 1.0" and "2.0": a magic string, the length of the header in 2 or 4 bytes,
    and a dictionary in Python's notation, always written in the same way, which is all that is understood here.
    """
    width = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}.get(content[:8])
    if width is None:
        raise ValueError("an array in it does not begin as numpy's do")
    start = 8 + width + int.from_bytes(content[8 : 8 + width], "little")
    header = content[8 + width : min(start, 8 + width + _LONGEST_HEADER)].decode("latin1")
    found = _HEADER.fullmatch(header.strip())
    if found is None:
        raise RefusedError("it holds an array of a structured type, or damaged")
    shape = tuple(int(side) for side in re.findall(r"\d+", found[3]))
    return found[1], found[2] == "True", shape, start
