"""Recipes: YAML files that a name means in ``-cfg=NAME`` and ``BASE: NAME``, and the errors for a missing file.

The recipes that come with the package are in ``configs/`` of the repository, in ``recipes/`` when installed.
"""

import os
from pathlib import Path

from ..registry import plugins
from ..registry.names import REGISTRY
from ..runtime.environment import PACKAGE, program
from ..runtime.errors import UserError
from ..runtime.hints import find_similar

_ENDINGS = (".yaml", ".yml")


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


def recipe_folder() -> Path:
    """Return the folder of the recipes. ``setup.py`` copies them into the built package."""
    installed = PACKAGE / "recipes"
    return installed if installed.is_dir() else PACKAGE.parent / "configs"


DEFAULT_RECIPE = str(recipe_folder() / "vit_digits.yaml")


def is_recipe_file(path: str) -> bool:
    """Return whether a file is one of the package's recipes or BASE files."""
    return path.endswith(_ENDINGS) and Path(path).resolve().is_relative_to(recipe_folder().resolve())


def recipe_files() -> dict[str, Path]:
    """Return name -> file of the recipes, without the files for BASE; other packages have none by a name of ours."""
    of_others = [Path(folder) for manifest in REGISTRY.manifests for folder in manifest.recipe_folders]
    folders = [*reversed(of_others), recipe_folder()]
    return {file.stem: file for folder in folders for file in folder.glob("*.yaml")}


def recipe_names() -> list[str]:
    """Return the names of all recipes in alphabetical order."""
    return sorted(recipe_files())


def names_recipe(word: str) -> bool:
    """Return whether a word without a flag is the name of a recipe or of a YAML file."""
    return word in recipe_names() or word.endswith(_ENDINGS)


def recipe_title(name: str) -> str:
    """Return the first line of a recipe, its description."""
    with open(recipe_files()[name], encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").rstrip(".\n")


def is_known(name: str) -> bool:
    """Return whether a value of -cfg is a file, or the name of a recipe of this package or of one that was imported."""
    return os.path.isfile(os.path.expanduser(name)) or name.removesuffix(".yaml") in recipe_files()


def find_file(name: str) -> str:
    """Return the file that ``-cfg=name`` means: an existing file, else the recipe of that name.

    Raises:
        UserError: there is neither; the message names the closest match.
    """
    path = os.path.expanduser(name)
    if os.path.isfile(path):
        return path
    stem = name[: -len(Path(name).suffix)] if name.endswith(_ENDINGS) else name
    if os.sep not in name and stem in recipe_files():
        return str(recipe_files()[stem])
    if plugins.load_installed():  # they may have recipes
        return find_file(name)
    raise UserError(f"-cfg: {_explain_missing_recipe(path, stem)}")


def find_ambiguity(name: str) -> str | None:
    """Return a notice if ``-cfg=name`` means a recipe, but the current folder has a file of that name, too."""
    local = next((f"{name}{ending}" for ending in _ENDINGS if os.path.isfile(f"{name}{ending}")), None)
    if local is None or os.sep in name or os.path.isfile(name) or name not in recipe_names():
        return None
    return f"-cfg={name} is the recipe of the package; use -cfg=./{local} for the file in this folder"


def find_builtin_base(name: str) -> str | None:
    """Return the package's file for ``BASE: name`` that the user's folder lacks: a recipe's name or relative path."""
    for file in (recipe_folder() / name, recipe_folder() / f"{name}.yaml"):
        if not os.path.isabs(name) and ".." not in Path(name).parts and file.is_file():
            return str(file)
    return str(recipe_files()[name]) if name in recipe_files() else None


def explain_missing_file(path: str) -> str:
    """Format the error for a missing YAML file, with the closest name in its folder."""
    if os.path.isdir(path):
        return f"{os.path.normpath(path)} is a folder: expected a YAML file"
    if os.path.lexists(path):
        return f"{os.path.normpath(path)} is a pipe, a device or a link to no file: expected a YAML file"
    parent, file = os.path.split(path)
    present = os.listdir(parent or ".") if os.path.isdir(parent or ".") else []
    near = find_similar(file, [name for name in present if name.endswith(_ENDINGS)])
    hint = f": did you mean '{os.path.normpath(os.path.join(parent, near[0]))}'?" if near else ""
    return f"there is no file {os.path.normpath(path)}{hint}"


def _explain_missing_recipe(path: str, stem: str) -> str:
    same = os.path.basename(stem)
    if os.sep in stem and same in recipe_names() and not os.path.isdir(path):
        return f"there is no file {os.path.normpath(path)}; use -cfg={same} for the recipe of that name"
    message = explain_missing_file(path)
    near = find_similar(stem, recipe_names())
    if os.path.isdir(path) or os.sep in path or (path != stem and ("did you mean" in message or not near)):
        return message
    hint = f"did you mean -cfg={near[0]}?" if near else ""
    if path != stem:
        return f"{message}: {hint}"
    listed = f"'{program('inspect recipes')}' lists all"
    return f"there is neither a file nor a recipe {path}: {f'{hint} ' if hint else ''}{listed}"
