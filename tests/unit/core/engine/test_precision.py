"""Mixed precision: what AMP, AMP_DTYPE and AMP_LEVEL request from Paddle; the loss's scale against Paddle's class.

No half-precision kernel runs on a CPU; Paddle's class has to be told that a CPU is a GPU.
"""

import contextlib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest
from PIL import Image
from support.forced_device import forced_device
from support.trainings import small_runs
from support.trainings.runs import read_events

from paddlevit_dist import Predictor, UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine.precision import EvaluationPrecision, LossScale, TrainingPrecision
from paddlevit_dist.core.inference.evaluation import evaluate_only


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("dtype, scales", [("float16", True), ("bfloat16", False)])
def test_on_a_gpu_the_keys_choose_cast_and_scaler(dtype, level, scales):
    precision = TrainingPrecision(True, dtype, level, on_gpu=True)
    assert precision.enabled and (precision.options["dtype"], precision.options["level"]) == (dtype, level)
    assert (precision.scaler is not None) == scales
    assert precision.notice == f"mixed precision: {dtype}, level {level}"
    assert set(precision.options) <= set(inspect.signature(paddle.amp.auto_cast).parameters)


@pytest.mark.parametrize("dtype, capability", [("float16", (6, 1)), ("bfloat16", (7, 5)), ("bfloat16", (6, 0))])
def test_a_gpu_that_paddle_would_leave_in_float32_is_refused(dtype, capability):
    with forced_device(capability=capability):
        with pytest.raises(UserError, match=f"AMP_DTYPE {dtype}: .* has {capability[0]}.{capability[1]}") as told:
            TrainingPrecision(True, dtype)
        TrainingPrecision(False, dtype)
    assert ("or AMP_DTYPE float16" in str(told.value)) == (capability == (7, 5))


@pytest.mark.parametrize("dtype, least", [("float16", (7, 0)), ("bfloat16", (8, 0))])
def test_the_least_capability_is_that_of_paddles_autocast(other_paddle, dtype, least):
    can_compute = getattr(importlib.import_module("paddle.amp.auto_cast"), f"_is_gpu_{dtype}_supported")
    other_paddle({"version.cuda": "11.8"})  # Paddle asks itself, too
    for capability, expected in ((least, True), ((least[0] - 1, 9), False)):
        with forced_device(capability=capability):
            assert bool(can_compute()) == expected
    with forced_device(capability=least):
        assert TrainingPrecision(True, dtype).enabled


def test_without_a_gpu_training_goes_on_in_float32_and_says_so():
    precision = TrainingPrecision(True, "bfloat16", "O2")
    assert not precision.enabled and precision.scaler is None and "float32" in precision.notice
    weight = paddle.create_parameter([2, 2], "float32")
    with precision.autocast():
        assert paddle.matmul(weight, weight).dtype == paddle.float32


@pytest.fixture
def autocasts(other_paddle) -> Iterator[list[dict[str, Any]]]:
    """The autocasts that are open, of a process that believes that it computes on a GPU."""
    opened: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def auto_cast(**options: Any) -> Iterator[None]:
        opened.append(options)
        try:
            yield
        finally:
            opened.pop()

    other_paddle({"amp.auto_cast": auto_cast})
    with forced_device():
        yield opened


def test_evaluation_in_half_precision_says_so_and_training_and_prediction_agree(tmp_path, monkeypatch, autocasts):
    output, seen = str(tmp_path / "run"), set()
    arguments = ["EVAL_AMP", "true", "AMP_DTYPE", "bfloat16", "TRAIN.NUM_EPOCHS", "1", "-batch_size=32"]
    trainer = small_runs.build(output, *arguments, train_size=32, val_size=16)
    autocasts.clear()  # of the check of the device
    network, plain = type(trainer.model), type(trainer.model).forward

    def forward(model: Any, images: paddle.Tensor) -> Any:
        seen.add((model.training, bool(autocasts) and autocasts[-1].get("dtype")))
        return plain(model, images)

    monkeypatch.setattr(network, "forward", forward)
    trainer.train()
    assert seen == {(True, False), (False, "bfloat16")} and "forward" not in vars(trainer.model)

    seen.clear()
    evaluated = str(tmp_path / "evaluation")
    evaluate_only(small_runs.build(evaluated, *arguments, "-eval", f"-pretrained={output}", val_size=16))
    assert Predictor(output)(Image.new("L", (16, 16)))
    assert seen == {(False, "bfloat16")} and not autocasts
    for folder in (output, evaluated):
        events = read_events(folder)
        assert [event["precision"] for event in events if event["kind"] == "evaluation"] == ["bfloat16, level O1"]
        log = Path(folder, "log.txt").read_text()
        assert "evaluation in bfloat16, level O1" in log
        assert re.search(r"top-1 [\d.]+ (?:\[[\d., ]+\] )?top-5 [\d.]+ loss [\d.]+ \(bfloat16, level O1\)", log)


