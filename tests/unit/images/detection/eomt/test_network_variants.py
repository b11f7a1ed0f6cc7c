"""The published EoMTs: T. Kerssies et al., "Your ViT is Secretly an Image Segmentation Model", CVPR 2025, table 3."""

from support.networks.published_sizes import require_sizes


def test_sizes_are_those_of_the_authors():
    sizes = {"small": 24, "base": 93, "large": 316, "giant": 1164}
    require_sizes({f"eomt_instance_{size}": millions for size, millions in sizes.items()}, num_classes=133)
