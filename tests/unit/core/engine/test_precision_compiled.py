"""When passes are compiled, and what is said of it."""

import signal

import paddle
import pytest
from paddle.jit.dy2static import utils as to_static_utils
from support.forced_device import forced_device
from support.trainings.compiled_models import build, compiled

from paddlevit_dist import UserError
from paddlevit_dist.core import settings
from paddlevit_dist.core.engine import precision
from paddlevit_dist.core.engine.precision import compile_model
from paddlevit_dist.core.registry.lookup import resolve
from paddlevit_dist.core.runtime import paddle_versions, signals


def told(*words: str, on_gpu: bool = True) -> tuple[str, bool]:
    """What a training says of its passes, and whether they are compiled."""
    config, model = settings.load(list(words)).values, build("resnet18")
    with forced_device("gpu" if on_gpu else "cpu"):
        line = compile_model(config, resolve("task", config.TASK)(config), model)
    return line, "forward" in vars(model)


COMPILED = "passes: compiled (TO_STATIC), once for each batch shape"


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("words", [[], ["-amp"], ["-eval", "-pretrained=x"]])
def test_passes_are_compiled_where_a_run_asks_for_it_and_nowhere_else(words, on_gpu):
    assert told(*words, on_gpu=on_gpu) == ("", False)
    assert told(*words, "TO_STATIC=False", on_gpu=on_gpu) == ("", False)
    if on_gpu and "-eval" not in words:
        with pytest.raises(UserError, match=r"TO_STATIC: on GPUs .* gradients of biases.*; remove TO_STATIC$"):
            told(*words, "TO_STATIC=True")
    else:
        assert told(*words, "TO_STATIC=True", on_gpu=on_gpu) == (COMPILED, True)


def test_a_task_whose_passes_are_not_of_fixed_steps_is_refused():
    with pytest.raises(UserError, match="^TO_STATIC: task masked_autoencoder cannot be compiled; remove TO_STATIC$"):
        told("-cfg=mae_digits", "TO_STATIC=True", on_gpu=False)


@pytest.mark.parametrize("dtype, level", [("bfloat16", "O1"), ("float16", "O2"), ("float16", "O1")])
def test_half_precision_that_paddle_would_compile_as_another_is_refused(dtype, level):
    words = ["TO_STATIC=True", "-eval", "-pretrained=x", "EVAL_AMP=True", f"AMP_DTYPE={dtype}", f"AMP_LEVEL={level}"]
    assert told(*words, on_gpu=False)[1]  # there it is float32
    if paddle_versions.compiles_half(dtype, level):
        assert told(*words)[1]
    else:
        with pytest.raises(UserError, match=f"this is {dtype} at level {level}: remove TO_STATIC"):
            told(*words)


def test_programs_are_made_of_the_kernels_that_were_compared(monkeypatch):
    """Paddle 3.x would let CINN write others, on GPUs only."""
    monkeypatch.setattr(to_static_utils, "cinn_is_available", lambda: True, raising=False)
    assert "CINN" not in str(compiled("mixer_s16_224").forward._kwargs["backend"])


def test_a_training_whose_compiled_statistics_are_others_is_refused(monkeypatch):
    """As Paddle may compile a batch norm on some device; without one, and in an evaluation, nothing is tried."""
    monkeypatch.setattr(precision, "compile_passes", lambda model: model.eval())  # keeps the first statistics
    for words, network, is_refused in (
        (["TO_STATIC=True"], "resnet18", True),
        (["TO_STATIC=True"], "mixer_s16_224", False),
        (["TO_STATIC=True", "-eval", "-pretrained=x"], "resnet18", False),
    ):
        config = settings.load(words).values
        arguments = config, resolve("task", config.TASK)(config), build(network)
        if is_refused:
            with pytest.raises(UserError, match="^TO_STATIC: compiled by Paddle .*batch norms keep other running stat"):
                compile_model(*arguments)
        else:
            assert compile_model(*arguments) == COMPILED


@pytest.mark.skipif(paddle.__version__.startswith("2."), reason="Paddle 2.6 traces by another function")
def test_a_signal_while_passes_are_compiled_waits_for_paddle(own_signals):
    held = []

    class Interrupted(paddle.nn.Layer):
        def forward(self, images):
            signal.raise_signal(signal.SIGINT)
            held.append(signals.number())
            return images + 1

    model = Interrupted()
    precision.compile_passes(model)
    with signals.installed():
        pass  # forgets what trainings of other tests have set
    with signals.installed(), pytest.raises(KeyboardInterrupt):
        model(paddle.zeros([1]))
    assert held == [signal.SIGINT]
