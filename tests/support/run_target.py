"""What processes of ``run_workers`` and ``run_together`` do: call functions of tests, and keep what they return."""

import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

from paddlevit_dist.core.launch import launch_workers, plan_processes
from paddlevit_dist.core.runtime.errors import run_and_report


def call(target: str, arguments: tuple) -> Any:
    """Call ``module:function``."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)(*arguments)


def call_all(calls: dict[str, tuple[str, tuple]]) -> dict[str, Any]:
    """What each function returns, by the name of its call."""
    return {name: call(*of_one) for name, of_one in calls.items()}


def work(target: str, folder: str) -> None:
    from paddlevit_dist.core.distributed import rank

    result = call(target, pickle.loads(Path(folder, "arguments").read_bytes()))
    Path(folder, f"result_{rank()}").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    target, folder, processes = sys.argv[1:]
    sys.exit(run_and_report(lambda: launch_workers(work, (target, folder), plan_processes(int(processes)))))
