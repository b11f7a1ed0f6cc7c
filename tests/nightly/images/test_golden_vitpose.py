"""ViTPose of published sizes against transformers."""

import pytest
from unit.images.keypoints.heatmaps.test_network_golden import BOUNDS, MODELS, SMALL, require_heatmaps_and_gradients


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in SMALL])
def test_golden_networks(name, dtype):
    require_heatmaps_and_gradients(name, dtype)
