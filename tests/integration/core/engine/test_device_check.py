"""A device that computes wrongly ends a run, and the doctor says so, in one line."""

import sys

from support.processes import run_command, run_main

from paddlevit_dist.core.runtime.errors import DeviceFailure

# A kernel that does nothing, on one rank.
PLANT = """
import os
from paddlevit_dist.core.engine import device_check

right = device_check.list_operations

def planted():
    operations = right()
    if os.environ.get("PADDLE_TRAINER_ID") == "1":
        compute = operations["softmax"].compute
        nothing = lambda *inputs: [0 * each for each in compute(*inputs)]
        operations["softmax"] = operations["softmax"]._replace(compute=nothing)
    return operations

device_check.list_operations = planted
"""


def test_one_wrong_device_of_two_ends_the_run_and_fails_the_doctor(tmp_path):
    file = tmp_path / "planted.py"
    file.write_text(PLANT)
    words = ["-cfg=vit_digits", "-ngpus=2", f"-import={file}", f"-output={tmp_path / 'run'}"]
    ended = run_main(*words)
    assert ended.code == DeviceFailure.exit_code
    assert ended.err.startswith("error: cpu") and ended.err.count("\n") == 1
    assert "computes a wrong softmax in float32: expected " in ended.err and ", got 0 at [" in ended.err
    assert not (tmp_path / "run" / "checkpoints").exists()
    doctor = run_command([sys.executable, "-m", "paddlevit_dist", "doctor", "-ngpus=2", f"-import={file}"])
    assert doctor.code == 1
    (line,) = [line for line in doctor.out.splitlines() if " devices " in line]
    assert line.startswith("failure") and "computes a wrong softmax in float32" in line
