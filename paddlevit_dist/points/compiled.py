"""Loops that numpy has no operation for, compiled by numba when they are first called."""

from __future__ import annotations

import functools
from typing import Any, Callable


def compiled(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays and numbers in numba's subset of Python, compiled for the types it is called with.

    The compiled code is kept beside the source for the next process. Call the function once before processes are
    forked, so that they share numba and need not load it themselves.

    Its attribute ``dispatcher`` gives numba's function, with what it has been compiled for in ``signatures``.
    """

    @functools.lru_cache(maxsize=None)
    def compiled_once() -> Callable[..., Any]:
        import numba

        try:
            return numba.njit(cache=True, nogil=True)(plain)
        except RuntimeError:  # no folder that could keep the compiled code
            return numba.njit(nogil=True)(plain)

    @functools.wraps(plain)
    def call(*arguments: Any) -> Any:
        return compiled_once()(*arguments)

    call.dispatcher = compiled_once
    return call
