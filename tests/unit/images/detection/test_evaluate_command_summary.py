"""The lines that pycocotools prints."""

import re

import numpy as np

from paddlevit_dist.images.detection.evaluate_command import format_summary

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
