"""The advice of a page without figures."""

import html
import re
import shlex
import sys

from support.processes import run_command
from support.trainings.runs import DIGITS, MAIN, well


def run_in(folder, *words):
    return run_command([sys.executable, str(MAIN), *DIGITS, *words], folder=folder)


def test_the_advice_of_a_page_without_figures_can_be_followed(tmp_path):
    folder = tmp_path / "my runs"
    well(run_in(tmp_path, f"-output={folder}", "REPORT", "False"))
    write = [sys.executable, "-m", "paddlevit_dist", "report", str(folder)]
    well(run_command(write, folder=tmp_path))
    page = (folder / "report.html").read_text(encoding="utf-8")
    advice = html.unescape(re.search(r"to create them, run: python ([^<]*)", page)[1])
    well(run_command([sys.executable, *shlex.split(advice)], folder=tmp_path))
    assert "to create them" not in (folder / "report.html").read_text(encoding="utf-8")
