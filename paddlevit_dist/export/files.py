"""Which files an exported model is in, and what is written beside it; without Paddle and onnxruntime."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from ..runtime.errors import UserError
from ..runtime.text_files import parse_yaml, read_yaml

ONNX, PARAMETERS = ".onnx", ".pdiparams"
_PROGRAMS = (".json", ".pdmodel")  # of Paddle 3, of 2.6
_EXPECTED = (
    f"expected MODEL{ONNX}, or MODEL{PARAMETERS} with its MODEL.json or MODEL.pdmodel; -pretrained names weights"
)


class ExportedModel(NamedTuple):
    """An exported model.

    Attributes:
        file: of ONNX, or with Paddle's parameters.
        about: what ``export`` has written beside it; empty for models of others.
    """

    file: Path
    about: dict[str, Any]

    @property
    def is_onnx(self) -> bool:
        """Else it is an inference model of Paddle."""
        return self.file.suffix == ONNX

    @property
    def prefix(self) -> str:
        """The path that its files share."""
        return str(self.file.with_suffix(""))

    def weights(self) -> str | None:
        """The trained weights that it was made from, as the description names them."""
        named = self.about.get("weights")
        return named if isinstance(named, str) else None


def parse_evaluated_argument(word: str) -> str | None:
    """For ``evaluate MODEL.onnx``: what a word of the command line sets, None if it names no exported model."""
    path = Path(os.path.expanduser(word))
    is_path = "=" not in word and ("/" in word or path.suffix in (ONNX, PARAMETERS, ".pdmodel"))
    is_meant = is_path or bool(_candidates(path))
    return f"EXPORTED={word}" if is_meant else None


def find(source: str) -> ExportedModel:
    """The exported model that a path means: one of its files, the path without extension, or the folder it is in.

    Raises:
        UserError: there is none, or there are several; or its description is damaged.
    """
    path = Path(os.path.expanduser(source))
    found = _candidates(path)
    if len(found) > 1:
        raise UserError(f"EXPORTED {source}: there are {', '.join(map(str, found))}: name one of them")
    if not found:
        what = "does not exist" if not os.path.lexists(path) else "holds none" if path.is_dir() else "is none"
        raise UserError(f"EXPORTED {source}: no exported model: it {what}; {_EXPECTED}")
    (file,) = found
    if file.suffix == PARAMETERS and not any(file.with_suffix(ending).is_file() for ending in _PROGRAMS):
        raise UserError(f"EXPORTED {source}: beside {file} there is neither its .json nor its .pdmodel; {_EXPECTED}")
    beside = file.with_name(f"{file.stem}.about.yaml")
    try:
        return ExportedModel(file, mapping(read_yaml(beside) if beside.is_file() else None))
    except (OSError, ValueError) as error:
        raise UserError(f"{beside}: cannot be read: {error}; export the model again, or remove the file") from error


def mapping(value: Any) -> dict[str, Any]:
    """A description, empty where there is none."""
    return value if isinstance(value, dict) else {}


def description_in(text: str | None) -> dict[str, Any]:
    """The description that an ONNX file of ours has inside; one of somebody else's format is none."""
    try:
        return mapping(parse_yaml(text) if text else None)
    except ValueError:
        return {}


def _candidates(path: Path) -> list[Path]:
    """The files with weights that a path may mean; none where the file system refuses it, as a too long name."""
    try:
        if path.is_dir():
            named = sorted(file for file in path.iterdir() if file.suffix in (ONNX, PARAMETERS))
        elif path.suffix in (ONNX, PARAMETERS, *_PROGRAMS):
            named = [path.with_suffix(PARAMETERS) if path.suffix in _PROGRAMS else path]
        else:
            named = [path.with_name(path.name + ending) for ending in (ONNX, PARAMETERS)]
        return [file for file in named if file.is_file()]
    except (OSError, ValueError):
        return []
