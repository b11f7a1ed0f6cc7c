"""When a block's queries stop being limited to their masks while a network trains."""

from collections.abc import Sequence
from typing import NamedTuple

from ...core.runtime.errors import UserError

Annealing = Sequence[Sequence[float]]
_POWER = 0.9


class MaskAnnealing(NamedTuple):
    """The part of training in which a block's masks vanish: in updates, or from 0 to 1 in shares of all."""

    start: float
    end: float

    def probability(self, update: int, total_updates: int | None = None) -> float:
        """Return how likely a query sees only its mask in the update after ``update`` ones."""
        start, end = self
        if end <= 1:
            start, end = (part * (total_updates or 0) for part in self)
        if update < start:
            return 1.0
        return 0.0 if update >= end else float((1 - (update - start) / (end - start)) ** _POWER)


def list_annealing(annealing: Annealing | None, blocks: int) -> list[MaskAnnealing]:
    """Return the course of each block, the first block first.

    Args:
        annealing: pairs of the first and the last update; None: each block in turn, spread over the training as in the
            published recipes of most sizes.
        blocks: number of blocks.

    Raises:
        UserError: there are not as many pairs as blocks, or one ends before it starts.
    """
    if annealing is None:  # from a sixth to five sixths
        share = (2 / 3) / blocks
        return [MaskAnnealing(1 / 6 + number * share, 1 / 6 + (number + 1) * share) for number in range(blocks)]
    pairs = annealing if isinstance(annealing, (list, tuple)) else ()
    if len(pairs) != blocks or not all(map(_is_course, pairs)):
        raise UserError(
            f"option annealing {annealing}: expected for each of the {blocks} blocks (num_blocks) the first and the "
            "last update, whole numbers, or shares of the training from 0 to 1, such as [0.2, 0.4]"
        )
    return [MaskAnnealing(*pair) for pair in pairs]


def _is_course(pair: object) -> bool:
    """Return whether a value is two updates or two shares, in order."""
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return False
    if any(isinstance(part, bool) or not isinstance(part, (int, float)) for part in pair):
        return False
    start, end = pair
    return 0 <= start < end and (end <= 1 or all(float(part).is_integer() for part in pair))
