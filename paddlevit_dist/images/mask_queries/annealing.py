"""When a block's queries stop being limited to their masks while a network trains."""

from collections.abc import Sequence
from typing import NamedTuple

from ...core.runtime.errors import UserError

Annealing = Sequence[Sequence[float]]
_POWER = 0.9


class MaskAnnealing(NamedTuple):
    """The part of training in which a block's masks vanish, in updates or in shares of the training."""

    start: float
    end: float
    is_share: bool = False

    def probability(self, update: int, total_updates: int | None = None) -> float:
        """Return how likely a query sees only its mask in the update after ``update`` ones."""
        scale = (total_updates or 0) if self.is_share else 1
        start, end = self.start * scale, self.end * scale
        if update < start:
            return 1.0
        return 0.0 if update >= end else float((1 - (update - start) / (end - start)) ** _POWER)


def list_annealing(annealing: Annealing | None, blocks: int) -> list[MaskAnnealing]:
    """Return the course of each block, the first block first.

    Args:
        annealing: for each block, when its masks begin to vanish and when none is left. They are shares of the training
            if no number in the list is above 1, else updates. None: each block in turn, spread over the training as in
            the published recipes of most sizes.
        blocks: number of blocks.

    Raises:
        UserError: there are not as many pairs as blocks, one ends before it starts, or an update is not a whole number.
    """
    if annealing is None:  # from a sixth to five sixths
        share = (2 / 3) / blocks
        return [MaskAnnealing(1 / 6 + number * share, 1 / 6 + (number + 1) * share, True) for number in range(blocks)]
    pairs = annealing if isinstance(annealing, (list, tuple)) else ()
    numbers = [part for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2 for part in pair]
    is_valid = len(pairs) == blocks and len(numbers) == 2 * blocks
    is_valid = is_valid and all(isinstance(part, (int, float)) and not isinstance(part, bool) for part in numbers)
    is_valid = is_valid and all(0 <= start < end for start, end in pairs)
    is_share = is_valid and max(numbers) <= 1
    if not is_valid or not (is_share or all(float(part).is_integer() for part in numbers)):
        raise UserError(
            f"option annealing {annealing}: expected for each of the {blocks} blocks (num_blocks) a start and an end, "
            "all in shares of the training from 0 to 1, such as [0.2, 0.4], or all in updates"
        )
    return [MaskAnnealing(start, end, is_share) for start, end in pairs]
