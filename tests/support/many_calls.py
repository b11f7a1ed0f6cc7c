"""Several functions in one group of processes: starting the group is what takes time."""

import importlib
from typing import Any

Calls = dict[str, tuple[str, tuple]]


def call_all(calls: Calls) -> dict[str, Any]:
    """What each function returns, by the name of its call."""
    results = {}
    for name, (target, arguments) in calls.items():
        module, _, function = target.partition(":")
        results[name] = getattr(importlib.import_module(module), function)(*arguments)
    return results
