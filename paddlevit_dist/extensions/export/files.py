"""Find the files of an exported model and read its description; needs neither Paddle nor onnxruntime."""

import os
from pathlib import Path
from typing import Any, NamedTuple

from ...core.runtime.errors import UserError
from ...core.runtime.files import readable
from ...core.runtime.printing import shorten
from ...core.runtime.run_folders import suggest_runs
from ...core.runtime.text_files import parse_yaml, read_yaml

ONNX, PARAMETERS = ".onnx", ".pdiparams"
ONNX_WEIGHTS = f"{ONNX}.data"  # of a model that exceeds the size of an ONNX file
PROGRAMS = (".json", ".pdmodel")  # Paddle 3, Paddle 2.6
_EXPECTED = (
    f"expected a run's folder, MODEL{ONNX}, or MODEL{PARAMETERS} with MODEL.json or MODEL.pdmodel; to evaluate "
    "weights, use -pretrained"
)


class ExportedModel(NamedTuple):
    """An exported model."""

    file: Path  # the ONNX file, or the file of Paddle's parameters
    about: dict[str, Any]  # the description that ``export`` wrote; empty for models of other programs

    @property
    def is_onnx(self) -> bool:
        """Whether this is an ONNX file; if not, it is an inference model of Paddle."""
        return self.file.suffix == ONNX

    @property
    def prefix(self) -> str:
        """The common path of its files, without extension."""
        return str(self.file.with_suffix(""))

    def weights(self) -> str | None:
        """Return the path of the weights that the model was exported from; None if the description has none."""
        weights = self.about.get("weights")
        return weights if isinstance(weights, str) else None


def parse_evaluated_argument(word: str) -> tuple[str, str | None, str] | None:
    """Translate the argument of ``evaluate MODEL.onnx`` to KEY=VALUE; None if it does not name an exported model.

    Return also the path of the weights that the model was exported from, if known, and why there is no such model.
    """
    path = Path(os.path.expanduser(word))
    is_path = "=" not in word and ("/" in word or path.suffix in (ONNX, PARAMETERS, ".pdmodel"))
    files = _candidates(path)
    if not is_path and not files:
        return None
    try:
        return f"EXPORTED={word}", find_exported(word).weights(), ""
    except UserError as error:
        return f"EXPORTED={word}", None, str(error)


def find_exported(source: str) -> ExportedModel:
    """Find the exported model of a path: one of its files, the path without extension, or its folder.

    Raises:
        UserError: there are no or several exported models, or the description is damaged.
    """
    path = Path(os.path.expanduser(source))
    files = _candidates(path)
    if len(files) > 1:
        raise UserError(f"EXPORTED {source}: several models: {', '.join(map(str, files))}: name one of them")
    if not files:
        if not os.path.lexists(path):  # what was meant is unknown
            raise UserError(f"{shorten(source)} does not exist; {_EXPECTED}{suggest_runs(source)}")
        reason = "contains no exported model" if os.path.isdir(path) else "is not an exported model"
        raise UserError(f"EXPORTED {source}: {reason}; {_EXPECTED}")
    (file,) = files
    if file.suffix == PARAMETERS and not any(file.with_suffix(ending).is_file() for ending in PROGRAMS):
        raise UserError(f"EXPORTED {source}: the .json or .pdmodel of {file} is missing; {_EXPECTED}")
    description = file.with_name(f"{file.stem}.about.yaml")
    with readable(description, "; export the model again or remove the file"):
        return ExportedModel(file, as_mapping(read_yaml(description, ("classes",)) if description.is_file() else None))


def as_mapping(value: object) -> dict[str, Any]:
    """Return a dict unchanged, and an empty dict for any other value."""
    return value if isinstance(value, dict) else {}


def parse_description(text: str | None) -> dict[str, Any]:
    """Parse the description inside an ONNX file of this package; empty for text in other formats."""
    try:
        return as_mapping(parse_yaml(text) if text else None)
    except ValueError:
        return {}


def _candidates(path: Path) -> list[Path]:
    """List the weight files that a path may refer to; empty if the path is invalid, such as a too long name."""
    try:
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix in (ONNX, PARAMETERS))
        elif path.suffix in (ONNX, PARAMETERS, *PROGRAMS):
            files = [path.with_suffix(PARAMETERS) if path.suffix in PROGRAMS else path]
        else:
            files = [path.with_name(path.name + ending) for ending in (ONNX, PARAMETERS)]
        return [file for file in files if file.is_file()]
    except (OSError, ValueError):
        return []
