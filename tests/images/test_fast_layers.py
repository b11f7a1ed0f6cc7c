"""The fast layers on CPUs compute what Paddle's layers compute, and leave to these what is not theirs."""

from __future__ import annotations

import copy
import pickle
import sys

import numpy as np
import paddle
import pytest
from support.processes import run_command

from paddlevit_dist.images.kernels import layers, switch
from paddlevit_dist.images.kernels.switch import plain_layers
from paddlevit_dist.images.models.layers import Mlp, PatchEmbedding
from paddlevit_dist.images.models.swin import SwinBlock
from paddlevit_dist.images.models.vit import Block
from paddlevit_dist.models import create_model

pytestmark = pytest.mark.skipif(not switch.is_possible(), reason="Paddle has no MKL here")
RELATIVE = 4e-6  # of the largest entry


class Gelu(paddle.nn.Layer):
    def forward(self, x):
        return layers.gelu(x)


class FirstTokens(paddle.nn.Layer):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x, 2)


def vit_block(drop_path=0.0, qkv_bias=True, head_dim=8):
    return Block(
        24, 96, 0.0, drop_path, num_heads=3, head_dim=head_dim, qkv_bias=qkv_bias, attention_dropout=0.0
    )  # fmt: skip


def swin_block(is_shifted, drop_path=0.0):
    attention = {"num_heads": 3, "qkv_bias": True, "dropout": 0.0, "attention_dropout": 0.0}
    return SwinBlock(24, (8, 12), 4, is_shifted, 2.0, drop_path, **attention)


CASES = {
    "linear": (lambda: layers.Linear(24, 40), (3, 70, 24)),
    "linear without bias": (lambda: layers.Linear(24, 40, bias_attr=False), (5, 24)),
    "layer norm": (lambda: layers.LayerNorm(24, epsilon=1e-6), (3, 70, 24)),
    "gelu": (Gelu, (3, 70, 24)),
    "mlp": (lambda: Mlp(24, 96), (3, 70, 24)),
    "patches": (lambda: PatchEmbedding((8, 12), 4, 3, 24), (5, 3, 8, 12)),
    "block": (vit_block, (3, 17, 24)),
    "block, wide heads, no bias": (lambda: vit_block(qkv_bias=False, head_dim=11), (3, 17, 24)),
    "block, dropped paths": (lambda: vit_block(drop_path=0.5), (6, 17, 24)),
    "block, first tokens": (lambda: FirstTokens(vit_block(drop_path=0.5)), (6, 17, 24)),
    "block, first tokens, wide heads, no bias": (
        lambda: FirstTokens(vit_block(qkv_bias=False, head_dim=11)),
        (3, 17, 24),
    ),
    "windows": (lambda: swin_block(False), (3, 8, 12, 24)),
    "shifted windows, dropped paths": (lambda: swin_block(True, 0.5), (6, 8, 12, 24)),
}


def made(case):
    """The layer with random parameters, and an input."""
    make, shape = CASES[case]
    layer, random = make(), np.random.default_rng(0)
    for parameter in layer.parameters():
        parameter.set_value((0.3 * random.standard_normal(parameter.shape) + 0.1).astype(np.float32))
    return layer, random.standard_normal(shape).astype(np.float32)


def computed(layer, values, transposed=False):
    """Result, gradient by the input and by the parameters, and the result of an evaluation."""
    layer.train()
    layer.clear_gradients()
    paddle.seed(1)
    x = paddle.to_tensor(np.ascontiguousarray(values.swapaxes(0, 1)) if transposed else values, stop_gradient=False)
    out = layer(x.transpose([1, 0, *range(2, x.ndim)]) if transposed else x)
    weights = np.random.default_rng(2).standard_normal(out.shape).astype(np.float32)
    (out * paddle.to_tensor(weights)).sum().backward()
    result = {"result": out.numpy(), "input": x.grad.numpy().swapaxes(0, 1) if transposed else x.grad.numpy()}
    result.update({name: parameter.grad.numpy() for name, parameter in layer.named_parameters()})
    layer.eval()
    with paddle.no_grad():
        result["evaluation"] = layer(paddle.to_tensor(values)).numpy()
    return result


def assert_close(results, expected, relative=RELATIVE):
    assert results.keys() == expected.keys()
    for name, value in expected.items():
        assert results[name].shape == value.shape
        assert np.abs(results[name] - value).max() <= relative * max(np.abs(value).max(), 1e-3), name


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_the_plain_layers(case):
    layer, values = made(case)
    with plain_layers():
        expected = computed(layer, values)
    results = computed(layer, values)
    assert_close(results, expected)
    if case != "linear without bias":  # one product, the same
        assert any((results[name] != value).any() for name, value in expected.items())  # it was computed another way
    for name, value in computed(layer, values).items():
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@pytest.mark.parametrize("case", ["linear", "layer norm", "gelu", "mlp", "block", "windows"])
def test_views_are_read_in_their_order(case):
    layer, values = made(case)
    assert_close(computed(layer, values, transposed=True), computed(layer, values))


