"""What the weights of a volume task record of their input, see ``Task.signature``."""

from itertools import chain
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_MOST = 1 << 16
_Millimeters = Annotated[float, Meta(gt=0, le=1e6)]
_Label = Annotated[int, Meta(ge=0, lt=_MOST)]
_Names = Annotated[list[str], Meta(max_length=_MOST)]
_Labels = Annotated[list[_Label], Meta(max_length=_MOST)]


class VolumeInputFacts(msgspec.Struct):
    """Facts by name; None or empty: not recorded."""

    spacing_mm: tuple[_Millimeters, _Millimeters, _Millimeters] | None = None
    channels: _Names | None = None
    landmarks: _Names | None = None
    normalize: list[str] = []
    z_score: Literal["mask", "box", "volume"] = "volume"  # region of its mean and deviation, see ``nonzero``
    label_numbers: _Labels | None = None
    regions: dict[str, _Labels] = {}
    regions_class_order: list[_Label] = []

    def __post_init__(self) -> None:
        known = set(self.label_numbers or ())
        if len(known) < len(self.label_numbers or ()):
            raise ValueError("Expected different label_numbers")
        if len(self.regions) != len(self.regions_class_order):
            raise ValueError(f"Expected {len(self.regions)} numbers in regions_class_order, one of each region")
        if not known.issuperset(chain(self.regions_class_order, *self.regions.values())):
            raise ValueError("Expected regions of label_numbers only")
