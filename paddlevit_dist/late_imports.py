"""Packages that ``import paddle`` loads although a run never uses them, loaded on first use instead.

Paddle imports its compiler of C++ operators, and with it setuptools, and an HTTP client. Together they take a fifth of
the time of ``import paddle``, once in the command and again in each worker that it starts. Needs nothing but Python.
"""

from __future__ import annotations

import importlib.machinery
import sys
import threading
import types
from typing import Any, List, Optional, Sequence, Set

_LATE = ("paddle.utils.cpp_extension", "httpx")
_lock = threading.RLock()
_loading: Set[str] = set()


class _Late(types.ModuleType):
    """A module whose code runs when the first of its names is asked for. Its submodules can be imported before."""

    def __getattr__(self, name: str) -> Any:
        # Whoever looks through all modules, as ``warnings`` does for ``__warningregistry__``, is no user of this one.
        if not name.startswith("__") or name == "__all__":
            self._load()
        return types.ModuleType.__getattribute__(self, name)

    def __dir__(self) -> List[str]:
        self._load()
        return dir(self) if type(self) is types.ModuleType else list(vars(self))

    def _load(self) -> None:
        with _lock:  # the thread that runs the code may ask for names which are not there yet, others wait
            if type(self) is _Late and self.__name__ not in _loading:
                _loading.add(self.__name__)
                try:
                    self.__spec__.loader.inner.exec_module(self)  # type: ignore[union-attr]
                    self.__class__ = types.ModuleType  # type: ignore[assignment]
                finally:
                    _loading.discard(self.__name__)


class _LateLoader:
    """Makes a module without running its code."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Late(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Left to the first use."""

    def __getattr__(self, name: str) -> Any:  # what else is asked of a loader: sources, resources
        return getattr(self.inner, name)


class _Finder:
    """Finds the packages named above as usual, and has them loaded late."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[types.ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name not in _LATE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LateLoader(spec.loader)  # type: ignore[assignment]
        return spec


def install() -> None:
    """Load the packages named above on first use; for a process that runs a command, before it imports Paddle."""
    if "paddle" not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
