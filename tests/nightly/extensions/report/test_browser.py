"""A report in headless Chromium, as people see it: on a desk and on a phone, light and dark, printed, by keyboard.

``make test-nightly`` skips it, and says so, where there is no Chromium: ``apt-get install chromium``.
"""

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.trainings.report_runs import event, one_of_each, training, write_run

from paddlevit_dist.core.tasks.figures import FigureTable, Gallery
from paddlevit_dist.extensions.report.page import write_page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SWITCHES = (
    "--headless --no-sandbox --disable-dev-shm-usage --use-angle=swiftshader --enable-unsafe-swiftshader "
    "--remote-debugging-pipe"
)
READS_AND_WRITES = 'exec "$0" "$@" 3<&0 4>&1 >&2'  # the pipe has these numbers
pytestmark = pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("CI"), reason="there is no Chromium on this machine"
)
NAMES = ("dog", "a bird with a rather long name", "cow")

# Lines of text that can be seen, each with its place, and its contrast with what is behind it.
TEXTS = """(() => {
  const parse = (color) => { const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a)];
  const luminance = (color) => { const [r, g, b] = color.slice(0, 3).map((part) => { const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const style = getComputedStyle(element), bar = style.backgroundImage.match(/rgba?\\([^)]*\\)/);
    const plain = over(parse(style.backgroundColor), behind(element.parentElement));
    return bar ? over(parse(bar[0]), plain) : plain;
  };
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || !parent.checkVisibility()) continue;
    if (parent.closest("script, style, desc, .skip, [hidden]")) continue;
    const style = getComputedStyle(parent), color = parse(parent.ownerSVGElement ? style.fill : style.color);
    const [light, dark] = [luminance(color), luminance(behind(parent))].sort((a, b) => b - a);
    const range = document.createRange(), scroll = parent.closest(".scroll, .gallery ul")?.getBoundingClientRect();
    range.selectNodeContents(node);
    for (const {left, top, right, bottom} of range.getClientRects()) {
      if (scroll && (left >= scroll.right || top >= scroll.bottom)) continue;
      found.push({text: node.textContent.trim().slice(0, 40), box: [left, top, right, bottom],
        contrast: (light + 0.05) / (dark + 0.05), height: bottom - top});
    }
  }
  return found;
})()"""
DRAWN = "new Promise((done) => setTimeout(() => done(null), 1500))"  # what is drawn once it is seen, and points


