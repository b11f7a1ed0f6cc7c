"""The files of an export: which ones belong to it, and how they replace the files of an earlier one."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ...core.runtime import signals
from ...core.runtime.errors import UserError
from ...core.runtime.files import readable, unfinished_folder
from ...core.runtime.printing import utf8
from ...core.runtime.text_files import read_yaml
from .files import ONNX, ONNX_WEIGHTS, PARAMETERS, PROGRAMS, as_mapping

DESCRIPTION, EXAMPLE, PADDLEX = ".about.yaml", ".example.npz", ".yml"
_SHARED, _ONNX_FILES = (DESCRIPTION, EXAMPLE), (ONNX, ONNX_WEIGHTS)
_PADDLE_FILES = (PARAMETERS, *PROGRAMS, f"{PARAMETERS}.info", PADDLEX)


def check_output(output: str) -> Path:
    """Return the common path of the exported files; raises a UserError if it is a folder, or Paddle cannot write it."""
    path = Path(output).expanduser()
    if utf8(str(path.absolute())) != str(path.absolute()):
        raise UserError(f"export: {utf8(str(path.absolute()))} is not UTF-8, which Paddle needs: choose another OUT")
    if path.is_dir() or not path.name or output.endswith(os.sep):
        raise UserError(f"export: {output} is a folder: add a file name, such as {path / 'model'}")
    return path


def require_replaceable(path: Path, kind: str) -> None:
    """Raise a UserError if files of an export's path exist that are not an earlier export in the format ``kind``."""
    existing, description = _list_files(path), path.with_name(path.name + DESCRIPTION)
    with readable(description, "; choose another OUT, or add -replace"):
        about = as_mapping(read_yaml(description, ("classes",)) if description in existing else None)
    suffixes = (*_SHARED, *(_PADDLE_FILES if kind == "paddle" else _ONNX_FILES))
    if existing and (about.get("format") != kind or not all(file.name.endswith(suffixes) for file in existing)):
        raise UserError(
            f"export: {', '.join(map(str, existing))}: not an earlier export with -format={kind}: choose another OUT, "
            "or add -replace, which deletes these files"
        )


def _list_files(path: Path) -> list[Path]:
    """List the existing files that an export in any format may write."""
    files = [path.with_name(path.name + suffix) for suffix in (*_SHARED, *_PADDLE_FILES, *_ONNX_FILES)]
    return [file for file in files if file.is_file()]


@contextlib.contextmanager
def write_together(path: Path) -> Iterator[Path]:
    """Yield a temporary folder whose files replace all of the export at ``path`` if the block succeeds.

    Nothing changes if it fails. The description goes first and comes last: it never describes another model.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with unfinished_folder(path) as folder:
        yield folder
        with signals.blocked():
            files = sorted(folder.iterdir(), key=lambda file: file.name.endswith(DESCRIPTION))
            for file in [file for file in files if (path.parent / file.name).is_dir()]:
                os.replace(file, path.parent / file.name)  # fails, before anything is gone
            for old in _list_files(path):
                old.unlink()
            for file in files:
                os.replace(file, path.parent / file.name)
