"""Attention as one operation against the plain products."""

from __future__ import annotations

import contextlib
from typing import Optional

import numpy as np
import paddle
import pytest

from paddlevit_dist import create_model
from paddlevit_dist.images.models.attention import attention

SMALL = {"num_classes": 3, "image_size": 32}
MODELS = {  # how many of the model's attentions can be fused
    "vit": ({"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, **SMALL}, 2),
    "pvt_v2_b0": (SMALL, 8),
    "cait_xxs24_224": ({"depth": 1, "patch_size": 8, "embed_dim": 32, "num_heads": 4, **SMALL}, 2),
    "swin_tiny_patch4_window7_224": ({"depths": (2, 2), "num_heads": (2, 4), "embed_dim": 32, **SMALL}, 0),
}


def outcome(model, pictures, fused: bool):
    """Logits and all gradients of one pass."""
    model.clear_gradients()
    with attention(fused=fused):
        logits = model(pictures)
        (logits * paddle.arange(1.0, 4.0)).sum().backward()
    return [logits.numpy()] + [p.grad.numpy() for p in model.parameters() if p.grad is not None]


def products(model, pictures, fused: Optional[bool]) -> int:
    """How many attentions one pass computes as plain products; ``fused`` None: as the device decides."""
    seen = []
    hooks = [
        layer.query_key.register_forward_post_hook(lambda *_: seen.append(1))
        for layer in model.sublayers()
        if hasattr(layer, "query_key")
    ]
    with contextlib.nullcontext() if fused is None else attention(fused=fused), paddle.no_grad():
        model(pictures)
    for hook in hooks:
        hook.remove()
    return len(seen)


@pytest.mark.parametrize("name", MODELS)
def test_fused_attention_is_the_plain_product_in_values_and_gradients(name):
    options, can_be_fused = MODELS[name]
    paddle.seed(3)
    model = create_model(name, **options)
    pictures = paddle.randn([2, 3, 32, 32])
    model.eval()
    assert products(model, pictures, fused=False) - products(model, pictures, fused=True) == can_be_fused
    plain, fused = (outcome(model, pictures, fused=choice) for choice in (False, True))
    assert len(plain) == len(fused) > 10
    for expected, got in zip(plain, fused):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * max(1.0, float(abs(expected).max())))


def test_fused_attention_drops_weights_in_training_only():
    paddle.seed(3)
    model = create_model("vit", attention_dropout=0.5, **MODELS["vit"][0])
    pictures = paddle.randn([2, 3, 32, 32])
    with attention(fused=True), paddle.no_grad():
        model.eval()
        first, second = model(pictures), model(pictures)
        model.train()
        third, fourth = model(pictures), model(pictures)
    assert (first == second).all() and not (third == fourth).all()
    with attention(fused=False):
        model.eval()
        np.testing.assert_allclose(first.numpy(), model(pictures).numpy(), rtol=1e-4, atol=1e-5)


def test_without_a_gpu_attention_stays_the_plain_product():
    model = create_model("vit", **MODELS["vit"][0])
    pictures = paddle.randn([1, 3, 32, 32])
    assert products(model, pictures, fused=None) == 2
