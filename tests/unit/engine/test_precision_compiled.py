"""When passes are compiled, and what is said of it."""

import paddle
import pytest
from paddle.jit.dy2static import utils as to_static_utils
from support.compiled_models import FAMILIES, build, compiled

from paddlevit_dist import settings
from paddlevit_dist.engine import precision
from paddlevit_dist.engine.precision import compile_model
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.registry import resolve
from paddlevit_dist.runtime import paddle_versions
from paddlevit_dist.runtime.errors import UserError


def told(monkeypatch, *words: str, on_gpu: bool = True, name: str = "resnet18", processes: int = 1) -> tuple[str, bool]:
    """What a training of that model says of its passes, and whether they are compiled."""
    seen: list[paddle.nn.Layer] = []
    monkeypatch.setattr(precision, "is_on_gpu", lambda: on_gpu)
    monkeypatch.setattr(precision, "world_size", lambda: processes)
    monkeypatch.setattr(precision, "compile_passes", seen.append)
    config = settings.load(list(words)).values
    return compile_model(config, resolve("task", config.TASK)(config), build(name)), bool(seen)


COMPILED = "passes: compiled (TO_STATIC), anew for each shape of a batch"


def test_a_gpu_compiles_by_default_and_says_so(monkeypatch):
    assert told(monkeypatch) == (COMPILED, True)
    assert told(monkeypatch, on_gpu=False) == ("", False)
    assert told(monkeypatch, "TO_STATIC=True", on_gpu=False) == (COMPILED, True)


@pytest.mark.parametrize(
    "words, others, why",
    [
        (["TO_STATIC=False"], {}, "TO_STATIC"),
        (["-recompute"], {}, "TRAIN.RECOMPUTE"),
        (["-eval", "-pretrained=x"], {}, "an evaluation is over"),
        (["-amp"], {}, "half precision"),
        (["EVAL_AMP", "True", "-eval", "-pretrained=x"], {}, "an evaluation"),
        (
            ["TASK=image_segmentation", "MODEL.NAME=segformer_b0"],
            {"name": "segformer_b0"},
            "no test has compared a compiled SegFo",
        ),
        ([], {"processes": 2}, "gradients only behind the backward pass"),
    ],
)
def test_where_a_gpu_does_not_compile_by_default_it_says_why(monkeypatch, words, others, why):
    line, is_compiled = told(monkeypatch, *words, **others)
    assert line.startswith("passes: one operation after the other (") and why in line and not is_compiled
    if not others.get("name") and "recompute" not in str(words) and "TO_STATIC=False" not in words:
        assert told(monkeypatch, *words, "TO_STATIC=True", **others) == (COMPILED, True)  # who asks for it gets it


@pytest.mark.parametrize("dtype, level", [("bfloat16", "O1"), ("float16", "O2"), ("float16", "O1")])
def test_half_precision_that_paddle_would_compile_as_another_is_refused(monkeypatch, dtype, level):
    words = ["TO_STATIC=True", "-amp", f"AMP_DTYPE={dtype}", f"AMP_LEVEL={level}"]
    assert told(monkeypatch, *words, on_gpu=False)[1]  # there it is float32
    if paddle_versions.compiles_half(dtype, level):
        assert told(monkeypatch, *words)[1]
    else:
        with pytest.raises(UserError, match=f"this is {dtype} at level {level}: leave TO_STATIC out"):
            told(monkeypatch, *words)


def test_programs_are_made_of_the_kernels_that_were_compared(monkeypatch):
    """Paddle 3.x would let CINN write others, on GPUs only."""
    monkeypatch.setattr(to_static_utils, "cinn_is_available", lambda: True, raising=False)
    assert "CINN" not in str(compiled("mixer_s16_224").forward._kwargs["backend"])


def test_what_is_compiled_by_default_is_what_is_compared_with_the_plain_passes():
    compared = {type(build(name)).__name__ for name in FAMILIES}
    assert compared - {"SegFormer"} == set(Classification.compiled_by_default)
