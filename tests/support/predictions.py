"""Predictions of a small network, by command, and what they have to be."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from support.processes import Finished, run_command

NAMES = ['a, "b"', "bee", "čmelák", "x\ty", "e", "f"]
KILLED = """
import os, signal, sys
from paddlevit_dist.inference import predictor
from paddlevit_dist.commands.predict import run
from paddlevit_dist.runtime.errors import run_and_report

after, signal_name, *words = sys.argv[1:]  # also in the processes that are started by this one
compute, batches = predictor.predict_batch, []


def compute_and_end(*arguments):
    batches.append(1)
    if len(batches) == int(after):
        os.kill(os.getpid(), getattr(signal, signal_name))
    return compute(*arguments)


predictor.predict_batch = compute_and_end
if __name__ == "__main__":
    sys.exit(run_and_report(lambda: run(words)))
"""


def image(seed: int, mode: str = "RGB", size=(20, 24)) -> Image.Image:
    generator = np.random.default_rng(seed)
    channels = {"L": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,)}
    if mode == "I;16":
        return Image.fromarray(generator.integers(0, 60000, size[::-1], dtype=np.uint16))
    if mode == "P":
        return image(seed).quantize(17)
    return Image.fromarray(generator.integers(0, 255, (*size[::-1], *channels[mode]), dtype=np.uint8), mode)


def predict(*words: object, folder: Path, timeout: float = 120.0) -> Finished:
    command = [sys.executable, "-m", "paddlevit_dist", "predict", *map(str, words)]
    return run_command(command, timeout=timeout, folder=folder)


def table(folder: Path, name: str = "predictions.csv") -> list:
    with open(folder / name, encoding="utf-8", newline="") as file:
        return list(csv.reader(file, "excel-tab" if name.endswith("tsv") else "excel"))


def objects(folder: Path) -> list:
    return [json.loads(line) for line in (folder / "predictions.jsonl").read_text(encoding="ascii").splitlines()]


# ---- interrupted, killed, again ----------------------------------------------------------------------------------


def end_early(weights: Path, images: Path, folder: Path, after: int, name: str, *words: str) -> Finished:
    script = folder / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(after), name, str(weights), str(images), "-batch_size=2", *words]
    return run_command(command, folder=folder)


def assert_same(one: list, other: list) -> None:
    """The same rows in the same order, to the rounding of float32."""
    assert [row["input"] for row in one] == [row["input"] for row in other] and one
    for first, second in zip(one, other):
        assert list(first) == list(second)
        classes = [name for name in first if not name.startswith("score")]
        assert [first[name] for name in classes] == [second[name] for name in classes]
        scores = [name for name in first if name not in classes]
        np.testing.assert_allclose([first[name] for name in scores], [second[name] for name in scores], rtol=1e-4)
