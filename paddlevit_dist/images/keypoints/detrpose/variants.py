"""Variants of DETRPose."""

from ....core.tasks.model import Variants

# github.com/SebastianJanampa/DETRPose, configs/detrpose/detrpose_hgnetv2_*.py and include/detrpose_hgnetv2.py
# (a6ca202). All fix the statistics of the backbone's batch norms.
_SMALL_HGNET = {"backbone": "hgnetv2_b0", "decoder_layers": 3}
_SIZES: Variants = {
    "n": {
        **_SMALL_HGNET,
        "feature_levels": (-2, -1),
        "embed_dim": 128,
        "encoder_feedforward": 512,
        "blocks": 2,
        "expansion": 0.34,
        "feedforward": 512,
        "points": 6,
    },
    "s": {**_SMALL_HGNET, "blocks": 1, "expansion": 0.5},
    "m": {"backbone": "hgnetv2_b2", "blocks": 2, "decoder_layers": 4},
    "l": {},
    "x": {"backbone": "hgnetv2_b5", "embed_dim": 384, "encoder_feedforward": 2048, "reg_scale": 8.0},
}

DETRPOSE: Variants = {
    "detrpose": {},  # a start for configurations that give their own dimensions
    # for images of 48 to 128 pixels, on CPUs, trained from scratch
    "detrpose_small": {
        "backbone": "resnet18d",
        "backbone_options": {"depths": (1, 1, 1), "dims": (32, 64, 96)},
        "frozen_batch_norm": False,
        "feature_levels": (-2, -1),
        "embed_dim": 64,
        "num_heads": 4,
        "encoder_feedforward": 128,
        "blocks": 1,
        "expansion": 0.5,
        "feedforward": 128,
        "decoder_layers": 2,
        "num_queries": 20,
        "denoising": 6,
        "points": 2,  # places near a point, since maps are small
    },
    **{f"detrpose_hgnetv2_{size}": options for size, options in _SIZES.items()},
}
