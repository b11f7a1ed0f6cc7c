"""Logits of PaddleViT and of Hugging Face; those of timm are of the unit tests, large ones of the night."""

import pytest
from support.networks.cheap_weights import weights_of_zero
from unit.images.models.test_classifier_golden import entries, require_logits


@weights_of_zero()
@pytest.mark.parametrize("fixture, entry", entries(False, ("paddlevit_classifiers", "huggingface_classifiers")))
def test_golden_logits_are_reproduced(fixture, entry):
    require_logits(fixture, entry)
