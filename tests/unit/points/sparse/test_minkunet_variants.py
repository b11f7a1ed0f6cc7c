"""The published MinkUNets: C. Choy et al., 4D Spatio-Temporal ConvNets, CVPR 2019, and their program."""

import pytest
from support.networks.published_sizes import require_sizes

from paddlevit_dist.core.tasks.model_factory import variant_options

LAYERS = {14: (1,) * 8, 18: (2,) * 8, 34: (2, 3, 4, 6, 2, 2, 2, 2)}
PLANES = {  # the four last ones
    "14a": (128, 128, 96, 96), "14b": (128, 128, 128, 128), "14c": (192, 192, 128, 128),
    "18a": (128, 128, 96, 96), "18b": (128, 128, 128, 128), "18c": (192, 192, 128, 128),
    "34a": (256, 128, 64, 64), "34b": (256, 128, 64, 32), "34c": (256, 128, 96, 96),
}  # fmt: skip


@pytest.mark.parametrize("size", PLANES)
def test_a_size_has_the_layers_and_planes_of_the_authors(size):
    options = variant_options(f"minkunet{size}")
    assert tuple(options["depths"]) == LAYERS[int(size[:2])]
    assert tuple(options["widths"]) == (32, 64, 128, 256, *PLANES[size])


def test_the_largest_is_as_large_as_published():
    """Millions in the tables of later papers that compare with it, such as PTv3's."""
    require_sizes({"minkunet34c": 37.9}, num_classes=20)
