"""Lowest and highest possible values of scores."""

import math

import numpy as np

from ..runtime.errors import UserError
from ..runtime.printing import shorten

ScoreRange = tuple[float, float]
UNBOUNDED: ScoreRange = (-math.inf, math.inf)
PERCENT_RANGE: ScoreRange = (0.0, 100.0)
SHARE_RANGE: ScoreRange = (0.0, 1.0)
ERROR_RANGE: ScoreRange = (0.0, math.inf)
_ROUNDING = 1e-9  # of a value, or of one


class InvalidScoreError(UserError):
    """A score has not one value for each draw, or a value that its range excludes, or no valid range."""


def require_valid_range(name: str, bounds: object) -> None:
    """Raise InvalidScoreError if the range of a score is neither None nor its lowest and its highest value."""
    is_pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2 and all(map(_is_number, bounds))
    if bounds is not None and not (is_pair and bounds[0] < bounds[1]):  # type: ignore[index]
        raise InvalidScoreError(
            f"find_ranges: score {name!r} has the range {shorten(bounds, 60)}: expected its lowest and its highest "
            "value, such as (0.0, 1.0), with -math.inf or math.inf where there is no bound; or None for no interval"
        )


def require_inside(name: str, value: float, bounds: ScoreRange | None) -> None:
    """Raise InvalidScoreError if the value of a score is outside of its range by more than rounding."""
    rounding = _ROUNDING * max(abs(value), 1.0)
    if bounds is not None and not bounds[0] - rounding <= value <= bounds[1] + rounding:
        raise InvalidScoreError(
            f"score {name!r} is {value:g}, outside of its range {bounds}: correct the score, or declare its lowest and "
            "highest possible value in find_ranges of its kind of scores"
        )


def _is_number(bound: object) -> bool:
    return isinstance(bound, (int, float, np.number)) and not math.isnan(bound)