@pytest.mark.parametrize("case", ["linear", "layer norm", "mlp", "patches", "block", "block, first tokens", "windows"])
def test_frozen_parameters_get_no_gradient_and_the_others_the_same(case):
    layer, values = made(case)
    expected = computed(layer, values)
    for number, (_, parameter) in enumerate(layer.named_parameters()):
        parameter.clear_gradient(False)
        parameter.stop_gradient = number % 2 == 0
    layer.train()
    paddle.seed(1)
    out = layer(paddle.to_tensor(values))  # whose gradient is not wanted, either
    (out * paddle.to_tensor(np.random.default_rng(2).standard_normal(out.shape).astype(np.float32))).sum().backward()
    for name, parameter in layer.named_parameters():
        if parameter.stop_gradient:
            assert parameter.grad is None
        else:
            np.testing.assert_array_equal(parameter.grad.numpy(), expected[name], err_msg=name)


@pytest.mark.parametrize("case", ["mlp", "block", "block, first tokens", "shifted windows, dropped paths"])
def test_gradients_can_be_taken_twice(case):
    layer, values = made(case)
    out = (layer(paddle.to_tensor(values)) ** 2).sum()
    first = paddle.grad(out, layer.parameters(), retain_graph=True)
    for once, again in zip(first, paddle.grad(out, layer.parameters())):
        np.testing.assert_array_equal(once.numpy(), again.numpy())


def test_large_and_not_finite_numbers():
    values = np.array([[-1e4, -60.0, -12.0, -3.0, -0.0, 3.0, 60.0, 1e4]], dtype=np.float32)
    with plain_layers():
        expected = layers.gelu(paddle.to_tensor(values)).numpy()
    np.testing.assert_allclose(layers.gelu(paddle.to_tensor(values)).numpy(), expected, rtol=1e-6, atol=1e-6)
    for case in ("gelu", "mlp", "block", "windows"):
        layer, values = made(case)
        values[0, 1] = np.nan
        assert np.isnan(layer(paddle.to_tensor(values)).numpy()).any()


def test_hooks_see_every_layer():
    layer, values = made("block")
    seen = []
    for part in layer.sublayers():
        part.register_forward_post_hook(lambda layer, inputs, output: seen.append(type(layer).__name__))
    layer(paddle.to_tensor(values))
    assert sorted(set(seen)) == ["Attention", "DropPath", "Dropout", "LayerNorm", "Linear", "MatrixProduct", "Mlp"]


def test_other_types_are_left_to_paddle():
    linear, values = made("linear")
    x = paddle.to_tensor(values)
    assert switch.applies(x, linear)
    assert not switch.applies(x.astype("float64"), linear)
    assert not switch.applies(x.astype("bfloat16"), linear)
    assert not switch.applies(x[:0], linear)
    with plain_layers():
        assert not switch.applies(x, linear)
    doubled = copy.deepcopy(linear).to(dtype="float64")
    assert doubled(x.astype("float64")).dtype == paddle.float64


def test_layers_are_copied_pickled_and_named_like_paddles():
    block, values = made("block")
    x = paddle.to_tensor(values)
    expected = block(x).numpy()
    np.testing.assert_array_equal(copy.deepcopy(block)(x).numpy(), expected)
    norm, values = made("layer norm")
    state = pickle.loads(pickle.dumps({name: value.numpy() for name, value in norm.state_dict().items()}))
    assert state.keys() == paddle.nn.LayerNorm(24).state_dict().keys()
    assert layers.Linear(2, 2).weight.name.startswith("linear_")
    assert norm.weight.name.startswith("layer_norm_")


def test_a_frozen_norm_hands_on_the_gradient_of_one_that_learns():
    """Paddle's own on a CPU forgets the weights where they ask for no gradient."""
    values = np.random.default_rng(0).standard_normal((3, 5, 8))
    factors = paddle.to_tensor(np.random.default_rng(1).standard_normal((3, 5, 8)))
    gradients = []
    for is_frozen in (False, True):
        norm = layers.LayerNorm(8).to(dtype="float64")
        norm.weight.set_value(paddle.to_tensor(np.linspace(0.5, 3.0, 8)))
        norm.weight.stop_gradient = norm.bias.stop_gradient = is_frozen
        x = paddle.to_tensor(values, stop_gradient=False)
        (norm(x) * factors).sum().backward()
        gradients.append(x.grad.numpy())
    np.testing.assert_allclose(*gradients, rtol=1e-12, atol=1e-14)


MODELS = {
    "vit_tiny_patch16_224": {"depth": 2},
    "deit_tiny_distilled_patch16_224": {"depth": 2},
    "swin_tiny_patch4_window7_224": {"depths": (2, 2), "num_heads": (3, 6), "embed_dim": 24},
}


@pytest.mark.parametrize("name", MODELS)
def test_whole_models(name):
    paddle.seed(0)
    model = create_model(name, num_classes=7, image_size=112, **MODELS[name])
    values = np.random.default_rng(0).standard_normal((2, 3, 112, 112)).astype(np.float32)
    with plain_layers():
        expected = computed(model, values)
    assert_close(computed(model, values), expected, relative=1e-5)


def test_no_loop_uses_memory_that_it_has_given_back():
    """Numba frees an array after its last use, which the use of its address is not. Here, what is freed is unmapped
    if it has 8 kB or more."""
    command = [sys.executable, "-m", "images.freed_memory"]
    mapping = {"MALLOC_MMAP_THRESHOLD_": "8192", "MALLOC_MMAP_MAX_": "60000", "MALLOC_TOP_PAD_": "0"}
    ended = run_command(command, timeout=120, **mapping)
    assert ended.code == 0 and len(ended.out.splitlines()) == 4, ended.out + ended.err[-3000:]
