"""How far the outputs of an exported model are from those of the trained one."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

# Of outputs, relative to the largest: float32 is computed in different orders, float16 has 11 bits.
LARGEST = {"float32": 1e-4, "float16": 5e-2}


class OutputDifference(NamedTuple):
    """How far the outputs of two models are apart.

    Attributes:
        absolute: the largest difference; infinite where one is not finite.
        largest: output.
        of: what was compared, in words; "": all outputs.
    """

    absolute: float
    largest: float
    of: str = ""

    def __str__(self) -> str:
        by = (
            f"by at most {self.absolute:.1e}"
            if math.isfinite(self.absolute)
            else "without a limit: some are not finite"
        )
        return f"{self.of or f'outputs up to {self.largest:.3g}'} differ {by}"

    def is_rounding(self, precision: str) -> bool:
        """Whether it can be that of a computation in "float32" or "float16"."""
        return self.absolute <= LARGEST[precision] * max(1.0, self.largest)


def compare(
    expected: Sequence[Any],
    found: Sequence[Any],
    differ: Callable[[Sequence[Any], Sequence[Any]], tuple[float, str]] | None = None,
) -> OutputDifference:
    """The difference of outputs, lists of arrays.

    Args:
        differ: the task's own, see ``ExportParts.difference``; None: of all numbers.
    """
    import numpy as np

    if differ is not None:
        apart, of = differ(expected, found)
        return OutputDifference(apart, 1.0, of)
    apart = max(float(np.abs(one - other).max()) for one, other in zip(expected, found, strict=True))
    return OutputDifference(apart if apart == apart else math.inf, max(float(np.abs(one).max()) for one in expected))


def require_small(difference: OutputDifference, precision: str, output: str) -> None:
    """
    Raises:
        RuntimeError: it is more than that of rounding; or not finite, where the task compares in its own way, as
            rounding may choose other objects.
    """
    if not (difference.of and math.isfinite(difference.absolute)) and not difference.is_rounding(precision):
        raise RuntimeError(
            f"{output} gives other outputs than the model it was exported from: {difference.absolute:g}; "
            "nothing was written"
        )
