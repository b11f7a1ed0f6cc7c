"""Settings of Mask R-CNN: anchors, sampling, pooling and detections."""

from typing import NamedTuple


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
