"""Entry point of ``processes.run_workers``: call a test module's function on every rank and keep its result."""

import importlib
import pickle
import sys
from pathlib import Path

from paddlevit_dist.core.launch import launch_workers, plan_processes
from paddlevit_dist.core.runtime.errors import run_and_report


def work(target: str, folder: str) -> None:
    from paddlevit_dist.core.distributed import rank

    module, _, name = target.partition(":")
    arguments = pickle.loads(Path(folder, "arguments").read_bytes())
    result = getattr(importlib.import_module(module), name)(*arguments)
    Path(folder, f"result_{rank()}").write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    target, folder, processes = sys.argv[1:]
    sys.exit(run_and_report(lambda: launch_workers(work, (target, folder), plan_processes(int(processes)))))
