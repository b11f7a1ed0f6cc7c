"""RF-DETR Nano and RF-DETR Seg Nano in published dimensions, of their authors, reproduced from their weights."""

import pytest
from support.networks.golden_rfdetr import batches, cases, require_detections, require_losses, require_outputs


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "batch"), batches(is_large=True))
def test_golden_maps_selection_and_outputs_of_every_layer(model, batch, dtype):
    require_outputs(model, batch, dtype)


@pytest.mark.parametrize(("model", "batch"), batches(is_large=True))
def test_golden_boxes_in_pixels_with_their_scores_and_masks(model, batch):
    require_detections(model, batch)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "case"), cases(is_large=True))
def test_golden_matches_losses_and_gradients(model, case, dtype):
    require_losses(model, case, dtype)
