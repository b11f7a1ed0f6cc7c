"""Variants of RT-DETR, D-FINE and DEIM."""

from ....core.tasks.model import Variants

# Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR 2024, table A, and github.com/lyuwenyu/RT-DETR,
# rtdetr_pytorch/configs: the smaller models have narrower paths, fewer decoder layers, and a convolution as the first
# block's shortcut.
_SMALLER_VD = {"backbone_options": {"first_shortcut": True}, "expansion": 0.5}
_FIXED = {"frozen_batch_norm": True, "frozen_stages": 1}  # the stem
_RTDETR_SIZES: Variants = {
    "r18vd": {"backbone": "resnet18d", "decoder_layers": 3, **_SMALLER_VD},
    "r34vd": {"backbone": "resnet34d", "decoder_layers": 4, **_SMALLER_VD},
    "r50vd": {"backbone": "resnet50d", **_FIXED},
    "r101vd": {"backbone": "resnet101d", **_FIXED, "encoder_dim": 384, "encoder_feedforward": 2048},
}
# Peng et al., D-FINE, ICLR 2025, table 6, and github.com/Peterande/D-FINE, configs/dfine.
_FINE = {"is_fine": True, "points": (3, 6, 3), "expansion": 0.5}
_LAB = {"use_lab": True}
_DFINE_SIZES: Variants = {
    "dfine_n": {
        "backbone": "hgnetv2_b0",
        "backbone_options": _LAB,
        "feature_levels": (-2, -1),
        "encoder_dim": 128,
        "encoder_feedforward": 512,
        "expansion": 0.34,
        "blocks": 2,
        "embed_dim": 128,
        "feedforward": 512,
        "decoder_layers": 3,
        "points": (6, 6),
    },
    "dfine_s": {"backbone": "hgnetv2_b0", "backbone_options": _LAB, "blocks": 1, "decoder_layers": 3},
    "dfine_m": {"backbone": "hgnetv2_b2", "backbone_options": _LAB, "blocks": 2, "expansion": 1.0, "decoder_layers": 4},
    "dfine_l": {"backbone": "hgnetv2_b4", **_FIXED, "expansion": 1.0},
    "dfine_x": {
        "backbone": "hgnetv2_b5",
        **_FIXED,
        "encoder_dim": 384,
        "encoder_feedforward": 2048,
        "expansion": 1.0,
        "reg_scale": 8.0,
    },
}
# Huang et al., DEIM, CVPR 2025, and github.com/Intellindust-AI-Lab/DEIM, configs/base and configs/deim_*: the networks
# of D-FINE and RT-DETRv2 with another activation and no frozen layers, and another loss of classes.
_DEIM = {"activation": "silu", "matchability": 1.5, "frozen_batch_norm": False, "frozen_stages": 0}
_DEIM_RTDETR_SIZES: Variants = {
    **_RTDETR_SIZES,
    "r50vd_m": {**_RTDETR_SIZES["r50vd"], "expansion": 0.5, "decoder_layers": 3},
}
# for images of 48 to 96 pixels, on CPUs, trained from scratch
_SMALL_RTDETR = {
    "backbone": "resnet18d",
    "backbone_options": {"depths": (1, 1, 1), "dims": (32, 64, 96)},
    "encoder_dim": 64,
    "encoder_heads": 4,
    "encoder_feedforward": 128,
    "blocks": 1,
    "expansion": 0.5,
    "embed_dim": 64,
    "num_heads": 4,
    "feedforward": 128,
    "decoder_layers": 2,
    "num_queries": 25,
    "denoising": 6,
    "feature_levels": (-2, -1),
}

RTDETR: Variants = {
    "rtdetr": {},  # a start for configurations that give their own dimensions
    "rtdetr_small": _SMALL_RTDETR,
    **{f"{name}_{size}": options for name in ("rtdetr", "rtdetrv2") for size, options in _RTDETR_SIZES.items()},
    **{f"rtdetrv2_{size}_dsp": {**options, "is_discrete": True} for size, options in _RTDETR_SIZES.items()},
    # ViTDet's pyramid of a plain transformer; three maps are used
    "rtdetr_dinov3_small": {
        "backbone": "vit_small_patch16_dinov3",
        "backbone_options": {"pyramid": 256, "pyramid_maps": 3},
    },
    "dfine_small": {**_SMALL_RTDETR, "is_fine": True},
    **{name: {**_FINE, **options} for name, options in _DFINE_SIZES.items()},
    "deim_small": {**_SMALL_RTDETR, "is_fine": True, **_DEIM},
    **{f"deim_{name}": {**_FINE, **options, **_DEIM} for name, options in _DFINE_SIZES.items()},
    **{
        f"deim_rtdetrv2_{size}": {**options, **_DEIM, "deep_positions": True}
        for size, options in _DEIM_RTDETR_SIZES.items()
    },
}
