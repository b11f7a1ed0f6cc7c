"""A report in headless Chromium: its scripts run without an error, and what is drawn is not empty.

``make test`` leaves this out, and says so, where there is no Chromium; in CI (``.ci/run``) it is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from support.report_runs import event, one_of_each, write_run

from paddlevit_dist.observe.report import write_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SWITCHES = (
    "--headless --no-sandbox --disable-dev-shm-usage --use-angle=swiftshader --enable-unsafe-swiftshader "
    "--window-size=800,2000 --virtual-time-budget=4000 --enable-logging=stderr --dump-dom"
).split()


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None and not os.environ.get("CI"), reason="there is no Chromium on this machine")
def test_scripts_run_and_draw(tmp_path):
    names = [f"class {number} <b>" for number in range(30)]  # more than are laid out as a table
    figures = [figure for figure in one_of_each(names, points=5000) if type(figure).__name__ in ("Matrix", "PointSet")]
    falling = [event("training", epoch=1, update=update, loss=1.0 / update) for update in range(1, 9)]
    folder = write_run(tmp_path / "run", falling, figures=figures)
    page = write_page([folder], folder / "report.html")
    command = [str(BROWSER), *SWITCHES, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    ended = subprocess.run(command, capture_output=True, timeout=300, check=True)
    content, said = ended.stdout.decode(), ended.stderr.decode(errors="replace")
    assert "CONSOLE" not in said, said
    assert 'class="problem"' not in content
    assert content.count('class="log"') == 1  # the loss falls by a factor of 8
    cells = re.search(r'<canvas[^>]*class="cells"[^>]*>', content)[0]
    view = re.search(r'<canvas[^>]*class="view"[^>]*>', content)[0]
    assert int(re.search(r'data-drawn="(\d+)"', cells)[1]) > 500
    assert re.search(r'data-drawn="(\d+)"', view)[1] == "5000"
    # Points cover the middle of the picture, in more colours than its background's.
    assert int(re.search(r'data-colours="(\d+)"', view)[1]) > 20
