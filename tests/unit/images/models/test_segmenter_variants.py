"""Published segmenters: one of each family, all others by night."""

from support.networks.published_sizes import require_sizes


def test_sizes_are_those_of_torchvision():
    """``num_params`` of ``FCN_ResNet*_Weights.COCO_WITH_VOC_LABELS_V1``."""
    require_sizes({"fcn_resnet50": 35_322_218, "fcn_resnet101": 54_314_346}, num_classes=21)


def test_sizes_are_those_of_the_authors():
    """Millions for ADE20K's classes: SegFormer's table 1a, and the READMEs of Swin's and ConvNeXt's authors."""
    require_sizes({"segformer_b0": 3.8, "segformer_b2": 27.5, "segformer_mmseg_b0": 3.8}, num_classes=150)
    require_sizes({"upernet_swin_tiny": 60, "upernet_convnext_tiny": 60}, num_classes=150)
