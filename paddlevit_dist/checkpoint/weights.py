"""Weights from a file: which file a path means, and what in it are weights."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Union

import numpy as np

from ..errors import UserError
from .unpickling import restricted_load

EXTENSION = ".pdparams"
_FILE_IN_CHECKPOINT = "model.pdparams"
_OTHER_FORMATS = (
    ".safetensors",
    ".npz",
    ".npy",
    ".pth",
    ".pt",
    ".bin",
    ".ckpt",
    ".onnx",
    ".h5",
    ".pdiparams",
    ".pdmodel",
)
_WRAPPERS = ("model", "state_dict")
_PREFIXES = ("module.", "_layers.")
_DEPTH = 3  # wrappers and prefixes inside one another; bounded because a damaged file may nest without end


def read_state(path: Union[str, os.PathLike]) -> Dict[str, np.ndarray]:
    """The weights in a file as numpy arrays, bfloat16 as float32.

    Args:
        path: a ``.pdparams`` file, with or without its extension, or a checkpoint directory.

    Returns:
        Arrays by name, without a wrapper (``{"model": ...}``) and without a prefix that all names share.

    Raises:
        UserError: nothing there, another format, damaged, refused, or without arrays.
    """
    file = find_weights_file(path)
    return clean_state(restricted_load(file), str(file))


def find_weights_file(path: Union[str, os.PathLike]) -> Path:
    """The file that ``path`` means: itself, with the extension added, or the weights in that checkpoint directory.

    Raises:
        UserError: none of them exists; the message says what was tried and what is there instead.
    """
    given = Path(path)
    with_extension = given.with_name(given.name + EXTENSION) if given.name else given
    for candidate in (given, with_extension, given / _FILE_IN_CHECKPOINT):
        if candidate.is_file():
            if candidate.suffix.lower() in _OTHER_FORMATS:
                raise UserError(
                    f"{candidate}: {candidate.suffix} files are not read, only {EXTENSION} (of paddle.save) is"
                )
            return candidate
    if given.is_dir():
        raise UserError(f"{given} holds no {_FILE_IN_CHECKPOINT}: {_what_is_there(given, _FILE_IN_CHECKPOINT)}")
    tried = str(given) if given.suffix == EXTENSION else f"{given}, {with_extension}"
    raise UserError(f"no weights at {path} (tried {tried}): {_what_is_there(given.parent, with_extension.name)}")


def _what_is_there(folder: Path, wanted: str) -> str:
    try:
        names: Optional[List[str]] = sorted(os.listdir(folder))
    except OSError:
        return f"the folder {folder} does not exist or cannot be read"
    similar = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    shown = similar or names[:5]
    if not shown:
        return f"the folder {folder} is empty"
    more = "" if len(shown) == len(names) or similar else f" and {len(names) - len(shown)} more"
    return f"{'similar names' if similar else 'names'} in {folder}: {', '.join(shown)}{more}"


def clean_state(state: Any, source: str) -> Dict[str, np.ndarray]:
    """Arrays by name from what a file or a caller holds: wrappers and shared prefixes removed, tensors made arrays.

    Entries that are no arrays (an epoch, an optimizer's state) are left out.

    Args:
        state: a mapping with numpy arrays, Paddle tensors or (name, array) pairs.
        source: named in errors.
    """
    for _ in range(_DEPTH):
        if isinstance(state, Mapping):
            state = next((state[key] for key in _WRAPPERS if isinstance(state.get(key), Mapping)), state)
    if not isinstance(state, Mapping):
        raise UserError(f"{source} holds a {type(state).__name__} where a dictionary of weights was expected")
    arrays = {str(name): as_array(value) for name, value in state.items()}
    arrays = {name: value for name, value in arrays.items() if value is not None}
    if not arrays:
        raise UserError(f"{source} holds no weights: among its {len(state)} entries is no array")
    return _without_prefix(arrays)


def as_array(value: Any) -> Optional[np.ndarray]:
    """``value`` as a numpy array with bfloat16 (which numpy lacks, stored as bits in uint16) made float32.

    None if it is neither an array, nor a tensor, nor a (name, array) pair as older files of Paddle hold.
    """
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], np.ndarray):
        value = value[1]
    if not isinstance(value, np.ndarray) and callable(getattr(value, "numpy", None)):
        value = value.numpy()
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        return None
    if value.dtype == np.uint16:
        return (value.astype(np.uint32) << 16).view(np.float32)
    return value


def _without_prefix(arrays: Dict[str, np.ndarray]) -> Dict[str, np.ndarray]:
    for _ in range(_DEPTH):
        for prefix in _PREFIXES:
            if all(name.startswith(prefix) for name in arrays):
                arrays = {name[len(prefix) :]: value for name, value in arrays.items()}
    return arrays