class Browser:
    """A window of a headless Chromium, steered over the pipe of its debugging protocol, one JSON message after another.

    It is closed at the end of the ``with`` block.

    Attributes:
        errors: what pages reported: exceptions of scripts, and errors and warnings of the console.
    """

    def __init__(self, profile: Path) -> None:
        command = ["sh", "-c", READS_AND_WRITES, str(CHROMIUM), *SWITCHES.split(), f"--user-data-dir={profile}"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._number, self._rest, self._session, self.errors = 0, b"", "", list[str]()
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self._session = ""
        self._ask("Browser.close")  # which also ends its own processes
        self._process.communicate(timeout=60)

    def open(self, page: Path, width: int, height: int = 900, dark: bool = False) -> None:
        """Open a page in a window of this size, as a reader with this color scheme sees it; clears ``errors``."""
        self.errors.clear()
        self._resize(width, height)
        self.emulate(dark)
        self._ask("Page.navigate", url=page.as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def emulate(self, dark: bool = False, medium: str = "screen") -> None:
        """Show the page in this color scheme, on ``screen`` or as it would be in ``print``."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page, once it is settled if it is a promise."""
        answer = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key, such as ``Tab`` or ``ArrowRight``."""
        for kind in ("rawKeyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}[key]
            self._ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def picture(self, height: int | None = None) -> bytes:
        """Return a PNG of the page's first ``height`` pixels, of the whole page by default."""
        width, most = self.run("[innerWidth, document.documentElement.scrollHeight]")
        self._resize(width, min(height or most, 16_000))
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def _resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._ask("Emulation.setDeviceMetricsOverride", **metrics)

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\0")
        self._process.stdin.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\0" not in self._rest:
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            assert more, "the browser has ended"
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        values = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(values["exceptionDetails"]))
        elif message.get("method") == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.errors.append(values["entry"]["text"])
        return message


@pytest.fixture
def window(tmp_path):
    with Browser(tmp_path / "profile") as window:
        yield window


@pytest.fixture
def page(tmp_path):
    interval = {"percent": 95, "top-1": [78.5, 84.0]}
    best = event("evaluation", epoch=2, best="top-1", interval=interval, **{"top-1": 81.25, "top-1 count": 26})
    events = [*training(20), {**best, **{f"IoU {name}": 0.5 for name in NAMES}}]
    classes = FigureTable("Classes", ("class", "recall %"), [(NAMES[0], 91.5), (NAMES[1], 40.25), (NAMES[2], 100.0)])
    folder = write_run(tmp_path / "run", events, figures=[*one_of_each(NAMES), classes])
    counts = {name: number for number, name in enumerate(NAMES, 7)}
    data = {split: {"samples": "24 images", "counts": counts, "notes": []} for split in ("train", "val")}
    (folder / "run.json").write_text(json.dumps({"processes": 2, "device": "cpu", "data": data}))
    return write_page([folder], folder / "report.html")


def find_overlaps(texts):
    """Pairs of texts of which letters cover each other; a line of letters is lower than its box."""
    boxes = [
        (left, top + 0.15 * (bottom - top), right, bottom - 0.15 * (bottom - top))
        for left, top, right, bottom in (text["box"] for text in texts)
    ]
    pairs = []
    for place, one in enumerate(boxes):
        for other_place, other in enumerate(boxes[place + 1 :], place + 1):
            width, height = (min(one[side + 2], other[side + 2]) - max(one[side], other[side]) for side in (0, 1))
            if width > 1 and height > 1:
                pairs.append((texts[place]["text"], texts[other_place]["text"]))
    return pairs


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1200, 500, 375])
def test_all_is_readable_on_desks_and_phones_in_both_schemes(window, page, width, dark):
    window.open(page, width, 900, dark)
    window.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    window.run(DRAWN)
    assert window.errors == []
    assert window.run("document.documentElement.scrollWidth") <= width  # tables scroll alone
    texts = window.run(TEXTS)
    assert len(texts) > 150
    assert [(text["text"], text["contrast"]) for text in texts if text["contrast"] < 4.5] == []
    assert find_overlaps(texts) == []
    assert min(text["height"] for text in texts) >= 11.5  # also of the labels of axes
    assert (window.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") != dark


@pytest.mark.parametrize("width, height", [(375, 667), (1366, 768), (2560, 1440)])
def test_the_score_is_seen_first_and_wide_screens_are_used(window, page, width, height):
    window.open(page, width, height)
    place = "(query) => { const box = document.querySelector(query).getBoundingClientRect(); return box; }"
    lines = window.run(f"['.value', '.interval'].map({place}).map((box) => [box.top, box.bottom, box.right])")
    (top, bottom, _), (second_top, second_bottom, second_right) = lines
    assert 0 < top < bottom <= second_top < second_bottom < 0.6 * height and second_right <= width  # without scrolling
    assert bottom - top < 90 and second_bottom - second_top < 40  # the score and its interval are a line each
    order = window.run("[...document.querySelectorAll('main > section')].map((one) => one.id)")
    assert [name for name in order if not name.startswith("figures")] == [
        *("summary", "data", "curves", "configuration", "environment", "events")
    ]
    assert order[1] == "figures-0-training"
    assert window.run("document.querySelector('#curves .charts').getBoundingClientRect().width") > 0.9 * width


def test_scripts_draw_and_answer_to_keys(window, tmp_path):
    names = [f"class {number} <b>" for number in range(30)]  # more than are laid out as a table
    kinds = ("ConfusionMatrix", "PointSet", "SliceStack")
    figures = [figure for figure in one_of_each(names, points=5000) if type(figure).__name__ in kinds]
    falling = [event("training", epoch=1, update=update, loss=1.0 / update) for update in range(1, 9)]
    folder = write_run(tmp_path / "run", falling, figures=figures)
    window.open(write_page([folder], folder / "report.html"), 1200, 4000)
    window.run(DRAWN)
    assert window.errors == [] and window.run("document.querySelectorAll('.log').length") == 1
    assert window.run("+document.querySelector('.cells').dataset.drawn") > 500
    window.run("document.querySelector('.cells').focus()")
    for _ in range(2):
        window.press("ArrowRight")
    told = window.run("document.querySelector('.matrix .under').textContent")
    assert told.startswith("class 0 <b> predicted as class 1 <b>: ")
    width = "document.querySelector('.cells').clientWidth"
    before = window.run(width)
    window.run("document.querySelector('.matrix [data-do=in]').click()")
    assert 1.4 * before < window.run(width) <= 1.5 * before  # without its scroll bar
    drawn = "(({drawn, colors}) => [+drawn, +colors])(document.querySelector('.view').dataset)"
    assert window.run(drawn)[0] == 5000 and window.run(drawn)[1] > 8  # points cover the middle in many colors
    before = window.run("document.querySelector('.view').toDataURL()")
    window.run("document.querySelector('.view').focus()")
    window.press("ArrowRight")
    window.run(DRAWN)
    assert window.run("document.querySelector('.view').toDataURL()") != before  # it has turned
    window.run("document.querySelector('.stack input').focus()")
    window.press("ArrowRight")
    stack = "[...document.querySelectorAll('.stack:first-child img')].map((image) => image.checkVisibility())"
    assert window.run(stack) == [False, False, True]
    assert window.run("document.querySelector('.stack input').ariaValueText") == "image 3 of 3"
    window.run("document.querySelector('#curves svg').focus()")
    window.press("ArrowRight")
    assert window.run("document.querySelector('#curves .under').textContent") == "1: 1"
    views = "[...document.querySelectorAll('#curves .view')].map((one) => getComputedStyle(one).display)"
    assert window.run(views) == ["inline", "none"]
    window.run("document.querySelector('.log').click()")
    assert window.run(views) == ["none", "inline"]


def test_phones_show_the_first_pictures_in_two_columns_and_the_first_column_of_tables(window, tmp_path):
    small = [(np.full((20, 20), 10 * n, np.uint8), f"digit\ndata/digits/{n}.png") for n in range(9)]
    wide = FigureTable("Wide", ["class", *(f"a long name {n}" for n in range(9))], [("dog", *range(9))] * 2)
    folder = write_run(tmp_path / "run", figures=[Gallery("Digits", small), wide])
    window.open(write_page([folder], folder / "report.html"), 375)
    shown = "[...document.querySelectorAll('.gallery li')].filter((one) => one.checkVisibility()).length"
    assert window.run(shown) == 6
    places = "[...document.querySelectorAll('.gallery li')].slice(0, 4).map((one) => one.getBoundingClientRect().left)"
    left, right, below, _ = window.run(places)
    assert left == below < right < 375
    window.run("document.querySelector('.more').click()")
    assert window.run(shown) == 9
    scroll = "document.querySelector('.table .scroll')"
    assert window.run(f"{scroll}.scrollWidth > {scroll}.clientWidth + 100")
    below = "document.querySelector('.table .more-rows')"
    assert window.run(f"{below}.textContent") == "scroll sideways for more columns \u2192"
    assert window.run(f"{scroll}.classList.contains('more-right')")
    window.run(f"{scroll}.scrollLeft = 100")
    edges = [f"{scroll}{part}.getBoundingClientRect().left" for part in ("", ".querySelector('tbody th')")]
    outer, inner = map(window.run, edges)
    assert 0 <= inner - outer <= 2
    window.open(folder / "report.html", 1200)
    assert window.run(shown) == 9
    window.open(folder / "report.html", 2560)
    assert window.run(f"{below}.hidden")


def test_a_table_of_many_rows_says_how_many_are_seen_and_that_more_follow(window, tmp_path):
    rows = [(f"class {number}", number) for number in range(20)]
    folder = write_run(tmp_path / "run", figures=[FigureTable("Classes", ["class", "images"], rows)])
    window.open(write_page([folder], folder / "report.html"), 1200)
    below, scroll = "document.querySelector('.table .more-rows')", "document.querySelector('.table .scroll')"
    first, last, number = map(int, re.fullmatch(
        r"rows (\d+) to (\d+) of (\d+): scroll down for more", window.run(f"{below}.textContent")
    ).groups())  # fmt: skip
    edge = f"{scroll}.getBoundingClientRect().bottom + 4"
    seen = (
        f"[...{scroll}.querySelectorAll('tbody tr')].filter((r) => r.getBoundingClientRect().bottom <= {edge}).length"
    )
    assert (first, number) == (1, 20) and last == window.run(seen) < 20
    window.run(f"{scroll}.scrollTop = 1e6")
    window.run(DRAWN)
    assert re.fullmatch(r"rows \d+ to 20 of 20: scroll up for more", window.run(f"{below}.textContent"))


def test_paper_has_scenes_that_nobody_has_looked_at(window, tmp_path):
    kinds = ("ConfusionMatrix", "PointSet")
    figures = [figure for figure in one_of_each([f"c{n}" for n in range(30)]) if type(figure).__name__ in kinds]
    galleries = [Gallery(f"Images {n}", [(np.zeros((400, 300), np.uint8), "a")] * 3) for n in range(9)]
    folder = write_run(tmp_path / "run", figures=[*galleries, *figures])
    window.open(write_page([folder], folder / "report.html"), 1200)
    drawn = "[...document.querySelectorAll('canvas')].filter((canvas) => canvas.dataset.drawn).length"
    assert window.run(drawn) == 0 and window.run("document.querySelector('.still').naturalWidth") == 800
    window.emulate(medium="print")
    assert window.run("document.querySelector('.still').checkVisibility()")
    window.run("window.dispatchEvent(new Event('beforeprint'))")
    assert window.run("document.querySelector('.cells').dataset.drawn > 0")
    window.run(DRAWN)
    assert window.run(drawn) == 2 and window.run("document.querySelectorAll('.still').length") == 0


def test_keys_reach_everything_in_the_order_of_the_page_and_it_has_names(window, page):
    window.open(page, 1200)
    reached = []
    for _ in range(12):
        window.press("Tab")
        reached.append(window.run("document.activeElement.textContent.trim().slice(0, 20)"))
    sections = window.run("[...document.querySelectorAll('h2')].map((one) => one.textContent)")
    assert reached[0] == "Skip to content" and reached[1 : 1 + len(sections)] == sections
    nameless = """[...document.querySelectorAll("svg[role=img], canvas, input, [role=region], img")].filter((one) =>
      !(one.ariaLabel || one.alt || one.getAttribute("aria-labelledby"))).length"""
    assert window.run(nameless) == 0
    levels = window.run("[...document.querySelectorAll('h1, h2, h3')].map((one) => +one.tagName[1])")
    assert levels[0] == 1 and all(after <= before + 1 for before, after in zip(levels, levels[1:]))


def test_it_prints_on_white_paper_without_what_only_a_screen_can_do(window, page):
    window.open(page, 1200, dark=True)
    window.emulate(dark=True, medium="print")
    assert window.run("getComputedStyle(document.documentElement).getPropertyValue('--paper')") == "#ffffff"
    shown = "[...document.querySelectorAll('nav, .tools, .log, input')].filter((one) => one.checkVisibility()).length"
    assert window.run(shown) == 0
    assert window.run("[...document.querySelectorAll('.scroll')].every((one) => one.scrollHeight <= one.clientHeight)")


def test_several_runs_fit_a_phone_too(window, tmp_path):
    folders = []
    for name, value in (("small", 70.0), ("a run with a rather long name", 80.0)):
        ends = {"percent": 95, "top-1": [value - 5, value + 5]}
        best = event("evaluation", epoch=2, best="top-1", interval=ends, **{"top-1": value, "top-1 count": 26})
        folders.append(write_run(tmp_path / name, [*training(20), best]))
    for width in (1200, 375):
        window.open(write_page(folders, tmp_path / "both.html"), width)
        assert window.errors == [] and window.run("document.documentElement.scrollWidth") <= width
        assert find_overlaps(window.run(TEXTS)) == []
