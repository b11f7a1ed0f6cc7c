"""Dice coefficients of the outputs of any program."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.library.checks import check_label_pair, require, require_few
from ...core.library.meters import Meter
from ...core.tasks.metrics import PerSampleMetrics


class VolumeDice(Meter):
    """Compute Dice coefficients of volumes as fractions, and surface distances in mm.

    An output is the class of each voxel, int (depth, height, width). A target is the true class of each, 255 for none.
    The first class is the background.

    Options: ``distances=False`` skips distances; ``spacing_mm``, size of the voxels (depth, height, width).
    """

    def _build(
        self, names: list[str], distances: bool = True, spacing_mm: Sequence[float] = (1.0, 1.0, 1.0)
    ) -> PerSampleMetrics:
        from .metrics import VolumeMetrics

        require_few(names)
        require(len(names) > 1, f"classes={names}: expected the background and at least one more")
        self._spacing = np.asarray(spacing_mm, np.float64)
        require(
            self._spacing.shape == (3,) and bool(((self._spacing > 0) & np.isfinite(self._spacing)).all()),
            f"spacing_mm={spacing_mm}: expected three positive numbers: depth, height and width",
        )
        return VolumeMetrics(names, distances)

    def _check(self, output: Any, target: Any) -> tuple[Any, ...]:
        predicted, true = check_label_pair(output, target, ("depth", "height", "width"), len(self._names), [255])
        return predicted.astype(np.uint8), true.astype(np.uint8), self._spacing
