"""Weights from a file: which file a path means, and which of its content are weights."""

import difflib
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..extension import extensions
from ..runtime.errors import UserError
from ..runtime.text_files import read_json
from .array_files import read_npz, read_safetensors, reading
from .content import AVERAGED, MODEL, resolve_checkpoint, verify_while_reading
from .download import CachedCopy, silent
from .published import is_fetched, local_weights, similar_names
from .torch_files import StoredTensor, open_torch_file
from .unpickling import restricted_load

INDEX_ENDING = ".index.json"
EXTENSION = ".pdparams"
_TORCH = (".pth", ".pt", ".bin", ".ckpt")
SUFFIXES = (EXTENSION, ".safetensors", ".npz", *_TORCH)  # of files that are read
_OTHER_FORMATS = (".npy", ".onnx", ".h5", ".msgpack", ".pdiparams", ".pdmodel", ".pdopt", ".tflite", ".gguf")
_IN_DIRECTORY = (  # of one of our checkpoints, of a model as Hugging Face stores it
    MODEL,
    "model.safetensors",
    "model.safetensors" + INDEX_ENDING,
    "pytorch_model.bin",
    "pytorch_model.bin" + INDEX_ENDING,
)
# The first that is there is taken; who writes "ema", as RT-DETR's and D-FINE's authors, evaluates and publishes that.
_WRAPPERS = ("ema", "model", "state_dict", "model_ema", "state_dict_ema", "module")
# In files of Paddle: PaddleViT evaluates the average of a checkpoint that holds one.
_OF_PADDLE = ("ema", "model_ema", "model", "state_dict", "state_dict_ema", "module")
_PREFIXES = ("module.", "_layers.", "backbone.", "model.", "_orig_mod.", "net.", "network.")
# Bytes of all arrays: bfloat16 becomes twice as long, and one array may have two names.
_ALWAYS_ALLOWED, _LARGEST_GAIN = 1 << 26, 4
_DEPTH = 3  # wrappers and prefixes inside one another; bounded because a damaged file may nest without end


class SourceWeights(NamedTuple):
    """Contents of a source.

    Attributes:
        name: of the source, for messages.
        state: arrays by name, bfloat16 as float32, without a wrapper and without a prefix that all names share.
        in_paddle_layout: whether its Linear weights are (in, out), if nothing else decides it: the format's convention.
        notices: anything unusual about the source.
    """

    name: str
    state: dict[str, np.ndarray]
    in_paddle_layout: bool
    notices: tuple[str, ...] = ()


def read_weights(source: str | os.PathLike, part: str | None = None, sha256: str | None = None) -> SourceWeights:
    """The weights in a file or at an address, whatever their format.

    Args:
        source: a ``.pdparams`` (with or without its extension), ``.safetensors``, ``.npz`` or PyTorch file (``.pth``,
            ``.pt``, ``.bin``, ``.ckpt``); a directory with one of them; an ``http(s)://`` or ``file://`` address of
            a file, with ``#sha256=...`` after it if its content is known; or a name of ``published``.
        part: the entry to use in a file of several, such as "model_ema".
        sha256: the same as in the address, in hexadecimal.

    Raises:
        UserError: nothing there, another format, damaged, refused, or without arrays.
    """
    file, notices = local_file(source, sha256)
    if file.name.endswith(INDEX_ENDING):
        parts = [_read_file(shard, part) for shard in list_shards(file)]
        state = {name: value for shard in parts for name, value in shard.state.items()}
        return SourceWeights(str(file), _without_prefix(state), parts[0].in_paddle_layout, notices)
    with verify_while_reading(file):
        weights = _read_file(file, part)
    return weights._replace(notices=notices + weights.notices)


def list_shards(index: Path) -> list[Path]:
    """The files beside ``index`` that it names, each once.

    Raises:
        UserError: unreadable, damaged, or naming files in other places.
    """
    with reading(str(index), "weights index"):
        names = sorted(set(read_json(index)["weight_map"].values()))
        if not names or any(
            Path(name).name != name or Path(name).suffix not in (".safetensors", ".bin") for name in names
        ):
            raise ValueError("it names files that are not beside it")
    return [index.with_name(name) for name in names]


