"""Which parts of a network fused kernels compute: what does more than its class, or has other input, is as ever."""

import copy
import gc

import numpy as np
import paddle
import pytest
from paddle.nn import functional as F
from support.networks.plain_layers import plain_layers

from paddlevit_dist import create_model
from paddlevit_dist.core.engine.low_rank_layers import add_term
from paddlevit_dist.extensions.gpu_kernels import layers
from paddlevit_dist.extensions.gpu_kernels.layers import fuse, list_kernels
from paddlevit_dist.images.models.layers import Mlp
from paddlevit_dist.images.models.vit import ViTBlock

SMALL = {"num_classes": 3, "image_size": 16, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
IMAGES = paddle.to_tensor(np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype("f4"))


def normalize(x, weight, shift, epsilon):
    return F.layer_norm(x, [x.shape[-1]], weight, shift, epsilon)


def add_bias_and_gelu(x, bias, rate):
    assert rate == 0.0
    return F.gelu(x + bias)


def compute_block(attended, x, parameters, options, kept, heads=0):
    proj, proj_bias, norm, shift, fc1, fc1_bias, fc2, fc2_bias, *following = parameters
    total = x + attended @ proj + proj_bias
    total = total + F.gelu(normalize(total, norm, shift, options.epsilons[0]) @ fc1 + fc1_bias) @ fc2 + fc2_bias
    if not heads:
        return total
    packed = F.linear(normalize(total, *following[:2], options.epsilons[1]), *following[2:])
    return total, packed.reshape([*x.shape[:2], heads, -1])


@pytest.fixture
def launched(monkeypatch) -> list[str]:
    """Take this CPU for a GPU whose kernels are Paddle's operations; returns the names of those called, in order."""
    names: list[str] = []
    for function in (normalize, compute_block, add_bias_and_gelu):

        def call(*arguments, _function=function):
            names.append(_function.__name__)
            return _function(*arguments)

        monkeypatch.setattr(layers, function.__name__, call)
    monkeypatch.setattr(layers, "_is_on_device", lambda tensor: True)
    return names


def build(is_fused: bool, name: str = "vit", **options):
    paddle.seed(1)
    with plain_layers():
        model = create_model(name, **{**SMALL, **options})
    for norm in (part for part in model.sublayers() if isinstance(part, paddle.nn.LayerNorm)):
        norm.weight.set_value(paddle.rand(norm.weight.shape) + 0.5)
        norm.bias.set_value(paddle.rand(norm.bias.shape))
    if is_fused:
        fuse(model, list_kernels(model))
    return model


def update(model, compute=None, seed: int = 3) -> list[np.ndarray]:
    """Outputs, and gradients by parameters."""
    paddle.seed(seed)
    model.train()
    result = model(IMAGES) if compute is None else compute(model)
    result = result[0] + 2.0 * result[1] if isinstance(result, (list, tuple)) else result
    (result * paddle.arange(1.0, 1.0 + result.shape[-1])).sum().backward()
    return [result.numpy(), *(p.grad.numpy() for p in model.parameters() if p.grad is not None)]


def check_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5 * np.abs(other).max())


def test_a_block_with_low_rank_terms_is_plain_beside_fused_ones(launched):
    models = [build(False, depth=3) for _ in range(2)]
    for model in models:
        paddle.seed(7)
        add_term(model.blocks[1].attn.qkv, 2, 1.0)
        model.blocks[1].attn.qkv.lora_b.set_value(paddle.rand([2, 48]))
    fuse(models[0], list_kernels(models[0]))
    check_equal(*map(update, models))
    assert launched == ["normalize", "compute_block", "add_bias_and_gelu", "normalize", "compute_block"]


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


def test_a_block_with_a_hook_on_a_part_is_computed_by_the_plain_one(launched):
    seen = []
    fused = build(True)
    fused.blocks[1].mlp.fc1.register_forward_post_hook(lambda *arguments: seen.append("fc1"))
    check_equal(update(fused), update(build(False)))
    assert seen == ["fc1"] and launched == ["normalize", "compute_block"]
    changed = build(True)
    attention = changed.blocks[0].attn
    attention.forward = lambda x: seen.append("attn") or type(attention).forward(attention, x)
    check_equal(update(changed), update(build(False)))
    assert seen == ["fc1", "attn"]
    launched.clear()
    watched = build(True)
    watched.blocks[1].attn.qkv.register_forward_post_hook(lambda *arguments: seen.append("qkv"))
    check_equal(update(watched), update(build(False)))
    assert seen[2:] == ["qkv"] and launched == ["normalize", "compute_block"] * 2


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
    assert launched == ["normalize", "compute_block"] * 2


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
    block = ["normalize", "compute_block"]
    assert launched == block * 4  # the second has twice not read what the first had prepared


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


