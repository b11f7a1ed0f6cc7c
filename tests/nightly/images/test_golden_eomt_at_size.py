"""EoMT-S in published dimensions against transformers' and the authors'."""

import numpy as np
import pytest
from support.networks.golden_eomt import (
    MODELS,
    cases,
    make_network,
    require_losses,
    require_outputs,
    runs,
    split_differences,
)

from paddlevit_dist.core.commands.convert import convert


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "run"), runs(is_large=True))
def test_golden_eomt_outputs_at_size(model, run, dtype):
    require_outputs(model, run, dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("model", "case"), cases(is_large=True))
def test_golden_eomt_losses_at_size(model, case, dtype):
    require_losses(model, case, dtype)


def test_differences_are_made_whole_by_a_command(tmp_path):
    model = next(name for name, about in MODELS.items() if about["config"]["kind"] == "eomt_dinov3")
    files = [str(tmp_path / name) for name in ("differences.npz", "base.npz", "whole.safetensors")]
    for file, state in zip(files, split_differences(model)):
        np.savez(file, **state)
    convert(files[0], files[2], base=files[1])
    found, expected = (dict(make_network(model, "float32", each).named_parameters()) for each in (files[2], None))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name].numpy(), value.numpy(), rtol=0, atol=1e-6, err_msg=name)
