"""Names of image models, the arguments of each, and the input that their published weights expect.

The registry reads them here, without Paddle.
"""

from typing import Any, NamedTuple

from . import foundation_variants as foundation
from .bridges.package_files import get_expected_input

Variants = dict[str, dict[str, Any]]

HALF = (0.5, 0.5, 0.5)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class ExpectedInput(NamedTuple):
    """The input that weights of a classifier were trained and evaluated on.

    Attributes:
        mean, std: per channel, of pixels from 0 to 1.
        crop_pct: share of the resized image that is kept.
        interpolation: of that resize, "bicubic" or "bilinear".
        image_size: height and width in pixels.
        crop_mode: "center" keeps the proportions in that resize, "squash" makes a square.
    """

    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    crop_pct: float = 0.875
    interpolation: str = "bicubic"
    image_size: int = 224
    crop_mode: str = "center"


# Dosovitskiy et al., An Image is Worth 16x16 Words, 2021, table 1; Touvron et al., DeiT, 2021, table 1.
_TINY = {"embed_dim": 192, "depth": 12, "num_heads": 3, "mlp_ratio": 4.0, "qkv_bias": True}
_SMALL = {"embed_dim": 384, "depth": 12, "num_heads": 6, "mlp_ratio": 4.0, "qkv_bias": True}
_BASE = {"embed_dim": 768, "depth": 12, "num_heads": 12, "mlp_ratio": 4.0, "qkv_bias": True}
_LARGE = {"embed_dim": 1024, "depth": 24, "num_heads": 16, "mlp_ratio": 4.0, "qkv_bias": True}
_HUGE = {"embed_dim": 1280, "depth": 32, "num_heads": 16, "mlp_ratio": 4.0, "qkv_bias": True}

VIT: Variants = {
    "vit": dict(image_size=224, patch_size=16, **_BASE),  # a start for configurations that give their own dimensions
    "vit_tiny_patch16_224": dict(image_size=224, patch_size=16, **_TINY),
    "vit_tiny_patch16_384": dict(image_size=384, patch_size=16, **_TINY),
    "vit_small_patch16_224": dict(image_size=224, patch_size=16, **_SMALL),
    "vit_small_patch16_384": dict(image_size=384, patch_size=16, **_SMALL),
    "vit_small_patch32_224": dict(image_size=224, patch_size=32, **_SMALL),
    "vit_small_patch32_384": dict(image_size=384, patch_size=32, **_SMALL),
    "vit_base_patch16_224": dict(image_size=224, patch_size=16, **_BASE),
    "vit_base_patch16_384": dict(image_size=384, patch_size=16, **_BASE),
    "vit_base_patch32_224": dict(image_size=224, patch_size=32, **_BASE),
    "vit_base_patch32_384": dict(image_size=384, patch_size=32, **_BASE),
    "vit_large_patch16_224": dict(image_size=224, patch_size=16, **_LARGE),
    "vit_large_patch16_384": dict(image_size=384, patch_size=16, **_LARGE),
    "vit_large_patch32_224": dict(image_size=224, patch_size=32, **_LARGE),
    "vit_large_patch32_384": dict(image_size=384, patch_size=32, **_LARGE),
    "vit_large_patch14_224": dict(image_size=224, patch_size=14, **_LARGE),
    "vit_huge_patch14_224": dict(image_size=224, patch_size=14, **_HUGE),
    **foundation.FOUNDATION,
}

DEIT: Variants = {
    "deit_tiny_patch16_224": dict(image_size=224, patch_size=16, **_TINY),
    "deit_small_patch16_224": dict(image_size=224, patch_size=16, **_SMALL),
    "deit_base_patch16_224": dict(image_size=224, patch_size=16, **_BASE),
    "deit_base_patch16_384": dict(image_size=384, patch_size=16, **_BASE),
}

DISTILLED_DEIT: Variants = {
    "deit_tiny_distilled_patch16_224": dict(image_size=224, patch_size=16, **_TINY),
    "deit_small_distilled_patch16_224": dict(image_size=224, patch_size=16, **_SMALL),
    "deit_base_distilled_patch16_224": dict(image_size=224, patch_size=16, **_BASE),
    "deit_base_distilled_patch16_384": dict(image_size=384, patch_size=16, **_BASE),
}

# Liu et al., Swin Transformer, 2021, section 3.3.
_SWIN_TINY = {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
_SWIN_SMALL = {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)}
_SWIN_BASE = {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)}
_SWIN_LARGE = {"embed_dim": 192, "depths": (2, 2, 18, 2), "num_heads": (6, 12, 24, 48)}
_AT_224 = {"image_size": 224, "patch_size": 4, "window_size": 7, "mlp_ratio": 4.0, "qkv_bias": True}
_AT_384 = {"image_size": 384, "patch_size": 4, "window_size": 12, "mlp_ratio": 4.0, "qkv_bias": True}