PARTS = {
    "block": ("norm1", "attn", "attn.qkv", "attn.proj", "attn.dropout", "norm2", "mlp", "mlp.fc1", "mlp.act", "mlp.fc2")
    + ("mlp.dropout", "drop_path", ""),
    "MLP": ("mlp", "mlp.fc1", "mlp.act", "mlp.fc2", "mlp.dropout"),  # of a block that stays plain
}


def find_part(layer, path: str):
    for name in path.split(".") if path else ():
        layer = getattr(layer, name)
    return layer


def watch(layer, way: str, seen: list[str]):
    """Note the calls of a layer, in one of the ways to change what a call does; return what ends it."""
    if way == "own forward":
        layer.forward = lambda *inputs: seen.append(way) or type(layer).forward(layer, *inputs)
        return lambda: delattr(layer, "forward")
    register = layer.register_forward_pre_hook if way == "before" else layer.register_forward_post_hook
    return register(lambda *arguments: seen.append(way)).remove


@pytest.mark.parametrize("way", ["before", "after", "own forward"])
@pytest.mark.parametrize("kind", PARTS)
def test_each_part_that_does_more_than_its_class_is_called_as_by_the_plain_layers(launched, kind, way):
    models = [build(False) for _ in range(2)]
    for model in models:
        model.train()
        for block in model.blocks if kind == "MLP" else ():
            block.__class__ = type("OwnBlock", (ViTBlock,), {})
    fuse(models[1], list_kernels(models[1]))
    for place in (0, 1):  # one that prepares the next block's attention, and that block
        for path in PARTS[kind]:
            calls, outputs = [], []
            for model in models:
                seen: list[str] = []
                stop = watch(find_part(model.blocks[place], path), way, seen)
                outputs.append(model(IMAGES).numpy())
                stop()
                calls.append(len(seen))
            assert calls[0] == calls[1] > 0, (place, path)
            np.testing.assert_allclose(*outputs, rtol=1e-4, atol=1e-5, err_msg=path)
    assert launched  # other blocks and MLPs are fused


@pytest.mark.parametrize("wrapped", [0, 1])
@pytest.mark.parametrize("kind", [paddle.nn.LayerList, paddle.nn.Sequential])
def test_a_block_that_is_wrapped_is_joined_to_none(launched, kind, wrapped):
    """Such as by recomputation, whose backward pass computes it again, without the one before."""
    blocks = kind(*([list(build(False).blocks)] if kind is paddle.nn.LayerList else build(False).blocks))
    plain = fuse(blocks, list_kernels(blocks)) == {"ViTBlock": 2, "Mlp": 2} and [*blocks]
    x = paddle.rand([2, 3, 16])
    plain[1](plain[0](x))
    assert launched == ["normalize", "compute_block", "compute_block"]
    launched.clear()
    blocks = kind(*([list(build(False).blocks)] if kind is paddle.nn.LayerList else build(False).blocks))
    watch(blocks[wrapped], "own forward", [])
    fuse(blocks, list_kernels(blocks))
    blocks[1](blocks[0](x))
    assert launched == ["normalize", "compute_block"] * 2


