"""TO_STATIC: the traced program of every family computes what the model computes, repeatably."""

import pytest
from support.processes import run_together
from support.trainings.compiled_models import FAMILIES, require_repeatable, require_same


@pytest.fixture(scope="module")
def results():
    calls = {
        "families": ("support.trainings.compiled_models:of_families", (list(FAMILIES),)),
        "repeated": ("support.trainings.compiled_models:repeated", ("deit_tiny_distilled_patch16_224",)),
    }
    return {name: found for name, (found,) in run_together(calls, processes=1).items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_compiled_model_computes_what_the_model_does(results, name):
    require_same(name, *results["families"][name])


def test_dropout_and_stochastic_depth_draw_the_same_numbers_again(results):
    require_repeatable(results["repeated"])
