"""Attention by Triton's interpreter, against NumPy's float64, and where blocks of a network use it."""

import numpy as np
import paddle
import pytest
from support.networks.plain_layers import plain_layers
from support.trainings.fused_kernels import interpreted_kernels

from paddlevit_dist import create_model
from paddlevit_dist.core.engine.precision import TrainingPrecision
from paddlevit_dist.extensions.gpu_kernels import device_check, functions, hook, layers
from paddlevit_dist.extensions.gpu_kernels.attention import AttentionTile, AttentionTiles, PackedAttention
from paddlevit_dist.extensions.gpu_kernels.functions import TENSORS, attend_packed

# What products round their factors to, TF32 or the dtype itself, with a few roundings on the way.
ROUNDING = {"float32": 2.0**-9, "float16": 2.0**-9}  # bfloat16: on GPUs alone, the interpreter has no such product


def draw(seed: int, *shape: int, dtype: str = "float32") -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(seed).standard_normal(shape).astype("f4")).astype(dtype)


def wide(tensor: paddle.Tensor) -> np.ndarray:
    return tensor.astype("float32").numpy().astype("f8")


def by_formula(packed: np.ndarray, scale: float, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Attention (items, tokens, heads, channels) and its gradient, of (items, tokens, 3, heads, channels)."""
    q, k, v = (packed[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    score = scale * q @ k.swapaxes(-1, -2)
    weight = np.exp(score - score.max(-1, keepdims=True))
    weight /= weight.sum(-1, keepdims=True)
    of_out = gradient.transpose(0, 2, 1, 3)
    of_weight = of_out @ v.swapaxes(-1, -2)
    of_score = weight * (of_weight - (weight * of_weight).sum(-1, keepdims=True))
    parts = scale * of_score @ k, scale * of_score.swapaxes(-1, -2) @ q, weight.swapaxes(-1, -2) @ of_out
    return (weight @ v).transpose(0, 2, 1, 3), np.stack([part.transpose(0, 2, 1, 3) for part in parts], 2)


# One tile holds all tokens; several do, and the last one is cut; rows and columns are divided otherwise.
@pytest.mark.parametrize(
    ("dtype", "items", "tokens", "heads", "channels", "rows", "columns"),
    [
        ("float32", 2, 1, 2, 16, 16, 16),
        ("float32", 1, 35, 3, 16, 16, 32),
        ("float16", 2, 33, 1, 32, 32, 16),
        ("float32", 1, 16, 2, 64, 16, 16),
    ],
)
def test_values_and_gradients_are_those_of_the_formula(dtype, items, tokens, heads, channels, rows, columns):
    packed = draw(0, items, tokens, 3 * heads, channels, dtype=dtype)
    gradient = draw(1, items, tokens, heads * channels, dtype=dtype)
    tile, scale = AttentionTile(rows, columns, 4, 1), 0.3
    compute = PackedAttention(TENSORS, packed.shape, dtype, scale, AttentionTiles(tile, tile, tile))
    out, log_sums = compute(packed)
    found = compute.compute_gradient(packed, out, log_sums, gradient)
    sizes = items, tokens, heads, channels
    expected = by_formula(wide(packed).reshape(items, tokens, 3, heads, channels), scale, wide(gradient).reshape(sizes))
    for one, other in zip((out, found), expected):
        atol = ROUNDING[dtype] * np.abs(other).max()
        np.testing.assert_allclose(wide(one).reshape(other.shape), other, rtol=0, atol=atol)


def test_weights_far_below_the_largest_and_scores_far_from_zero_stay_finite():
    packed = draw(0, 1, 20, 3, 16) * 30.0
    out = attend_packed(packed, 1.0)
    expected, _ = by_formula(wide(packed).reshape(1, 20, 3, 1, 16), 1.0, np.zeros((1, 20, 1, 16)))
    # A score of 3,000 is rounded by 2, so that only which token wins is sure.
    assert np.isfinite(out.numpy()).all() and np.median(np.abs(wide(out) - expected[:, :, 0])) < 0.1


SMALL = {"num_classes": 3, "image_size": 16, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
IMAGES = draw(3, 2, 3, 16, 16)


def build(**options):
    paddle.seed(1)
    with plain_layers():
        return create_model("vit", **{**SMALL, **options})


def compute_gradients(model) -> dict[str, np.ndarray]:
    model.train()
    (model(IMAGES) * paddle.arange(1.0, 4.0)).sum().backward()
    return {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}


@pytest.fixture
def attended(monkeypatch) -> list[str]:
    """Take this CPU for a GPU; returns the dtypes that the kernel attended to."""
    found: list[str] = []

    def attend(packed, scale):
        found.append(functions.name_dtype(packed))
        return attend_packed(packed, scale)

    monkeypatch.setattr(layers, "attend_packed", attend)
    with interpreted_kernels():
        yield found


def fuse(model, products: str = "float32"):
    layers.fuse(model, [*layers.list_kernels(model), *layers.list_attention(model)], products)
    return model


def test_a_network_trains_as_with_plain_attention(attended):
    found, expected = compute_gradients(fuse(build())), compute_gradients(build())
    assert attended == ["float32", "float32"]
    for name, right in expected.items():
        np.testing.assert_allclose(found[name], right, rtol=0, atol=4e-3 * np.abs(right).max() + 1e-6, err_msg=name)


def test_other_attention_stays_plain(attended):
    def add_hook(model):
        model.blocks[0].attn.query_key.register_forward_post_hook(lambda layer, inputs, out: out)
        model.blocks[1].attn.attention_dropout.register_forward_pre_hook(lambda layer, inputs: None)

    def drop(model):
        for block in model.blocks:
            block.attn.attention_dropout.p = 0.5

    for products, change in (("bfloat16", lambda model: None), ("float32", add_hook), ("float32", drop)):
        model = fuse(build(), products)
        change(model)
        compute_gradients(model)
    assert attended == []
    model = build()
    assert layers.list_attention(model) == [("attention", 16)]
    for block in model.blocks:
        block.attn.query_key.__class__ = type("Own", (type(block.attn.query_key),), {})
    assert layers.list_attention(model) == [] and layers.list_attention(build(embed_dim=48)) == []
    assert layers.list_attention(create_model("resnet18", num_classes=2)) == []


def test_the_comparison_agrees_with_right_values_and_notices_wrong_ones(monkeypatch):
    with interpreted_kernels():
        assert device_check.measure_attention(16, "float32") < hook.BOUNDS["float16"]
        wrong = (
            lambda packed, scale: attend_packed(packed, 1.01 * scale),
            lambda packed, scale: attend_packed(packed.detach(), scale) + 0.0 * packed[:, :, :2].flatten(2),
        )
        for one in wrong:
            monkeypatch.setattr(device_check, "attend_packed", one)
            assert device_check.measure_attention(16, "float32") > hook.BOUNDS["float16"]


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 2.0**-9), ("bfloat16", 2.0**-6)])
def test_it_is_used_where_it_agrees_in_the_dtype_of_products(monkeypatch, attended, dtype, allowed):
    precision = TrainingPrecision(dtype != "float32", dtype.replace("float32", "float16"), on_gpu=True)
    measured: list[tuple[int, str]] = []

    def use(error: float, may_attend: bool = True):
        def measure(channels, of):
            measured.append((channels, of))
            return error

        right = lambda width, of: 0.0  # noqa: E731
        model = build()
        with monkeypatch.context() as patch:
            patch.setattr(device_check, "MEASURES", {"norm": right, "gelu": right, "attention": measure})
            patch.setattr(hook, "_may_attend", lambda precision: may_attend)
            lines = hook.use_fused_kernels(model, precision)
        return {layers._states[id(block)].attended for block in model.blocks}, lines

    assert use(allowed)[0] == {dtype} and measured == [(16, dtype)]
    found, lines = use(1.01 * allowed)
    assert found == {None} and "for the attention of width 16" in lines[1] and "2 ViTBlock" in lines[0]
    assert use(0.0, may_attend=False)[0] == {None} and len(measured) == 2


def test_float32_needs_rounded_products_and_both_need_the_gpu_that_was_timed(monkeypatch):
    for rounds, capability, is_half, expected in (
        (True, (9, 0), False, True),
        (False, (9, 0), False, False),
        (False, (9, 0), True, True),
        (True, (8, 0), True, False),
    ):
        monkeypatch.setattr(hook.gpu, "rounds_to_tf32", lambda rounds=rounds: rounds)
        monkeypatch.setattr(paddle.device.cuda, "get_device_capability", lambda capability=capability: capability)
        assert hook._may_attend(TrainingPrecision(is_half, "bfloat16", on_gpu=True)) is expected
