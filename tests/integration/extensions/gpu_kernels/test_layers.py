"""Layers of fused kernels, which a test takes for those of a GPU: they train as the plain ones do."""

import copy
from collections.abc import Iterator

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers
from support.trainings.fused_kernels import interpreted_kernels

from paddlevit_dist import create_model
from paddlevit_dist.core.distributed import recompute_layers
from paddlevit_dist.extensions.gpu_kernels import layers
from paddlevit_dist.extensions.gpu_kernels.layers import fuse, list_kernels

SMALL = {"num_classes": 3, "image_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
IMAGES = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("f4"))


@pytest.fixture
def launched(monkeypatch) -> Iterator[list[str]]:
    """Take this CPU for a GPU; returns the names of the fused functions that were called, in order."""
    names: list[str] = []
    for name in ("normalize", "add_and_normalize", "add_bias_and_gelu"):
        function = getattr(layers, name)

        def call(*arguments, _function=function, _name=name):
            names.append(_name)
            return _function(*arguments)

        monkeypatch.setattr(layers, name, call)
    with interpreted_kernels():
        yield names


def build(is_fused: bool, **options):
    paddle.seed(1)
    with plain_layers():
        model = create_model("vit", **{**SMALL, **options})
    for norm in (part for part in model.sublayers() if isinstance(part, paddle.nn.LayerNorm)):
        norm.weight.set_value(paddle.rand(norm.weight.shape) + 0.5)
        norm.bias.set_value(paddle.rand(norm.bias.shape))
    if is_fused:
        fuse(model, list_kernels(model))
    return model


def update(model, compute=None) -> list[np.ndarray]:
    """Outputs, and gradients by parameters."""
    paddle.seed(3)
    model.train()
    result = model(IMAGES) if compute is None else compute(model)
    (result * paddle.arange(1.0, 1.0 + result.shape[-1])).sum().backward()
    return [result.numpy(), *(p.grad.numpy() for p in model.parameters() if p.grad is not None)]


def check_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5 * np.abs(other).max())


@pytest.mark.parametrize("options", [{}, {"drop_path": 0.6, "pool": "average"}, {"attention_dropout": 0.3, "depth": 1}])
def test_a_network_trains_as_by_the_plain_layers(launched, options):
    check_equal(update(build(True, **options)), update(build(False, **options)))
    names = ["normalize", *["add_and_normalize", "add_bias_and_gelu", "add_and_normalize"] * options.get("depth", 2)]
    assert launched == names[:-1]  # the last block has no norm to prepare


def test_recomputed_blocks_compute_their_own_norms(launched):
    models = [build(is_fused, drop_path=0.5) for is_fused in (False, False)]
    for model in models:
        recompute_layers(model.recomputed_layers())
    fuse(models[1], list_kernels(models[1]))
    check_equal(*map(update, reversed(models)))
    assert launched == ["normalize", "add_and_normalize", "add_bias_and_gelu"] * 4  # of two blocks, twice


def test_evaluations_and_weights_are_as_without(launched):
    fused, plain = build(True), build(False)
    assert fused.state_dict().keys() == plain.state_dict().keys()
    for model in (fused, plain):
        model.eval()
    np.testing.assert_array_equal(fused(IMAGES).numpy(), plain(IMAGES).numpy())
    assert launched == []


def test_a_copy_trains_by_itself(launched):
    fused = build(True)
    check_equal(update(copy.deepcopy(fused)), update(build(False)))
    assert set(launched) == {"add_bias_and_gelu"}  # nobody has told its blocks of each other


def test_a_block_with_a_hook_on_a_part_or_dropout_after_a_product_is_computed_by_the_plain_one(launched):
    seen = []
    fused = build(True)
    fused.blocks[1].mlp.fc1.register_forward_post_hook(lambda *arguments: seen.append("fc1"))
    check_equal(update(fused), update(build(False)))
    assert seen == ["fc1"] and launched.count("add_bias_and_gelu") == 1
    changed = build(True)
    attention = changed.blocks[0].attn
    attention.forward = lambda x: seen.append("attn") or type(attention).forward(attention, x)
    check_equal(update(changed), update(build(False)))
    assert seen == ["fc1", "attn"]
    launched.clear()
    check_equal(update(build(True, dropout=0.4)), update(build(False, dropout=0.4)))
    assert set(launched) == {"add_bias_and_gelu"}


@pytest.mark.parametrize(
    "register",
    [
        lambda blocks: blocks[0].register_forward_post_hook(lambda block, inputs, output: output.scale_(1.5)),
        lambda blocks: blocks[1].register_forward_pre_hook(lambda block, inputs: inputs[0].scale_(1.5)),
    ],
)
def test_a_hook_between_two_blocks_may_change_what_it_gets_in_place(launched, register):
    """The next block's norm would be that of the output before the change."""
    models = [build(is_fused) for is_fused in (True, False)]
    for model in models:
        register(model.blocks)
    check_equal(*map(update, models))
    assert launched == ["normalize", "add_and_normalize", "add_bias_and_gelu"] * 2


def test_a_block_whose_input_is_another_is_not_prepared_again(launched):
    """Such as blocks in windows, or those after the last map."""

    def compute(model):
        x = model.blocks[0](model.embedded(IMAGES))
        return model.blocks[1](x * 1.5).mean(axis=1)  # the third is not called

    fused = build(True, depth=3)
    for _ in range(2):
        for parameter in fused.parameters():
            parameter.clear_gradient(False)
        found = update(fused, compute)
    check_equal(found, update(build(False, depth=3), compute))
    block = ["normalize", "add_and_normalize", "add_bias_and_gelu"]
    assert launched == [*block, "add_and_normalize"] * 2 + block * 2  # each has prepared one that was not read


def test_a_block_that_is_skipped_has_no_gradients(launched):
    """The block before has computed the skipped one's first norm, which nothing reads."""

    def compute(model, number):
        x = model.embedded(IMAGES)
        for block in (block for position, block in enumerate(model.blocks) if position != number):
            x = block(x)
        return x.mean(axis=1)

    models = [build(is_fused, depth=3) for is_fused in (True, False)]
    for skipped in (None, 1, None, 2):
        gradients = []
        for model in models:
            for parameter in model.parameters():
                parameter.clear_gradient(False)
            update(model, lambda model, skipped=skipped: compute(model, skipped))
            gradients.append({name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None})
        assert gradients[0].keys() == gradients[1].keys() and len(gradients[0]) == 4 + 12 * (
            3 if skipped is None else 2
        )
        check_equal(list(gradients[0].values()), list(gradients[1].values()))
