"""The extensions: folders of this package that the rest does without. One that is deleted takes along what it added.

What an extension adds stands in plain tables of its ``__init__``, which imports nothing; who uses a table asks for it
here:

- ``COMMANDS``, ``ABOUT``, ``FLAGS``: of the command line, as in ``commands``, ``settings.help`` and
  ``settings.command_line``
- ``KEYS``: "module:attribute" of the table of keys that it reads, in every run
- ``JOBS``: a key -> the function that the main job calls with its ``Configuration`` where the key is set
- ``TRAINING_CALLBACKS``, ``EVALUATION_CALLBACKS``: a key -> what makes, of the ``Run``, a callback of every rank, where
  the key is set
- ``EVALUATED``: a key -> what makes, of configuration and task, the model that an evaluation scores where it is set
- ``HOOKS``: the name of a place in the core -> the function that is called there, such as ``run_failed``
"""

import functools
import importlib
import os
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .settings.every_run import RunSettings

EXTENSIONS = ("cpu_kernels", "debug", "report", "export", "leakage", "compare")


@functools.cache
def offered(name: str) -> tuple[Any, ...]:
    """What the extensions that are there have as the attribute ``name``."""
    beside = [os.path.dirname(__file__)]  # and nowhere else, as where another copy is installed
    specs = [PathFinder.find_spec(f"{__package__}.{extension}", beside) for extension in EXTENSIONS]
    present = [importlib.import_module(spec.name) for spec in specs if spec is not None and spec.origin is not None]
    return tuple(vars(extension)[name] for extension in present if name in vars(extension))


def table(name: str) -> dict[str, Any]:
    """The rows of all extensions in their tables of this name."""
    return {key: row for rows in offered(name) for key, row in rows.items()}


def chosen(name: str, config: "RunSettings") -> list[Callable[..., Any]]:
    """Of the tables of this name, by keys, what stands beside those that are set; its modules are imported now."""
    return [imported(location) for key, location in table(name).items() if config[key]]


def hooks(name: str) -> list[Callable[..., Any]]:
    """The functions that extensions have for this place; their modules are imported now."""
    return [imported(rows[name]) for rows in offered("HOOKS") if name in rows]


def made(name: str, plain: Callable[..., Any], *arguments: Any) -> Any:
    """``plain(*arguments)``, or what an extension's function for this place makes in its stead: None where that has
    nothing better."""
    for make in hooks(name):
        found = make(*arguments)
        if found is not None:
            return found
    return plain(*arguments)


def imported(location: str) -> Any:
    """The object at "module:attribute"; a module that begins with a dot is one of this package."""
    module, _, attribute = location.partition(":")
    return getattr(importlib.import_module(module, __package__), attribute)
