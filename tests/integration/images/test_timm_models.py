"""Models of timm in training runs: PyTorch's losses for one process and two, and every command of a run."""

import numpy as np
import pytest
from support import golden
from support.processes import run_together
from support.timm_zoo import needs_compat

pytestmark = needs_compat
TRAINED = ("test_efficientnet", "test_vit", "test_nfnet")


@pytest.mark.parametrize("processes", [1, 2])
def test_ten_updates_give_the_losses_of_pytorch(processes):
    """A model with batch norms, one with attention, one with standardized weights; PyTorch computed in float64."""
    found = run_together({name: ("support.timm_updates:train", (name,)) for name in TRAINED}, processes=processes)
    for name in TRAINED:
        for losses in found[name]:
            np.testing.assert_allclose(losses, golden.description("timm_training")[name]["losses"], rtol=1e-4)
