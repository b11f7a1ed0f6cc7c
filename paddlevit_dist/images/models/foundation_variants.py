"""Vision Transformers that were trained on hundreds of millions of images, under timm's names.

They are DINOv2 and DINOv3, SigLIP, CLIP, EVA-02, and timm's own with registers.

Sources: Oquab et al., DINOv2, arXiv 2304.07193, table 18; Darcet et al., Vision Transformers Need Registers, arXiv
2309.16588; Siméoni et al., DINOv3, arXiv 2508.10104, table 2; Zhai et al., SigLIP, arXiv 2303.15343; Tschannen et al.,
SigLIP 2, arXiv 2502.14786; Radford et al., CLIP, arXiv 2103.00020, table 20; Cherti et al., arXiv 2212.07143; Fang et
al., EVA-02, arXiv 2303.11331, table 2; Alabdulmohsin et al., SoViT, arXiv 2305.13035.
"""

from typing import Any, NamedTuple

from ...core.tasks.model import Variants
from .pretrained_input import HALF, ExpectedInput, list_inputs

_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


class _VariantSize(NamedTuple):
    embed_dim: int
    depth: int
    num_heads: int
    mlp_ratio: float = 4.0


_SIZES = {
    "tiny": _VariantSize(192, 12, 3),
    "little": _VariantSize(320, 14, 5, 5.6),
    "small": _VariantSize(384, 12, 6),
    "medium": _VariantSize(512, 12, 8),
    "mediumd": _VariantSize(512, 20, 8),
    "betwixt": _VariantSize(640, 12, 10),
    "base": _VariantSize(768, 12, 12),
    "large": _VariantSize(1024, 24, 16),
    "so400m": _VariantSize(1152, 27, 16, 3.7362),
    "huge": _VariantSize(1280, 32, 16),
    "giantopt": _VariantSize(1536, 40, 16),
}
# Taken at any size, with positions resampled as timm does.
_ANY_SIZE = {"any_size": True, "resampling": "antialiased"}


def _build_rows(size: str | _VariantSize, side: int, patch: int, **options: Any) -> dict[str, Any]:
    dimensions = _SIZES[size] if isinstance(size, str) else size
    return {**dimensions._asdict(), "image_size": side, "patch_size": patch, **_ANY_SIZE, **options}


def _dinov2() -> Variants:
    variants = {}
    for size in ("small", "base", "large", "giant"):
        options: dict[str, Any] = {"init_values": 1e-5}
        dimensions: str | _VariantSize = size
        if size == "giant":
            dimensions, options = _VariantSize(1536, 40, 24, 2.66667), {**options, "gate": "packed"}
        variants[f"vit_{size}_patch14_dinov2"] = _build_rows(dimensions, 518, 14, **options)
        variants[f"vit_{size}_patch14_reg4_dinov2"] = _build_rows(
            dimensions, 518, 14, registers=4, positions="patches", **options
        )
    return variants


def _dinov3() -> Variants:
    base = {"registers": 4, "positions": None, "rotary": "axial", "init_values": 1e-5, "norm_epsilon": 1e-5}
    base = {**base, "pool": "average"}
    gated = {**base, "gate": "separate", "mlp_multiple": 8}
    variants = {}
    for bias, ending in ((False, ""), ("queries and values", "_qkvb")):
        for size in ("small", "base", "large"):
            variants[f"vit_{size}_patch16_dinov3{ending}"] = _build_rows(size, 256, 16, qkv_bias=bias, **base)
        for name, dimensions in (("small_plus", _SIZES["small"]), ("huge_plus", _VariantSize(1280, 32, 20))):
            variants[f"vit_{name}_patch16_dinov3{ending}"] = _build_rows(dimensions, 256, 16, qkv_bias=bias, **gated)
    variants["vit_tiny_patch16_dinov3_qkvb"] = _build_rows("tiny", 256, 16, qkv_bias="queries and values", **base)
    variants["vit_7b_patch16_dinov3"] = _build_rows(
        _VariantSize(4096, 40, 32, 2.0), 256, 16, qkv_bias=False, **{**gated, "mlp_multiple": 64}
    )
    return variants


