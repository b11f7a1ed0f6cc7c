"""UPerNets under the names of transformers' checkpoints: their features, logits, losses and gradients."""

import pytest
from support.networks.cheap_weights import weights_of_zero
from unit.images.models.test_segmenter_golden import LARGE, require_features_losses_and_gradients


@weights_of_zero()
@pytest.mark.parametrize("name, size, dtype", LARGE)
def test_golden_segmentation_is_reproduced(name, size, dtype):
    require_features_losses_and_gradients(name, size, dtype)
