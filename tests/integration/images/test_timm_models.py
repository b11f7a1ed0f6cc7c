"""Models of timm in training runs: PyTorch's losses; with two processes at night."""

import numpy as np
from support.networks import golden
from support.networks.timm_zoo import needs_compat
from support.processes import run_together

pytestmark = needs_compat
TRAINED = ("test_efficientnet", "test_vit", "test_nfnet")


def test_ten_updates_give_the_losses_of_pytorch():
    require_losses_of_pytorch(1)


def require_losses_of_pytorch(processes):
    """A model with batch norms, one with attention, one with standardized weights; PyTorch computed in float64."""
    found = run_together(
        {name: ("support.trainings.timm_updates:train", (name,)) for name in TRAINED}, processes=processes
    )
    for name in TRAINED:
        for losses in found[name]:
            np.testing.assert_allclose(losses, golden.description("timm_training")[name]["losses"], rtol=1e-4)
