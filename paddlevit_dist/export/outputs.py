"""The files of an export: which ones belong to it, and how they replace those of an earlier one."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.files import readable
from ..runtime.printing import utf8
from ..runtime.text_files import read_yaml
from .files import ONNX, ONNX_WEIGHTS, PARAMETERS, PROGRAMS, as_mapping

DESCRIPTION, EXAMPLE, PADDLEX = ".about.yaml", ".example.npz", ".yml"
_DESCRIBING = (DESCRIPTION, EXAMPLE)
_ONNX_FILES = (ONNX, ONNX_WEIGHTS)
_PADDLE_FILES = (PARAMETERS, *PROGRAMS, f"{PARAMETERS}.info", PADDLEX)


def check_output(output: str, kind: str, replaces: bool = False) -> Path:
    """Return the common path of the exported files.

    All files of this path are one export, as they share a description. They may exist if they are an earlier export in
    the same format, ``kind``; with ``replaces``, whatever they are.

    Raises:
        UserError: the path is a folder, Paddle cannot write it, or its files are something else.
    """
    path = Path(output).expanduser()
    if utf8(str(path.absolute())) != str(path.absolute()):
        raise UserError(f"export: {utf8(str(path.absolute()))} is not UTF-8, which Paddle needs: choose another OUT")
    if path.is_dir() or not path.name or output.endswith(os.sep):
        raise UserError(f"export: {output} is a folder: add a file name, such as {path / 'model'}")
    existing, suffixes = _list_files(path), (*_DESCRIBING, *(_PADDLE_FILES if kind == "paddle" else _ONNX_FILES))
    is_ours = all(file.name.endswith(suffixes) for file in existing) and _read_format(path) == kind
    if existing and not replaces and not is_ours:
        raise UserError(
            f"export: {', '.join(map(str, existing))}: not an earlier export with -format={kind}: choose another OUT, "
            "or add -replace, which deletes these files"
        )
    return path


def _list_files(path: Path) -> list[Path]:
    """List the existing files that an export in any format may write."""
    files = [path.with_name(path.name + suffix) for suffix in (*_DESCRIBING, *_PADDLE_FILES, *_ONNX_FILES)]
    return [file for file in files if file.is_file()]


def _read_format(path: Path) -> object:
    """Return the format of the export at a path by its description; None if there is none."""
    description = path.with_name(path.name + DESCRIPTION)
    with readable(description, "; choose another OUT, or add -replace"):
        return as_mapping(read_yaml(description, ("classes",)) if description.is_file() else None).get("format")


@contextlib.contextmanager
def write_together(path: Path) -> Iterator[Path]:
    """Yield a temporary folder whose files replace all of the export at ``path`` if the block succeeds.

    Nothing changes if it fails. The description goes first and comes last: it never describes another model.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    try:
        yield folder
        with signals.blocked():
            targets = {file: path.parent / file.name for file in folder.iterdir()}
            for file, target in targets.items():
                if target.is_dir():
                    os.replace(file, target)  # fails, before anything is gone
            for file in _list_files(path):
                file.unlink()
            for file in sorted(targets, key=lambda file: file.name.endswith(DESCRIPTION)):
                os.replace(file, targets[file])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
