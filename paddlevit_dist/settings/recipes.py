"""The recipes that come with the package: in ``configs/`` of the repository, in ``recipes/`` when installed."""

import difflib
import os
from pathlib import Path

from ..runtime.environment import program
from ..runtime.errors import UserError

_ENDINGS = (".yaml", ".yml")
_PACKAGE = Path(__file__).resolve().parents[1]


class RecipeMissing(UserError):
    """Data were named, but no recipe.

    Args:
        recipe: name of the recipe that the message suggests.
        reason: what was found at the data's path; empty if nothing was recognized.
    """

    def __init__(self, message: str, recipe: str, reason: str) -> None:
        super().__init__(message)
        self.recipe = recipe
        self.reason = reason


def folder() -> Path:
    """Return the folder of the recipes. ``setup.py`` copies them into the built package."""
    installed = _PACKAGE / "recipes"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def is_builtin(path: str) -> bool:
    """Return whether a file is one of the package's recipes or BASE files."""
    return Path(path).resolve().is_relative_to(folder().resolve())


def names() -> list[str]:
    """Return all names in alphabetical order, without the files for BASE."""
    return sorted(file.stem for file in folder().glob("*.yaml"))


def title(name: str) -> str:
    """Return the first line of a recipe, its description."""
    with open(folder() / f"{name}.yaml", encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").rstrip(".\n")


def find(name: str) -> str:
    """Return the file that ``-cfg=name`` means: an existing file, else the recipe of that name.

    Raises:
        UserError: there is neither; the message names the closest match.
    """
    path = os.path.expanduser(name)
    if os.path.isfile(path):
        return path
    stem = name[: -len(Path(name).suffix)] if name.endswith(_ENDINGS) else name
    if os.sep not in name:
        recipe = folder() / f"{stem}.yaml"
        if recipe.is_file():
            return str(recipe)
    raise UserError(f"-cfg: {_explain_missing(path, stem)}")


def find_ambiguity(name: str) -> str | None:
    """Return a notice if ``-cfg=name`` means a recipe, but the current folder has a file of that name, too."""
    local = next((f"{name}{ending}" for ending in _ENDINGS if os.path.isfile(f"{name}{ending}")), None)
    if local is None or os.sep in name or os.path.isfile(name) or name not in names():
        return None
    return f"-cfg={name} is the recipe of the package; use -cfg=./{local} for the file in this folder"


def base(name: str) -> str | None:
    """Return the package's file for ``BASE: name`` that the user's folder lacks: a recipe's name or relative path."""
    for file in (folder() / name, folder() / f"{name}.yaml"):
        if not os.path.isabs(name) and ".." not in Path(name).parts and file.is_file():
            return str(file)
    return None


def missing(path: str) -> str:
    """Format the error for a missing YAML file, with the closest name in its folder."""
    if os.path.isdir(path):
        return f"{os.path.normpath(path)} is a folder: expected a YAML file"
    parent, file = os.path.split(path)
    present = os.listdir(parent or ".") if os.path.isdir(parent or ".") else []
    near = difflib.get_close_matches(file, [name for name in present if name.endswith(_ENDINGS)], n=1, cutoff=0.5)
    hint = f": did you mean '{os.path.normpath(os.path.join(parent, near[0]))}'?" if near else ""
    return f"there is no file {os.path.normpath(path)}{hint}"


def _explain_missing(path: str, stem: str) -> str:
    same = os.path.basename(stem)
    if os.sep in stem and same in names() and not os.path.isdir(path):
        return f"there is no file {os.path.normpath(path)}; use -cfg={same} for the recipe of that name"
    message = missing(path)
    near = difflib.get_close_matches(stem, names(), n=1, cutoff=0.5)
    if os.path.isdir(path) or os.sep in path or (path != stem and ("did you mean" in message or not near)):
        return message
    hint = f"did you mean -cfg={near[0]}?" if near else ""
    if path != stem:
        return f"{message}: {hint}"
    listed = f"'{program('inspect recipes')}' lists all"
    return f"there is neither a file nor a recipe {path}: {f'{hint} ' if hint else ''}{listed}"
