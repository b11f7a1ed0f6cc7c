"""Real-time detectors of published dimensions, reproduced as the smaller ones of the golden file are."""

import pytest
from support.networks.golden_rtdetr import batches, cases, require_detections, require_maps_and_outputs
from support.networks.golden_rtdetr_losses import require_assignment_and_losses, require_total_and_gradients


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "batch"), batches(is_large=True))
def test_golden_maps_selection_and_outputs_of_every_layer(model, batch, dtype):
    require_maps_and_outputs(model, batch, dtype)


@pytest.mark.parametrize(("model", "batch"), batches(is_large=True))
def test_golden_boxes_in_pixels_and_their_scores(model, batch):
    require_detections(model, batch)


@pytest.mark.parametrize(("model", "case"), cases(is_large=True))
def test_golden_assignment_and_every_loss(model, case):
    require_assignment_and_losses(model, case)


@pytest.mark.parametrize(("model", "case"), cases(is_large=True))
def test_golden_total_and_gradients_of_the_original(model, case):
    require_total_and_gradients(model, case)
