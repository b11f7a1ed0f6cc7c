"""Several functions in one group of processes: starting the group is what takes time."""

import importlib
from typing import Any

from paddlevit_dist.parallel import collectives, world_size

Calls = dict[str, tuple[str, tuple]]


def over_the_network() -> None:
    """Ranks of one machine exchange their messages as several machines do from now on. All ranks must choose so."""
    collectives._way_of_messages = collectives.network_of_group()


def call_all(calls: Calls) -> dict[str, Any]:
    """What each function returns, by the name of its call; messages take the usual way at the start of each."""
    way = collectives.way_of_messages() if world_size() > 1 else None
    results = {}
    for name, (target, arguments) in calls.items():
        module, _, function = target.partition(":")
        results[name] = getattr(importlib.import_module(module), function)(*arguments)
        if way is not None:
            collectives._way_of_messages = way
    return results
