"""Radial errors of the outputs of any program."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.library.checks import host, require
from ...core.library.meters import Meter
from ...core.tasks.metrics import PerSampleMetrics
from ..volume_fields import make_landmarks


class RadialError(Meter):
    """Compute the radial error of landmarks: mean and deviation in mm, and the share within 2, 2.5, 3 and 4 mm.

    An output is positions in mm, float (landmarks, 3) for a volume or (landmarks, 2) for an image. A target is the true
    positions, with NaN or None for missing landmarks, or a dictionary of positions by name. Without any true position
    no score is defined.
    """

    def _build(self, names: list[str]) -> PerSampleMetrics:
        from .metrics import LandmarkMetrics

        return LandmarkMetrics(names)

    def _check(self, output: Any, target: Any) -> tuple[Any, ...]:
        predicted, true = host(output), target
        columns = 2 if predicted.shape[1:] == (2,) else 3
        if isinstance(target, (Mapping, list, tuple)):  # some may be None
            true = make_landmarks(target, self._names, columns=columns)
        true = host(true)
        require(
            predicted.shape == true.shape and predicted.shape in ((len(self._names), 3), (len(self._names), 2)),
            f"outputs of shape {predicted.shape} and targets of shape {true.shape}: expected "
            f"({len(self._names)}, 3) for both",
        )
        require(predicted.dtype.kind in "iuf", f"outputs are {predicted.dtype}: expected numbers")
        true = make_landmarks(true, self._names, columns=columns)
        errors = np.linalg.norm(predicted.astype(np.float64) - true, axis=-1)
        missing = np.flatnonzero(~np.isfinite(errors) & np.isfinite(true).all(axis=-1))
        name = self._names[missing[0]] if missing.size else ""
        require(not missing.size, f"landmark {name} has a true position, but its output is not finite")
        return (errors,)
