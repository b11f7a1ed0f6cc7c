"""The phantoms of heads with the organs as classes: the dataset for trying segmentation of volumes out."""

from pathlib import Path
from typing import Any

import numpy as np

from ...contracts.dataset import require_split
from ..phantoms import ORGANS, SIZES, SPACING_MM, head_of, paint, seeded
from ..store import Decoded, moments
from .dataset import AS_THEY_ARE, LabelMap, Options, SegmentedVolumes, Source


class SyntheticOrgans(SegmentedVolumes):
    """96 phantoms to train on and 24 others to evaluate, each the same on every machine and in every run.

    Voxels are drawn on first access and then kept in memory (270 kB each).
    """

    def __init__(
        self, data_path: str | None, split: str, cache_folder: Path | None, options: Options = AS_THEY_ARE
    ) -> None:
        self.split = require_split(split, tuple(SIZES), "synthetic_organs")
        self.class_names, self.numbers, self.channels = list(ORGANS), list(range(len(ORGANS))), ["CT"]
        self.spacing = np.array(SPACING_MM)
        self._drawn: dict[int, tuple[Decoded, LabelMap]] = {}

    def __len__(self) -> int:
        return SIZES[self.split]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_drawn": {}}

    def read(self, index: int) -> tuple[list[Decoded], LabelMap | None]:
        if index not in self._drawn:
            phantom, organs = paint(head_of(seeded(self.split, index)))
            decoded = Decoded(phantom.voxels, phantom.geometry, (-1000.0, 1000.0), moments(phantom.voxels))
            self._drawn[index] = decoded, LabelMap.of(organs, phantom.geometry)
        decoded, labels = self._drawn[index]
        return [decoded], labels

    def stored_labels(self, index: int) -> LabelMap | None:
        return self.read(index)[1]

    def source(self, index: int) -> Source:
        return Source(None, self.read(index)[0][0].geometry)

    def case(self, index: int) -> str:
        return f"phantom_{self.split}_{index:03d}"

    def describe(self, index: int) -> str:
        return f"drawn phantom {self.split} {index}"
