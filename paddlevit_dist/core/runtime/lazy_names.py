"""Names that are imported on first use, so that importing a package does not load Paddle."""

import ast
import contextlib
import importlib
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def lazy_names(package: str, file: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__all__``, ``__getattr__`` and ``__dir__`` (PEP 562) of a package from its stub.

    The stub ``__init__.pyi``, next to ``file``, imports each public name from the submodule that defines it. Type
    checkers read the same stub.
    """
    statements = ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
    imports = [statement for statement in statements if isinstance(statement, ast.ImportFrom)]
    modules = {alias.name: statement.module for statement in imports for alias in statement.names}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needing_paddle(f"{package}.{name}"):
            return getattr(importlib.import_module(f".{modules[name]}", package), name)

    return sorted(modules), get, lambda: sorted(modules)


_NO_CCACHE = ("ignore", re.compile("No ccache found"), UserWarning, re.compile(r"paddle\.utils\."), 0)  # a filter
_mode_contexts: list[Any] = []  # keep Paddle in its dynamic mode


def keep_dynamic_mode() -> None:
    """Keep Paddle in its dynamic mode when this thread ends.

    The thread that imports Paddle holds the mode's context; without it, all other threads would build static programs.
    """
    state = getattr(sys.modules.get("paddle.base.framework"), "global_var", None)
    context = getattr(state, "_functional_dygraph_context_manager", None)
    if context is not None and not any(context is other for other in _mode_contexts):
        _mode_contexts.append(context)


@contextlib.contextmanager
def needing_paddle(what: str) -> Iterator[None]:
    """Explain how to install Paddle if the block lacks it, and keep its dynamic mode after this thread.

    Its import warns that a tool for compiling own operators is missing; this is hidden in the block.

    Raises:
        ModuleNotFoundError: Paddle is not installed.
    """
    warnings.filters.insert(0, _NO_CCACHE)  # type: ignore[attr-defined]
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "paddle":
            raise
        advice = f"{sys.executable} -m pip install paddlepaddle, or its build for your device"
        raise ModuleNotFoundError(f"{what} needs Paddle, which is not installed: {advice}", name="paddle") from None
    finally:
        # Not ``catch_warnings``, which would also undo what the imported modules set for themselves.
        with contextlib.suppress(ValueError):
            warnings.filters.remove(_NO_CCACHE)  # type: ignore[attr-defined]
        keep_dynamic_mode()


def import_object(location: Any, package: str = __name__.partition(".")[0]) -> Any:
    """Import the object at "module:attribute"; a module that begins with a dot is one of ``package``.

    What is not a text is the object itself, and returned.
    """
    if not isinstance(location, str):
        return location
    module, _, attribute = location.partition(":")
    return getattr(importlib.import_module(module, package), attribute)
