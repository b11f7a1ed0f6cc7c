"""Names of detectors with their arguments, and Mask R-CNN's settings, which the registry reads without Paddle."""

from typing import Any, NamedTuple

Variants = dict[str, dict[str, Any]]

# Carion et al., End-to-End Object Detection with Transformers, 2020, section 4 and table 1. The stem, the first stage
# and all batch norms of the backbone are frozen; DC5 dilates the last stage. Recipes set dropout, 0.1 in the paper.
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
# For images of 48 to 96 pixels, on CPUs: a backbone of two narrow stages with stride 8, trained from scratch, and
# queries initialized as points on a grid.
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

DETR: Variants = {
    "detr": dict(backbone="resnet50", **_PUBLISHED),  # a start for configurations that give their own dimensions
    "detr_resnet18": dict(backbone="resnet18", **_PUBLISHED),
    "detr_resnet34": dict(backbone="resnet34", **_PUBLISHED),
    "detr_resnet50": dict(backbone="resnet50", **_PUBLISHED),
    "detr_resnet50_dc5": dict(backbone="resnet50", dilation=True, **_PUBLISHED),
    "detr_resnet101": dict(backbone="resnet101", **_PUBLISHED),
    "detr_resnet101_dc5": dict(backbone="resnet101", dilation=True, **_PUBLISHED),
    "detr_small": _SMALL,
}

# Zhao et al., DETRs Beat YOLOs on Real-time Object Detection, CVPR 2024, table A, and github.com/lyuwenyu/RT-DETR,
# rtdetr_pytorch/configs: the smaller models have narrower paths, fewer decoder layers, and a convolution as the first
# block's shortcut.
_SMALLER_VD = {"backbone_options": {"first_shortcut": True}, "expansion": 0.5}
_FIXED = {"frozen_batch_norm": True, "frozen_stages": 1}  # the stem
_RTDETR_SIZES: Variants = {
    "r18vd": {"backbone": "resnet18d", "decoder_layers": 3, **_SMALLER_VD},
    "r34vd": {"backbone": "resnet34d", "decoder_layers": 4, **_SMALLER_VD},
    "r50vd": {"backbone": "resnet50d", **_FIXED},
    "r101vd": {
        "backbone": "resnet101d",
        **_FIXED,
        "encoder_dim": 384,
        "encoder_feedforward": 2048,
    },
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
    "dfine_m": {
        "backbone": "hgnetv2_b2",
        "backbone_options": _LAB,
        "blocks": 2,
        "expansion": 1.0,
        "decoder_layers": 4,
    },
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
}

MASK_RCNN: Variants = {
    # torchvision's maskrcnn_resnet50_fpn, version 1: stem, layer1 and batch norms are frozen
    "mask_rcnn_resnet50_fpn": {
        "backbone": "resnet50",
        "backbone_options": {"frozen_batch_norm": True, "frozen_stages": 2},
    },
    # Liu et al., Swin Transformer, 2021, section 4.2, with the authors' code, which is MMDetection's: each map is
    # normalized, the number of samples of a region depends on its size, boxes learn by L1
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
    # for images of 64 to 128 pixels, such as synthetic_shapes, with objects a tenth of the size of COCO's
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


class MaskRcnnRules(NamedTuple):
    """Settings of Mask R-CNN; the defaults are those in torchvision's maskrcnn_resnet50_fpn, version 1.

    Attributes:
        anchor_sizes: side in pixels of the square anchors of each level of the pyramid; other ratios keep the area.
        anchor_ratios: height to width of the anchors at each position.
        rounds_anchors: whether corners of anchors are rounded to integer offsets from their center.
        positive_overlap: an anchor with at least this IoU with an object is positive.
        negative_overlap: an anchor with a smaller IoU with all objects is negative; other anchors are ignored.
        lowest_overlap: the anchors with an object's largest IoU are positive too if it is at least this.
        random_samples: whether anchors and regions for the losses are sampled at random; else they are fixed for an
            image.
        anchor_samples: number of sampled anchors per image.
        anchor_share: largest fraction of positive samples among them.
        proposals_before: proposals per level kept in training before non-maximum suppression.
        proposals_after: proposals per image kept in training after it.
        evaluated_before: proposals per level kept in evaluation before non-maximum suppression.
        evaluated_after: proposals per image kept in evaluation after it.
        proposal_overlap: a proposal with a larger IoU with a better one is suppressed.
        region_overlap: a region with at least this IoU with an object learns it, other regions learn background.
        region_samples: number of sampled regions per image.
        region_share: largest fraction of positive samples among them.
        box_weights: scales of a region's regression (x, y, width, height).
        anchor_beta: transition of the anchors' smooth L1 loss from a square to a line; 0 for L1.
        box_beta: transition of the regions' smooth L1 loss from a square to a line; 0 for L1.
        box_size: side of the maps that are pooled for a region's box.
        mask_size: side of the maps that are pooled for a region's mask.
        samples_per_bin: sampling points in each direction of a pooled value; -1: about one per position.
        aligned: whether values of a map are at the centers of pixels, not at their corners.
        reference_size: side in pixels of a region that is pooled from the third map.
        least_score: lowest score of a detection.
        detection_overlap: a detection with a larger IoU with a better one of its class is suppressed.
        detections: largest number of detections in an image.

    """

    anchor_sizes: tuple[float, ...] = (32, 64, 128, 256, 512)
    anchor_ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    rounds_anchors: bool = True
    positive_overlap: float = 0.7
    negative_overlap: float = 0.3
    lowest_overlap: float = 0.0
    random_samples: bool = True
    anchor_samples: int = 256
    anchor_share: float = 0.5
    proposals_before: int = 2000
    proposals_after: int = 2000
    evaluated_before: int = 1000
    evaluated_after: int = 1000
    proposal_overlap: float = 0.7
    region_overlap: float = 0.5
    region_samples: int = 512
    region_share: float = 0.25
    box_weights: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)
    anchor_beta: float = 1 / 9
    box_beta: float = 1 / 9
    box_size: int = 7
    mask_size: int = 14
    samples_per_bin: int = 2
    aligned: bool = False
    reference_size: float = 224
    least_score: float = 0.05
    detection_overlap: float = 0.5
    detections: int = 100
