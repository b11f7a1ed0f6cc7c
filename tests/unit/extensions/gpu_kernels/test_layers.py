"""Which layers are replaced by fused ones, and that those train as the plain ones beside layers that stay plain."""

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers
from support.trainings.fused_kernels import interpreted_kernels

from paddlevit_dist import create_model
from paddlevit_dist.extensions.gpu_kernels.layers import FusedMlp, FusedViTBlock, fuse, list_kernels

SMALL = {"num_classes": 3, "image_size": 8, "patch_size": 8, "embed_dim": 16, "num_heads": 2}
IMAGES = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype("f4"))


def build(depth: int):
    paddle.seed(1)
    with plain_layers():
        return create_model("vit", **SMALL, depth=depth)


def make_own(layer) -> None:
    """Let a layer be of a class that may compute anything."""
    layer.__class__ = type("Own", (type(layer),), {})


# What stays plain of a block: "block", or "block and MLP".
CHANGES = {
    "block": [
        make_own,
        lambda block: make_own(block.attn),
        lambda block: make_own(block.attn.qkv),
        lambda block: make_own(block.attn.proj),
        lambda block: setattr(block.attn.proj, "bias", None),
        *(
            lambda block, branch=branch, change=change: change(getattr(block, branch))
            for branch in ("attn", "mlp")
            for change in (
                lambda branch: setattr(branch, "dropout", paddle.nn.Identity()),
                lambda branch: make_own(branch.dropout),
                lambda branch: setattr(branch.dropout, "axis", 0),
                lambda branch: setattr(branch.dropout, "mode", "downscale_in_infer"),
            )
        ),
        lambda block: setattr(block, "drop_path", paddle.nn.Identity()),
        lambda block: make_own(block.drop_path),
        lambda block: make_own(block.norm1),
        lambda block: make_own(block.norm2),
        *(
            lambda block, norm=norm, name=name: setattr(getattr(block, norm), name, None)
            for norm in ("norm1", "norm2")
            for name in ("weight", "bias")
        ),
    ],
    "block and MLP": [
        lambda block: make_own(block.mlp),
        lambda block: make_own(block.mlp.fc1),
        lambda block: make_own(block.mlp.fc2),
        lambda block: make_own(block.mlp.act),
        lambda block: setattr(block.mlp.fc1, "bias", None),
        lambda block: setattr(block.mlp.fc2, "bias", None),
    ],
    "": [lambda block: None, lambda block: setattr(block.attn.qkv, "bias", None)],
}


@pytest.mark.parametrize("plain", CHANGES)
def test_only_the_packages_own_layers_are_replaced(plain):
    model = build(depth=len(CHANGES[plain]))
    for block, change in zip(model.blocks, CHANGES[plain]):
        change(block)
    before = [(type(block), type(block.mlp)) for block in model.blocks]
    for kernels in ([("gelu", 64)], [("norm", 16), ("gelu", 64)]):  # the second finds MLPs that are fused already
        fuse(model, kernels)
    expected = [
        (of_block if plain else FusedViTBlock, of_mlp if "MLP" in plain else FusedMlp) for of_block, of_mlp in before
    ]
    assert [(type(block), type(block.mlp)) for block in model.blocks] == expected


def test_layers_are_replaced_where_the_device_computes_all_their_kernels():
    model = build(depth=2)
    assert list_kernels(model) == [("gelu", 64), ("norm", 16)]
    for kernels, numbers in (
        ([("gelu", 16), ("norm", 64)], {}),
        ([("norm", 16)], {}),
        ([("gelu", 64)], {"Mlp": 2}),
        ([("norm", 16), ("gelu", 64)], {"ViTBlock": 2}),
    ):
        assert fuse(model, kernels) == numbers
    assert list_kernels(model) == []
    with plain_layers():
        mixer = create_model("mixer_s32_224", depth=1, num_classes=2)
    assert {kernel for kernel, _ in list_kernels(mixer)} == {"gelu"}


def compute_gradients(is_fused: bool) -> dict[str, np.ndarray]:
    """Return gradients by name of a network whose last block is of another class."""
    model = build(depth=2)
    make_own(model.blocks[1])
    if is_fused:
        assert fuse(model, list_kernels(model)) == {"ViTBlock": 1, "Mlp": 2}
    model.train()
    (model(IMAGES) * paddle.arange(1.0, 4.0)).sum().backward()
    return {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}


def test_a_block_prepares_no_norm_of_one_that_stays_plain():
    with interpreted_kernels():
        found = compute_gradients(True)
    for name, expected in compute_gradients(False).items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max(), err_msg=name)
