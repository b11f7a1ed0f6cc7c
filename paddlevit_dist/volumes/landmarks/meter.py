"""Radial errors of the outputs of any program."""

from typing import Any

import numpy as np

from ...core.library.checks import host, require
from ...core.library.meters import Meter
from ...core.tasks.metrics import PerSampleMetrics


class RadialError(Meter):
    """Compute the radial error of landmarks: mean and deviation in mm, and the share within 2, 2.5, 3 and 4 mm.

    An output is positions in mm, float (landmarks, 3) for a volume or (landmarks, 2) for an image. A target is the true
    positions, with NaN for missing landmarks.
    """

    def _build(self, names: list[str]) -> PerSampleMetrics:
        from .metrics import LandmarkMetrics

        return LandmarkMetrics(names)

    def _check(self, output: Any, target: Any) -> tuple[Any, ...]:
        predicted, true = host(output), host(target)
        require(
            predicted.shape == true.shape and predicted.shape in ((len(self._names), 3), (len(self._names), 2)),
            f"outputs of shape {predicted.shape} and targets of shape {true.shape}: expected "
            f"({len(self._names)}, 3) for both",
        )
        errors = np.linalg.norm(predicted.astype(np.float64) - true, axis=-1)
        missing = np.flatnonzero(~np.isfinite(errors) & np.isfinite(true).all(axis=-1))
        name = self._names[missing[0]] if missing.size else ""
        require(not missing.size, f"landmark {name} has a true position, but its output is not finite")
        return (errors,)