def test_without_a_gpu_or_the_key_an_evaluation_is_in_float32_and_its_line_as_ever():
    for words, notice in (([], ""), (["EVAL_AMP", "true"], "EVAL_AMP: this device has no half-precision kernels")):
        precision = EvaluationPrecision(settings.load(words).values)
        assert precision.notice.startswith(notice) and bool(precision.notice) == bool(notice)
        assert precision.facts == {}
        model = paddle.nn.Linear(1, 1)
        with precision.patch_forward(model):
            assert "forward" not in vars(model)


def test_a_compiled_forward_pass_is_the_models_own_again_after_an_evaluation(autocasts):
    model = paddle.nn.Linear(1, 1)
    model.forward = compiled = lambda x: (x, len(autocasts))
    with EvaluationPrecision(settings.load(["EVAL_AMP", "true"]).values).patch_forward(model):
        assert model(3) == (3, 1)
    assert model.forward is compiled


@pytest.fixture
def of_paddle(other_paddle):
    place = SimpleNamespace(is_gpu_place=lambda: True)
    other_paddle({"amp.grad_scaler._dygraph_tracer": SimpleNamespace(_expected_place=place)})
    # It prints the scale, a tensor of shape (1,), which a new NumPy makes no number.
    other_paddle({"amp.grad_scaler.float": lambda value: np.asarray(value).item()})
    scaler = paddle.amp.GradScaler()
    assert scaler.is_enable()
    return scaler


def plain(state: dict) -> dict:
    return {name: np.asarray(value).tolist() for name, value in state.items()}


@pytest.mark.parametrize("before, bad, expected", [(0, {3, 4, 30}, 0.125), (1975, {30}, 1.0), (1975, {24, 38}, 0.25)])
def test_it_grows_and_shrinks_as_paddles_does_and_has_its_state(before, bad, expected, of_paddle):
    """In 40 updates, of which some are not finite, after some that were: it doubles after 2,000 of them in a row."""
    weight = paddle.create_parameter([2], "float32")
    optimizer = paddle.optimizer.SGD(learning_rate=0.0, parameters=[weight])
    scale = LossScale()
    start = {**scale.state_dict(), "incr_count": before}
    scale.load_state_dict(start)
    of_paddle.load_state_dict(start)
    for update in range(40):
        weight.grad = paddle.full([2], float("nan") if update in bad else 1.0)
        of_paddle.step(optimizer)
        of_paddle.update()
        scale.update(update not in bad)
        assert plain(scale.state_dict()) == plain(of_paddle.state_dict()), update
    assert scale.value == 65536.0 * expected


def test_states_go_both_ways(of_paddle):
    scale, restored = LossScale(), LossScale()
    for update in range(70):
        scale.update(update != 20)
    of_paddle.load_state_dict(scale.state_dict())
    restored.load_state_dict(plain(of_paddle.state_dict()))
    assert restored.state_dict() == scale.state_dict() == plain(of_paddle.state_dict())


@pytest.mark.parametrize("shape", [[], [1]])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_backward_pass_is_of_the_loss_times_the_scale(shape, dtype):
    precision = TrainingPrecision(True, "float16", "O1", on_gpu=True)
    weight = paddle.create_parameter([3], dtype)
    precision.backward((weight * paddle.to_tensor([1.0, 2.0, 3.0], dtype)).sum().reshape(shape))
    np.testing.assert_array_equal(weight.grad.numpy(), [65536.0, 131072.0, 196608.0])
    precision.update(False)
    assert precision.scale == 32768.0 and TrainingPrecision(True, "bfloat16", on_gpu=True).scale == 1.0


@pytest.mark.parametrize(("dtype", "scale"), [("float16", 32768.0), ("bfloat16", 131072.0)])  # float16 ends at 65504
def test_a_loss_in_half_precision_has_scaled_gradients_and_a_restored_scale(dtype, scale):
    precision = TrainingPrecision(True, "float16", "O1", on_gpu=True)
    weight = paddle.create_parameter([1], "float32", default_initializer=paddle.nn.initializer.Constant(0.5))
    precision.load_state_dict({"scale": [scale], "incr_count": 1999})
    precision.backward((weight * 3.0).astype(dtype).reshape([]))
    assert weight.grad.tolist() == [3.0 * scale]
    precision.update(True)
    assert precision.state_dict()["scale"] == [2 * scale] and precision.state_dict()["incr_count"] == 0
    without = TrainingPrecision(True, "bfloat16", "O1", on_gpu=True)
    without.load_state_dict(precision.state_dict())
    without.update(False)
    assert without.scale == 1.0 and without.state_dict() == {}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_loss_that_is_not_finite_makes_all_gradients_nan(bad):
    weight = paddle.create_parameter([3], "float32")
    TrainingPrecision(False).backward((weight * 0.0).sum() + float(bad))
    assert np.isnan(weight.grad.numpy()).all()
