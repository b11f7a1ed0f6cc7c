"""Mask R-CNN's variants by name; needs no Paddle."""

from __future__ import annotations

from typing import Any, Dict

Variants = Dict[str, Dict[str, Any]]

MASK_RCNN: Variants = {
    # torchvision's maskrcnn_resnet50_fpn, version 1: stem and layer1 do not learn, batch norms are fixed
    "mask_rcnn_resnet50_fpn": {
        "backbone": "resnet50",
        "backbone_options": {"frozen_batch_norm": True, "frozen_stages": 2},
    },
    # Liu et al., Swin Transformer, 2021, section 4.2, with the authors' code, which is MMDetection's: each map is
    # normalised, regions are sampled as densely as they are large, boxes learn by L1
    "mask_rcnn_swin_tiny_fpn": {
        "backbone": "swin_tiny_patch4_window7_224",
        "backbone_options": {"any_size": True},
        "feature_norm": True,
        "rules": {
            "rounds_anchors": False,
            "proposals_before": 2000,
            "proposals_after": 1000,
            "lowest_overlap": 0.3,
            "samples_per_bin": -1,
            "aligned": True,
            "anchor_beta": 0.0,
            "box_beta": 0.0,
        },
    },
    # for pictures of 64 to 128 pixels, such as synthetic_shapes: an object is a tenth as large as COCO's
    "mask_rcnn_small": {
        "backbone": "resnet18",
        "backbone_options": {"dims": (16, 32, 64, 64), "depths": (1, 1, 1, 1)},
        "pyramid_channels": 48,
        "region_channels": 128,
        "mask_channels": (48, 48),
        "rules": {
            "anchor_sizes": (8, 16, 32, 64, 96),
            "reference_size": 56,
            "proposals_before": 200,
            "proposals_after": 100,
            "evaluated_before": 100,
            "evaluated_after": 50,
            "anchor_samples": 64,
            "region_samples": 32,
            "detections": 30,
        },
    },
}

FASTER_RCNN: Variants = {
    # torchvision's fasterrcnn_resnet50_fpn, version 1
    "faster_rcnn_resnet50_fpn": MASK_RCNN["mask_rcnn_resnet50_fpn"],
}
