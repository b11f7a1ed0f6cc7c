"""The page of a comparison, line by line, and how large its images are."""

import base64
import io
import re
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from paddlevit_dist import __version__
from paddlevit_dist.extensions.compare import page
from paddlevit_dist.extensions.compare.images import ChangedImages, choose_samples
from paddlevit_dist.extensions.compare.significance import add_finding


def compare(second, **changes):
    """A comparison of a run with the first one as ``pairs`` builds it."""
    interval = {"value": 0.5, "low": 0.25, "high": 1.0}
    return {
        **{"first": "a", "second": second, "score": "AP", "more_is_better": True, "percent": 95, "samples": 1234},
        "difference_percent": 97.5,
        **{"of_first": interval, "of_second": interval, "difference": interval, "p": 0.01, "test": "a test"},
        **{"settings": {}, "notes": [], "warnings": [], "classes": [], **changes},
    }


def write(target, comparisons, shown) -> list[str]:
    """The lines of a page after its style."""
    runs = ["a<", *(row["second"] for row in comparisons)]
    tables = [SimpleNamespace(run=run, about={"of": "epoch 3", "split": "val"}) for run in runs]
    page.write_page(target, tables, [add_finding(row, len(comparisons)) for row in comparisons], 3, shown)
    head, _, body = target.read_text(encoding="utf-8").partition("</style></head><body>\n")
    assert f"<title>{body.partition('<h1>')[2].partition('</h1>')[0]}</title>" in head
    return body.splitlines()


def test_a_page_has_each_comparison_with_its_classes_images_and_samples(tmp_path):
    value = {"value": 0.5}
    classes = [{"class": "cat", "score": "AP cat", "of_first": value, "of_second": value, "difference": value}]
    fixed = [{"sample": f"f{n}", "class": "cat", "taken_for": "dog"} for n in range(3)]
    changed = {"fixed": fixed, "broken": [{"sample": "b"}] * 1001, "worse": []}
    facts = {"settings": {"SEED": (1, 2)}, "notes": ["few\n"], "warnings": ["odd"], "classes": classes}
    pixels = np.zeros((3, 2), np.uint8)
    shown = ChangedImages({"f2": pixels, "f0": pixels, "x": pixels}, "no <b>")
    lines = write(tmp_path / "new" / "er" / "page.html", [compare("b&", **facts, **changed), compare("c")], shown)
    source = re.search(r'src="([^"]*)"', "".join(lines))[1]
    small = f'<li><img class="small" src="{source}" width="2" height="3" alt='
    table = "<table><thead><tr><th>run</th><th>AP</th><th>difference</th><th>p</th><th>p (corrected)</th><th></th></tr>"
    ends, gain = "0.500 [0.250, 1.000]", "<td>+0.500 [+0.250, +1.000]</td><td>0.01</td><td>0.02</td><td>better</td>"
    assert lines == [
        "<h1>Comparison: a&lt;, b&amp;, c</h1>",
        *(f'<p class="note">{run}: val, epoch 3</p>' for run in ("a&lt;", "b&amp;", "c")),
        f"{table}</thead><tbody>",
        f"<tr><td>a</td><td>{ends}</td><td></td><td></td><td></td><td></td></tr>",
        *(f"<tr><td>{run}</td><td>{ends}</td>{gain}</tr>" for run in ("b&amp;", "c")),
        *("</tbody></table>", ""),
        '<p class="note">95 % intervals (97.5 % of differences and p times 2: Bonferroni) and p (a test) of the same '
        "1,234 samples</p>",
        '<p class="note">No images of samples: no &lt;b&gt;. To show images, run the same command on a machine with '
        "the data; add -data_path=PATH if the data have moved.</p>",
        "<h2>b&amp;</h2>",
        *("<p>Warning: odd</p>", r"<p>Note: few\n</p>", "<p>settings that differ: SEED 1 -&gt; 2</p>"),
        "<h3>Classes</h3><table><thead><tr><th>class</th><th>first</th><th>second</th><th>difference</th></tr></thead>"
        "<tbody>",
        "<tr><td>cat</td><td>0.500</td><td>0.500</td><td>+0.500</td></tr>",
        *("</tbody></table>", ""),
        '<div class="sides">',
        "<section><h3>fixed: 2 of 3</h3><ul>",
        f'{small}"f0"><p>f0: cat, predicted dog before</p></li>',
        f'{small}"f2"><p>f2: cat, predicted dog before</p></li>',
        "</ul></section>",
        "</div>",
        "<details><summary>3 samples are fixed</summary><ol>",
        *(f"<li>f{n} (cat)</li>" for n in range(3)),
        "</ol></details>",
        "<details><summary>1,001 samples are broken</summary><ol>",
        *["<li>b</li>"] * 1001,
        "</ol></details>",
        "<h2>c</h2>",
        f'<p class="note">written by paddlevit_dist {__version__}</p>',
        "</body></html>",
    ]


@pytest.mark.parametrize(
    ("height", "width", "size", "kind", "shown"),
    [
        (40, 30, (30, 40), "png", "small"),
        (600, 900, (256, 171), "jpeg", ""),  # not wide yet
        (600, 901, (512, 341), "jpeg", "wide"),
        (900, 600, (171, 256), "jpeg", ""),
    ],
)
def test_images_are_no_larger_than_they_are_shown(height, width, size, kind, shown):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    image = page.encode_image(pixels, "a\nb")
    head, _, content = image["source"].partition(",")
    assert head == f"data:image/{kind};base64" and Image.open(io.BytesIO(base64.b64decode(content))).size == size
    facts = {"shown": shown, "width": size[0], "height": size[1], "name": r"a\nb"}
    assert {name: image[name] for name in facts} == facts


@pytest.mark.parametrize(
    ("number", "chosen"), [(12, [*range(12)]), (13, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]), (23, [*range(0, 23, 2)])]
)
def test_samples_are_spread_unless_they_are_sorted(number, chosen):
    samples = [{"sample": f"{place}"} for place in range(number)]
    assert choose_samples(samples) == [samples[place] for place in chosen]
    ranked = [{**sample, "of_first": 1.0} for sample in samples]
    assert choose_samples(ranked) == ranked[:12]
