"""The phantoms of heads with the organs as classes: the dataset for trying segmentation of volumes out."""

from pathlib import Path

import numpy as np

from ...tasks.dataset import require_split
from ..phantoms import ORGANS, SIZES, SPACING_MM, PhantomDataset
from ..store import DecodedVolume
from .dataset import AS_THEY_ARE, LabelMap, LabelSource, SegmentationOptions, SegmentedVolumes


class SyntheticOrgans(PhantomDataset, SegmentedVolumes):
    """Phantoms with the class of each voxel."""

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path | None, options: SegmentationOptions = AS_THEY_ARE
    ) -> None:
        self.split = require_split(split, tuple(SIZES), "synthetic_organs")
        self.class_names, self.numbers, self.channels = list(ORGANS), list(range(len(ORGANS))), ["CT"]
        self.spacing = np.array(SPACING_MM)
        self._drawn = {}

    def read(self, index: int) -> tuple[list[DecodedVolume], LabelMap | None]:
        phantom, organs = self._get_drawn(index)
        return [phantom.decoded], LabelMap.of(organs, phantom.geometry)

    def source(self, index: int) -> LabelSource:
        return LabelSource(None, self._get_drawn(index)[0].geometry)
