"""The authors' DETR of published dimensions, reproduced as the smaller one of the golden file is."""

import pytest
from support.networks import golden_detr
from support.networks.golden_detr import cases, models


@pytest.mark.parametrize("model", models(is_large=True))
def test_golden_weights_have_the_same_meaning_under_all_published_names(model):
    golden_detr.require_the_same_under_all_names(model)


@pytest.mark.parametrize("model", models(is_large=True))
def test_golden_logits_and_boxes_of_every_layer(model):
    golden_detr.require_outputs(model)


@pytest.mark.parametrize("model", models(is_large=True))
def test_golden_logits_and_boxes_in_float32(model):
    golden_detr.require_outputs_in_float32(model)


@pytest.mark.parametrize("model", models(is_large=True))
def test_golden_mask_position_features_and_memory(model):
    golden_detr.require_mask_position_features_and_memory(model)


@pytest.mark.parametrize("model", models(is_large=True))
def test_golden_post_processing(model):
    golden_detr.require_detections(model)


@pytest.mark.parametrize(("model", "case"), cases(is_large=True))
def test_golden_assignment_losses_and_gradients(model, case):
    golden_detr.require_assignment_losses_and_gradients(model, case)