def read_state(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """``read_weights(path).state``: arrays by name."""
    return read_weights(path).state


def weights_from_mapping(state: Mapping[str, Any], part: str | None = None) -> SourceWeights:
    """Take a mapping in memory as weights: numpy arrays, Paddle tensors or (name, array) pairs."""
    name = "the given state"
    chosen, notices = _unwrap(state, name, part, _WRAPPERS)
    paddle = sys.modules.get("paddle")  # not imported here: files are read without it
    of_paddle = paddle is not None and any(isinstance(value, paddle.Tensor) for value in chosen.values())
    if of_paddle:
        chosen, notices = _unwrap(state, name, part, _OF_PADDLE)
    return SourceWeights(name, _arrays(chosen, name), of_paddle, notices)


def _read_file(file: Path, part: str | None) -> SourceWeights:
    name, extension = str(file), file.suffix.lower()
    if extension == ".safetensors":
        state, metadata = read_safetensors(file)
        return _weights(state, name, metadata.get("format") in ("pd", "paddle"), part, _largest_size(file))
    if extension == ".npz":
        return _weights(read_npz(file), name, True, part)  # has a limit of its own
    if extension in _TORCH:
        with open_torch_file(file) as content:
            return _weights(content, name, False, part, _largest_size(file))
    return _weights(restricted_load(file), name, True, part, _largest_size(file))


def _largest_size(file: Path) -> int:
    """Return how many bytes the arrays of a file that has been read may need."""
    return _ALWAYS_ALLOWED + _LARGEST_GAIN * file.stat().st_size


def _weights(
    content: Any, name: str, in_paddle_layout: bool, part: str | None, most: float = float("inf")
) -> SourceWeights:
    state, notices = _unwrap(content, name, part, _OF_PADDLE if in_paddle_layout else _WRAPPERS)
    needed = sum(map(_bytes_needed, state.values()))
    if needed > most:
        raise UserError(
            f"{name} is refused: its arrays need {needed / 1e6:,.0f} MB, far more than the file has, as it gives the "
            "same numbers many names; save each array once"
        )
    return SourceWeights(name, _arrays(state, name), in_paddle_layout, notices)


def local_file(source: str | os.PathLike, sha256: str | None = None, say: Callable[[str], None] = silent) -> CachedCopy:
    """The file on this machine that ``source`` means, as ``read_weights`` takes it: what every command reads.

    Args:
        say: gets a line when something is fetched.
    Raises:
        UserError: there is none, or it cannot be fetched.
    """
    copy = local_weights(source, sha256, say)
    if copy is None and sha256 is not None:
        raise UserError(f"sha256 was given for {source}: it is only checked for http(s):// and file:// addresses")
    return copy or CachedCopy(find_weights_file(source), ())


def find_weights_file(path: str | os.PathLike) -> Path:
    """The file that ``path`` means: itself, with the extension added, or the weights in that directory.

    A run's output folder, or its ``checkpoints``, means its best checkpoint, else its last; ``~`` is the home folder.

    Raises:
        UserError: none of them exists; the message says what was tried and what is there instead.
    """
    given = resolve_checkpoint(path)
    with_extension = given.with_name(given.name + EXTENSION) if given.name else given
    in_directory = [given / name for name in _IN_DIRECTORY] + _only_weights_in(given)
    with reading(str(path), "path"):
        for candidate in (given, with_extension, *in_directory):
            if candidate.is_file():
                if candidate.suffix.lower() in _OTHER_FORMATS:
                    settings = [
                        found for one in extensions() if (found := one.parse_evaluated_argument(str(candidate)))
                    ]
                    advice = f"; it is evaluated with {settings[0]}" if settings else ""
                    raise UserError(
                        f"{candidate}: {candidate.suffix} files are not read, only {', '.join(SUFFIXES)} are{advice}"
                    )
                return candidate
    if given.is_dir():
        there = _what_is_there(given, _IN_DIRECTORY[0])
        raise UserError(
            f"{given} holds no model.pdparams, model.safetensors or pytorch_model.bin, and not just one weights file "
            f"of another name: {there}"
        )
    tried = str(given) if given.suffix == EXTENSION else f"{given}, {with_extension}"
    raise UserError(
        f"no weights at {path} (tried {tried}): {_what_is_there(given.parent, with_extension.name)}"
        f"{similar_names(str(path))}"
    )


def evaluated_weights(source: str | os.PathLike) -> str:
    """Find what ``source`` means where a run's scores are to be reproduced: the averaged weights of a checkpoint that
    has some, the checkpoint that a run's folder means, else ``source`` as it is."""
    if is_fetched(source):
        return str(source)
    checkpoint = resolve_checkpoint(source)
    averaged = checkpoint / AVERAGED
    if averaged.is_file():
        return str(averaged)
    # What is no checkpoint of a run keeps its spelling: "./NAME" is a path, NAME may be published weights.
    return str(source if checkpoint == Path(source).expanduser() else checkpoint)


def _only_weights_in(folder: Path) -> list[Path]:
    """The only file of a readable format in a directory, whatever its name."""
    if not folder.is_dir():
        return []
    found = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in SUFFIXES]
    return found if len(found) == 1 else []


