import json
import math
from typing import NamedTuple

import numpy as np

from paddlevit_dist.core.runtime.json_format import format_json
from paddlevit_dist.core.runtime.text_files import parse_json


class Interval(NamedTuple):
    low: float
    high: float


def parse_strictly(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_numbers_that_are_not_finite_are_null_at_any_depth():
    value = {
        "loss": math.nan,
        "of classes": [1.5, -math.inf, {"deep": (np.float64("nan"), 2)}],
        "interval": Interval(0.25, math.inf),
        "name": "NaN",
        "none": None,
        "is_best": True,
        "epoch": 3,
    }
    expected = {
        "loss": None,
        "of classes": [1.5, None, {"deep": [None, 2]}],
        "interval": [0.25, None],
        "name": "NaN",
        "none": None,
        "is_best": True,
        "epoch": 3,
    }
    assert parse_strictly(format_json(value)) == expected
    assert math.isnan(value["loss"]), "the value itself is unchanged"


def test_finite_values_are_written_as_json_writes_them():
    value = {"b": [1, 2.5, -0.0, 1e-300], "a": {"é": "\n"}, "t": (False, None)}
    for options in ({}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}):
        assert format_json(value, **options) == json.dumps(value, **options)


def test_options_also_hold_for_values_that_are_not_finite():
    assert format_json({"a": math.nan, "b": {1}}, default=str, separators=(",", ":")) == '{"a":null,"b":"{1}"}'
    assert parse_json(format_json([math.inf], indent=1)) == [None]
