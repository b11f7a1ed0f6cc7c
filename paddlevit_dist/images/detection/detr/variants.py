"""Names of DETRs and the arguments each implies. The registry reads them here, without Paddle."""

from __future__ import annotations

from typing import Any, Dict

# Carion et al., End-to-End Object Detection with Transformers, 2020, section 4 and table 1. The stem and the first
# stage of the backbone do not learn, and no batch norm does; DC5 dilates the last stage. Dropout, 0.1 in the paper, is
# a recipe's.
_PUBLISHED = {
    "embed_dim": 256,
    "num_heads": 8,
    "feedforward": 2048,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "num_queries": 100,
    "frozen_batch_norm": True,
    "frozen_stages": 2,
}
# For pictures of 48 to 96 pixels, on CPUs: a backbone of two narrow stages, which ends at an eighth of the picture
# and learns from nothing, queries that begin as points on a grid.
_SMALL = {
    "backbone": "resnet18",
    "backbone_options": {"depths": (2, 2), "dims": (32, 64)},
    "embed_dim": 128,
    "num_heads": 4,
    "feedforward": 256,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "num_queries": 25,
    "frozen_batch_norm": False,
    "frozen_stages": 0,
    "anchors": True,
}

DETR: Dict[str, Dict[str, Any]] = {
    "detr": dict(backbone="resnet50", **_PUBLISHED),  # a start for configurations that give their own dimensions
    "detr_resnet18": dict(backbone="resnet18", **_PUBLISHED),
    "detr_resnet34": dict(backbone="resnet34", **_PUBLISHED),
    "detr_resnet50": dict(backbone="resnet50", **_PUBLISHED),
    "detr_resnet50_dc5": dict(backbone="resnet50", dilation=True, **_PUBLISHED),
    "detr_resnet101": dict(backbone="resnet101", **_PUBLISHED),
    "detr_resnet101_dc5": dict(backbone="resnet101", dilation=True, **_PUBLISHED),
    "detr_small": _SMALL,
}
