"""Updates are right however gradients lie in memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("flag, lie", [("0", "in a row"), ("1", "strided")])
def test_clipped_updates_are_those_of_paddles_loop_however_gradients_lie_in_memory(flag, lie):
    program = str(Path(__file__).with_name("convolved_volumes.py"))
    environment = {**os.environ, "FLAGS_use_stride_kernel": flag}
    done = subprocess.run([sys.executable, program], env=environment, text=True, capture_output=True, check=True)
    assert done.stdout.split("\n")[-3:] == [lie, "equal", ""], done.stdout
