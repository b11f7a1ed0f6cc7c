"""Weights of MiT from other projects."""

import numpy as np

from paddlevit_dist.images.models.mit import KEY_MAPS


def test_mmsegmentation_s_projections_are_queries_and_then_keys_with_values():
    weight, bias = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    rows = np.arange(8.0).reshape(4, 2, 1, 1)  # a convolution of 1 x 1
    state = {f"layers.1.1.0.attn.attn.in_proj_{name}": value for name, value in (("weight", weight), ("bias", bias))}
    state |= {"layers.1.1.0.ffn.layers.0.weight": rows, "layers.1.1.0.ffn.layers.1.weight": rows}
    found = KEY_MAPS["mmsegmentation"](state)
    expected = {
        "attn.q.weight": weight[:2],
        "attn.kv.weight": weight[2:],
        "attn.q.bias": bias[:2],
        "attn.kv.bias": bias[2:],
        "mlp.fc1.weight": rows[:, :, 0, 0],
        "mlp.dwconv.weight": rows,
    }
    assert sorted(found) == sorted(f"stages.1.blocks.0.{name}" for name in expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[f"stages.1.blocks.0.{name}"], value, name)
