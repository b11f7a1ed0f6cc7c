"""EoMT-S in published dimensions against transformers' and the authors'."""

import pytest
from support.networks.golden_eomt import cases, require_losses, require_outputs, runs


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "run"), runs(is_large=True))
def test_golden_eomt_outputs_at_size(model, run, dtype):
    require_outputs(model, run, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "case"), cases(is_large=True))
def test_golden_eomt_losses_at_size(model, case, dtype):
    require_losses(model, case, dtype)
