"""Logits of other implementations' larger classifiers, reproduced from weights under their names."""

import pytest
from support.networks.cheap_weights import weights_of_zero
from unit.images.models.test_classifier_golden import entries, require_logits


@weights_of_zero()
@pytest.mark.parametrize("fixture, entry", entries(is_large=True))
def test_golden_logits_are_reproduced(fixture, entry):
    require_logits(fixture, entry)
