"""Several functions in one group of processes: starting the group is what takes time."""

from __future__ import annotations

import importlib
from typing import Any, Dict, Tuple

from paddlevit_dist.parallel import collectives, world_size

Calls = Dict[str, Tuple[str, tuple]]


def call_all(calls: Calls) -> Dict[str, Any]:
    """What each function returns, by the name of its call; messages take the usual way at the start of each."""
    way = collectives.way_of_messages() if world_size() > 1 else None
    results = {}
    for name, (target, arguments) in calls.items():
        module, _, function = target.partition(":")
        results[name] = getattr(importlib.import_module(module), function)(*arguments)
        if way is not None:
            collectives.use_way_of_messages(way)
    return results