SWIN: Variants = {
    "swin_tiny_patch4_window7_224": dict(_AT_224, **_SWIN_TINY),
    "swin_small_patch4_window7_224": dict(_AT_224, **_SWIN_SMALL),
    "swin_base_patch4_window7_224": dict(_AT_224, **_SWIN_BASE),
    "swin_base_patch4_window12_384": dict(_AT_384, **_SWIN_BASE),
    "swin_large_patch4_window7_224": dict(_AT_224, **_SWIN_LARGE),
    "swin_large_patch4_window12_384": dict(_AT_384, **_SWIN_LARGE),
}

# Touvron et al., Going deeper with Image Transformers, 2021, tables 3 and 5.
_XXS24 = {"patch_size": 16, "embed_dim": 192, "depth": 24, "num_heads": 4, "init_values": 1e-5}
_XXS36 = {"patch_size": 16, "embed_dim": 192, "depth": 36, "num_heads": 4, "init_values": 1e-5}
_XS24 = {"patch_size": 16, "embed_dim": 288, "depth": 24, "num_heads": 6, "init_values": 1e-5}
_S24 = {"patch_size": 16, "embed_dim": 384, "depth": 24, "num_heads": 8, "init_values": 1e-5}
_S36 = {"patch_size": 16, "embed_dim": 384, "depth": 36, "num_heads": 8, "init_values": 1e-6}
_M36 = {"patch_size": 16, "embed_dim": 768, "depth": 36, "num_heads": 16, "init_values": 1e-6}
_M48 = {"patch_size": 16, "embed_dim": 768, "depth": 48, "num_heads": 16, "init_values": 1e-6}

CAIT: Variants = {
    "cait_xxs24_224": dict(image_size=224, **_XXS24),
    "cait_xxs24_384": dict(image_size=384, **_XXS24),
    "cait_xxs36_224": dict(image_size=224, **_XXS36),
    "cait_xxs36_384": dict(image_size=384, **_XXS36),
    "cait_xs24_384": dict(image_size=384, **_XS24),
    "cait_s24_224": dict(image_size=224, **_S24),
    "cait_s24_384": dict(image_size=384, **_S24),
    "cait_s36_384": dict(image_size=384, **_S36),
    "cait_m36_384": dict(image_size=384, **_M36),
    "cait_m48_448": dict(image_size=448, **_M48),
}

# Wang et al., PVT v2, 2022, table 1.
_WIDE = {"embed_dims": (64, 128, 320, 512), "num_heads": (1, 2, 5, 8)}

PVT_V2: Variants = {
    "pvt_v2_b0": {"embed_dims": (32, 64, 160, 256), "num_heads": (1, 2, 5, 8), "depths": (2, 2, 2, 2)},
    "pvt_v2_b1": dict(depths=(2, 2, 2, 2), **_WIDE),
    "pvt_v2_b2": dict(depths=(3, 4, 6, 3), **_WIDE),
    "pvt_v2_b2_li": dict(depths=(3, 4, 6, 3), is_linear=True, **_WIDE),
    "pvt_v2_b3": dict(depths=(3, 4, 18, 3), **_WIDE),
    "pvt_v2_b4": dict(depths=(3, 8, 27, 3), **_WIDE),
    "pvt_v2_b5": dict(depths=(3, 6, 40, 3), mlp_ratios=(4, 4, 4, 4), **_WIDE),
}
# PaddleViT's have another epsilon in the norms that follow a convolution, which moves logits by up to 6e-5.
PVT_V2.update({name.replace("pvt_v2", "pvtv2"): dict(PVT_V2[name], patch_epsilon=1e-6) for name in [*PVT_V2]})
PVT_V2["pvtv2_b2_linear"] = PVT_V2.pop("pvtv2_b2_li")

# Xie et al., SegFormer, 2021, table 6: PVTv2 with other depths and hidden widths. The head's width, its table 6 too.
_MIT = {"embed_dims": (64, 128, 320, 512), "num_heads": (1, 2, 5, 8), "mlp_ratios": (4, 4, 4, 4)}
_MIT_DEPTHS = {"b1": (2, 2, 2, 2), "b2": (3, 4, 6, 3), "b3": (3, 4, 18, 3), "b4": (3, 8, 27, 3), "b5": (3, 6, 40, 3)}

