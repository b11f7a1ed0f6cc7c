"""Reads weights: the arrays in the content of a file of any format."""

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import shorten
from ..runtime.text_files import read_json
from .array_files import read_npz, read_safetensors, reading
from .entries import PADDLE_RANKING, RANKING, choose_entry
from .file_formats import SUFFIXES, choose_format
from .integrity import verify_while_reading
from .stored_names import find_stored_names
from .torch_files import StoredTensor, open_torch_file
from .unpickling import restricted_load
from .weight_files import local_file

# Limits of the arrays' bytes: bfloat16 becomes twice as large, and one array may have two names.
_ALWAYS_ALLOWED, _LARGEST_GAIN = 1 << 26, 4


class SourceWeights(NamedTuple):
    """Weights from a source.

    Attributes:
        name: name of the source, for messages.
        state: arrays by the names in the source, bfloat16 as float32.
        in_paddle_layout: whether Linear weights are (in, out) if nothing else decides it: the convention of the format.
        notices: unusual properties of the source.
        class_names: names by label that another training program stored in the file; None: it has none.
    """

    name: str
    state: dict[str, np.ndarray]
    in_paddle_layout: bool
    notices: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None


def read_weights(source: str | os.PathLike, part: str | None = None) -> SourceWeights:
    """Read the weights in a file or at an address, in any supported format.

    Raises UserError if the source does not exist, has another format, is damaged or rejected, or has no arrays.

    Args:
        source: a ``.pdparams`` (with or without its extension), safetensors, ``.npz`` or PyTorch file of any name, or
            the JSON index of several; a directory with one of them; a run or its checkpoint, which means its averaged
            weights if it has some; an ``http(s)://`` or ``file://`` address of a file, optionally with
            ``#sha256=...`` after it; or a name in ``published``.
        part: the entry to use in a file with several, such as "model_ema", or what its names begin with.
    """
    file, notices = local_file(source)
    shards = list_shards(file)
    if shards is not None:
        return _read_shards(file, shards, part)._replace(notices=notices)
    with verify_while_reading(file):
        weights = _read_file(file, part)
    return weights._replace(notices=notices + weights.notices)


def list_shards(file: Path) -> list[Path] | None:
    """List the files in the same folder that an index of sharded weights names, each once. None: no index.

    Raises UserError if the index is unreadable, damaged, or names files in other folders.
    """
    if choose_format(file) != "index":
        return None
    names = sorted(set(_read_index(file).values()))
    return [file.with_name(name) for name in names]


def _read_index(index: Path) -> dict[str, str]:
    """Read the name of the file of each array."""
    with reading(str(index), "weights index"):
        places = read_json(index)["weight_map"]
        names = sorted(set(places.values()))
        if not names or any(Path(name).name != name or Path(name).suffix not in SUFFIXES for name in names):
            raise ValueError("it names files outside its folder")
    return places


def _read_shards(index: Path, shards: list[Path], part: str | None) -> SourceWeights:
    parts = [_read_file(shard, part) for shard in shards]
    state = {name: value for shard in parts for name, value in shard.state.items()}
    missing = sorted(_read_index(index).keys() - state.keys()) if part is None else []
    if missing:
        raise UserError(
            f"{index} names arrays that its files do not have: {shorten(missing[0])}"
            f"{f' and {len(missing) - 1:,} more' if len(missing) > 1 else ''}; download these files again"
        )
    return SourceWeights(str(index), state, parts[0].in_paddle_layout)


def read_state(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Return the arrays of ``read_weights(path)`` by name."""
    return read_weights(path).state


def weights_from_mapping(state: Mapping[str, Any], part: str | None = None) -> SourceWeights:
    """Convert a mapping in memory to weights: numpy arrays, Paddle tensors or (name, array) pairs."""
    name = "the given state"
    chosen, notices = choose_entry(state, name, part, RANKING)
    paddle = sys.modules.get("paddle")  # reading files does not need it, so it is not imported here
    is_paddle = paddle is not None and any(isinstance(value, paddle.Tensor) for value in chosen.values())
    if is_paddle:
        chosen, notices = choose_entry(state, name, part, PADDLE_RANKING)
    return SourceWeights(name, _keep_arrays(chosen, name), is_paddle, notices)


def _read_file(file: Path, part: str | None) -> SourceWeights:
    """Read a file by its content; prefixes are kept."""
    name, kind = str(file), choose_format(file)
    most_bytes = _ALWAYS_ALLOWED + _LARGEST_GAIN * file.stat().st_size
    if kind == "safetensors":
        state, metadata = read_safetensors(file)
        return _select_weights(state, name, metadata.get("format") in ("pd", "paddle"), part, most_bytes)
    if kind == "npz":
        return _select_weights(read_npz(file), name, True, part)  # read_npz has a limit itself
    if kind == "torch":
        with open_torch_file(file) as content:
            return _select_weights(content, name, False, part, most_bytes)
    return _select_weights(restricted_load(file), name, True, part, most_bytes)


def _select_weights(
    content: object, name: str, in_paddle_layout: bool, part: str | None, max_bytes: float = float("inf")
) -> SourceWeights:
    """Choose the entry of a file with the weights; UserError: its arrays are larger than ``max_bytes``, or missing."""
    state, notices = choose_entry(content, name, part, PADDLE_RANKING if in_paddle_layout else RANKING)
    names = find_stored_names(content)
    needed = sum(map(_count_bytes, state.values()))
    if needed > max_bytes:
        raise UserError(
            f"{name} is rejected: its arrays need {needed / 1e6:,.0f} MB, far more than the file has, because it "
            "lists the same data under many names; save each array once"
        )
    arrays = _keep_arrays(state, name)
    return SourceWeights(name, arrays, in_paddle_layout, notices, None if names is None else tuple(names))


def _keep_arrays(state: Mapping[str, Any], source: str) -> dict[str, np.ndarray]:
    """Return the entries that are arrays; others, such as an epoch, are dropped."""
    arrays = {str(name): as_array(value) for name, value in state.items()}
    arrays = {name: value for name, value in arrays.items() if value is not None}
    if not arrays:
        raise UserError(f"{source} contains no weights: none of its {len(state)} entries is an array")
    return arrays


def _count_bytes(value: Any) -> int:
    """Return the size of an entry after ``as_array`` in bytes, without converting it; 0 if it is not an array."""
    value = value[1] if isinstance(value, tuple) and len(value) == 2 else value
    dtype = value.storage.dtype if isinstance(value, StoredTensor) else getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype):
        return 0
    return math.prod(value.shape) * (4 if dtype == np.uint16 else dtype.itemsize)


def as_array(value: object) -> np.ndarray | None:
    """Convert ``value`` to a numpy array, bfloat16 (which numpy lacks, stored as bits in uint16) to float32.

    Return None if it is neither an array, nor a tensor, nor a (name, array) pair, as in older files of Paddle.
    """
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], np.ndarray):
        value = value[1]
    if not isinstance(value, np.ndarray) and callable(getattr(value, "numpy", None)):
        value = _to_numpy(value)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        return None
    if value.dtype == np.uint16:
        return (value.astype(np.uint32) << 16).view(np.float32)
    return value


def _to_numpy(tensor: Any) -> Any:
    """Convert a tensor of Paddle, of a file, or of PyTorch, which must be detached and has no bfloat16 in numpy."""
    for step in ("detach", "cpu"):
        tensor = getattr(tensor, step, lambda unchanged=tensor: unchanged)()
    if str(getattr(tensor, "dtype", "")) == "torch.bfloat16":
        tensor = tensor.float()
    return tensor.numpy()
