"""Whether all machines are about to train, or to evaluate, the same.

A launcher on each machine has its own command line, package and copy of the data. Nothing in a training step compares
them: a machine without one of the classes would train along, and the score would be wrong.
"""

from __future__ import annotations

import platform
import socket
from typing import Any, Dict

import numpy as np
import paddle

from .. import __version__, signals
from ..config.table import leaves
from ..contracts.task import Task
from ..errors import UserError
from ..parallel import all_gather, world_size
from .about import shown

# Settings that a machine may have of its own: where things are there, and how many processes do the work.
_OF_A_MACHINE = frozenset(
    """
    BASE IMPORTS SAVE NGPUS CPU_TUNING LOG_TO WATCHDOG_SECONDS DATA.DATA_PATH DATA.CACHE_FOLDER DATA.NUM_WORKERS
    DATA.PREFETCH DATA.LOADER_TIMEOUT_SECONDS
    """.split()
)
_MOST_TOLD = 5


def require_same_everywhere(config: Any, task: Task, datasets: Dict[str, Any]) -> None:
    """Compare data, versions and settings of all ranks, before anything is computed. Every rank must call this.

    Ranks that one process has started have all of it from that process: nothing is compared then.

    Raises:
        UserError: on every rank alike; names a rank, its machine, and what differs from rank 0's.
    """
    if world_size() == 1 or signals.has_parent():
        return
    everybody = all_gather((socket.gethostname(), facts(config, task, datasets)))
    first_host, expected = everybody[0]
    for rank, (host, found) in enumerate(everybody):
        names = [name for name in dict.fromkeys([*expected, *found]) if expected.get(name) != found.get(name)]
        if names:
            said = "; ".join(_told(name, found.get(name), expected.get(name)) for name in names[:_MOST_TOLD])
            more = f"; and {len(names) - _MOST_TOLD:,} more" if len(names) > _MOST_TOLD else ""
            raise UserError(
                f"rank {rank} on {host} differs from rank 0 on {first_host}: {said}{more}; give all machines the same "
                "data, versions and settings"
            )


def facts(config: Any, task: Task, datasets: Dict[str, Any]) -> Dict[str, Any]:
    """What all ranks must have alike, by name; data first, as much of the settings follows from them."""
    found: Dict[str, Any] = {}
    for split, samples in datasets.items():
        for name, value in task.about_data(samples).items():
            items = enumerate(value) if isinstance(value, list) else [("", value)]
            found.update({f"{split} {name} {number}".strip(): item for number, item in items})
        found.update({f"{split} {name}": digest for name, digest in samples.listed_digests().items()})
    python = ".".join(platform.python_version_tuple()[:2])
    versions = {"paddlevit_dist": __version__, "paddle": paddle.__version__, "numpy": np.__version__, "Python": python}
    settings = {name: _placeless(value) for name, value in leaves(config) if name not in _OF_A_MACHINE}
    return {**found, **versions, **settings}


def _placeless(value: Any) -> Any:
    """A path may be another on each machine."""
    return "a path" if isinstance(value, str) and "/" in value else value


def _told(name: str, found: Any, expected: Any) -> str:
    if isinstance(found, bytes) or isinstance(expected, bytes):  # digests
        return f"its {name} are others"
    return f"{name} {shown(found)} instead of {shown(expected)}"
