"""Masked autoencoders of published width: masks, outputs, losses and gradients."""

import pytest
from unit.images.pretraining.masked_autoencoder.test_network_golden import (
    BOUNDS,
    NETWORKS,
    SMALL,
    require_outputs_and_gradients,
)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in SMALL])
def test_golden_outputs_and_gradients(name, dtype):
    require_outputs_and_gradients(name, dtype)
