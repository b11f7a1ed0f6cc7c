"""Programs of a user that call trainings."""

import json
import sys
from pathlib import Path

from support.processes import run_command, succeeded

TINY = {"TRAIN.WARMUP_EPOCHS": 0, "MODEL.DEPTH": 1, "MODEL.EMBED_DIM": 16, "batch_size": 128}
HEAD = f"""
import json, os, signal, sys, threading, time
import paddlevit_dist as pv
TINY = {TINY}
HANDLED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM]

def state():
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    return dict(os.environ), [signal.getsignal(number) for number in HANDLED], blocked

def interrupt(folder):
    "Ctrl-C, once that run has made its first update."
    def wait():
        while not os.path.exists(folder + "/metrics.jsonl"):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=wait, daemon=True).start()  # a training that fails is not waited for
"""


def run_program(text: str, folder: Path, is_cell: bool = False) -> dict:
    """What it prints last, as JSON.

    Args:
        is_cell: it has no file, as the cells of a notebook.
    """
    (folder / "program.py").write_text(HEAD + text, encoding="utf-8")
    words = ["-c", HEAD + text] if is_cell else [str(folder / "program.py")]
    ended = succeeded(run_command([sys.executable, *words], folder=folder, is_copy=False))
    return json.loads(ended.out.splitlines()[-1])
