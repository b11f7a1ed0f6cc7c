"""Compares data, versions, code and settings of all ranks before a run, whose machines may differ."""

import platform
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from .. import __version__
from ..distributed import all_gather
from ..runtime import signals
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..tasks.task import Task
from .compatibility import RunFact, facts_from_data, facts_from_settings, must_match, show
from .source_digests import list_source_digests

_MAX_LISTED = 5  # differences in the error message


def facts_from_machine(config: RunSettings, task: Task, datasets: dict[str, Any]) -> dict[str, Any]:
    """Return what all ranks must have in common, by name: data first, which settings follow from, and no paths."""
    facts: dict[str, RunFact] = {}
    for split, samples in datasets.items():
        for name, (kind, value) in facts_from_data({split: task.signature(samples)}).items():
            items = enumerate(value) if isinstance(value, list) else [("", value)]
            facts.update({f"{name} {number}".strip(): RunFact(kind, item) for number, item in items})
        facts.update({f"{split} {key}": RunFact("files", item) for key, item in samples.listed_digests().items()})
    python = ".".join(platform.python_version_tuple()[:2])
    versions = {"paddlevit_dist": __version__, "paddle": paddle.__version__, "numpy": np.__version__, "Python": python}
    facts.update({key: RunFact("start", item) for key, item in {**versions, **list_source_digests()}.items()})
    for name, (kind, value) in facts_from_settings(config).items():
        is_path = isinstance(value, str) and "/" in value  # may differ between machines
        facts[name] = RunFact(kind, "a path" if is_path else value)
    return {key: item for key, (kind_of_fact, item) in facts.items() if must_match("ranks", kind_of_fact)}


def assert_same_on_all_ranks(config: RunSettings, task: Task, datasets: dict[str, Any]) -> None:
    """Compare data, versions and settings of all ranks before anything is computed. Every rank must call this.

    Each machine has its own command line, package and copy of the data; without a class, it would train to a wrong
    score. Ranks of one parent process have everything from it, so nothing is compared. Raises UserError on every rank,
    with the rank that differs from rank 0, its machine and the differences.
    """
    if signals.has_parent():
        return
    require_same_facts(all_gather((socket.gethostname(), facts_from_machine(config, task, datasets))))


def require_same_facts(all_facts: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Raise UserError if the facts of a rank differ from rank 0's: each rank's host name and ``facts_from_machine``."""
    first_host, expected = all_facts[0]
    for rank, (host, facts) in enumerate(all_facts):
        names = [name for name in dict.fromkeys([*expected, *facts]) if expected.get(name) != facts.get(name)]
        if names:
            differences = "; ".join(
                _format_difference(name, facts.get(name), expected.get(name)) for name in names[:_MAX_LISTED]
            )
            more = f"; and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
            raise UserError(
                f"rank {rank} on {host} differs from rank 0 on {first_host}: {differences}{more}; give all machines "
                "the same data, code and settings"
            )


def _format_difference(name: str, value: object, expected: object) -> str:
    if isinstance(value, bytes) or isinstance(expected, bytes):  # digests
        return f"its {name} are different"
    return f"{name} {show(value)} instead of {show(expected)}"