_SIGLIP_SIZES = {
    ("base", 16): (224, 256, 384, 512),
    ("base", 32): (256,),
    ("large", 16): (256, 384, 512),
    ("so400m", 14): (224, 378),
    ("so400m", 16): (256, 384, 512),
    ("giantopt", 16): (256, 384),
}
_GAP_ALONE = {("so400m", 14): (448, 896)}


def _siglip() -> Variants:
    variants = {}
    for (size, patch), sides in _SIGLIP_SIZES.items():
        for side in (*sides, *_GAP_ALONE.get((size, patch), ())):
            # As timm has it; the authors' code computes the tanh form in all.
            exact = (size, patch) in (("base", 16), ("so400m", 14)) or (size == "large" and side < 512)
            options = {"class_token": False, "activation": "gelu" if exact else "gelu_tanh"}
            name = f"vit_{size}_patch{patch}_siglip"
            variants[f"{name}_gap_{side}"] = _build_rows(size, side, patch, pool="average", **options)
            if side in sides:
                variants[f"{name}_{side}"] = _build_rows(size, side, patch, pool="attention", **options)
    return variants


_CLIP_SIZES: dict[tuple[str, int], tuple[str | _VariantSize, tuple[int, ...]]] = {
    ("xsmall", 16): (_VariantSize(256, 10, 4), (224,)),
    ("medium", 16): ("medium", (224,)),
    ("medium", 32): ("medium", (224,)),
    ("betwixt", 32): ("betwixt", (224,)),
    ("base", 16): ("base", (224, 384)),
    ("base", 32): ("base", (224, 256, 384, 448)),
    ("base_plus", 16): (_VariantSize(896, 12, 14), (240,)),
    ("large", 14): ("large", (224, 336)),
    ("huge", 14): ("huge", (224, 336, 378)),
    ("giant", 14): (_VariantSize(1408, 40, 16, 48 / 11), (224,)),
    ("gigantic", 14): (_VariantSize(1664, 48, 16, 64 / 13), (224, 378)),
}
# OpenAI's weights, and weights trained in the same way.
_QUICK = {("base", 16): (224,), ("base", 32): (224,), ("large", 14): (224, 336), ("huge", 14): (224, 378)}
_QUICK[("gigantic", 14)] = (224,)


def _clip() -> Variants:
    variants, options = {}, {"pre_norm": True, "norm_epsilon": 1e-5, "patch_bias": False}
    for (size, patch), (dimensions, sides) in _CLIP_SIZES.items():
        plus = "_plus" if size == "base_plus" else ""
        for side in sides:
            name = f"vit_{size.removesuffix('_plus')}_patch{patch}{plus}_clip"
            variants[f"{name}_{side}"] = _build_rows(dimensions, side, patch, **options)
            if side in _QUICK.get((size, patch), ()):
                variants[f"{name}_quickgelu_{side}"] = _build_rows(
                    dimensions, side, patch, activation="quick_gelu", **options
                )
    return variants


def _eva02() -> Variants:
    variants = {}
    options: dict[str, Any] = {"rotary": "grid", "qkv_bias": "queries and values"}
    separate = {**options, "gate": "separate", "mlp_norm": True, "separate_qkv": True}
    pooled = {"pool": "average", "pool_norm": True}
    for size, sides in {"tiny": (224, 336), "small": (224, 336), "base": (224, 448), "large": (224, 448)}.items():
        options = {**options, "gate": "packed"} if size in ("tiny", "small") else separate
        dimensions = _SIZES[size]._replace(mlp_ratio=8 / 3)
        for side in sides:
            variants[f"eva02_{size}_patch14_{side}"] = _build_rows(dimensions, side, 14, **options, **pooled)
    for size, patch, side in (("base", 16, 224), ("large", 14, 224), ("large", 14, 336)):
        dimensions = _SIZES[size]._replace(mlp_ratio=8 / 3)
        variants[f"eva02_{size}_patch{patch}_clip_{side}"] = _build_rows(
            dimensions, side, patch, attention_norm=True, **separate
        )
    return variants


