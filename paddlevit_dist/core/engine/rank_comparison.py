"""Compares data, versions, code and settings of all ranks before a run, whose machines may differ."""

import hashlib
import os
import platform
import socket
import time
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import paddle

from ..distributed import all_gather
from ..runtime import signals
from ..runtime.errors import UserError
from ..runtime.version import __version__
from ..settings.every_run import RunSettings
from ..tasks.dataset import Dataset
from ..tasks.task import Task
from .compatibility import RunFact, facts_from_data, facts_from_settings, must_match, show
from .source_digests import list_source_digests

_MAX_LISTED = 5  # differences in the error message
_MOST_FILES, _MOST_SECONDS = 1000, 5  # of samples' files that are compared, for each machine
_PEEKED_BYTES = 1 << 20  # of each
_SIZE = "size of "


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


def assert_same_on_all_ranks(config: RunSettings, task: Task, datasets: dict[str, Any]) -> list[str]:
    """Compare data, versions and settings of all ranks before anything is computed. Every rank must call this.

    Returns a line for the log on what was compared of the samples' files, if machines have any.

    Each machine has its own command line, package and copy of the data; without a class, it would train to a wrong
    score. Ranks of one parent process have everything from it, so nothing is compared. Raises UserError on every rank,
    with the rank that differs from rank 0, its machine and the differences.
    """
    if signals.has_parent():
        return []
    contents = {} if os.environ.get("PADDLE_NNODES") == "1" else peek_contents(datasets)
    everything = all_gather((socket.gethostname(), facts_from_machine(config, task, datasets), contents))
    require_same_facts([(host, facts) for host, facts, _ in everything])
    machines = [theirs for _, _, theirs in everything if theirs]
    common = [name for name in contents if all(name in theirs for theirs in machines)] if len(machines) > 1 else []
    shown = ({name: theirs.get(name, machines[0][name]) for name in common} for _, _, theirs in everything)
    require_same_facts([(host, facts) for (host, *_), facts in zip(everything, shown)])
    if not common:
        return []
    number = f"{sum(name.startswith(_SIZE) for name in common):,} drawn samples"
    return [f"data: {number} have the same size and begin alike on {len(machines)} machines (first MiB of each file)"]


def peek_contents(datasets: dict[str, Any]) -> dict[str, Any]:
    """Return sizes and digests of drawn samples by name: of at most 1,000 files, for 5 seconds, as disks may be slow.

    Equal data have the same order, so that machines of any speed have the first ones in common. Empty if this process
    is not the first of its machine.
    """
    found: dict[str, Any] = {}
    if os.environ.get("PADDLE_LOCAL_RANK", "0") != "0":
        return found
    opened = ((split, getattr(samples, "dataset", None)) for split, samples in datasets.items())
    stored = {split: data for split, data in opened if isinstance(data, Dataset) and not data.is_remote}
    draws = (np.random.default_rng(0).permutation(len(data))[:_MOST_FILES].tolist() for data in stored.values())
    pairs = chain.from_iterable(zip(stored.items(), indices) for indices in zip_longest(*draws))
    end, files = time.monotonic() + _MOST_SECONDS, 0
    for (split, data), index in ((each, index) for each, index in pairs if index is not None):
        if files >= _MOST_FILES or time.monotonic() > end:
            break
        try:
            parts = data.peek(index, _PEEKED_BYTES)
        except (OSError, UserError):  # of a file that the other machine can read, this differs
            parts = [(0, b"")]
        if parts:
            name = f"{split} sample {index} ({os.path.basename(data.identity(index))})"
            digest = hashlib.blake2b(b"".join(content for _, content in parts), digest_size=8)
            found |= {f"{_SIZE}{name}": sum(size for size, _ in parts), f"bytes of {name}": digest.digest()}
            files += len(parts)
    return found


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
