"""Public names of a package, imported on first use so that importing the package does not load Paddle."""

import importlib
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str], renamed: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's ``__getattr__`` and ``__dir__`` (PEP 562).

    Args:
        package: its ``__name__``.
        modules: name -> submodule that defines it.
        renamed: former name, which goes on with a note -> name of today; the submodule has both.
    """

    def get(name: str) -> Any:
        now = renamed.get(name, name)
        if now not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if now != name:
            warnings.warn(f"{package}.{name} is {package}.{now} now: use that", FutureWarning, stacklevel=2)
        return getattr(importlib.import_module(f"{package}.{modules[now]}"), name)

    return get, lambda: sorted(modules)
