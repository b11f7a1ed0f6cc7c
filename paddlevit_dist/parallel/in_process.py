"""Environment variables that take effect in a process which is already running: starting Python again takes longer."""

from __future__ import annotations

import builtins
import ctypes
import re
import sys
import warnings
from typing import Mapping

# What reads the variables of threads and kernels when it is loaded.
_READERS = ("numpy", "paddle", "numba")
# Parameters of mallopt(3), by the variable that sets them when a process starts.
_MALLOPT = {"MALLOC_MMAP_MAX_": -4, "MALLOC_TRIM_THRESHOLD_": -1, "MALLOC_TOP_PAD_": -2}
_LARGEST_INT = 2**31 - 1


def take_effect(added: Mapping[str, str]) -> bool:
    """Do what these variables, which have just been set, would have done at the process's start.

    Returns:
        False if that is not possible any more. The process is to be replaced then.
    """
    if any(name in sys.modules for name in _READERS):
        return False
    if not all(_tell_malloc(name, value) for name, value in added.items() if name.startswith("MALLOC_")):
        return False
    return filter_warnings(added.get("PYTHONWARNINGS", ""))


def _tell_malloc(name: str, value: str) -> bool:
    """Set one parameter of glibc's malloc; whether that was possible."""
    if name not in _MALLOPT:
        return False
    number = int(value)
    if number > _LARGEST_INT:  # mallopt takes an int, which the call turns into an unsigned size: -1 is the largest
        number = -1
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_MALLOPT[name], number) == 1


def filter_warnings(entries: str) -> bool:
    """Apply a value of PYTHONWARNINGS, ``action:message:category:module`` separated by commas, as Python does at its
    start: a message by its beginning, a module by its whole name.

    Returns:
        Whether all categories are Python's own.
    """
    for entry in filter(None, entries.split(",")):
        action, message, category, module, *_ = [*entry.split(":"), "", "", ""]
        kind = vars(builtins).get(category or "Warning")
        if kind is None:
            return False
        pattern = f"{re.escape(module)}\\Z" if module else ""
        warnings.filterwarnings(action, re.escape(message), kind, pattern)  # type: ignore[arg-type]
    return True
