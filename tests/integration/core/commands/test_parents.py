"""The parents of processes touch no device: one that has computed on a GPU holds memory there as long as it lives.

As a program with a folder of weights and an image, this file runs commands that start processes, where two GPUs seem to
be, and prints what they would start, and what they have touched.
"""

import contextlib
import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from support.processes import run_command
from support.trainings.runs import DIGITS, well
from support.trainings.trained import write_weights

MODULE = "integration.core.commands.test_parents"


def test_no_parent_computes_anything(tmp_path):
    write_weights(tmp_path / "weights", [str(number) for number in range(10)], channels=1)
    Image.new("RGB", (16, 16)).save(tmp_path / "one.png")
    ended = run_command([sys.executable, "-m", MODULE, str(tmp_path)])
    found = json.loads(well(ended).out.splitlines()[-1])
    assert found["calls"] == [
        ["worker", 2, True, False],
        ["run_variant", 2, True, True],
        ["run_variant", 1, True, True],
        ["run_variant", 1, True, True],
        ["worker", 2, True, False],
        ["worker", 2, True, False],
    ]
    assert found["devices"] == []
    assert found["allocated"] == 0, "bytes, as Paddle counts what tensors take"
    pid, total = (tmp_path / "apart").read_text().split()
    assert float(total) == 3.0 and int(pid) not in (found["pid"], os.getpid())


def work(folder: str) -> None:
    """What a process apart runs: it computes."""
    import paddle

    Path(folder, "apart").write_text(f"{os.getpid()} {paddle.ones([3]).sum().item()}")


def started(commands: list[list[str]]) -> list[Any]:
    """Worker, processes, GPUs and ``in_child`` of each launch of the commands."""
    from paddlevit_dist.__main__ import main
    from paddlevit_dist.core.launch import devices, spawn

    calls: list[Any] = []

    def launch_workers(worker: Any, arguments: Any, plan: Any, *_: Any, in_child: bool = False, **__: Any) -> None:
        calls.append([worker.__name__, plan.processes, plan.uses_gpu, in_child])
        if worker.__name__ == "run_variant":  # what -selftest reads of it
            variant = sys.modules[worker.__module__].RunVariant(
                {"loss term 'loss' of update 1": np.array(1.0)}, None, False, {}, {}
            )
            Path(arguments[3], "variant.pickle").write_bytes(pickle.dumps(variant))

    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (spawn, "launch_workers", launch_workers),
            (devices, "count_gpus", lambda: 2),
        ):
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        for words in commands:
            with contextlib.suppress(RuntimeError):  # predict misses what its processes would have written
                main(words)
    return calls


def run(folder: str) -> None:
    """Print what is found."""
    import paddle

    from paddlevit_dist.core.launch.devices import ProcessPlan
    from paddlevit_dist.core.launch.spawn import launch_workers

    set_devices: list[str] = []
    set_device = paddle.set_device
    paddle.set_device = lambda device: set_devices.append(device) or set_device("cpu")
    weights = f"{folder}/weights/weights.pdparams"
    calls = started(
        [
            ["train", *DIGITS, f"-output={folder}/run"],
            ["train", *DIGITS, "-selftest", f"-output={folder}/run"],
            ["train", *DIGITS, "-eval", f"-pretrained={weights}", "-allow_changes", f"-output={folder}/run"],
            ["predict", weights, f"{folder}/one.png", f"-output={folder}/predictions"],
        ]
    )
    launch_workers(work, (folder,), ProcessPlan(1, "cpu", False, []), in_child=True)
    allocated = paddle.base.core.host_memory_stat_peak_value("Allocated", 0)
    found = {"calls": calls, "devices": set_devices, "allocated": allocated, "pid": os.getpid()}
    print(json.dumps(found))


if __name__ == "__main__":
    from integration.core.commands.test_parents import run as run_as_module  # whose ``work`` another process can import

    run_as_module(sys.argv[1])
