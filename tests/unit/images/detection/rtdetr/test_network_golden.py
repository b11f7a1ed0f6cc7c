"""RT-DETR, RT-DETRv2 and D-FINE of transformers, which agree with the authors', reproduced from their weights."""

import pytest
from support.networks.golden_rtdetr import batches, require_detections, require_maps_and_outputs


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "batch"), batches(is_large=False))
def test_golden_maps_selection_and_outputs_of_every_layer(model, batch, dtype):
    require_maps_and_outputs(model, batch, dtype)


@pytest.mark.parametrize(("model", "batch"), batches(is_large=False))
def test_golden_boxes_in_pixels_and_their_scores(model, batch):
    require_detections(model, batch)
