"""Settings of Mask R-CNN: anchors, sampling, pooling and detections."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ....core.runtime.errors import UserError
from ....core.runtime.hints import suggest
from ....core.runtime.printing import shorten


class MaskRcnnRules(NamedTuple):
    """Settings of Mask R-CNN; the defaults are those in torchvision's maskrcnn_resnet50_fpn, version 1."""

    anchor_sizes: tuple[float, ...] = (32, 64, 128, 256, 512)  # pixels at each level; other ratios keep the area
    anchor_ratios: tuple[float, ...] = (0.5, 1.0, 2.0)  # height to width of the anchors at each position
    rounds_anchors: bool = True  # whether corners of anchors are rounded to integer offsets from their center
    positive_overlap: float = 0.7  # an anchor with at least this IoU with an object is positive
    negative_overlap: float = 0.3  # an anchor with a smaller IoU with all objects is negative; others are ignored
    lowest_overlap: float = 0.0  # the anchors with an object's largest IoU are positive too if it is at least this
    random_samples: bool = True  # draw anchors and regions for the losses at random; else they are fixed for an image
    anchor_samples: int = 256  # number of sampled anchors per image
    anchor_share: float = 0.5  # largest fraction of positive samples among them
    proposals_before: int = 2000  # proposals per level kept in training before non-maximum suppression
    proposals_after: int = 2000  # proposals per image kept in training after it
    evaluated_before: int = 1000  # proposals per level kept in evaluation before non-maximum suppression
    evaluated_after: int = 1000  # proposals per image kept in evaluation after it
    proposal_overlap: float = 0.7  # a proposal with a larger IoU with a better one is suppressed
    region_overlap: float = 0.5  # a region with at least this IoU with an object learns it, others background
    region_samples: int = 512  # number of sampled regions per image
    region_share: float = 0.25  # largest fraction of positive samples among them
    box_weights: tuple[float, float, float, float] = (10.0, 10.0, 5.0, 5.0)  # of a region's x, y, width, height
    anchor_beta: float = 1 / 9  # transition of the anchors' smooth L1 loss from a square to a line; 0 for L1
    box_beta: float = 1 / 9  # transition of the regions' smooth L1 loss from a square to a line; 0 for L1
    box_size: int = 7  # side of the maps that are pooled for a region's box
    mask_size: int = 14  # side of the maps that are pooled for a region's mask
    samples_per_bin: int = 2  # sampling points in each direction of a pooled value; -1: about one per position
    aligned: bool = False  # whether values of a map are at the centers of pixels, not at their corners
    reference_size: float = 224  # side in pixels of a region that is pooled from the third map
    least_score: float = 0.05  # lowest score of a detection
    detection_overlap: float = 0.5  # a detection with a larger IoU with a better one of its class is suppressed
    detections: int = 100  # largest number of detections in an image

    @classmethod
    def read(cls, rules: object, **defaults: Any) -> "MaskRcnnRules":
        """Return rules of these values by name, and of ``defaults``; UserError: there is no such rule or value."""
        chosen = {} if rules is None else rules
        if not isinstance(chosen, Mapping):
            raise UserError(
                f"MODEL.OPTIONS.rules {shorten(repr(rules))}: expected values by name, such as {{box_beta: 0.1}}"
            )
        for name, value in chosen.items():
            if name not in cls._fields:
                hint, names = suggest(str(name), cls._fields), ", ".join(cls._fields)
                raise UserError(f"MODEL.OPTIONS.rules has no '{name}': {hint}remove it; it has {names}")
            if not _is_like(value, cls._field_defaults[name]):
                example = cls._field_defaults[name]
                raise UserError(
                    f"MODEL.OPTIONS.rules.{name} {shorten(repr(value))}: expected a value such as {example}"
                )
        return cls(**{**defaults, **chosen})


def _is_like(value: object, default: object) -> bool:
    """Return whether a value has the type of the default; whole numbers are floats, too."""
    if isinstance(default, tuple):
        return isinstance(value, (list, tuple)) and all(_is_like(item, default[0]) for item in value)
    if isinstance(default, bool) or isinstance(value, bool):
        return type(value) is type(default)
    return isinstance(value, (int, float) if isinstance(default, float) else int)
