"""The lines that pycocotools prints."""

import json
import re

import numpy as np
import pytest

from paddlevit_dist.images.detection.evaluate_command import format_summary, run

from .test_evaluate_command import ANNOTATIONS, RESULTS

LINE = r" Average (\w+) +\((\w+)\) @\[ IoU=([\d.:]+) +\| area= *(\w+) \| maxDets= *(\d+) \] = ([\d.]+)"
SIZES = ("small", "medium", "large")


def test_the_summary_has_the_twelve_lines_of_pycocotools():
    lines = format_summary(np.arange(12) / 100, (1, 10, 300))
    assert lines[0] == " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=300 ] = 0.000"
    assert lines[6] == " Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = 0.060"
    precision = [("0.50:0.95", "all"), ("0.50", "all"), ("0.75", "all"), *(("0.50:0.95", size) for size in SIZES)]
    expected = [("Precision", "AP", *about, "300") for about in precision]
    expected += [("Recall", "AR", "0.50:0.95", "all", most) for most in ("1", "10", "300")]
    expected += [("Recall", "AR", "0.50:0.95", size, "300") for size in SIZES]
    found = [re.fullmatch(LINE, line).groups() for line in lines]
    assert found == [(*about, f"0.{number:02}0") for number, about in enumerate(expected)]


@pytest.mark.parametrize("number", [100, 101])
def test_aps_of_many_categories_are_in_json_alone(tmp_path, capsys, number):
    many = {**ANNOTATIONS, "categories": [{"id": k, "name": f"c{k}"} for k in range(2, 2 + number)]}
    files = [tmp_path / "annotations.json", tmp_path / "results.json"]
    for file, content in zip(files, (many, RESULTS)):
        file.write_text(json.dumps(content))
    run([*map(str, files)])
    shown = capsys.readouterr().out
    objects = f"{len(ANNOTATIONS['annotations'])} annotations of {number} categories"
    assert shown.startswith(f"2 images, {objects}, {len(RESULTS)} results; IoU of bbox\n")
    assert ("101 categories: add -json to print the AP of each" in shown) == ("c57" not in shown) == (number == 101)
