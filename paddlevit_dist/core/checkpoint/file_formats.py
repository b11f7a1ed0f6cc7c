"""Tells the format of a file of weights by its content: the same bytes are named ``.pth``, ``.pth.tar`` or ``.bin``."""

import zipfile
from pathlib import Path
from typing import Literal

from ..runtime.errors import UserError
from ..runtime.files import readable
from .torch_files import LEGACY_MAGIC

WeightsFormat = Literal["index", "npz", "paddle", "safetensors", "torch"]

SUFFIXES = (".pdparams", ".safetensors", ".npz", ".pth", ".pt", ".bin", ".ckpt")  # usual names of files that are read
# How a damaged file is read, whose content tells nothing.
_BY_SUFFIX: dict[str, WeightsFormat] = {
    **{".safetensors": "safetensors", ".npz": "npz", ".json": "index"},
    **dict.fromkeys((".pth", ".pt", ".bin", ".ckpt", ".tar", ".zip"), "torch"),
}
_HEADER_BYTES, _TAR_AT = 512, 257
_OTHERS = {
    b"\x1f\x8b": ("compressed (gzip)", "unpack it"),
    b"\x89HDF": ("an HDF5 file", "convert it to safetensors"),
    b"GGUF": ("a GGUF file", "convert it to safetensors"),
    b"\x93NUMPY": ("a single array (numpy.save)", "save all arrays with numpy.savez"),
    b"version https://git-lfs": ("a pointer of Git LFS, not the file itself", "run git lfs pull"),
}


def find_format(file: Path) -> WeightsFormat | None:
    """Return the format of a file's content; None if it has none of the known ones, or is damaged.

    Any pickle that is not PyTorch's counts as "paddle". "index": JSON, as of sharded weights. Raises OSError.
    """
    with open(file, "rb") as stream:
        start = stream.read(_HEADER_BYTES)
    if start[:4] == b"PK\x03\x04":
        return _find_zip_format(file)
    if start[5:9] == b"\0\0\0{":  # the length of the header, then the header
        return "safetensors"
    if start[:1] == b"\x80":
        return "torch" if LEGACY_MAGIC in start[:32] else "paddle"
    return "index" if start.lstrip()[:1] == b"{" else None


def _find_zip_format(file: Path) -> WeightsFormat | None:
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError):
        return None  # the reader of its suffix reports the damage
    if any(name.endswith("/data.pkl") and name.count("/") == 1 for name in names):
        return "torch"
    return "npz" if names and all(name.endswith(".npy") for name in names) else None


def choose_format(file: Path) -> WeightsFormat:
    """Return the format to read a file in: by its content, else, for a damaged file, by its suffix.

    Raises UserError if it is an archive of other files, or has a format that is not read.
    """
    with readable(file):
        found = find_format(file)
        with open(file, "rb") as stream:
            start = stream.read(_HEADER_BYTES)
    if found is not None:
        return found
    what = next((words for magic, words in _OTHERS.items() if start.startswith(magic)), None)
    if start[_TAR_AT : _TAR_AT + 5] == b"ustar":
        what = "a tar archive of other files", "unpack it"
    elif zipfile.is_zipfile(file) and file.suffix.lower() not in SUFFIXES:
        what = "a zip archive of other files", "unpack it"
    if what is not None:
        raise UserError(f"{file} is {what[0]}, expected weights: {what[1]}, and give the file of weights")
    return _BY_SUFFIX.get(file.suffix.lower(), "paddle")


def may_be_weights(file: Path) -> bool:
    """Return whether a file is one of weights (``model_best.pth.tar``), by its suffix, or inner suffix and content."""
    if file.suffix.lower() in SUFFIXES:
        return True
    is_named_so = any(suffix.lower() in SUFFIXES for suffix in file.suffixes)
    return is_named_so and file.is_file() and find_format(file) not in (None, "index")
