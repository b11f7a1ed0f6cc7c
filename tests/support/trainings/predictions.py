"""Predictions of a small network, by command, and what they have to be."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from paddlevit_dist import Predictor
from support.processes import Finished, run_command
from support.trainings.runs import well

NAMES = ['a, "b"', "bee", "čmelák", "x\ty", "e", "f"]
KILLED = """
import os, signal, sys
from paddlevit_dist.core.inference import predictor
from paddlevit_dist.core.commands.predict import run
from paddlevit_dist.core.runtime.errors import run_and_report

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


def predict(*words: object, folder: Path) -> Finished:
    command = [sys.executable, "-m", "paddlevit_dist", "predict", *map(str, words)]
    return run_command(command, folder=folder)


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


def require_continuation(weights: Path, images: Path, tmp_path: Path, name: str, code: int) -> None:
    """The same command goes on where an earlier one has ended."""
    ended = end_early(weights, images, tmp_path, 4, name)
    assert ended.code == code, ended.err
    folder = tmp_path / "predictions"
    (rows,) = (folder / "unfinished").iterdir()
    done = [json.loads(line)[0] for line in rows.read_text().splitlines()]
    assert done[:6] == list(range(6)) and len(done) < 12
    if name == "SIGINT":
        assert [row[0] for row in table(folder)[1:]] == [f"{images}/{number + 1}.png" for number in done]
    with open(rows, "a") as file:
        file.write('[11,[{"class":"bee","sc')  # as a process leaves it that is killed while it writes
    again = well(predict(weights, images, "-batch_size=5", folder=tmp_path))
    assert f"continuing: {len(done)} of 12 inputs are done" in again.out and not (folder / "unfinished").exists()
    assert_same(Predictor(weights)(images), objects(folder))
    assert [row[0] for row in table(folder)[1:]] == [row["input"] for row in objects(folder)]
    once_more = well(predict(weights, images, folder=tmp_path))
    assert "are already predicted" in once_more.out


def write_pictures(folder: Path) -> Path:
    """Twelve images called 1.png to 12.png, the last of them in a folder."""
    (folder / "z").mkdir()
    for number in range(1, 13):
        image(number).save(folder / ("z" if number == 12 else ".") / f"{number}.png")
    return folder
