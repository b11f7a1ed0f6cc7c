"""Steps that an exported model's description names are the steps of the configuration."""

from types import SimpleNamespace

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load
from paddlevit_dist.extensions.export import scoring
from paddlevit_dist.extensions.export.functions import TensorSpec

STEPS = {"resize": [8, 8], "divide_by": 255, "layout": "batch, channels, height, width"}


def describe(dtype="float32", words=(), **about):
    """What is said of the description of a model and of this configuration's steps."""
    model = SimpleNamespace(function=SimpleNamespace(about=about), slot=TensorSpec("x", None, dtype), source="net.onnx")
    return scoring.compare_descriptions(model, {"preprocessing": STEPS}, load(["-cfg=vit_digits", *words]).values)


def test_steps_of_the_model_are_those_of_the_configuration():
    assert describe(preprocessing=STEPS) == []
    assert describe() == [
        "note: net.onnx does not store its preprocessing; this is used: resize [8, 8], divide_by 255, layout "
        "batch, channels, height, width"
    ]
    pixels = {"resize": [8, 8], "layout": "batch, height, width, channels"}
    assert describe("uint8", preprocessing=pixels, computed_inside={"divide_by": 255}) == []
    for changed in ({**STEPS, "resize": [9, 9]}, {**STEPS, "crop": 3}, {"resize": [8, 8], "divide_by": 255}):
        with pytest.raises(UserError, match=r"net\.onnx expects other preprocessing.*(resize|crop|layout)"):
            describe(preprocessing=changed)
        (line,) = describe(words=["-allow_changes"], preprocessing=changed)
        assert "expects other preprocessing" in line
