"""TO_STATIC: the traced program computes what the model computes, repeatably.

Everything compiled runs in a separate process: the threads of Paddle's executor live as long as the process.
"""

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import paddle
import pytest
from paddle.jit.dy2static import utils as to_static_utils
from support import small_runs
from support.plain_layers import plain_layers
from support.processes import run_workers, succeeded

from paddlevit_dist import settings
from paddlevit_dist.engine import precision
from paddlevit_dist.engine.precision import compile_model, compile_passes
from paddlevit_dist.images.classification.figures import roll_out
from paddlevit_dist.images.classification.task import Classification
from paddlevit_dist.models import create_model
from paddlevit_dist.registry import resolve
from paddlevit_dist.runtime import paddle_versions
from paddlevit_dist.runtime.errors import UserError

from . import test_recomputation
from .test_recomputation import IMAGES, gradients

WITH_DROPOUT = ("vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224")
FAMILIES = {**test_recomputation.FAMILIES, "deit_tiny_patch16_224": {"depth": 1, "embed_dim": 24}}


def build(name: str, **options: Any) -> paddle.nn.Layer:
    live = {"frozen_batch_norm": False} if name == "resnet18" else {}
    paddle.seed(1)
    chosen = {"num_classes": 5, "image_size": 64, "drop_path": 0.5, **FAMILIES[name], **live, **options}
    model = create_model(name, **chosen)
    model.train()
    return model


def compiled(name: str, **options: Any) -> paddle.nn.Layer:
    model = build(name, **options)
    compile_passes(model)
    return model


def losses(model: paddle.nn.Layer) -> list[float]:
    """Of ten updates, each from a seed of its own."""
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=model.parameters())
    found = []
    for update in range(10):
        paddle.seed(update)
        loss = ((model(paddle.to_tensor(IMAGES)) - 1.0) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad(False)
        found.append(loss.item())
    return found


def outputs(model: paddle.nn.Layer) -> dict[str, Any]:
    """Logits of two sizes of batch in evaluation, then gradients in training."""
    model.eval()
    with paddle.no_grad():
        logits = [model(paddle.to_tensor(IMAGES[:batch])).numpy() for batch in (4, 3)]
    attention = roll_out(model, paddle.to_tensor(IMAGES))
    model.train()
    result = {"logits": logits, "attention": attention, "gradients": gradients(model), "class": type(model).__name__}
    model.clear_gradients()
    return {**result, "losses": losses(model)}


def of_families() -> dict[str, Any]:
    with plain_layers():  # a program is traced from Paddle's layers
        found = {name: (outputs(build(name)), outputs(compiled(name))) for name in FAMILIES}
        for name in WITH_DROPOUT:
            for way, result in zip((build, compiled), found[name]):
                result["losses"] = losses(way(name, drop_path=0.0))
        return found


@pytest.fixture(scope="module")
def results():
    (found,) = succeeded(run_workers("images.test_compiled_models:of_families", processes=1)).results
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_evaluation_and_gradients_are_those_of_the_model(results, name):
    plain, traced = results[name]
    for expected, result in zip(plain["logits"], traced["logits"]):
        np.testing.assert_array_equal(result, expected)
    assert traced["gradients"].keys() == plain["gradients"].keys()
    if name not in WITH_DROPOUT:  # which draws its numbers in another order
        for parameter, value in plain["gradients"].items():
            np.testing.assert_array_equal(traced["gradients"][parameter], value, err_msg=parameter)


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_attention_is_seen_in_a_compiled_model_too(results, name):
    plain, traced = results[name]
    np.testing.assert_array_equal(traced["attention"], plain["attention"])


@pytest.mark.parametrize("name", FAMILIES)
def test_ten_updates_have_the_losses_of_the_model(results, name):
    plain, traced = results[name]
    assert len(set(plain["losses"])) == 10
    np.testing.assert_allclose(traced["losses"], plain["losses"], rtol=1e-5)


def test_what_is_compiled_by_default_is_what_has_been_compared(results):
    compared = {plain["class"] for plain, _ in results.values()}
    assert compared - {"SegFormer"} == set(Classification.compiled_by_default)


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


def trainings(folder: str) -> dict[str, Any]:
    """Trainings that take the device for a GPU: as it is by default, uncompiled, and at O2."""
    words = ["-epochs=2", "-batch_size=16", "MODEL.DROPPATH=0.3", "TRAIN.MODEL_EMA=True", "-accum_iter=2"]
    ways = {"default": [], "plain": ["TO_STATIC=False"], "O2": ["-amp", "AMP_LEVEL=O2"]}
    is_gpu = {"is_on_gpu": lambda: True, "_check_capability": lambda dtype: None}
    with plain_layers(), mock.patch.multiple(precision, **is_gpu):
        found = {name: small_runs.train(f"{folder}/{name}", [*words, *own], 160) for name, own in ways.items()}
    return {name: {**result, "log": Path(folder, name, "log.txt").read_text()} for name, result in found.items()}


def test_a_training_that_is_compiled_by_default_gives_the_plain_one(tmp_path):
    (found,) = succeeded(run_workers("images.test_compiled_models:trainings", str(tmp_path), processes=1)).results
    default, plain = found["default"], found["plain"]
    np.testing.assert_allclose(default["losses"], plain["losses"], rtol=1e-5)
    for name, value in plain["weights"].items():
        np.testing.assert_allclose(default["weights"][name], value, atol=1e-5, err_msg=name)
    assert default["evaluation"]["loss"] == pytest.approx(plain["evaluation"]["loss"], rel=1e-5)
    assert COMPILED in default["log"] and "passes: one operation after the other (TO_STATIC)" in plain["log"]
    assert "half precision would be cast elsewhere" in found["O2"]["log"]
    assert "weights and gradients are float32, as at O1" in found["O2"]["log"] and "level O2:" not in plain["log"]


def test_programs_are_made_of_the_kernels_that_were_compared(monkeypatch):
    """Paddle 3.x would let CINN write others, on GPUs only."""
    monkeypatch.setattr(to_static_utils, "cinn_is_available", lambda: True, raising=False)
    assert "CINN" not in str(compiled("mixer_s16_224").forward._kwargs["backend"])


def repeated(name: str) -> dict[str, Any]:
    """Losses of ten steps with one seed, and the slope along a direction by the gradient and by two more losses."""
    model = compiled(name)

    def loss() -> paddle.Tensor:
        paddle.seed(2)
        return (model(paddle.to_tensor(IMAGES)) ** 2).sum()

    loss().backward()
    losses = [loss().item() for _ in range(10)]
    weight = model.blocks[0].mlp.fc1.weight
    direction = np.random.default_rng(0).standard_normal(weight.shape).astype("float32")
    start, step, ends = weight.numpy().copy(), 1e-3, []
    for sign in (1, -1):
        weight.set_value(start + sign * step * direction)
        ends.append(loss().item())
    slope = float((weight.grad.numpy() * direction).sum())
    return {"losses": losses, "slope": slope, "measured": (ends[0] - ends[1]) / (2 * step)}


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_dropout_and_stochastic_depth_draw_the_same_numbers_again(name):
    target = "images.test_compiled_models:repeated"
    (found,) = succeeded(run_workers(target, name, processes=1)).results
    assert len(set(found["losses"])) == 1
    assert found["measured"] == pytest.approx(found["slope"], rel=0.02)
