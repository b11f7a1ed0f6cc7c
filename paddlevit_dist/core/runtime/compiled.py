"""Loops that numpy cannot express, compiled by numba on first call."""

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

being_compiled: list[str] = []  # the functions that numba compiles now, each called by the one before


def compiled(plain: Callable[..., Any] | None = None, needs_numba: bool = True, **options: Any) -> Callable[..., Any]:
    """Compile a function of arrays and numbers with numba, for the argument types it is called with.

    A decorator, also with options in parentheses. The compiled code is cached next to the source for the next process;
    a damaged cache is removed and rebuilt. Call the function once before forking, so that child processes share numba
    instead of loading it themselves. The attribute ``dispatcher`` is numba's function; its ``signatures`` list the
    compiled types.

    Args:
        plain: the function.
        needs_numba: False: without numba the plain function is called, and a note says so once.
        **options: for ``numba.njit``.
    """
    if plain is None:
        return functools.partial(compiled, needs_numba=needs_numba, **options)

    @functools.cache
    def compile_once() -> Callable[..., Any]:
        if not needs_numba and not has_numba():
            return _as_python(plain)
        numba = _numba()
        try:
            return numba.njit(cache=True, nogil=True, **options)(plain)
        except RuntimeError:  # no folder for the cache
            return numba.njit(nogil=True, **options)(plain)

    @functools.cache
    def recompile() -> Callable[..., Any] | None:
        """Return the function compiled without its cache; None if there was no cache."""
        cached = _cached_files(compile_once(), plain) if has_numba() else []
        if not cached:
            return None
        removed = [remove_file(file) for file in cached]
        print(
            f"note: the compiled code of {plain.__name__} in {cached[0].parent} cannot be used: compiling it again",
            file=sys.stderr,
        )
        return _numba().njit(cache=all(removed), nogil=True, **options)(plain)

    is_damaged: list[bool] = []

    def current() -> Any:
        return recompile() if is_damaged else compile_once()

    @functools.wraps(plain)
    def call(*arguments: object) -> Any:
        try:
            return current()(*arguments)
        except Exception:  # a truncated file may fail in any way, and the loops themselves raise nothing
            if is_damaged or recompile() is None:
                raise
        is_damaged.append(True)
        return current()(*arguments)

    call.dispatcher = current  # type: ignore[attr-defined]
    return call


@functools.cache
def has_numba() -> bool:
    """Return whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def _as_python(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself, which divides by zero as silently as a compiled one."""
    import numpy as np

    note_python()
    return np.errstate(all="ignore")(plain)


@functools.cache
def note_python() -> None:
    """Print that loops are not compiled."""
    print("note: without numba, loops run in Python, about 100 times slower: pip install numba", file=sys.stderr)


@functools.cache
def _numba() -> Any:
    """Import numba, and record in ``being_compiled`` what it compiles."""
    import numba
    from numba.core import event

    class CompileListener(event.Listener):
        def on_start(self, event: Any) -> None:
            being_compiled.append(event.data["dispatcher"].__name__)

        def on_end(self, event: object) -> None:
            being_compiled.pop()

    event.register("numba:compile", CompileListener())
    return numba


def _cached_files(dispatcher: Any, plain: Callable[..., Any]) -> list[Path]:
    """Return numba's files with the index and the code of a function."""
    folder = getattr(dispatcher.stats, "cache_path", None)
    line = plain.__code__.co_firstlineno
    return list(Path(folder).glob(f"*.{plain.__name__}-{line}.*.nb[ic]")) if folder else []


def remove_file(file: Path) -> bool:
    """Remove a file, and return whether it is gone."""
    try:
        file.unlink()
    except FileNotFoundError:  # another process was faster
        return True
    except OSError:
        return False
    return True
