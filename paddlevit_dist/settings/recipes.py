"""The recipes that come with the package, by name: ``configs/`` of the repository, ``recipes/`` where installed."""

import difflib
import os
from pathlib import Path

from ..runtime.environment import program
from ..runtime.errors import UserError

_ENDINGS = (".yaml", ".yml")
_PACKAGE = Path(__file__).resolve().parents[1]


class RecipeMissing(UserError):
    """Data are named, and no recipe.

    Args:
        recipe: the name of the one that the message suggests.
        reason: what was found at the data's path; empty: nothing that is known.
    """

    def __init__(self, message: str, recipe: str, reason: str) -> None:
        super().__init__(message)
        self.recipe = recipe
        self.reason = reason


def folder() -> Path:
    """Where they are. ``setup.py`` copies them into what it builds."""
    installed = _PACKAGE / "recipes"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def is_own(path: str) -> bool:
    """Tell whether a file is one of the recipes, or a file for their BASE."""
    return Path(path).resolve().is_relative_to(folder().resolve())


def names() -> list[str]:
    """All names, in alphabetical order; files for BASE have none."""
    return sorted(file.stem for file in folder().glob("*.yaml"))


def title(name: str) -> str:
    """The first line of a recipe, which says what it is."""
    with open(folder() / f"{name}.yaml", encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").rstrip(".\n")


def find(name: str) -> str:
    """The file that ``-cfg=name`` means: one that exists, else the recipe of that name.

    Raises:
        UserError: there is neither; the message names the closest.
    """
    path = os.path.expanduser(name)
    if os.path.isfile(path):
        return path
    stem = name[: -len(Path(name).suffix)] if name.endswith(_ENDINGS) else name
    if os.sep not in name:
        recipe = folder() / f"{stem}.yaml"
        if recipe.is_file():
            return str(recipe)
    raise UserError(f"-cfg: {_why_not(path, stem)}")


def other_than_meant(name: str) -> str | None:
    """A notice where ``-cfg=name`` means a recipe, but the current folder has a file of that name, too."""
    beside = next((f"{name}{ending}" for ending in _ENDINGS if os.path.isfile(f"{name}{ending}")), None)
    if beside is None or os.sep in name or os.path.isfile(name) or name not in names():
        return None
    return f"-cfg={name} is the recipe of the package; -cfg=./{beside} is the file in this folder"


def base(name: str) -> str | None:
    """The file of the package that ``BASE: name`` means where there is no such file beside the one that names it: a
    recipe by its name, or a path in their folder, as a copy of a recipe has it."""
    for file in (folder() / name, folder() / f"{name}.yaml"):
        if not os.path.isabs(name) and ".." not in Path(name).parts and file.is_file():
            return str(file)
    return None


def missing(path: str) -> str:
    """Make the error of a YAML file that is not there; the message names the closest one beside it."""
    if os.path.isdir(path):
        return f"{os.path.normpath(path)} is a folder: expected a YAML file"
    beside, file = os.path.split(path)
    there = os.listdir(beside or ".") if os.path.isdir(beside or ".") else []
    near = difflib.get_close_matches(file, [name for name in there if name.endswith(_ENDINGS)], n=1, cutoff=0.5)
    hint = f": did you mean '{os.path.normpath(os.path.join(beside, near[0]))}'?" if near else ""
    return f"there is no file {os.path.normpath(path)}{hint}"


def _why_not(path: str, stem: str) -> str:
    same = os.path.basename(stem)
    if os.sep in stem and same in names() and not os.path.isdir(path):
        return f"there is no file {os.path.normpath(path)}: -cfg={same} is the recipe of that name"
    said = missing(path)
    near = difflib.get_close_matches(stem, names(), n=1, cutoff=0.5)
    if os.path.isdir(path) or os.sep in path or (path != stem and ("did you mean" in said or not near)):
        return said
    hint = f"did you mean -cfg={near[0]}?" if near else ""
    if path != stem:
        return f"{said}: {hint}"
    listed = f"'{program('inspect recipes')}' lists all"
    return f"there is neither a file nor a recipe {path}: {f'{hint} ' if hint else ''}{listed}"
