"""Damaged files for testing readers, and a separate process to read them in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

# Reads every file of a folder with 2 GB of memory at most; prints how many could be read and how many were refused.
READ_ALL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
import numpy as np
from pathlib import Path
from paddlevit_dist.checkpoint.weights import read_state
from paddlevit_dist.errors import UserError
assert "paddle" not in sys.modules
read = refused = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        state = read_state(path)
        assert all(isinstance(name, str) and isinstance(value, np.ndarray) for name, value in state.items())
        read += 1
    except UserError as error:
        assert "\\n" not in str(error)
        refused += 1
print(read, refused)
"""


def in_another_process(program, path):
    """Where a crash, a hang or an exhausted memory is seen as such."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, "-c", program, str(path)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)


def mutations(originals, count):
    """Files with flipped, replaced, removed and doubled parts; the same in every run."""
    rng = np.random.default_rng(2024)
    for index in range(count):
        content = bytearray(originals[index % len(originals)])
        for _ in range(rng.integers(1, 4)):
            at, length = int(rng.integers(0, len(content))), int(rng.integers(1, 40))
            kind = rng.integers(0, 6)
            if kind == 0:
                content[at] ^= 1 << int(rng.integers(0, 8))
            elif kind == 1:
                content[at] = int(rng.integers(0, 256))
            elif kind == 2:
                content[at : at + length] = rng.bytes(length)
            elif kind == 3:
                del content[at : at + length]
            elif kind == 4:
                content[at:at] = content[int(rng.integers(0, len(content))) :][:length]
            else:
                other = originals[int(rng.integers(0, len(originals)))]
                content = content[:at] + other[int(rng.integers(0, len(other))) :]
            content = content or bytearray(b"\x80")
        yield bytes(content[: rng.integers(1, len(content) + 1)] if index % 7 == 0 else content)
