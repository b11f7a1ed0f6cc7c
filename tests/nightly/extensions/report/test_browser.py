"""A report in headless Chromium: its scripts run without an error, and what is drawn is not empty.

``make test-nightly`` skips it, and says so, where there is no Chromium: ``apt-get install chromium``.
"""

import html
import json
import os
import re
import shutil
import subprocess

import pytest
from support.trainings.report_runs import event, one_of_each, training, write_run

from paddlevit_dist.extensions.report.page import write_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SWITCHES = (
    "--headless --no-sandbox --disable-dev-shm-usage --use-angle=swiftshader --enable-unsafe-swiftshader "
    "--virtual-time-budget=4000 --enable-logging=stderr --dump-dom"
).split()
PLACES = """<script>
  const place = (query) => { const {left, top, right, bottom} = document.querySelector(query).getBoundingClientRect();
    return [left, top, right, bottom]; };
  document.body.dataset.places = JSON.stringify({score: place("#summary tbody th"), charts: place("#curves .charts"),
    width: document.documentElement.scrollWidth});
</script></body>"""
pytestmark = [
    pytest.mark.skipif(BROWSER is None and not os.environ.get("CI"), reason="there is no Chromium on this machine"),
]


def shown(page, profile, width=800, height=2000):
    """The page as the browser has it once its scripts have run, and what it said."""
    command = [str(BROWSER), *SWITCHES, f"--window-size={width},{height}", f"--user-data-dir={profile}", page.as_uri()]
    ended = subprocess.run(command, capture_output=True, timeout=600, check=True)
    return ended.stdout.decode(), ended.stderr.decode(errors="replace")


def test_scripts_run_and_draw(tmp_path):
    names = [f"class {number} <b>" for number in range(30)]  # more than are laid out as a table
    figures = [figure for figure in one_of_each(names, points=5000) if type(figure).__name__ in ("Matrix", "PointSet")]
    falling = [event("training", epoch=1, update=update, loss=1.0 / update) for update in range(1, 9)]
    folder = write_run(tmp_path / "run", falling, figures=figures)
    page = write_page([folder], folder / "report.html")
    content, said = shown(page, tmp_path / "profile")
    assert "CONSOLE" not in said, said
    assert 'class="problem"' not in content
    assert content.count('class="log"') == 1  # the loss falls by a factor of 8
    cells = re.search(r'<canvas[^>]*class="cells"[^>]*>', content)[0]
    view = re.search(r'<canvas[^>]*class="view"[^>]*>', content)[0]
    assert int(re.search(r'data-drawn="(\d+)"', cells)[1]) > 500
    assert re.search(r'data-drawn="(\d+)"', view)[1] == "5000"
    # Points cover the middle of the image, in more colors than its background's.
    assert int(re.search(r'data-colors="(\d+)"', view)[1]) > 20


@pytest.mark.parametrize("width, height", [(500, 800), (1366, 768), (2560, 1440)])
def test_the_score_is_seen_first_and_wide_screens_are_used(tmp_path, width, height):
    best = event("evaluation", epoch=2, best="top-1", **{"top-1": 81.25})
    folder = write_run(tmp_path / "run", [*training(20), best], figures=one_of_each())
    page = write_page([folder], folder / "report.html")
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", PLACES), encoding="utf-8")
    content, _ = shown(page, tmp_path / "profile", width, height)
    places = json.loads(html.unescape(re.search(r'data-places="(.*?)"', content)[1]))
    left, top, right, bottom = places["score"]
    assert 0 <= left < right <= width and 0 < top < bottom < height / 2  # without scrolling
    assert places["width"] <= width  # nothing sticks out
    assert places["charts"][2] - places["charts"][0] > 0.9 * width
