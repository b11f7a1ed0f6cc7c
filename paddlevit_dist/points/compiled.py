"""Loops that numpy cannot express, compiled by numba on first call."""

from __future__ import annotations

import functools
from typing import Any, Callable


def compiled(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function of arrays and numbers with numba, for the argument types it is called with.

    The compiled code is cached next to the source for the next process. Call the function once before forking, so that
    child processes share numba instead of loading it themselves.

    The attribute ``dispatcher`` is numba's function; its ``signatures`` list the compiled types.
    """

    @functools.lru_cache(maxsize=None)
    def compiled_once() -> Callable[..., Any]:
        import numba

        try:
            return numba.njit(cache=True, nogil=True)(plain)
        except RuntimeError:  # no folder to cache the compiled code in
            return numba.njit(nogil=True)(plain)

    @functools.wraps(plain)
    def call(*arguments: Any) -> Any:
        return compiled_once()(*arguments)

    call.dispatcher = compiled_once
    return call
