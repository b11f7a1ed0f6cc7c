"""Names and layouts of other projects' parameters, with parts of different contents and lengths."""

import numpy as np

from paddlevit_dist.images.models.key_names import (
    jax_layout,
    join_jax_heads,
    join_projections,
    rename,
    split_projections,
    without,
    without_jax_prefix,
)


def counted(*shape, start=0):
    return start + np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_the_first_rule_that_matches_renames_and_no_other():
    state = {"encoder.layer.3.a": 1, "encoder.norm": 2, "head.encoder": 3, "other": 4}
    rules = [
        (r"^encoder\.layer\.(\d)", r"blocks.\1"),
        (r"^encoder\.", "last_"),
        (r"last|blocks", "wrong"),
        ("enc", "ENC"),
    ]
    assert rename(state, rules) == {"blocks.3.a": 1, "last_norm": 2, "head.ENCoder": 3, "other": 4}
    assert without(state, ("norm", ".a")) == {"head.encoder": 3, "other": 4}


def test_projections_are_joined_in_their_order_where_they_are_complete():
    query, key, value = counted(4, 5), counted(2, 5, start=100), counted(3, 5, start=200)
    state = {
        "b.1.value.weight": value,
        "b.1.query.weight": query,
        "b.1.key.weight": key,
        "b.2.query.weight": query,
        "b.2.key.weight": key,
        "c.query.bias": counted(2),
        "c.key.bias": counted(1, start=10),
        "c.value.bias": counted(3, start=20),
        "d.query.weight": query,
        "d.key.weight": counted(2, 6),
        "d.value.weight": value,
        "e.query.scale": np.float32(1),
        "e.key.scale": np.float32(2),
        "e.value.scale": np.float32(3),
    }
    joined = join_projections(state, ("query", "key", "value"), "qkv")
    np.testing.assert_array_equal(joined["b.1.qkv.weight"], np.concatenate([query, key, value]))
    assert joined["c.qkv.bias"].tolist() == [0, 1, 10, 20, 21, 22]
    kept = {name for name in state if not name.startswith(("b.1.", "c."))}
    assert set(joined) == {"b.1.qkv.weight", "c.qkv.bias"} | kept


def test_thirds_are_those_of_the_longer_axis():
    torch_weight, paddle_weight, bias = counted(6, 2), counted(2, 6), counted(9)
    odd = {"f.in_proj_weight": counted(4, 2), "g.in_proj_weight": np.float32(3), "h.proj_weight": counted(3, 3)}
    state = {"a.in_proj_weight": torch_weight, "b.in_proj_weight": paddle_weight, "c.in_proj_bias": bias, **odd}
    found = split_projections(state)
    for number, part in enumerate("qkv"):
        places = slice(2 * number, 2 * number + 2)
        np.testing.assert_array_equal(found.pop(f"a.{part}_proj.weight"), torch_weight[places])
        np.testing.assert_array_equal(found.pop(f"b.{part}_proj.weight"), paddle_weight[:, places])
        assert found.pop(f"c.{part}_proj.bias").tolist() == [3 * number, 3 * number + 1, 3 * number + 2]
    assert found.keys() == odd.keys()


def test_states_of_jax_get_our_layout():
    state = {"opt/target/a/opt/target/b": 1, "params/c": 2, "d/params/e": 3}
    assert without_jax_prefix(state) == {"a/opt/target/b": 1, "c": 2, "d/params/e": 3}
    kernel = counted(2, 3, 4, 5)
    found = jax_layout({"blocks.0/attn/kernel": counted(4, 3), "patch_proj.kernel": kernel, "stem.kernel": kernel})
    found |= jax_layout({"norm.scale": counted(3), "scale.bias": counted(3), "head/kernel": counted(2, 3)})
    assert list(found) == ["blocks.0.attn.weight", "patch_proj.weight", "stem.weight", "norm.weight", "scale.bias",
                           "head/kernel"]  # fmt: skip
    assert found["patch_proj.weight"].shape == (5, 4, 2, 3) and found["stem.weight"].shape == (2, 3, 4, 5)
    assert found["patch_proj.weight"][4, 3, 1, 2] == kernel[1, 2, 3, 4]


def test_heads_of_jax_are_joined_along_the_outputs():
    parts = {name: counted(4, 2, 3, start=100 * number) for number, name in enumerate(("query", "key", "value"))}
    biases = {name: counted(2, 3, start=10 * number) for number, name in enumerate(parts)}
    state = {f"x.{name}.weight": array for name, array in parts.items()}
    state |= {f"x.{name}.bias": array for name, array in biases.items()} | {"x.proj.weight": counted(2, 3, 4)}
    join_jax_heads(state, "x")
    assert sorted(state) == ["x.proj.weight", "x.qkv.bias", "x.qkv.weight"]
    x = counted(4, start=1)
    expected = np.concatenate([np.einsum("d,dhk->hk", x, array).ravel() for array in parts.values()])
    np.testing.assert_allclose(x @ state["x.qkv.weight"], expected)
    assert state["x.qkv.bias"].tolist() == [*range(6), *range(10, 16), *range(20, 26)]
    np.testing.assert_array_equal(state["x.proj.weight"], counted(6, 4))
    for other in ({"y.query.weight": counted(4, 2, 3)}, {f"y.{name}.weight": counted(4, 6) for name in parts}):
        changed = {**other, "y.proj.weight": counted(6, 4)}
        join_jax_heads(changed, "y")
        assert changed.keys() == other.keys() | {"y.proj.weight"} and changed["y.proj.weight"].shape == (6, 4)
