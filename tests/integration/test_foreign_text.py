"""Names from files and errors of libraries are shown so that they cannot pass for anything else."""

import sys

import pytest
from PIL import Image
from support.hosts.foreign import EVIL, SHOWN
from support.processes import run_command, run_main
from support.trainings.runs import IMAGES, well


def test_an_uncaught_error_cannot_pass_for_the_end_of_a_run():
    program = "from paddlevit_dist.core.runtime.errors import run_and_report\n"
    program += f"def fail():\n raise ValueError({EVIL!r})\nrun_and_report(fail)"
    ended = run_command([sys.executable, "-c", program])
    lines = ended.err.splitlines()
    assert ended.code == 1 and lines[0].startswith("Traceback") and lines[-1] == "  error: all is well\\t\\x9b1A"


@pytest.mark.parametrize("content", ["image,label\na.png,übung\n", "\ufeffimage,label\na.png,übung\n"])
def test_a_table_is_read_as_utf_8_in_any_locale(tmp_path, content):
    (tmp_path / "labels.csv").write_text(content, encoding="utf-8")
    program = "import sys; from paddlevit_dist.core.runtime.tables import iterate_rows\n"
    program += "print(ascii([row.cells for row in iterate_rows(sys.argv[1], ',')]))"
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = well(run_command([sys.executable, "-c", program, str(tmp_path / "labels.csv")], **plain))
    assert ended.out.strip() == r"[['image', 'label'], ['a.png', '\xfcbung']]"


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