def test_a_block_of_which_few_tokens_are_read_prepares_no_attention(launched):
    models = [build(is_fused) for is_fused in (True, False)]
    x, found = paddle.rand([2, 5, 16]), []
    for model in models:
        model.train()
        tokens = model.blocks[0](x, 2)
        assert tokens.shape == [2, 2, 16]
        found.append(model.blocks[1](tokens).numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
    assert launched == ["normalize", "compute_block"] * 2


def test_each_rate_and_epsilon_reaches_the_launches_and_unchanged_ones_are_the_same_object():
    first, second = build(True).blocks
    state, following = (layers._states[id(block)] for block in (first, second))
    usual = ((1e-6, 1e-6), 0.0, (1, 0.0, 0.0), (3, 0.0, 0.0))
    assert state.find_options(following) == usual and state.find_options(None) == ((1e-6, 0.0), *usual[1:])
    for change, expected in (
        (lambda: setattr(first.attn.dropout, "p", 0.1), ((1e-6, 1e-6), 0.0, (1, 0.1, 0.0), (3, 0.0, 0.0))),
        (lambda: first.attn.dropout.eval(), usual),
        (lambda: setattr(first.mlp.dropout, "p", 0.2), ((1e-6, 1e-6), 0.2, (1, 0.0, 0.0), (3, 0.2, 0.0))),
        (lambda: first.mlp.dropout.eval(), usual),
        (lambda: setattr(first.drop_path, "rate", 0.3), ((1e-6, 1e-6), 0.0, (1, 0.0, 0.3), (3, 0.0, 0.3))),
        (lambda: first.drop_path.eval(), usual),
        (lambda: setattr(first.norm2, "_epsilon", 1e-3), ((1e-3, 1e-6), *usual[1:])),
        (lambda: setattr(second.norm1, "_epsilon", 1e-2), ((1e-3, 1e-2), *usual[1:])),
        (lambda: setattr(first.norm1, "_epsilon", 1e-1), ((1e-3, 1e-2), *usual[1:])),  # that of the block before
    ):
        change()
        options = state.find_options(following)
        assert options == expected and state.find_options(following) is options


def test_only_training_passes_of_full_tensors_on_the_device_are_fused(launched, monkeypatch):
    block, x = build(True).blocks[0], paddle.rand([2, 3, 16])
    block.train()
    asked = {"float32": x, "float16": x.astype("float16"), "bfloat16": x.astype("bfloat16")}
    asked |= {"float64": x.astype("float64"), "int32": x.astype("int32"), "empty": paddle.zeros([0, 3, 16])}
    assert [name for name, one in asked.items() if layers._is_fused(one, block)] == ["float32", "float16", "bfloat16"]
    monkeypatch.setattr(layers, "_is_on_device", lambda tensor: False)
    assert not layers._is_fused(x, block)
    monkeypatch.setattr(layers, "_is_on_device", lambda tensor: True)
    block.eval()
    assert not layers._is_fused(x, block)


def test_a_block_is_forgotten_with_its_network():
    model = build(True)
    ids = {id(block) for block in model.blocks}
    assert ids <= layers._states.keys()
    del model
    gc.collect()
    assert not ids & layers._states.keys()


def test_the_weights_that_blocks_multiply_by_are_listed():
    model = build(False)
    assert layers.list_weights(model) == []
    fuse(model, list_kernels(model))
    assert layers.list_weights(model) == [(16, 48), (16, 16), (16, 64), (64, 16)] * 2


@pytest.mark.parametrize("change", [("axis", 0), ("mode", "downscale_in_infer"), ("p", 0.0)])
def test_an_mlp_drops_what_its_dropout_says(launched, change):
    models = [build(is_fused, dropout=0.5) for is_fused in (False, False)]
    for model in models:
        model.blocks[0].__class__ = type("OwnBlock", (ViTBlock,), {})
        setattr(model.blocks[0].mlp.dropout, *change)
    fuse(models[0], list_kernels(models[0]))
    x, found = paddle.rand([64, 16]), []
    for model in models:
        model.train()
        paddle.seed(5)
        found.append(model.blocks[0].mlp(x).numpy())
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-6)  # of Paddle's own draws, or without any
    assert launched == ["add_bias_and_gelu"]


@pytest.mark.parametrize("qkv_bias", [True, False])
def test_each_block_of_three_prepares_the_attention_of_the_next(launched, qkv_bias):
    models = [build(is_fused, depth=3, qkv_bias=qkv_bias) for is_fused in (True, False)]
    check_equal(*map(update, models))
    assert launched == ["normalize", *["compute_block"] * 3]


def test_kernels_are_listed_by_name_and_width_also_of_a_single_layer():
    with plain_layers():
        mlps = paddle.nn.LayerList([Mlp(4, width, 0.0) for width in (40, 8, 24, 16, 56, 8)])
    assert list_kernels(mlps) == [("gelu", width) for width in (8, 16, 24, 40, 56)]
    assert list_kernels(mlps[0]) == [("gelu", 40)] and fuse(mlps[0], [("gelu", 40)]) == {"Mlp": 1}
    block = build(False).blocks[0]
    assert list_kernels(block) == [("gelu", 64), ("norm", 16)]
    assert fuse(block, list_kernels(block)) == {"ViTBlock": 1, "Mlp": 1}
