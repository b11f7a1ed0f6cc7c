"""The authors' losses of RT-DETR, RT-DETRv2 and D-FINE, with and without denoising, and their gradients, reproduced
through the whole network."""

import pytest
from support.networks.golden_rtdetr import cases
from support.networks.golden_rtdetr_losses import require_assignment_and_losses, require_total_and_gradients


@pytest.mark.parametrize(("model", "case"), cases(is_large=False))
def test_golden_assignment_and_every_loss(model, case):
    require_assignment_and_losses(model, case)


@pytest.mark.parametrize(("model", "case"), cases(is_large=False))
def test_golden_total_and_gradients_of_the_original(model, case):
    require_total_and_gradients(model, case)
