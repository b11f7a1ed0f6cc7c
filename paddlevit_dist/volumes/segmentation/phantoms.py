"""Phantoms of heads with organs as classes: a dataset for first trials of volume segmentation."""

from pathlib import Path

import numpy as np

from ...core.tasks.dataset import require_split
from ..phantoms import ORGANS, SIZES, SPACING_MM, PhantomDataset
from ..store import DecodedVolume
from .dataset import DEFAULT_OPTIONS, LabelMap, LabelSource, SegmentationOptions, SegmentedVolumes


class SyntheticOrgans(PhantomDataset, SegmentedVolumes):
    """Phantoms with the class of each voxel."""

    def __init__(
        self,
        data_path: str | None,
        split: str,
        cache_folder: Path | None,
        options: SegmentationOptions = DEFAULT_OPTIONS,
    ) -> None:
        self.split = require_split(split, tuple(SIZES), "synthetic_organs")
        self.class_names, self.numbers, self.channels = list(ORGANS), list(range(len(ORGANS))), ["CT"]
        self.spacing = np.array(SPACING_MM)
        self._drawn = {}

    def read(self, index: int) -> tuple[list[DecodedVolume], LabelMap | None]:
        """Return the volume and the organs of phantom ``index``."""
        phantom, organs = self._get_drawn(index)
        return [phantom.decoded], LabelMap.from_array(organs, phantom.geometry)

    def source(self, index: int) -> LabelSource:
        """Return the geometry of phantom ``index``, which has no file."""
        return LabelSource(None, self._get_drawn(index)[0].geometry)
