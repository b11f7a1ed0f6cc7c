"""EoMT against transformers' and the authors', with and without masks in the attention."""

import pytest
from support.networks.golden_eomt import require_outputs, runs


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "run"), runs(is_large=False))
def test_golden_eomt_outputs(model, run, dtype):
    require_outputs(model, run, dtype)
