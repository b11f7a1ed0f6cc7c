"""What a value measures is derived from what its kind declares, and read back from a file as it was."""

import json
import math

import numpy as np
import pytest

from paddlevit_dist.core.registry.register import register_score_kind
from paddlevit_dist.core.tasks.metrics import TableMetrics
from paddlevit_dist.core.tasks.score import Score, parse_scores, to_plain
from paddlevit_dist.core.tasks.score_kind import ScoreKind

CLASSES = ["car", "mask AP", "AP"]  # also names of quantities


class Mixed(ScoreKind):
    class_score, other_class_scores = "AP {}", ("mask AP {}", "{} error_mm")
    units, directions = {"error_mm": "mm"}, {"wrong share": "lower", "threshold": ""}
    pooled_rates, class_means = ("found",), {"mean of classes": "{} right"}

    def compute(self, arrays, weights):
        of_classes = [of.format(name) for of in self.list_class_scores(arrays) for name in self.classes]
        names = [
            "AP",
            "right",
            "found",
            "mean of classes",
            "wrong share",
            "threshold",
            "bias",
            "percent",
            "no interval",
        ]
        return {name: np.full(len(weights), 0.5) for name in [*names, *of_classes]}

    def hits(self, arrays, classes):
        return {"right": arrays["right"], "found": np.repeat(arrays["right"], 2)}

    def find_ranges(self, arrays, classes):
        shares = ["AP", "wrong share", "threshold", *(f"{of} {name}" for of in ("AP", "mask AP") for name in classes)]
        errors = dict.fromkeys([f"{name} error_mm" for name in classes], (0.0, math.inf))
        return {**dict.fromkeys(shares, (0.0, 1.0)), **errors, "percent": (0.0, 100.0), "no interval": None}


@pytest.fixture
def metrics():
    register_score_kind("mixed", Mixed, replace=True)
    metrics = TableMetrics("mixed", CLASSES)
    metrics.add_batch(right=np.array([True, False, True]))
    return metrics


SHARE, ANY = (0.0, 1.0), (-math.inf, math.inf)
EXPECTED = {
    "AP": Score("AP", None, "", SHARE, "higher", "samples"),
    "right": Score("right", None, "%", (0.0, 100.0), "higher", "decisions"),
    "found": Score("found", None, "%", (0.0, 100.0), "higher", "pooled decisions"),
    "mean of classes": Score("mean of classes", None, "%", (0.0, 100.0), "higher", "classes"),
    "wrong share": Score("wrong share", None, "", SHARE, "lower", "samples"),
    "threshold": Score("threshold", None, "", SHARE, "", "samples"),
    "bias": Score("bias", None, "", ANY, "", "samples"),
    "percent": Score("percent", None, "%", (0.0, 100.0), "higher", "samples"),
    "no interval": Score("no interval", None, "", None, "", "samples"),
    **{f"AP {name}": Score("AP", name, "", SHARE, "higher") for name in CLASSES},
    **{f"mask AP {name}": Score("mask AP", name, "", SHARE, "higher") for name in CLASSES},
    **{f"{name} error_mm": Score("error_mm", name, "mm", (0.0, math.inf), "lower") for name in CLASSES},
}


def test_a_score_has_its_quantity_class_unit_range_and_direction_also_in_a_file(metrics):
    values = metrics.compute({})
    scores, of_classes = metrics.describe(values), metrics.describe_classes()
    assert scores == EXPECTED
    assert [(score.quantity, score.of_class, score.better) for score in of_classes] == [
        ("AP", None, "higher"),
        ("mask AP", None, "higher"),
        ("error_mm", None, "lower"),
    ]
    text = json.dumps(to_plain(scores, of_classes), allow_nan=False)
    assert text.count("mask AP car") == 1 and text.count('"mm"') == 1
    assert parse_scores(json.loads(text)) == (scores, of_classes)


def test_before_anything_was_computed_nothing_is_described(metrics):
    assert metrics.describe({"AP": 0.5}) == {} and metrics.describe_classes() == []


ROW = {"quantity": "AP", "unit": "", "better": "higher", "range": [0, 1], "counted_over": "samples", "values": {}}


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"scores": [], "of_classes": ["AP"]},
        *(
            {"scores": [{**ROW, **wrong}], "of_classes": []}
            for wrong in ({"range": [0]}, {"range": ["a", 1]}, {"unit": 3})
        ),
        {"scores": [{**ROW, "values": ["AP"]}], "of_classes": []},
        {"scores": [{key: ROW[key] for key in ROW if key != "better"}], "of_classes": []},
    ],
)
def test_a_damaged_file_is_a_value_error(content):
    with pytest.raises(ValueError, match="^it does not describe scores$"):
        parse_scores(content)
