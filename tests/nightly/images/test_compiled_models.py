"""TO_STATIC: the traced program computes what the model computes, repeatably; the other families at night.

Everything compiled runs in a separate process: the threads of Paddle's executor live as long as the process.
"""

import numpy as np
import pytest
from support.processes import run_together
from support.trainings.compiled_models import require_repeatable, require_same
from unit.core.engine.test_precision_compiled import COMPILED

HERE = ["vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "resnet18"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All from one process: what it returns by the name of each call."""
    calls = {
        "families": ("support.trainings.compiled_models:of_families", (HERE,)),
        "repeated": ("support.trainings.compiled_models:repeated", ("vit_tiny_patch16_224",)),
        "trainings": ("support.trainings.compiled_models:trainings", (str(tmp_path_factory.mktemp("compiled")),)),
    }
    return {name: found for name, (found,) in run_together(calls, processes=1).items()}


@pytest.mark.parametrize("name", HERE)
def test_a_compiled_model_computes_what_the_model_does(results, name):
    require_same(name, *results["families"][name])


def test_a_training_that_is_compiled_gives_the_plain_one_that_is_the_default(results):
    found = results["trainings"]
    compiled, plain = found["compiled"], found["default"]
    np.testing.assert_allclose(compiled["losses"], plain["losses"], rtol=1e-5)
    for name, value in plain["weights"].items():
        np.testing.assert_allclose(compiled["weights"][name], value, atol=1e-5, err_msg=name)
    assert compiled["evaluation"]["loss"] == pytest.approx(plain["evaluation"]["loss"], rel=1e-5)
    assert COMPILED in compiled["log"] and "passes:" not in plain["log"] + found["O2"]["log"]
    assert "weights and gradients are float32, as at O1" in found["O2"]["log"] and "level O2:" not in plain["log"]


def test_dropout_and_stochastic_depth_draw_the_same_numbers_again(results):
    require_repeatable(results["repeated"])