MIT: Variants = {
    "mit_b0": dict(_MIT, embed_dims=(32, 64, 160, 256), depths=(2, 2, 2, 2)),
    **{f"mit_{size}": dict(_MIT, depths=depths) for size, depths in _MIT_DEPTHS.items()},
}
SEGFORMER: Variants = {
    f"segformer_{size}": {"backbone": f"mit_{size}", "channels": 256 if size in ("b0", "b1") else 768}
    for size in ("b0", *_MIT_DEPTHS)
}
# mmsegmentation's networks of that name, and PaddleViT's, which has their weights: another head, one epsilon.
MMSEGMENTATIONS_SEGFORMER: Variants = {
    f"segformer_mmseg_{size}": {
        "backbone": f"mit_{size}",
        "backbone_options": {"patch_epsilon": 1e-6},
        "channels": 256,
    }
    for size in ("b0", *_MIT_DEPTHS)
}

# Tolstikhin et al., MLP-Mixer, 2021, table 1.
_MIXER_SMALL = {"embed_dim": 512, "depth": 8, "token_ratio": 0.5, "mlp_ratio": 4.0}
_MIXER_BASE = {"embed_dim": 768, "depth": 12, "token_ratio": 0.5, "mlp_ratio": 4.0}
_MIXER_LARGE = {"embed_dim": 1024, "depth": 24, "token_ratio": 0.5, "mlp_ratio": 4.0}

MLP_MIXER: Variants = {
    "mixer_s32_224": dict(image_size=224, patch_size=32, **_MIXER_SMALL),
    "mixer_s16_224": dict(image_size=224, patch_size=16, **_MIXER_SMALL),
    "mixer_b32_224": dict(image_size=224, patch_size=32, **_MIXER_BASE),
    "mixer_b16_224": dict(image_size=224, patch_size=16, **_MIXER_BASE),
    "mixer_l32_224": dict(image_size=224, patch_size=32, **_MIXER_LARGE),
    "mixer_l16_224": dict(image_size=224, patch_size=16, **_MIXER_LARGE),
}

# Liu et al., A ConvNet for the 2020s, 2022, section 3.
CONVNEXT: Variants = {
    "convnext_tiny": {"depths": (3, 3, 9, 3), "dims": (96, 192, 384, 768)},
    "convnext_small": {"depths": (3, 3, 27, 3), "dims": (96, 192, 384, 768)},
    "convnext_base": {"depths": (3, 3, 27, 3), "dims": (128, 256, 512, 1024)},
    "convnext_large": {"depths": (3, 3, 27, 3), "dims": (192, 384, 768, 1536)},
    "convnext_xlarge": {"depths": (3, 3, 27, 3), "dims": (256, 512, 1024, 2048)},
}

# He et al., Deep Residual Learning for Image Recognition, 2016, table 1.
RESNET: Variants = {
    "resnet18": {"depths": (2, 2, 2, 2), "is_bottleneck": False},
    "resnet34": {"depths": (3, 4, 6, 3), "is_bottleneck": False},
    "resnet50": {"depths": (3, 4, 6, 3), "is_bottleneck": True},
    "resnet101": {"depths": (3, 4, 23, 3), "is_bottleneck": True},
}
RESNET.update(
    {f"{name}d": {**options, "is_vd": True} for name, options in RESNET.items()}
)  # ResNet-vd, as timm calls it

# PaddleClas, ppcls/arch/backbone/legendary_models/pp_hgnet_v2.py.
HGNETV2: Variants = {
    "hgnetv2_b0": {},
    "hgnetv2_b1": {"stem_dims": (24, 32), "middle_dims": (32, 48, 96, 192)},
    "hgnetv2_b2": {
        "stem_dims": (24, 32),
        "depths": (1, 1, 3, 1),
        "dims": (96, 384, 768, 1536),
        "middle_dims": (32, 64, 128, 256),
        "layers": 4,
    },
    "hgnetv2_b3": {
        "stem_dims": (24, 32),
        "depths": (1, 1, 3, 1),
        "dims": (128, 512, 1024, 2048),
        "middle_dims": (32, 64, 128, 256),
        "layers": 5,
    },
    "hgnetv2_b4": {
        "stem_dims": (32, 48),
        "depths": (1, 1, 3, 1),
        "dims": (128, 512, 1024, 2048),
        "middle_dims": (48, 96, 192, 384),
        "layers": 6,
        "use_lab": False,
    },
    "hgnetv2_b5": {
        "stem_dims": (32, 64),
        "depths": (1, 2, 5, 2),
        "dims": (128, 512, 1024, 2048),
        "middle_dims": (64, 128, 256, 512),
        "layers": 6,
        "use_lab": False,
    },
}

