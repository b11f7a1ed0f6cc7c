"""The networks of scenes with few channels: those of the registered ones take most of a test's time."""

from collections.abc import Iterator

import pytest

from paddlevit_dist.core.registry.register import register_model
from paddlevit_dist.points.sparse.minkunet import MinkClassifier, MinkUNet

WIDTHS = (8, 12, 16, 24, 20, 16, 12, 10)


class NarrowUNet(MinkUNet):
    """``minkunet14a`` with few channels."""

    def __init__(self, num_classes: int = 20, in_channels: int = 3, dimension: int = 3) -> None:
        super().__init__(num_classes, in_channels, widths=WIDTHS, first_channels=8, dimension=dimension)


class NarrowClassifier(MinkClassifier):
    """``mink_classifier14`` with few channels."""

    def __init__(self, num_classes: int = 40, in_channels: int = 3, dimension: int = 3) -> None:
        super().__init__(num_classes, in_channels, widths=WIDTHS[:4], first_channels=8, dimension=dimension)


@pytest.fixture(scope="module", autouse=True)
def narrow_networks(registered_names: None) -> Iterator[None]:
    """Register both while a module's tests run: MODEL.NAME narrow_unet and narrow_classifier."""
    register_model("narrow_unet", NarrowUNet)
    register_model("narrow_classifier", NarrowClassifier)
    yield
