"""DETRPose of its authors' code, reproduced from its weights: an evaluation, all losses and their gradients."""

import pytest
from support.networks.golden_detrpose import (
    KINDS,
    require_losses,
    require_outputs,
    require_person,
    require_total_and_gradients,
)

CASES = [(kind, case) for kind, about in KINDS.items() for case in about["losses"]]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_golden_logits_and_keypoints(kind, dtype):
    require_outputs(kind, dtype)


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_golden_losses_of_all_layers(kind, case):
    require_losses(kind, case)


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_golden_total_and_gradient_norms(kind, case):
    require_total_and_gradients(kind, case)


def test_golden_weights_of_the_authors_give_one_class_its_output():
    require_person(next(iter(KINDS)))
