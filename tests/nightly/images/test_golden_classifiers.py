"""Logits of other implementations' larger classifiers, reproduced from weights under their names."""

import pytest
from unit.images.models.test_classifier_golden import entries, require_logits


@pytest.mark.usefixtures("weights_of_zero")
@pytest.mark.parametrize("fixture, entry", entries(is_large=True))
def test_golden_logits_are_reproduced(fixture, entry):
    require_logits(fixture, entry)
