"""Packages of this one under the names that they once had: an import of those finds them, with a note."""

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_NOW = dict(
    pair.split("=")
    for pair in (
        "comparing=compare config=settings contracts=tasks cpu=cpu_kernels diagnosis=debug exporting=export "
        "labelling=metrics leaks=leakage loading=data observe=logging parallel=distributed prediction=inference"
    ).split()
)


class _RenamedModules:
    """Finds and loads ``package.OLD.module``: the module at the new name itself, never a second one."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, below = name.partition(".")
        is_renamed = package == self._package and below.partition(".")[0] in _NOW
        return ModuleSpec(name, self) if is_renamed else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own empty module, which ``exec_module`` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        old, dot, below = module.__name__.removeprefix(f"{self._package}.").partition(".")
        now = f"{self._package}.{_NOW[old]}{dot}{below}"
        warnings.warn(f"{module.__name__} is {now} now: import that", FutureWarning, stacklevel=2)
        sys.modules[module.__name__] = importlib.import_module(now)


def install(package: str) -> None:
    """From now on imports of ``package`` know the former names."""
    sys.meta_path.insert(0, _RenamedModules(package))
