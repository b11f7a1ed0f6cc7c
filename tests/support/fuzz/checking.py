"""Runs the cases of readers in a process of their own and says what they must have come to."""

import json
import sys
from pathlib import Path

from support.processes import HANG_SECONDS, run_command, succeeded

from .readers import READERS


def check(names: list[str], count: int, folder: Path, seed: int = 0, timeout: float = HANG_SECONDS) -> None:
    """Every case of these readers is read or refused in one line."""
    words = ["-m", "support.fuzz.run", str(count), str(seed), str(folder / "run"), *names]
    ended = succeeded(run_command([sys.executable, *words], timeout))
    found = dict(map(json.loads, ended.out.splitlines()))
    told = [f"{name}, case {one['case']}: {one['how']}" for name in found for one in found[name]["failures"]]
    assert not told, "\n".join([f"seed {seed}", *told[:5]])
    assert set(found) == set(names)
    for name, outcome in found.items():
        assert outcome["read"] + outcome["refused"] == count
        # Else the damage does not reach the reader.
        assert outcome["refused"] >= READERS[name].least_refused * count, f"{name}: {outcome}"