def _with_registers() -> Variants:
    """List timm's models with registers and without a class token."""
    variants = {}
    options = {"class_token": False, "registers": 4, "positions": "patches", "pool": "average", "pool_norm": True}
    for size, sides in {"little": (256,), "medium": (256,), "mediumd": (256, 384), "betwixt": (256, 384)}.items():
        for side in sides:
            variants[f"vit_{size}_patch16_reg4_gap_{side}"] = _build_rows(size, side, 16, init_values=1e-5, **options)
    variants["vit_base_patch16_reg4_gap_256"] = _build_rows("base", 256, 16, **options)
    for side in (256, 384):  # positions of registers too, and the norm before the mean
        options = {**options, "positions": "all", "pool_norm": False}
        variants[f"vit_so150m_patch16_reg4_gap_{side}"] = _build_rows(
            _VariantSize(896, 18, 14, 2.572), side, 16, **options
        )
    return variants


# Backbones of networks on maps, by the short names that those have.
ON_MAPS = {
    **{f"dinov2_{size}": f"vit_{size}_patch14_dinov2" for size in ("small", "base", "large")},
    **{f"dinov3_{size}": f"vit_{size}_patch16_dinov3" for size in ("small", "base", "large")},
    "siglip_base": "vit_base_patch16_siglip_gap_512",
    "eva02_small": "eva02_small_patch14_336",
}

# By the input that their weights expect.
_DINO, _SIGLIP, _CLIP_LIKE = {**_dinov2(), **_dinov3()}, _siglip(), {**_clip(), **_eva02()}
_WITH_REGISTERS = _with_registers()
FOUNDATION: Variants = {**_DINO, **_SIGLIP, **_CLIP_LIKE, **_WITH_REGISTERS}

_WHOLE: dict[str, Any] = {"crop_pct": 1.0}
_SQUASH: dict[str, Any] = {"crop_pct": 1.0, "crop_mode": "squash"}
_EXCEPTIONS: Variants = {
    "vit_base_patch16_clip_224": {"crop_pct": 0.95},
    "vit_large_patch14_clip_224": {"mean": HALF, "std": HALF, **_WHOLE},
    "vit_large_patch14_clip_336": {"mean": HALF, "std": HALF, **_SQUASH},
    **dict.fromkeys(
        ("vit_base_patch16_clip_384", "vit_huge_patch14_clip_336", "vit_gigantic_patch14_clip_378"), _SQUASH
    ),
    **dict.fromkeys((f"vit_{size}_patch14_clip_224" for size in ("huge", "giant", "gigantic")), _WHOLE),
    **dict.fromkeys((f"vit_{size}_patch14_clip_quickgelu_224" for size in ("large", "huge", "gigantic")), _WHOLE),
    "vit_base_patch16_clip_quickgelu_224": _WHOLE,
    **dict.fromkeys(("eva02_base_patch14_448", "eva02_large_patch14_448"), _SQUASH),
    **dict.fromkeys(("vit_so400m_patch14_siglip_gap_448", "vit_so400m_patch14_siglip_gap_896"), _WHOLE),
    "vit_base_patch16_reg4_gap_256": {"crop_pct": 0.9},
}
EXPECTED_INPUTS: dict[str, ExpectedInput] = {
    **list_inputs(_DINO, ExpectedInput(crop_pct=1.0)),
    **list_inputs(_SIGLIP, ExpectedInput(HALF, HALF, 0.9, image_size=1024), _EXCEPTIONS),  # a margin at all sizes
    **list_inputs(_CLIP_LIKE, ExpectedInput(_CLIP_MEAN, _CLIP_STD, 0.9), _EXCEPTIONS),
    **list_inputs(_WITH_REGISTERS, ExpectedInput(HALF, HALF, 0.95, image_size=256), _EXCEPTIONS),
}
