"""The page of a comparison shows samples that changed where the data can be read, and says how where they cannot."""

import base64
import io
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.trainings.evaluated_digits import NAMES, digits, evaluated

from paddlevit_dist import UserError
from paddlevit_dist.extensions.compare.command import run
from paddlevit_dist.extensions.compare.images import draw_images


def make_images(page: str) -> dict[str, tuple[np.ndarray, str]]:
    """By name of the sample: its pixels, and what stands below."""
    entries = re.findall(r'<img[^>]*base64,([^"]*)"[^>]*alt="([^"]*)"><p>([^<]*)</p>', page)
    return {
        name: (np.asarray(Image.open(io.BytesIO(base64.b64decode(content)))), said) for content, name, said in entries
    }


def test_fixed_and_broken_samples_are_shown_with_what_they_are_taken_for(tmp_path, capsys):
    (tmp_path / "gone").mkdir()
    keys = {"EVAL": "True", "MODEL.PRETRAINED": "weights", "PER_SAMPLE": str(tmp_path / "gone" / "samples.csv")}
    first = evaluated(tmp_path / "first", [*range(0, 40, 2)], **keys)
    (tmp_path / "gone").rmdir()  # as weights and table, it is not needed to see the data
    second = evaluated(tmp_path / "second", [5, 7])
    run([first, second, f"-output={second}"])
    assert capsys.readouterr().out.splitlines()[-1] == f"{second}/compared.html: 14 images"
    page = (tmp_path / "second" / "compared.html").read_text(encoding="utf-8")
    refused = f"compare: no images for the page with --data_path={tmp_path}: dataset digits comes with the package and "
    with pytest.raises(UserError, match=f"^{refused}reads no path; drop --data_path$"):
        run([first, second, f"-output={second}", f"-data_path={tmp_path}"])
    shown = make_images(page)
    assert "fixed: 12 of 20" in page and "broken: 2 of 2" in page and len(shown) == 14
    assert len(page) < 60_000
    for name, (pixels, said) in shown.items():
        index = int(name.removeprefix("val "))
        label = digits()[index][1]
        assert said == f"{name}: {label}, predicted {(label + 1) % 10} {'before' if index % 2 == 0 else 'now'}"
        small = np.asarray(Image.fromarray(pixels).resize(digits()[0][0].shape[::-1], Image.Resampling.BOX), float)
        likeness = [np.corrcoef(small.ravel(), image.ravel())[0, 1] for image, _ in digits()]
        assert int(np.argmax(likeness)) == index


def test_without_data_the_page_is_as_it_was_and_says_what_to_do(tmp_path, capsys):
    gone = {"DATA.DATASET": "folder", "DATA.DATA_PATH": str(tmp_path / "gone")}
    runs = [evaluated(tmp_path / str(number), wrong, **gone) for number, wrong in enumerate(([1], [2]))]
    target = tmp_path / "page.html"
    run([*runs, f"-output={target}"])
    assert f"{target}: no images: " in capsys.readouterr().out
    page = target.read_text(encoding="utf-8")
    assert "No images of samples: " in page and f"{tmp_path}/gone" in page and "-data_path=PATH" in page
    assert "1 samples are fixed" in page and "<img" not in page
    target.unlink()
    with pytest.raises(UserError, match="compare: no images for the page with --data_path=.*elsewhere: .*elsewhere"):
        run([*runs, f"-output={target}", f"-data_path={tmp_path / 'elsewhere'}"])
    with pytest.raises(UserError, match="add --output=FILE"):
        run([*runs, f"-data_path={tmp_path}"])
    Path(runs[0], "config.yaml").unlink()
    run([*runs, f"-output={target}", "-json"])
    assert "has no config.yaml" in target.read_text(encoding="utf-8")
    assert capsys.readouterr().err.endswith("has no config.yaml\n")
    table = SimpleNamespace(file=tmp_path / "eval_scored_samples.npz")
    assert draw_images(table, ["a"], None).problem == f"{tmp_path} has no eval_config.yaml"


def test_no_name_is_obeyed_by_a_browser(tmp_path):
    evil = '<img src=x onerror="alert(1)">'
    names = [evil, *NAMES[1:]]
    runs = [evaluated(tmp_path / str(number), wrong, names) for number, wrong in enumerate(([0], [1]))]
    target = tmp_path / "page.html"
    run([*runs, f"-output={target}"])
    page = target.read_text(encoding="utf-8")
    assert evil not in page and "&lt;img src=x" in page and len(make_images(page)) == 2
