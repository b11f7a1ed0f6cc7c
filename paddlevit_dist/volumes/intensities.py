"""Conversion of a volume's intensities to a network's input."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.runtime.errors import UserError
from .nonzero import VOLUME
from .settings import VolumeSection
from .store import DecodedVolume

_WINDOWED = ("ct", "percentiles")  # values of NORMALIZE that read INTENSITY_WINDOW


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
    window: Sequence[float] | None = None  # two numbers for all channels, or two for each
    mean_std: Sequence[float] | None = None  # likewise
    within: str = VOLUME

    @classmethod
    def from_config(cls, volumes: VolumeSection, channels: int, within: str | None = VOLUME) -> "IntensityConfig":
        """Create the scaling of channels from the section VOLUMES; UserError if its keys contradict one another.

        ``within`` is the region of "z_score", see ``nonzero``.
        """
        kinds, window, mean_std = list(volumes.NORMALIZE), volumes.INTENSITY_WINDOW, volumes.INTENSITY_MEAN_STD
        if len(kinds) not in (1, channels):
            raise UserError(
                f"VOLUMES.NORMALIZE has {len(kinds)} values for {channels} channels: set one, or one for each channel"
            )
        kinds = kinds if len(kinds) == channels else kinds * channels
        for name, numbers in (("INTENSITY_WINDOW", window), ("INTENSITY_MEAN_STD", mean_std)):
            if numbers is not None and len(numbers) not in (2, 2 * channels):
                raise UserError(
                    f"VOLUMES.{name} has {len(numbers)} numbers for {channels} channels: set two, or two for each "
                    "channel"
                )
        for channel, kind in enumerate(kinds):
            low, high = _pair(window or (0.0, 1.0), channel)
            if kind in _WINDOWED and low >= high:
                raise UserError(
                    f"VOLUMES.INTENSITY_WINDOW {list(window or ())}: expected two different numbers; write the smaller "
                    "number first"
                )
            if kind == "ct" and mean_std is not None and _pair(mean_std, channel)[1] <= 0:
                raise UserError(f"VOLUMES.INTENSITY_MEAN_STD {list(mean_std)}: the deviation must be above 0")
        if "ct" in kinds and window is None:
            raise UserError(
                "VOLUMES.NORMALIZE ct needs VOLUMES.INTENSITY_WINDOW, such as [-160, 240] for soft tissue, or "
                "the percentiles that 'inspect data' prints with VOLUMES.NORMALIZE z_score"
            )
        return cls(kinds, window, mean_std, within or VOLUME)

    def scaling(self, channel: int, decoded: DecodedVolume) -> IntensityScaling:
        """Return the scaling of one channel of a volume."""
        kind = self.kinds[channel]
        if kind == "none":
            return IntensityScaling(0.0, 1.0)
        if kind == "z_score":
            return IntensityScaling(*decoded.moments)
        if kind == "min_max":
            low, high = decoded.extremes
            return IntensityScaling(low, high - low or 1.0)
        low, high = decoded.window if self.window is None else _pair(self.window, channel)
        if kind == "percentiles":
            return IntensityScaling(low, high - low)
        middle, half = (low + high) / 2, (high - low) / 2
        mean, deviation = (middle, half) if self.mean_std is None else _pair(self.mean_std, channel)
        return IntensityScaling(mean, deviation, low, high)

    def find_shared(self, channels: Sequence[str]) -> list[str]:
        """Return a notice if several channels have one window."""
        windowed = [name for name, kind in zip(channels, self.kinds) if kind in _WINDOWED]
        if self.window is None or len(self.window) > 2 or len(windowed) < 2:
            return []
        return [
            f"note: VOLUMES.INTENSITY_WINDOW {list(self.window)} is for each of the channels {', '.join(windowed)}; if "
            f"they differ, write two numbers for each of the {len(self.kinds)} channels"
        ]

    def about(self) -> dict[str, object]:
        """Return the settings as plain values, for the record of a checkpoint."""
        record: dict[str, object] = {"normalize": list(self.kinds), "intensity_window": _to_record(self.window)}
        if "z_score" in self.kinds and self.within != VOLUME:  # the default is not recorded
            record["z_score"] = self.within
        return record if self.mean_std is None else {**record, "intensity_mean_std": _to_record(self.mean_std)}


def _pair(numbers: Sequence[float], channel: int) -> tuple[float, float]:
    """Return the two numbers of a channel: its own, or the ones for all channels."""
    first = 2 * channel if len(numbers) > 2 else 0
    return numbers[first], numbers[first + 1]


def _to_record(numbers: Sequence[float] | None) -> list[Any] | None:
    """Convert numbers to plain values: two, or a list of two for each channel."""
    if numbers is None:
        return None
    plain = [float(number) for number in numbers]
    return plain if len(plain) == 2 else [plain[first : first + 2] for first in range(0, len(plain), 2)]
