"""Every registered classifier: its published size, and a small one with all that is its own."""

import numpy as np
import paddle
import pytest

from paddlevit_dist.core.registry.lookup import annotation_type
from paddlevit_dist.core.registry.manifest import CLASS_LABELS
from paddlevit_dist.core.registry.names import REGISTRY
from paddlevit_dist.core.tasks.model_factory import create_model, variant_options
from support.networks.cheap_weights import weights_of_zero
from support.networks.foundation_parameters import PUBLISHED as OF_FOUNDATIONS

NAMES = [
    name
    for name, target in REGISTRY.models.items()
    if ".images.models." in str(target)
    and name not in REGISTRY.aliases
    and annotation_type("model", name) == CLASS_LABELS
]

ONE_OF_EACH_FAMILY = [
    "vit_tiny_patch16_224",
    "vit_medium_patch16_reg4_gap_256",
    "vit_small_patch16_dinov3_qkvb",
    "vit_base_patch16_siglip_224",
    "eva02_base_patch16_clip_224",
    "deit_tiny_distilled_patch16_224",
    "swin_tiny_patch4_window7_224",
    "cait_xxs24_224",
    "pvt_v2_b0",
    "pvt_v2_b2_li",
    "mit_b0",
    "mixer_s16_224",
    "convnext_tiny",
    "resnet50",
    "resnet18d",
    "hgnetv2_b0",
]

# Millions of parameters in timm's results-imagenet.csv and model tables, exact where the papers' code tells it.
PUBLISHED = {
    "vit_tiny_patch16_224": 5_717_416,
    "vit_tiny_patch16_384": 5.79,
    "vit_small_patch16_224": 22_050_664,
    "vit_small_patch16_384": 22_196_584,
    "vit_small_patch32_224": 22.88,
    "vit_small_patch32_384": 22.92,
    "vit": 86_567_656,
    "vit_base_patch16_224": 86_567_656,
    "vit_base_patch16_384": 86.86,
    "vit_base_patch32_224": 88_224_232,
    "vit_base_patch32_384": 88.30,
    "vit_large_patch16_224": 304_326_632,
    "vit_large_patch16_384": 304.72,
    "vit_large_patch32_224": 306.54,
    "vit_large_patch32_384": 306.63,
    "vit_large_patch14_224": 304.20,
    "vit_huge_patch14_224": 632.05,
    "deit_tiny_patch16_224": 5_717_416,
    "deit_small_patch16_224": 22_050_664,
    "deit_base_patch16_224": 86_567_656,
    "deit_base_patch16_384": 86.86,
    "deit_tiny_distilled_patch16_224": 5_910_800,
    "deit_small_distilled_patch16_224": 22_436_432,
    "deit_base_distilled_patch16_224": 87_338_192,
    "deit_base_distilled_patch16_384": 87_630_032,
    "swin_tiny_patch4_window7_224": 28_288_354,
    "swin_small_patch4_window7_224": 49_606_258,
    "swin_base_patch4_window7_224": 87_768_224,
    "swin_base_patch4_window12_384": 87.90,
    "swin_large_patch4_window7_224": 196.53,
    "swin_large_patch4_window12_384": 196.74,
    "cait_xxs24_224": 11_956_264,
    "cait_xxs24_384": 12.03,
    "cait_xxs36_224": 17.30,
    "cait_xxs36_384": 17.37,
    "cait_xs24_384": 26.67,
    "cait_s24_224": 46_916_200,
    "cait_s24_384": 47.06,
    "cait_s36_384": 68.37,
    "cait_m36_384": 271.22,
    "cait_m48_448": 356.46,
    "pvt_v2_b0": 3_666_760,
    "pvt_v2_b1": 14_009_000,
    "pvt_v2_b2": 25_362_856,
    "pvt_v2_b2_li": 22_553_512,
    "pvt_v2_b3": 45_238_696,
    "pvt_v2_b4": 62_556_072,
    "pvt_v2_b5": 81_956_008,
    "mixer_s32_224": 19.10,
    "mixer_s16_224": 18.53,
    "mixer_b32_224": 60.29,
    "mixer_b16_224": 59_880_472,
    "mixer_l32_224": 206.94,
    "mixer_l16_224": 208_196_168,
    "convnext_tiny": 28_589_128,
    "convnext_small": 50_223_688,
    "convnext_base": 88_591_464,
    "convnext_large": 197_767_336,
    "convnext_xlarge": 350.20,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet18d": 11_708_744,
    "resnet34d": 21_816_904,
    "resnet50d": 25_576_264,
    "resnet101d": 44_568_392,
    "hgnetv2_b0": 5_996_550,
    "hgnetv2_b1": 6_343_158,
    "hgnetv2_b2": 11_221_356,
    "hgnetv2_b3": 16_292_216,
    "hgnetv2_b4": 19_796_680,
    "hgnetv2_b5": 39_569_064,
}


def narrower(dim):
    """Parameters by which a block of MiT is smaller than PVTv2's, whose MLP is 8 times as wide as ``dim`` and not 4."""
    return 2 * dim * 4 * dim + (1 + 9 + 1) * 4 * dim


