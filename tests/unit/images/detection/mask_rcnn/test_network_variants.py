"""The published Faster and Mask R-CNNs, and torchvision's rules."""

import pytest
from support.networks.published_sizes import require_sizes
from support.refusals import refusal_of

from paddlevit_dist.images.detection.mask_rcnn.rules import MaskRcnnRules


def test_sizes_are_those_of_torchvision():
    """``num_params`` of its ``*_Weights.COCO_V1``, which have an output for the background among 91."""
    sizes = {"faster_rcnn_resnet50_fpn": 41_755_286, "mask_rcnn_resnet50_fpn": 44_401_393}
    require_sizes(sizes, num_classes=90, counts_frozen=True)


def test_rules_are_those_of_torchvision():
    """The arguments of its ``MaskRCNN``; ``roi_heads``' betas are those of its first release."""
    assert MaskRcnnRules() == (
        *((32, 64, 128, 256, 512), (0.5, 1.0, 2.0), True),
        *(0.7, 0.3, 0.0, True, 256, 0.5, 2000, 2000, 1000, 1000, 0.7),
        *(0.5, 512, 0.25, (10.0, 10.0, 5.0, 5.0), 1 / 9, 1 / 9),
        *(7, 14, 2, False, 224, 0.05, 0.5, 100),
    )


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"beta": 1}, "rules has no 'beta'"),
        ({"box_beta": "abc"}, "rules.box_beta 'abc'"),
        ({"detections": 2.5}, "rules.detections 2.5"),
        ({"aligned": 1}, "rules.aligned 1"),
        ({"anchor_sizes": [1, "b"]}, "rules.anchor_sizes"),
        (3, "rules 3"),
    ],
)
def test_rules_that_there_are_not_are_refused(rules, told):
    assert refusal_of(MaskRcnnRules.read, rules).startswith(f"MODEL.OPTIONS.{told}")


def test_rules_replace_defaults():
    rules = MaskRcnnRules.read({"box_beta": 0, "anchor_sizes": [8, 16]}, random_samples=False)
    assert rules == MaskRcnnRules()._replace(box_beta=0, anchor_sizes=[8, 16], random_samples=False)
    assert MaskRcnnRules.read(None) == MaskRcnnRules.read({}) == MaskRcnnRules()
