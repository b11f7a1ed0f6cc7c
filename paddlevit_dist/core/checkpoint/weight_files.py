"""Finds the file with weights that a path, a run, an address or a name of published weights means."""

import os
from collections.abc import Callable
from pathlib import Path

from ..registry.extension_points import PARSE_EVALUATED_ARGUMENT
from ..runtime.errors import UserError
from ..runtime.hints import find_similar
from .array_files import reading
from .directory_names import AVERAGED, MODEL
from .download import CachedCopy, silent
from .file_formats import SUFFIXES, find_format, may_be_weights
from .published import is_fetched, local_weights, similar_names
from .records import resolve_checkpoint

EXTENSION = ".pdparams"
_OTHER_FORMATS = (".npy", ".onnx", ".h5", ".msgpack", ".pdiparams", ".pdmodel", ".pdopt", ".tflite", ".gguf")
_IN_DIRECTORY = (  # in a checkpoint of this package, or in a model's folder from Hugging Face
    AVERAGED,  # first: a run with an average is scored by it
    MODEL,
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


def local_file(source: str | os.PathLike, log: Callable[[str], None] = silent) -> CachedCopy:
    """Return the local file that ``source`` means, as in ``read_weights``; used by every command.

    A line is logged before a download. Raises UserError if there is none, or it cannot be downloaded.
    """
    return local_weights(source, log) or CachedCopy(find_weights_file(source), ())


def find_weights_file(path: str | os.PathLike) -> Path:
    """Return the file that ``path`` means: itself, the path with the extension, or the weights in that directory.

    A run's output folder, or its ``checkpoints``, means its best checkpoint, else its last; ``~`` is the home folder.
    Raises UserError if none of them exists; the message lists what was tried and similar names.
    """
    expanded = resolve_checkpoint(path)
    with_extension = expanded.with_name(expanded.name + EXTENSION) if expanded.name else expanded
    in_directory = [expanded / name for name in _IN_DIRECTORY] + _only_weights_in(expanded)
    with reading(str(path), "path"):
        for candidate in (expanded, with_extension, *in_directory):
            if candidate.is_file():
                if candidate.suffix.lower() in _OTHER_FORMATS and find_format(candidate) in (None, "paddle"):
                    parse_exported = PARSE_EVALUATED_ARGUMENT.find()
                    # The name says whether it can be one: a path always can.
                    exported = parse_exported and parse_exported(candidate.name) and parse_exported(str(candidate))
                    advice = f"; evaluate it with {exported[0]}" if exported else ""
                    raise UserError(
                        f"{candidate}: {candidate.suffix} files are not read, only {', '.join(SUFFIXES)} are{advice}"
                    )
                return candidate
    if expanded.is_dir():
        existing = _describe_folder(expanded, MODEL)
        raise UserError(
            f"{expanded} contains no model.pdparams, model.safetensors or pytorch_model.bin, and not exactly one "
            f"weights file with another name: {existing}"
        )
    tried = str(expanded) if expanded.suffix == EXTENSION else f"{expanded}, {with_extension}"
    raise UserError(
        f"no weights at {path} (tried {tried}): {_describe_folder(expanded.parent, expanded.name)}"
        f"{similar_names(str(path))}"
    )


def evaluated_weights(source: str | os.PathLike) -> str:
    """Return the weights that reproduce a run's scores: its averaged weights, if any, else its checkpoint.

    Another ``source`` than a run's is returned unchanged.
    """
    if is_fetched(source):
        return str(source)
    checkpoint = resolve_checkpoint(source)
    averaged = checkpoint / AVERAGED
    if averaged.is_file():
        return str(averaged)
    # Other sources keep their spelling: "./NAME" is a path, but NAME may be published weights.
    return str(source if checkpoint == Path(os.path.expanduser(source)) else checkpoint)


def _only_weights_in(folder: Path) -> list[Path]:
    """Return the only file of a supported format in a directory, in a list; empty if there are none or several."""
    if not folder.is_dir():
        return []
    files = [file for file in folder.iterdir() if may_be_weights(file)]
    return files if len(files) == 1 else []


def _describe_folder(folder: Path, requested: str) -> str:
    """Name the files of a folder that are similar to ``requested``, or else the first ones, for a message."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return f"the folder {folder} does not exist or cannot be read"
    stems = {name.removesuffix(EXTENSION): name for name in names}
    similar = [stems[stem] for stem in find_similar(requested.removesuffix(EXTENSION), stems, 3)]
    shown = similar or names[:5]
    if not shown:
        return f"the folder {folder} is empty"
    more = "" if len(shown) == len(names) or similar else f" and {len(names) - len(shown)} more"
    return f"{'similar names' if similar else 'names'} in {folder}: {', '.join(shown)}{more}"
