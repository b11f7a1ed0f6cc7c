"""Layers of networks of images."""

import numpy as np
import paddle
import pytest
from support.networks.cheap_weights import weights_of_zero

from paddlevit_dist.core.tasks.model_factory import create_model
from paddlevit_dist.images.models.layers import ChannelDropout, DropPath, LayerNorm, Linear


@pytest.mark.parametrize("frozen", [(), ("weight",), ("weight", "bias"), ("bias",)])
def test_a_layer_norm_has_the_right_gradient_whatever_is_frozen(frozen):
    generator = np.random.default_rng(0)
    values, weight, bias, above = (generator.normal(size=size).astype(np.float32) for size in ((3, 5), 5, 5, (3, 5)))
    norm, x = LayerNorm(5), paddle.to_tensor(values, stop_gradient=False)
    norm.weight.set_value(weight)
    norm.bias.set_value(bias)
    for name in frozen:
        getattr(norm, name).stop_gradient = True
    (norm(x) * paddle.to_tensor(above)).sum().backward()
    deviation = np.sqrt(values.var(1, keepdims=True) + 1e-5)
    plain = (values - values.mean(1, keepdims=True)) / deviation
    inner = above * weight
    expected = (inner - inner.mean(1, keepdims=True) - plain * (inner * plain).mean(1, keepdims=True)) / deviation
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(norm(x).numpy(), plain * weight + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attributes", [{"weight_attr": False, "bias_attr": False}, {"weight_attr": False}, {}])
def test_a_layer_norm_computes_without_weight_or_bias_and_with_a_computed_weight(attributes):
    norm, x = LayerNorm(5, **attributes), np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    scale = 1.0
    if not attributes:
        norm.weight.set_value(paddle.full([5], 3.0))
        norm, scale = paddle.nn.utils.weight_norm(norm, dim=None), 3.0
    expected = scale * (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(norm(paddle.to_tensor(x)).numpy(), expected, rtol=1e-4, atol=1e-5)


# What the authors' code has: timm's and DeiT's transformers 1e-6, but OpenAI's CLIP and Swin PyTorch's 1e-5. PVTv2 and
# SegFormer have 1e-6 in blocks and 1e-5 where they merge patches, and files of PaddleViT (pvtv2) have 1e-6 everywhere.
SMALL = {"embed_dim": 24, "num_heads": 2, "depth": 1}
EPSILONS = {
    "vit_tiny_patch16_224": (SMALL, {"": 1e-6}),
    "deit_tiny_distilled_patch16_224": (SMALL, {"": 1e-6}),
    "vit_base_patch16_clip_224": (SMALL, {"": 1e-5}),
    "vit_base_patch16_siglip_224": (SMALL, {"": 1e-6}),
    "eva02_tiny_patch14_224": (SMALL, {"": 1e-6}),
    "eva02_large_patch14_clip_336": (SMALL, {"": 1e-6}),
    "vit_small_patch14_dinov2": (SMALL, {"": 1e-6}),
    "vit_small_patch16_dinov3": (SMALL, {"": 1e-5}),
    "cait_xxs24_224": (SMALL, {"": 1e-6}),
    "mixer_s32_224": ({"embed_dim": 24, "depth": 1}, {"": 1e-6}),
    "swin_tiny_patch4_window7_224": ({"embed_dim": 12, "depths": (1, 1, 1, 1)}, {"": 1e-5}),
    "convnext_tiny": ({"dims": (8, 8, 8, 8), "depths": (1, 1, 1, 1)}, {"": 1e-6}),
    "pvt_v2_b0": ({"depths": (1, 1, 1, 1)}, {"": 1e-6, "patch_embed": 1e-5, "downsample": 1e-5, "attn": 1e-5}),
    "mit_b0": ({"depths": (1, 1, 1, 1)}, {"": 1e-6, "patch_embed": 1e-5, "downsample": 1e-5, "attn": 1e-5}),
    "pvtv2_b0": ({"depths": (1, 1, 1, 1)}, {"": 1e-6}),
}


@pytest.mark.parametrize("name", EPSILONS)
def test_norms_have_the_epsilon_of_the_published_network(name):
    options, epsilons = EPSILONS[name]
    with weights_of_zero():
        layers = dict(create_model(name, **options).named_sublayers())
    found = {place: layer._epsilon for place, layer in layers.items() if hasattr(layer, "_epsilon")}
    assert len(found) > 2
    parts = {place: max((part for part in epsilons if f".{part}" in f".{place}."), key=len) for place in found}
    assert found == {place: epsilons[part] for place, part in parts.items()} and set(parts.values()) == set(epsilons)


@pytest.mark.parametrize("reparametrize", [paddle.nn.utils.weight_norm, paddle.nn.utils.spectral_norm])
def test_a_linear_layer_takes_a_weight_that_is_computed_from_parameters(reparametrize):
    """Paddle's functions keep a copy of it only until the first forward pass."""
    layer, plain, x = Linear(4, 3), paddle.nn.Linear(4, 3), paddle.rand([2, 4])
    plain.set_state_dict(layer.state_dict())
    paddle.seed(0)
    reparametrize(layer)
    paddle.seed(0)
    reparametrize(plain)
    np.testing.assert_allclose(layer(x).numpy(), plain(x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_channels_are_dropped_as_by_paddles_layer(dtype):
    x, found = paddle.rand([3, 5, 2, 2]).astype(dtype), []
    for layer in (ChannelDropout(0.4), paddle.nn.Dropout2D(0.4)):
        paddle.seed(3)
        found.append(layer(x).numpy())
        layer.eval()
        assert layer(x) is x
    np.testing.assert_array_equal(*found)
    assert 0 < (found[0] == 0).all(axis=(2, 3)).sum() < 15


def test_a_dropped_path_shows_its_rate():
    assert repr(DropPath(0.25)) == "DropPath(rate=0.25)"
