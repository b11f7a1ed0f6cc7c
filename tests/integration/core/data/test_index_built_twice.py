"""Two processes build an index at the same time."""

import hashlib
import os
import subprocess
import sys
import time

from support.processes import ROOT

from paddlevit_dist.core.data.path_index import PathIndex

BUILDER = """
import hashlib, pathlib, sys, time
import numpy as np
from paddlevit_dist.core.data.path_index import ensure_path_index, make_batch

def batches():
    for first in range(20):
        time.sleep(0.02)
        yield make_batch([f"{first}/{number}".encode() for number in range(1000)], first)

while time.time() < float(sys.argv[2]):
    pass
index = ensure_path_index(pathlib.Path(sys.argv[1]), "name", hashlib.sha256(b"x").digest(), batches)
print(len(index), index.path(19_999), index.label(19_999), index.file)
"""


def test_two_processes_build_the_same_index_at_the_same_time(tmp_path):
    start = str(time.time() + 1.5)
    command = [sys.executable, "-c", BUILDER, str(tmp_path), start]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    builders = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    ends = [(*builder.communicate(timeout=600), builder.returncode) for builder in builders]
    file = tmp_path / f"name-{hashlib.sha256(b'x').hexdigest()[:16]}.index"
    assert ends == [(f"20000 19/999 19 {file}\n", "", 0)] * 2
    assert list(tmp_path.iterdir()) == [file]  # and no temporary file
    assert PathIndex(file).path(5) == "0/5"