PUBLISHED.update(OF_FOUNDATIONS)

# Xie et al., SegFormer, 2021, table 6: PVTv2's dimensions but for the hidden widths of the first two stages.
for _size, (_width, _first, _second) in {
    "b0": (32, 2, 2),
    "b1": (64, 2, 2),
    "b2": (64, 3, 4),
    "b3": (64, 3, 4),
    "b4": (64, 3, 8),
    "b5": (64, 0, 0),
}.items():
    PUBLISHED[f"mit_{_size}"] = (
        PUBLISHED[f"pvt_v2_{_size}"] - _first * narrower(_width) - _second * narrower(2 * _width)
    )

CLASSES, BATCH = 7, 3
# Equal shifts of all keys' products leave a softmax as it is, and those of all inputs of a point-wise convolution the
# batch norm after it.
# That of a shift with the batch norm of the next layer after it is rounding, and now and then 0.
WITHOUT_GRADIENT = (".k.bias", ".aggregation.0.lab.bias", ".stem3.lab.bias", ".conv2.lab.bias")


def reduced(name):
    """Options that make the model narrow and shallow, but leave its heads, windows, reductions and stages."""
    heads = variant_options(name).get("num_heads")
    if name.startswith(("vit", "deit", "cait", "eva02")):
        return {"depth": 2, "embed_dim": 8 * heads}
    if name.startswith("mixer"):
        return {"depth": 2, "embed_dim": 32}
    if name.startswith("swin"):
        return {"depths": (2, 2, 1, 1), "embed_dim": 4 * heads[0]}
    if name.startswith(("pvt", "mit")):
        return {"depths": (1, 2, 1, 1), "embed_dims": tuple(8 * number for number in heads)}
    middle = {"middle_dims": (8, 8, 8, 8)} if name.startswith("hgnetv2") else {}
    return {"depths": (1, 2, 1, 1), "dims": (8, 16, 24, 32), **middle}


def image_size(name):
    """Neither square nor the variant's own, and for Swin with more tokens than a window and not a multiple of one."""
    side = variant_options(name).get("patch_size", 4)
    is_deep = name.startswith("hgnetv2")  # maps of few pixels leave some of its parameters without a gradient
    return (2 * side, 3 * side) if side > 4 else (96, 64) if is_deep else (64, 32)


def small_model(name, seed=1, **options):
    paddle.seed(seed)
    return create_model(name, num_classes=CLASSES, image_size=image_size(name), **{**reduced(name), **options})


def far_from_the_start(model):
    """Every parameter counts: scales that start near zero and biases that start at zero would hide a mistake."""
    rng = np.random.default_rng(5)
    for parameter in model.parameters():
        start = 1.0 if parameter.ndim == 1 else 0.0
        parameter.set_value((start + 0.2 * rng.standard_normal(parameter.shape)).astype("float32"))
    return model


def learning(model):
    """Names and parameters that learn: all but the running statistics of batch norms, which Paddle counts as well."""
    return [(name, parameter) for name, parameter in model.named_parameters() if not parameter.stop_gradient]


def images(name, batch=BATCH):
    return paddle.to_tensor(np.random.default_rng(0).standard_normal((batch, 3, *image_size(name))).astype("float32"))


def require_learning(name, folder):
    """A training step, an evaluation, and a state that another network of that name takes over."""
    model = small_model(name)
    x = images(name)

    model.train()
    logits = model(x)
    assert logits.shape == [BATCH, CLASSES]
    far_from_the_start(model)
    paddle.nn.functional.cross_entropy(model(x), paddle.to_tensor([0, 3, 6])).backward()
    for parameter_name, parameter in learning(model):
        gradient = parameter.grad.numpy()
        assert np.isfinite(gradient).all(), parameter_name
        assert np.abs(gradient).max() > 0 or parameter_name.endswith(WITHOUT_GRADIENT), parameter_name

    model.eval()
    with paddle.no_grad():
        expected = model(x).numpy()
        np.testing.assert_array_equal(model(x).numpy(), expected)
        np.testing.assert_allclose(model(x[:1]).numpy(), expected[:1], rtol=1e-4, atol=1e-5)
        assert np.abs(expected[0] - expected[1]).max() > 1e-4
        assert model.forward_features(x).shape == [BATCH, model.embed_dim]

    paddle.save(model.state_dict(), str(folder / "state.pdparams"))
    with weights_of_zero():
        other = small_model(name, seed=2)
    missing, unexpected = other.set_state_dict(paddle.load(str(folder / "state.pdparams")))
    assert not missing and not unexpected
    other.eval()
    with paddle.no_grad():
        np.testing.assert_array_equal(other(x).numpy(), expected)


def require_published_size(name):
    """Its number of parameters, of shapes alone."""
    with paddle.LazyGuard():  # shapes only, no memory
        model = create_model(name)
    count = sum(int(np.prod(parameter.shape)) for _, parameter in learning(model))
    published = PUBLISHED[name.replace("pvtv2", "pvt_v2").replace("b2_linear", "b2_li")]
    if isinstance(published, int):
        assert count == published
    else:
        assert count / 1e6 == pytest.approx(published, abs=0.0051)
