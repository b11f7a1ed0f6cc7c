"""A family's folder in a user's clone of PaddleViT: its build functions, and the defaults of its config.py.

Nothing here runs code of a clone: ``config.py`` and the files of networks are parsed.
"""

import ast
import functools
import os
from typing import Any, NamedTuple

RATES = ("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH")


class ClonedFamily(NamedTuple):
    """A folder of a clone, such as image_classification/XCiT, and (module, function) of each ``build_*(config)``."""

    folder: str
    builds: tuple[tuple[str, str], ...]


def find_family(file: str) -> ClonedFamily | None:
    """Find the family of a YAML file; None for any file that is not in a clone.

    The file's folder, or the one above ``configs``, has a config.py with ``get_config`` and a module with
    ``build_*(config)``.
    """
    return _find_family(os.path.abspath(file))


@functools.cache
def _find_family(file: str) -> ClonedFamily | None:
    folder = os.path.dirname(file)
    folder = os.path.dirname(folder) if os.path.basename(folder) == "configs" else folder
    if not os.path.isfile(file) or "get_config" not in read_functions(os.path.join(folder, "config.py")):
        return None
    builds = [
        (name.removesuffix(".py"), function)
        for name in sorted(os.listdir(folder))
        if name.endswith(".py")
        for function, arguments in read_functions(os.path.join(folder, name)).items()
        if function.startswith("build_") and arguments == ["config"]
    ]
    return ClonedFamily(folder, tuple(builds)) if builds else None


def read_functions(file: str) -> dict[str, list[str]]:
    """Read the names of a file's functions and of their arguments."""
    nodes = [node for node in _parse(file) if isinstance(node, ast.FunctionDef)]
    return {node.name: [argument.arg for argument in node.args.args] for node in nodes}


def _parse(file: str) -> list[ast.stmt]:
    try:
        with open(file, "rb") as opened:
            return ast.parse(opened.read()).body
    except (OSError, SyntaxError, ValueError):  # a file that Python cannot read either defines nothing
        return []


@functools.cache
def read_assigned(folder: str) -> dict[str, ast.expr]:
    """Read what ``_C.SECTION.KEY = ...`` of a family's config.py assigns, by dotted name; not its sections."""
    nodes = [node for node in _parse(os.path.join(folder, "config.py")) if isinstance(node, ast.Assign)]
    builds = {ast.unparse(node.targets[0]): node.value for node in nodes if not isinstance(node.value, ast.Call)}
    return {name.removeprefix("_C."): value for name, value in builds.items() if name.startswith("_C.")}


def read_defaults(folder: str) -> dict[str, Any]:
    """Return the defaults of a family's config.py by dotted name, without values that are not literals."""
    return {name: ast.literal_eval(value) for name, value in read_assigned(folder).items() if is_literal(value)}


def is_literal(value: ast.expr) -> bool:
    """Return whether an expression is a constant or made of constants."""
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def is_taken(name: str) -> bool:
    """Return whether a default of config.py applies here: it is about training or images, not about paths."""
    if name in ("TRAIN.LAST_EPOCH", "TRAIN.TEACHER_MODEL", "DATA.IMAGE_CHANNELS", "DATA.BATCH_SIZE_EVAL"):
        return False
    return name.startswith(("TRAIN.", "DATA.IMAGE", "DATA.CROP", "DATA.BATCH_SIZE")) or name in RATES
