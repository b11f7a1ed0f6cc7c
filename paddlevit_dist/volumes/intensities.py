"""Conversion of a volume's intensities to a network's input."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..runtime.errors import UserError
from .nonzero import VOLUME
from .settings import VolumeSection
from .store import DecodedVolume


class IntensityScaling(NamedTuple):
    """Linear scaling of clipped intensities: ``(clip(x, low, high) - zero) / unit``."""

    zero: float
    unit: float
    low: float = -np.inf
    high: float = np.inf

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Return scaled intensities, float32 of the array's shape."""
        values = array.astype(np.float32)
        if np.isfinite(self.low):
            np.clip(values, np.float32(self.low), np.float32(self.high), out=values)
        values -= np.float32(self.zero)
        values /= np.float32(self.unit)
        return values


class IntensityConfig(NamedTuple):
    """Intensity scaling of each channel; see the keys VOLUMES.NORMALIZE, INTENSITY_WINDOW and INTENSITY_MEAN_STD.

    Source of "ct" and "z_score": F. Isensee et al., 2021, "nnU-Net", Nature Methods 18. Its ``plans.json`` has the
    numbers for "ct": percentile_00_5 and percentile_99_5, mean and std.
    """

    kinds: Sequence[str] = ("percentiles",)
    window: Sequence[float] | None = None
    mean_std: Sequence[float] | None = None
    within: str = VOLUME

    @classmethod
    def from_config(cls, volumes: VolumeSection, channels: int, within: str | None = VOLUME) -> "IntensityConfig":
        """Create the scaling of ``channels`` channels from the section VOLUMES of a configuration.

        Args:
            within: region of "z_score", see ``nonzero``.

        Raises:
            UserError: the keys contradict one another.
        """
        kinds, window, mean_std = list(volumes.NORMALIZE), volumes.INTENSITY_WINDOW, volumes.INTENSITY_MEAN_STD
        if len(kinds) not in (1, channels):
            raise UserError(
                f"VOLUMES.NORMALIZE has {len(kinds)} values for {channels} channels: set one, or one for each channel"
            )
        if window is not None and window[0] >= window[1]:
            raise UserError(f"VOLUMES.INTENSITY_WINDOW {list(window)}: write the smaller number first")
        if "ct" in kinds and window is None:
            raise UserError(
                "VOLUMES.NORMALIZE ct needs VOLUMES.INTENSITY_WINDOW, such as [-160, 240] for soft tissue, or "
                "the percentiles that 'inspect data' prints with VOLUMES.NORMALIZE z_score"
            )
        if mean_std is not None and mean_std[1] <= 0:
            raise UserError(f"VOLUMES.INTENSITY_MEAN_STD {list(mean_std)}: the deviation must be above 0")
        return cls(kinds if len(kinds) == channels else kinds * channels, window, mean_std, within or VOLUME)

    def scaling(self, channel: int, decoded: DecodedVolume) -> IntensityScaling:
        """Return the scaling of one channel of a volume."""
        kind = self.kinds[channel]
        if kind == "none":
            return IntensityScaling(0.0, 1.0)
        if kind == "z_score":
            return IntensityScaling(*decoded.moments)
        low, high = self.window or decoded.window
        if kind == "percentiles":
            return IntensityScaling(low, high - low)
        mean, deviation = self.mean_std or ((low + high) / 2, (high - low) / 2)
        return IntensityScaling(mean, deviation, low, high)

    def about(self) -> dict[str, object]:
        """Return the settings as plain values, for the record of a checkpoint."""
        window = None if self.window is None else [float(bound) for bound in self.window]
        record: dict[str, object] = {"normalize": list(self.kinds), "intensity_window": window}
        if "z_score" in self.kinds and self.within != VOLUME:  # the default is not recorded
            record["z_score"] = self.within
        return record if self.mean_std is None else {**record, "intensity_mean_std": [float(v) for v in self.mean_std]}
