"""The published PointGroup."""

from support.networks.published_sizes import require_sizes


def test_its_size_is_that_of_the_authors():
    """The count that their program prints for ScanNet's 20 classes, in millions."""
    require_sizes({"pointgroup": 7.7}, num_classes=20)
