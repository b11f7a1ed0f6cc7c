"""The unit tests of a training's updates hold where no operation returns a view."""

import os
import subprocess
import sys

import paddle
from support.processes import ROOT


def test_these_tests_hold_where_no_operation_returns_a_view():
    """As in the processes that ``main_multi_gpu.py`` starts; the other way round where this is such a process."""
    flag = "FLAGS_use_stride_kernel"
    environment = {**os.environ, flag: str(int(not paddle.get_flags([flag])[flag]))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(ROOT / "tests/integration/core/engine/test_trainer_checkpoints.py"),
    ]
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout
