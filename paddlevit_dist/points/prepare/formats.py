"""The formats of raw scenes that are registered, and their detection from files and folders."""

import functools
import os

from ...core.registry import plugins
from ...core.registry.lookup import find_name, find_package, require_derived, resolve
from ...core.registry.manifest import Target
from ...core.registry.names import REGISTRY
from ...core.runtime.errors import UserError
from ..data.scene_store import is_hidden
from .listing import SceneChoices, SceneReader
from .nuscenes import NuScenesReader, is_nuscenes
from .tables import TableReader, TextReader

_KIND = "scene_format"
_MAX_FOLDERS = 2_000  # that are searched to detect the format


def list_readers() -> dict[str, SceneReader]:
    """Return a reader of each format with default choices, by its name; a file is of the first that it fits.

    Users' formats come first. UserError: one of them is not derived from ``SceneReader``.
    """
    plugins.load_installed()
    return _build_readers(tuple(REGISTRY.kinds[_KIND].items()))


@functools.cache
def _build_readers(formats: tuple[tuple[str, Target], ...]) -> dict[str, SceneReader]:
    names = sorted((name for name, _ in formats), key=lambda name: find_package(_KIND, name) is not None)
    return {name: get_format(name)(kind=name) for name in names}


def get_format(name: str) -> type[SceneReader]:
    """Return the reader's class of a format; UserError: there is none of this name, or it is no ``SceneReader``."""
    reader: type[SceneReader] = require_derived(resolve(_KIND, name), SceneReader)
    return reader


def get_reader(name: str, choices: SceneChoices) -> SceneReader:
    """Return the reader of a format; UserError: a choice does not apply to it, or as ``get_format``."""
    name = find_name(_KIND, name)
    reader = get_format(name)
    for choice, default in vars(SceneChoices()).items():
        if getattr(choices, choice) != default and choice not in reader.options:
            option = {"class_names": "classes", "gray": "missing_colors"}.get(choice, choice)
            raise UserError(f"--{option} is not for scenes of format {name} ({reader.meaning}); drop --{option}")
    return reader(choices, name)


def describe_formats() -> str:
    """Return the names of all formats with their meanings."""
    return "; ".join(f"{name}: {reader.meaning or 'registered'}" for name, reader in list_readers().items())


def identify_file(path: str) -> tuple[str, str] | None:
    """Return the format of a file, by its name and folder, and the name of its scene; None for other files."""
    for kind, reader in list_readers().items():
        scene = reader.identify(path)
        if scene is not None:
            return kind, scene[0]
    return None


def detect_format(root: str) -> str:
    """Detect the format of scenes by names of folders and files below a folder; UserError if none or several fit."""
    if is_nuscenes(root):  # instead of walking through its millions of files
        return NuScenesReader.kind
    examples_by_format: dict[str, str] = {}
    for number, (folder, subfolders, names) in enumerate(os.walk(root, followlinks=True)):
        subfolders[:] = sorted(name for name in subfolders if not is_hidden(name))
        for path in (os.path.join(folder, name) for name in sorted(names) if not is_hidden(name)):
            examples_by_format.setdefault((identify_file(path) or ("", ""))[0], path)
        if number >= _MAX_FOLDERS:
            break
    examples_by_format.pop("", None)
    for kind, reader in list_readers().items():
        if kind in examples_by_format and not (isinstance(reader, TableReader) and find_package(_KIND, kind)):
            return kind
    tables = [name for name in examples_by_format if name != TextReader.kind] or list(examples_by_format)
    if len(tables) == 1:
        return tables[0]
    if tables:
        examples = ", ".join(f"{examples_by_format[format_name]} ({format_name})" for format_name in tables)
        raise UserError(f"{root} contains scenes of several formats, {examples}: select one with --format")
    raise UserError(
        f"{root} contains no scenes of a known format ({describe_formats()}); give the folder with the scenes"
    )
