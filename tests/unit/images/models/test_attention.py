"""Attention as one operation against the plain products."""

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import pytest

from paddlevit_dist import create_model
from paddlevit_dist.images.models import rotary
from paddlevit_dist.images.models.attention import _is_fused, attention
from paddlevit_dist.images.models.vit_blocks import TokenGrid

SMALL = {"num_classes": 3, "image_size": 32}
MODELS = {  # how many of the model's attentions there are, and how many can be fused
    "vit": ({"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, **SMALL}, 2, 2),
    "pvt_v2_b0": (SMALL, 8, 8),
    "cait_xxs24_224": ({"depth": 1, "patch_size": 8, "embed_dim": 32, "num_heads": 4, **SMALL}, 3, 2),
    "vit_small_patch16_dinov3": ({"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, **SMALL}, 2, 2),
    "eva02_base_patch14_224": ({"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, **SMALL}, 2, 2),
    "swin_tiny_patch4_window7_224": ({"depths": (2, 2), "num_heads": (2, 4), "embed_dim": 32, **SMALL}, 4, 0),
}
IMAGES = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32)


def watched(name: str, **options: Any) -> tuple[paddle.nn.Layer, list[int]]:
    """A model in evaluation, and a list that gets an entry for each attention computed as plain products. What is
    watched is computed by its own layers on every device."""
    paddle.seed(3)
    model, seen = create_model(name, **MODELS[name][0], **options), []
    model.eval()
    for layer in model.sublayers():
        if hasattr(layer, "query_key"):
            layer.query_key.register_forward_post_hook(lambda *_: seen.append(1))
    return model, seen


@pytest.mark.parametrize("name", MODELS)
def test_fused_attention_is_the_plain_product_in_values_and_gradients(name):
    _, attentions, can_be_fused = MODELS[name]
    model, seen = watched(name)
    outcomes = []
    for fused, plain_products in ((False, attentions), (True, attentions - can_be_fused)):
        model.clear_gradients()
        seen.clear()
        with attention(fused=fused):
            logits = model(paddle.to_tensor(IMAGES))
            (logits * paddle.arange(1.0, 4.0)).sum().backward()
        assert len(seen) == plain_products
        outcomes.append([logits.numpy()] + [p.grad.numpy() for p in model.parameters() if p.grad is not None])
    assert len(outcomes[0]) == len(outcomes[1]) > 10
    for expected, got in zip(*outcomes):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * max(1.0, float(abs(expected).max())))


def test_rotary_tables_are_made_once_for_a_size(monkeypatch):
    made = []
    monkeypatch.setattr(rotary, "angles", lambda *given, own=rotary.angles: made.append(given) or own(*given))
    model = create_model("vit_small_patch16_dinov3", 3, patch_size=8, embed_dim=24, depth=3, num_heads=2)
    for side in (40, 48, 40, 48):
        with attention(fused=True), paddle.no_grad():
            model(paddle.zeros([1, 3, side, side]))
    assert made == [(rotary.AXIAL, (side // 8, side // 8), 12) for side in (40, 48)]


def test_fused_attention_drops_weights_in_training_only():
    model, _ = watched("vit", attention_dropout=0.5)
    images = paddle.to_tensor(IMAGES)
    with attention(fused=True), paddle.no_grad():
        first, second = model(images), model(images)
        model.train()
        third, fourth = model(images), model(images)
    assert (first == second).all() and not (third == fourth).all()
    with attention(fused=False), paddle.no_grad():
        model.eval()
        np.testing.assert_allclose(first.numpy(), model(images).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", [contextlib.nullcontext, paddle.amp.auto_cast], ids=["float32", "auto_cast"])
@pytest.mark.filterwarnings("ignore:amp_guard can only be enabled")
def test_without_a_gpu_attention_stays_the_plain_product(precision):
    model, seen = watched("vit")
    with paddle.no_grad(), precision():
        model(paddle.to_tensor(IMAGES))
    assert len(seen) == MODELS["vit"][1]


@pytest.mark.parametrize(
    "capability, head_dim, dtype, fused",
    [
        ((8, 0), 64, paddle.float16, True),
        ((9, 0), 192, paddle.bfloat16, True),
        ((7, 5), 64, paddle.float16, False),
        ((8, 6), 256, paddle.float16, False),  # only some GPUs have the backward pass
        ((8, 0), 60, paddle.float16, False),
        ((8, 0), 64, paddle.float32, False),
    ],
)
def test_a_gpu_fuses_half_precision_of_heads_that_it_can_also_train(other_paddle, capability, head_dim, dtype, fused):
    other_paddle({"device.cuda.get_device_capability": capability})
    layer = SimpleNamespace(head_dim=head_dim, query_key=paddle.nn.Layer())
    on_a_gpu = SimpleNamespace(is_gpu_place=lambda: True)
    assert _is_fused(layer, SimpleNamespace(dtype=dtype, place=on_a_gpu)) == fused
    layer.query_key.register_forward_post_hook(lambda *_: None)
    assert not _is_fused(layer, SimpleNamespace(dtype=dtype, place=on_a_gpu))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", ["vit", "vit_small_patch16_dinov3"])
def test_masked_tokens_attend_to_what_the_mask_leaves(name, fused):
    """What hidden tokens are must not matter to the first two; all others see them."""
    if fused and paddle.__version__.startswith("2."):
        pytest.skip("Paddle 2.6 fuses attention with a mask on GPUs alone")
    model, _ = watched(name, **({"init_values": 1.0} if "dinov3" in name else {}))
    random = np.random.default_rng(1)
    tokens = random.standard_normal((2, 22, 32)).astype(np.float32)
    hidden = random.random((2, 1, 2, 22)) < 0.5
    hidden[..., :2] = False
    changed = np.where(hidden[:, 0, :1].transpose(0, 2, 1), 5, tokens).astype(np.float32)  # what the first may not see
    place = TokenGrid((4, 4), 6, paddle.to_tensor(np.where(hidden, -3e4, 0).astype(np.float32)))
    with attention(fused=fused), paddle.no_grad():
        plain, other = (
            model.pass_more_tokens(model.blocks[0], paddle.to_tensor(each), place).numpy() for each in (tokens, changed)
        )
        free = model.pass_more_tokens(model.blocks[0], paddle.to_tensor(tokens), place._replace(mask=None)).numpy()
    np.testing.assert_allclose(other[:, 0], plain[:, 0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(free[:, 2:], plain[:, 2:], rtol=0, atol=1e-5)
    assert np.abs(free[:, :2] - plain[:, :2]).max() > 1e-3 and np.abs(other[:, 2:] - plain[:, 2:]).max() > 1e-3
