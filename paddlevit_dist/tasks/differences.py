"""How far the outputs of an exported model are from those of the trained one; numpy only."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Difference(NamedTuple):
    """How far the outputs of two models are apart.

    Attributes:
        absolute: the largest difference.
        largest: output.
        of: what was compared, in words; "": all outputs.
    """

    absolute: float
    largest: float
    of: str = ""

    def __str__(self) -> str:
        by = f"by at most {self.absolute:.1e}" if math.isfinite(self.absolute) else "without a limit: some are not finite"
        return f"{self.of or f'outputs up to {self.largest:.3g}'} differ {by}"


def elementwise(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> Difference:
    """Of all numbers of all outputs; infinite where one is not a number."""
    apart = max(float(np.abs(one - other).max()) for one, other in zip(expected, found, strict=True))
    return Difference(apart if apart == apart else math.inf, max(float(np.abs(one).max()) for one in expected))
