"""Differences between the outputs of an exported model and of the trained model."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

INT8 = "int8"
# Differences relative to the largest output: float32 is summed in different orders, float16 has 11 bits. int8 has no
# bound that holds for all networks: its cost is measured by the score.
LARGEST = {"float32": 1e-4, "float16": 5e-2, INT8: math.inf}


class OutputDifference(NamedTuple):
    """Difference between the outputs of two models."""

    absolute: float  # largest absolute difference; infinite if an output is not finite
    largest: float  # largest absolute output
    of: str = ""  # what was compared, in words; "": all outputs

    def __str__(self) -> str:
        by = f"at most {self.absolute:.1e}" if math.isfinite(self.absolute) else "infinity: some are not finite"
        return f"{self.of or f'outputs up to {self.largest:.3g}'} differ by {by}"

    def is_rounding(self, precision: str) -> bool:
        """Return whether rounding in "float32", "float16" or "int8" explains the difference."""
        return math.isfinite(self.absolute) and self.absolute <= LARGEST[precision] * max(1.0, self.largest)


def compare(
    expected: "Sequence[np.ndarray]",
    actual: "Sequence[np.ndarray]",
    differ: "Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], tuple[float, str]] | None" = None,
) -> OutputDifference:
    """Compute the difference of outputs of the trained and of the exported model.

    ``differ`` is the task's comparison, see ``ExportParts.difference``; None compares all numbers.
    """
    import numpy as np

    if differ is not None:
        difference, of = differ(expected, actual)
        return OutputDifference(difference, 1.0, of)
    difference = max(float(np.abs(a - b).max()) for a, b in zip(expected, actual, strict=True))
    largest = max(float(np.abs(array).max()) for array in expected)
    return OutputDifference(math.inf if math.isnan(difference) else difference, largest)


def require_small(difference: OutputDifference, precision: str, output: str) -> None:
    """Raise a RuntimeError unless an exported model computes what the trained model computes, up to rounding.

    With a comparison of the task, any finite difference passes: rounding may select other objects.
    """
    if not (difference.of and math.isfinite(difference.absolute)) and not difference.is_rounding(precision):
        raise RuntimeError(
            f"{output} differs from the model it was exported from: by {difference.absolute:g}; nothing was written"
        )