# UPerNet, Xiao et al., 2018, as the authors of its backbones have it: Liu et al., Swin Transformer, 2021, appendix
# A2.3; Liu et al., ConvNeXt, 2022, appendix A.3; mmsegmentation's configs/vit. Norms of maps add Swin's epsilon or
# ConvNeXt's; a stage of PVTv2 ends with one. A ViT's four maps have one resolution, and the auxiliary head reads
# the last.
_SWINS = {
    "tiny": "swin_tiny_patch4_window7_224",
    "small": "swin_small_patch4_window7_224",
    "base": "swin_base_patch4_window7_224",
    "base_window12": "swin_base_patch4_window12_384",
}
_OF_VIT = {"backbone_options": {"any_size": True}, "has_neck": True, "auxiliary_map": 3}

UPERNET: Variants = {
    **{
        f"upernet_swin_{size}": {"backbone": name, "backbone_options": {"any_size": True}, "norm_epsilon": 1e-5}
        for size, name in _SWINS.items()
    },
    **{
        f"upernet_convnext_{size}": {"backbone": f"convnext_{size}", "norm_epsilon": 1e-6}
        for size in ("tiny", "small", "base")
    },
    **{f"upernet_pvtv2_b{number}": {"backbone": f"pvt_v2_b{number}"} for number in range(6)},
    "upernet_vit_base": dict(_OF_VIT, backbone="vit_base_patch16_224", has_last_norm=True),
    "upernet_deit_small": dict(_OF_VIT, backbone="deit_small_patch16_224"),
    "upernet_deit_base": dict(_OF_VIT, backbone="deit_base_patch16_224"),
    **{f"upernet_{name}": dict(_OF_VIT, backbone=backbone) for name, backbone in foundation.ON_MAPS.items()},
}

# Oquab et al., DINOv2, 2023, section 7.4; Siméoni et al., DINOv3, 2025, section 6.1.2.
LINEAR: Variants = {f"linear_{name}": {"backbone": backbone} for name, backbone in foundation.ON_MAPS.items()}

# Long et al., Fully Convolutional Networks, 2015, on dilated networks: torchvision's, at an eighth of the resolution.
FCN: Variants = {f"fcn_resnet{depth}": {"backbone": f"resnet{depth}"} for depth in (50, 101)}

# What the weights of these variants expect. Source: ``pretrained_cfg`` of timm 1.0, of each name's default weights.
# timm has no MiT, which was trained with PVT's code.
_INPUTS: tuple[tuple[Variants, ExpectedInput], ...] = (
    (foundation.DINO, ExpectedInput(crop_pct=1.0)),
    (foundation.SIGLIP, ExpectedInput(HALF, HALF, 0.9, image_size=1024)),  # with a margin at all sizes
    (foundation.CLIP_LIKE, ExpectedInput(foundation.CLIP_MEAN, foundation.CLIP_STD, 0.9)),
    (foundation.WITH_REGISTERS, ExpectedInput(HALF, HALF, 0.95, image_size=256)),
    (VIT, ExpectedInput(HALF, HALF, 0.9)),
    (DEIT, ExpectedInput(crop_pct=0.9)),
    (DISTILLED_DEIT, ExpectedInput(crop_pct=0.9)),
    (SWIN, ExpectedInput(crop_pct=0.9)),
    (CAIT, ExpectedInput(crop_pct=1.0)),
    (PVT_V2, ExpectedInput(crop_pct=0.9)),
    (MIT, ExpectedInput()),
    (MLP_MIXER, ExpectedInput(HALF, HALF)),
    (CONVNEXT, ExpectedInput()),
    (RESNET, ExpectedInput(crop_pct=0.95)),
    (HGNETV2, ExpectedInput(crop_pct=0.965)),
)
_WHOLE: dict[str, Any] = {"crop_pct": 1.0}
_SQUASH: dict[str, Any] = {"crop_pct": 1.0, "crop_mode": "squash"}
_OTHERWISE: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("convnext_tiny", "convnext_small"), {"crop_pct": 0.95}),
    **dict.fromkeys(("resnet18d", "resnet34d", "resnet50d"), {"crop_pct": 0.875}),
    "resnet101d": {"image_size": 256},
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


def expected_input(model: str) -> ExpectedInput | None:
    """Return what the published weights of a registered classifier expect of images.

    None for other models, and for "vit", which names no variant.
    """
    if model.startswith(("paddle:", "paddleclas:")):
        return ExpectedInput(**get_expected_input(model))
    for family, expected in _INPUTS:
        if model in family and model != "vit":
            size = family[model].get("image_size", expected.image_size)
            is_whole = size > expected.image_size  # fine-tuned at that size, and evaluated without a margin
            expected = expected._replace(crop_pct=1.0 if is_whole else expected.crop_pct, image_size=size)
            return expected._replace(**_OTHERWISE.get(model, {}))
    return None
