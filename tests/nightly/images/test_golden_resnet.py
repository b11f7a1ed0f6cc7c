"""Logits and feature maps of timm's and torchvision's ResNets: of large ones, and in float64."""

import pytest
from support.networks.cheap_weights import weights_of_zero
from unit.images.models.test_resnet_golden import cases, require_logits_and_stages


@weights_of_zero()
@pytest.mark.parametrize("entry, dtype", cases(is_long=True))
def test_golden_logits_and_stages_are_reproduced(entry, dtype):
    require_logits_and_stages(entry, dtype)
