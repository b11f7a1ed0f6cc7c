"""Threads of a run import nothing: a process forked meanwhile would wait forever for the lock of the module."""

import subprocess
import sys

from support.processes import ROOT

_SCRIPT = """
import sys, threading

class ImportWatch:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread():
            print("imported in", threading.current_thread().name, name, flush=True)

sys.meta_path.insert(0, ImportWatch)
from paddlevit_dist.__main__ import main
sys.exit(main(["train", *sys.argv[1:]]))
"""


def test_saving_imports_nothing_while_loaders_are_forked(tmp_path):
    sizes = ["DATA.SHAPES.TRAIN", "32", "DATA.SHAPES.VAL", "8", "TRAIN.WARMUP_STEPS", "1", "DATA.NUM_WORKERS", "1"]
    arguments = ["-cfg=heatmap_figures", "-ngpus=1", f"-output={tmp_path}", "-epochs=2", "SAVE_FREQ", "1", *sizes]
    command = [sys.executable, "-c", _SCRIPT, *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "checkpoints/epoch_0002" in result.stdout and "imported in" not in result.stdout
