"""Compiles the device of ``host_device.cc``, and runs commands where Paddle has it."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import paddle
import pytest
from support.processes import ROOT, Finished, run_command
from support.trainings.runs import DIGITS, read_events, well

NAME = "host_device"
SHORT = ["train", *DIGITS, "-batch_size=240", "-epochs=2", "REPORT", "False", "REPORT_FREQ", "1", "VALIDATE_FREQ", "1"]
_SOURCE = Path(__file__).with_name("host_device.cc")
_KEPT: list[tempfile.TemporaryDirectory] = []
_OF_THE_MOMENT = {"time", "seconds", "samples_per_second", "data_wait_fraction", "memory_mib"}


@functools.cache
def folder() -> Path:
    """Where the plug-in is, compiled against the installed Paddle's header; else a test is skipped, or fails in CI."""
    if not hasattr(paddle.base.core, "ProcessGroupCustom"):
        pytest.skip(f"the wheel of Paddle {paddle.__version__} loads no plug-ins (3.x for CPUs does)")
    compiler = shutil.which("g++")
    if compiler is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no g++ to compile the made-up device with")
    built = tempfile.TemporaryDirectory(prefix="host_device_")
    _KEPT.append(built)  # it is removed when this process ends
    library = Path(built.name, f"lib{NAME}.so")
    include = Path(paddle.sysconfig.get_include())
    options = ["-std=c++17", "-O1", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, f"-I{include}", str(_SOURCE), "-o", str(library), "-lrt"], check=True)
    return library.parent


def run(*words: str, **variables: str) -> Finished:
    """A command of the package, such as ``train -cfg=...``, where Paddle has the device."""
    command = [sys.executable, "-m", "paddlevit_dist", *map(str, words)]
    return run_command(command, 120.0, ROOT, is_copy=False, CUSTOM_DEVICE_ROOT=str(folder()), **variables)


def numbers(run_folder: Path) -> list[dict[str, Any]]:
    """What a run has recorded of updates and evaluations, but for times and memory."""
    rows = read_events(run_folder)
    kept = (row for row in rows if row["kind"] in ("training", "evaluation"))
    return [{name: value for name, value in row.items() if name not in _OF_THE_MOMENT} for row in kept]


def assert_equal(found: Any, expected: Any, relative: float) -> None:
    """Compare records: numbers up to a relative error, everything else as it is."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_equal(found[name], expected[name], relative)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_equal(one, other, relative)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=relative, abs=relative)
    else:
        assert found == expected


def require_failure(folder: Path, variable: str, value: int, code: int, said: str) -> None:
    """A training on a device that fails ends in one line that says so."""
    ended = run(*SHORT, f"-output={folder}", **{variable: str(value)})
    assert ended.code == code and ended.err.startswith(f"error: {said}") and ended.err.count("\n") == 1, ended.err
    assert ("use -amp" not in ended.err) and ("DATA.BATCH_SIZE (240)" in ended.err) == (code == 2)


@pytest.fixture(scope="session")
def on_cpu(tmp_path_factory) -> Path:
    """The folder of such a training on the CPU."""
    folder = tmp_path_factory.mktemp("cpu") / "run"
    well(run(*SHORT, "-device=cpu", f"-output={folder}"))
    assert json.loads((folder / "run.json").read_text())["device"] == "cpu"
    return folder
