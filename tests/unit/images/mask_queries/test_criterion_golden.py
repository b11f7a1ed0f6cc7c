"""Matching, losses and gradients of EoMT, with the random numbers of tests/golden/eomt.json."""

import pytest
from support.networks.golden_eomt import cases, require_losses


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "case"), cases(is_large=False))
def test_golden_eomt_losses_and_gradients(model, case, dtype):
    require_losses(model, case, dtype)
