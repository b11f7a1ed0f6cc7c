"""What panoptic segmentation of images brings."""

from ...core.registry.manifest import Manifest

MANIFEST = Manifest(
    __package__,
    score_kinds={"panoptic": ".score_kind:PanopticScores"},
)
