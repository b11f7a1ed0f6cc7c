"""The tables of these networks are those that their weights were trained with."""

from support.networks.variants import check_tables

from paddlevit_dist.images.detection.mask_rcnn.rules import MaskRcnnRules


def test_options_variants_and_declarations_are_those_of_the_table():
    check_tables("detection.mask_rcnn")


def test_rules_are_those_of_torchvision():
    """The arguments of its ``MaskRCNN``; ``roi_heads``' betas are those of its first release."""
    assert MaskRcnnRules() == (
        *((32, 64, 128, 256, 512), (0.5, 1.0, 2.0), True),
        *(0.7, 0.3, 0.0, True, 256, 0.5, 2000, 2000, 1000, 1000, 0.7),
        *(0.5, 512, 0.25, (10.0, 10.0, 5.0, 5.0), 1 / 9, 1 / 9),
        *(7, 14, 2, False, 224, 0.05, 0.5, 100),
    )
