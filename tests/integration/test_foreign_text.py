"""Names from files and errors of libraries are shown so that they cannot pass for anything else."""

import os
import sys
from pathlib import Path

from PIL import Image
from support.hosts.foreign import EVIL, SHOWN
from support.processes import run_command, run_main
from support.trainings.runs import IMAGES, well


def test_an_uncaught_error_cannot_pass_for_the_end_of_a_run():
    program = "from paddlevit_dist.runtime.errors import run_and_report\n"
    program += f"def fail():\n raise ValueError({EVIL!r})\nrun_and_report(fail)"
    ended = run_command([sys.executable, "-c", program])
    lines = ended.err.splitlines()
    assert ended.code == 1 and lines[0].startswith("Traceback") and lines[-1] == "  error: all is well\\t\\x9b1A"


def test_names_of_classes_and_files_reach_no_terminal_as_they_are(tmp_path):
    for name in (EVIL, "dog"):
        (tmp_path / "data" / "train" / name).mkdir(parents=True)
        (tmp_path / "data" / "val" / name).mkdir(parents=True)
        for split in ("train", "val"):
            Image.new("RGB", (8, 8)).save(tmp_path / "data" / split / name / f"{EVIL[:5]}.png")
    words = [f"-data_path={tmp_path / 'data'}", f"-output={tmp_path / EVIL}", "-ngpus=1", "-batch_size=2"]
    ended = well(run_main(*IMAGES, *words))
    assert SHOWN in ended.out + ended.err
    for written in (ended.out, ended.err, (tmp_path / EVIL / "log.txt").read_text()):
        assert not [c for c in written if not c.isprintable() and c != "\n"]
        assert not any(line.startswith("error: all") for line in written.splitlines())


def test_paths_that_are_no_text_work_in_every_command(tmp_path):
    """Names in another encoding, as archives of Windows unpack: bytes that are not UTF-8."""
    data, out = (os.path.join(tmp_path, os.fsdecode(name)) for name in (b"d\xe4ta", b"out\xff"))
    for split in ("train", "val"):
        for color, name in enumerate((b"c\xe4t", b"dog")):
            folder = os.path.join(data, split, os.fsdecode(name))
            os.makedirs(folder)
            for number in range(3):
                file = os.path.join(folder, os.fsdecode(b"\xfc%d.png" % number))
                Image.new("RGB", (8, 8), (200 * color, number, 0)).save(file)
    words = [f"-data_path={data}", "-ngpus=1", "-batch_size=2"]
    for command in (
        ["train", *IMAGES, *words, f"-output={out}"],
        ["evaluate", *IMAGES, *words, f"-pretrained={out}", f"-output={out}_scores"],
        ["inspect", "data", *IMAGES, f"-data_path={data}", f"-output={out}_drawn"],
        ["predict", out, os.path.join(data, "val"), f"-output={out}_predicted"],
        ["report", out],
    ):
        ended = run_command([sys.executable, "-m", "paddlevit_dist", *command])
        assert ended.code == 0, (command[0], ended.err[-2000:])
    for file in ("metrics.jsonl", "config.yaml", "run.json", "report.html", "log.txt"):
        Path(out, file).read_text(encoding="utf-8")
    refused = run_command([sys.executable, "-m", "paddlevit_dist", "export", out, f"{out}_model"])
    assert refused.code == 2 and refused.err.splitlines()[-1].endswith(
        "is not UTF-8, which Paddle needs: choose another OUT"
    )