def _what_is_there(folder: Path, wanted: str) -> str:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return f"the folder {folder} does not exist or cannot be read"
    similar = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    shown = similar or names[:5]
    if not shown:
        return f"the folder {folder} is empty"
    more = "" if len(shown) == len(names) or similar else f" and {len(names) - len(shown)} more"
    return f"{'similar names' if similar else 'names'} in {folder}: {', '.join(shown)}{more}"


def _unwrap(
    content: Any, source: str, part: str | None, wrappers: tuple[str, ...]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The mapping of weights inside what a file holds, and what else was there to choose from.

    Args:
        wrappers: names of mappings of weights; the first that is there is taken.
    """
    notices: tuple[str, ...] = ()
    if part is not None:
        parts = content if isinstance(content, Mapping) else {}
        if not isinstance(parts.get(part), Mapping):
            there = [str(key) for key, value in parts.items() if isinstance(value, Mapping)][:5]
            raise UserError(f"{source} has no part '{part}'; parts: {', '.join(map(ascii, there)) or 'none'}")
        content = parts[part]
    for _ in range(_DEPTH):
        if isinstance(content, Mapping):
            found = [key for key in wrappers if isinstance(content.get(key), Mapping)]
            if len(found) > 1:
                unused = ", ".join(f"'{key}'" for key in found[1:])
                other = found[1]
                choice = f"MODEL.PRETRAINED_PART {other}, or -part={other} of convert and export, takes another"
                notices = (f"'{found[0]}' of the source was taken; it also has {unused} ({choice})",)
            content = content[found[0]] if found else content
    if not isinstance(content, Mapping):
        raise UserError(f"{source} holds a {type(content).__name__} where a dictionary of weights was expected")
    return content, notices


def _arrays(state: Mapping[str, Any], source: str) -> dict[str, np.ndarray]:
    """The entries that are arrays, without shared prefixes; an epoch or an optimizer's state are left out."""
    arrays = {str(name): as_array(value) for name, value in state.items()}
    arrays = {name: value for name, value in arrays.items() if value is not None}
    if not arrays:
        raise UserError(f"{source} holds no weights: none of its {len(state)} entries is an array")
    return _without_prefix(arrays)


def _bytes_needed(value: Any) -> int:
    """Return the bytes of an entry as ``as_array`` gives it, before it is computed; 0 for what is not an array."""
    value = value[1] if isinstance(value, tuple) and len(value) == 2 else value
    dtype = value.storage.dtype if isinstance(value, StoredTensor) else getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype):
        return 0
    return math.prod(value.shape) * (4 if dtype == np.uint16 else dtype.itemsize)


def as_array(value: Any) -> np.ndarray | None:
    """``value`` as a numpy array with bfloat16 (which numpy lacks, stored as bits in uint16) made float32.

    None if it is neither an array, nor a tensor, nor a (name, array) pair as older files of Paddle hold.
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
    """Of a tensor of Paddle, of a file, or of PyTorch, which must be detached and has no bfloat16 in numpy."""
    for step in ("detach", "cpu"):
        tensor = getattr(tensor, step, lambda unchanged=tensor: unchanged)()
    if str(getattr(tensor, "dtype", "")) == "torch.bfloat16":
        tensor = tensor.float()
    return tensor.numpy()


def _without_prefix(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    for _ in range(_DEPTH):
        for prefix in _PREFIXES:
            if all(name.startswith(prefix) for name in arrays):
                arrays = {name[len(prefix) :]: value for name, value in arrays.items()}
    return arrays
