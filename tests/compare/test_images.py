"""The page of a comparison shows samples that changed where the data can be read, and says how where they cannot."""

import base64
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.processes import run_command

from paddlevit_dist import settings
from paddlevit_dist.compare import tables
from paddlevit_dist.compare.command import run
from paddlevit_dist.registry import resolve
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.settings import dump_yaml
from paddlevit_dist.tasks.metrics import SampleTable

SAMPLES = 40
NAMES = [str(digit) for digit in range(10)]


@pytest.fixture(scope="module")
def digits() -> list[tuple[np.ndarray, int]]:
    data = resolve("dataset", "digits")(None, "val", None)
    return [(np.asarray(image), label) for image, label in map(data.read, range(SAMPLES))]


def evaluated(folder: Path, digits: list, wrong: list[int], **keys: str) -> str:
    """The folder of a run that takes these digits for the next one."""
    folder.mkdir()
    words = [word for pair in keys.items() for word in pair]
    values = settings.load(["-cfg=vit_digits", f"-output={folder}", *words]).values
    (folder / "config.yaml").write_text(dump_yaml(values), encoding="utf-8")
    labels = np.array([label for _, label in digits])
    is_wrong = np.isin(np.arange(SAMPLES), wrong)
    arrays = {
        "labels": labels,
        "places": is_wrong.astype(int),
        "losses": np.ones(SAMPLES),
        "predictions": np.where(is_wrong, (labels + 1) % 10, labels),
        "top": np.array([1]),
    }
    evaluation = SimpleNamespace(
        table=SimpleNamespace(
            indices=np.arange(SAMPLES), kept=lambda: SampleTable("classes", NAMES, arrays), groups=None
        ),
        config=values,
        task=SimpleNamespace(best_metric=("top-1", True), about_input=dict),
        samples=SimpleNamespace(name="val {}".format),
        facts={},
    )
    tables.write_beside(folder / "intervals.json", evaluation, {"epoch": 1})
    return str(folder)


def images_of(page: str) -> dict[str, tuple[np.ndarray, str]]:
    """By name of the sample: its pixels, and what stands below."""
    entries = re.findall(r'<img[^>]*base64,([^"]*)"[^>]*alt="([^"]*)"><p>([^<]*)</p>', page)
    return {
        name: (np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))), said) for content, name, said in entries
    }


def test_fixed_and_broken_samples_are_shown_with_what_they_are_taken_for(tmp_path, digits, capsys):
    (tmp_path / "gone").mkdir()
    keys = {"EVAL": "True", "MODEL.PRETRAINED": "weights", "PER_SAMPLE": str(tmp_path / "gone" / "samples.csv")}
    first = evaluated(tmp_path / "first", digits, [*range(0, 40, 2)], **keys)
    (tmp_path / "gone").rmdir()  # as weights and table, it is not needed to see the data
    second = evaluated(tmp_path / "second", digits, [5, 7])
    run([first, second, f"-output={second}"])
    assert capsys.readouterr().out.splitlines()[-1] == f"{second}/compared.html: 14 images"
    page = (tmp_path / "second" / "compared.html").read_text(encoding="utf-8")
    shown = images_of(page)
    assert "fixed: 12 of 20" in page and "broken: 2 of 2" in page and len(shown) == 14
    assert len(page) < 60_000
    for name, (pixels, said) in shown.items():
        index = int(name.removeprefix("val "))
        label = digits[index][1]
        assert said == f"{name}: {label}, taken for {(label + 1) % 10} {'before' if index % 2 == 0 else 'now'}"
        small = np.asarray(Image.fromarray(pixels).resize(digits[0][0].shape[::-1], Image.Resampling.BOX), float)
        likeness = [np.corrcoef(small.ravel(), image.ravel())[0, 1] for image, _ in digits]
        assert int(np.argmax(likeness)) == index


def test_without_data_the_page_is_as_it_was_and_says_what_to_do(tmp_path, digits, capsys):
    gone = {"DATA.DATASET": "folder", "DATA.DATA_PATH": str(tmp_path / "gone")}
    runs = [evaluated(tmp_path / str(number), digits, wrong, **gone) for number, wrong in enumerate(([1], [2]))]
    target = tmp_path / "page.html"
    run([*runs, f"-output={target}"])
    assert f"{target}: no images: " in capsys.readouterr().out
    page = target.read_text(encoding="utf-8")
    assert "No images of samples: " in page and f"{tmp_path}/gone" in page and "-data_path=PATH" in page
    assert "1 samples are fixed" in page and "<img" not in page
    target.unlink()
    with pytest.raises(UserError, match=r"compare: no images for the page with --data_path=.*elsewhere"):
        run([*runs, f"-output={target}", f"-data_path={tmp_path / 'elsewhere'}"])
    with pytest.raises(UserError, match="add --output=FILE"):
        run([*runs, f"-data_path={tmp_path}"])
    Path(runs[0], "config.yaml").unlink()
    run([*runs, f"-output={target}", "-json"])
    assert "has no config.yaml" in target.read_text(encoding="utf-8")
    assert capsys.readouterr().err.endswith("has no config.yaml\n")


def test_without_paddle_there_is_a_page_without_images(tmp_path, digits):
    runs = [evaluated(tmp_path / str(number), digits, wrong) for number, wrong in enumerate(([1], [2]))]
    program = (
        "import sys; sys.modules['paddle'] = None\nfrom paddlevit_dist.compare.command import run; run(sys.argv[1:])"
    )
    ended = run_command([sys.executable, "-c", program, *runs, f"-output={tmp_path / 'page.html'}"], timeout=60)
    assert ended.code == 0 and "no images: import of paddle halted" in ended.out, ended.err


def test_no_name_is_obeyed_by_a_browser(tmp_path, digits, monkeypatch):
    evil = '<img src=x onerror="alert(1)">'
    monkeypatch.setattr(sys.modules[__name__], "NAMES", [evil, *NAMES[1:]])
    runs = [evaluated(tmp_path / str(number), digits, wrong) for number, wrong in enumerate(([0], [1]))]
    target = tmp_path / "page.html"
    run([*runs, f"-output={target}"])
    page = target.read_text(encoding="utf-8")
    assert evil not in page and "&lt;img src=x" in page and len(images_of(page)) == 2
