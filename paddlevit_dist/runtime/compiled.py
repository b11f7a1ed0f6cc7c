"""Loops that numpy cannot express, compiled by numba on first call."""

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

being_compiled: list[str] = []  # the functions that numba compiles at this moment, each called by the one before


def compiled(plain: Callable[..., Any] | None = None, needs_numba: bool = True, **options: Any) -> Callable[..., Any]:
    """Compile a function of arrays and numbers with numba, for the argument types it is called with.

    A decorator, also with ``options`` for ``numba.njit`` in brackets. A function that ``needs_numba`` no more than for
    speed is called as it is where numba is not installed, and a note says so once.

    The compiled code is cached next to the source for the next process; a damaged cache is removed and made again. Call
    the function once before forking, so that child processes share numba instead of loading it themselves.

    The attribute ``dispatcher`` is numba's function; its ``signatures`` list the compiled types.
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
        except RuntimeError:  # no folder to cache the compiled code in
            return numba.njit(nogil=True, **options)(plain)

    @functools.cache
    def recompile() -> Callable[..., Any] | None:
        """The function without what was cached; None if nothing was."""
        cached = _cached_files(compile_once(), plain) if has_numba() else []
        if not cached:
            return None
        removed = [_remove(file) for file in cached]
        print(
            f"note: the compiled code of {plain.__name__} in {cached[0].parent} cannot be used: compiling it again",
            file=sys.stderr,
        )
        return _numba().njit(cache=all(removed), nogil=True, **options)(plain)

    is_damaged: list[bool] = []

    def current() -> Any:
        return recompile() if is_damaged else compile_once()

    @functools.wraps(plain)
    def call(*arguments: Any) -> Any:
        try:
            return current()(*arguments)
        except Exception:  # a file cut short may fail in any way, and the loops themselves raise nothing
            if is_damaged or recompile() is None:
                raise
        is_damaged.append(True)
        return current()(*arguments)

    call.dispatcher = current  # type: ignore[attr-defined]
    return call


@functools.cache
def has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def _as_python(plain: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, in which numpy divides by zero as silently as a compiled one does."""
    import numpy as np

    _note_python()
    return np.errstate(all="ignore")(plain)


@functools.cache
def _note_python() -> None:
    print("note: without numba loops run in Python, about 100 times slower: pip install numba", file=sys.stderr)


@functools.cache
def _numba() -> Any:
    """The module, which tells ``being_compiled`` what it does not find in its cache."""
    import numba
    from numba.core import event

    class Told(event.Listener):
        def on_start(self, event: Any) -> None:
            being_compiled.append(event.data["dispatcher"].__name__)

        def on_end(self, event: Any) -> None:
            being_compiled.pop()

    event.register("numba:compile", Told())
    return numba


def _cached_files(dispatcher: Any, plain: Callable[..., Any]) -> list[Path]:
    """Where numba keeps the index and the code of a function."""
    folder = getattr(dispatcher.stats, "cache_path", None)
    line = plain.__code__.co_firstlineno
    return sorted(Path(folder).glob(f"*.{plain.__name__}-{line}.*.nb[ic]")) if folder else []


def _remove(file: Path) -> bool:
    try:
        file.unlink()
    except FileNotFoundError:  # another process was faster
        return True
    except OSError:
        return False
    return True
