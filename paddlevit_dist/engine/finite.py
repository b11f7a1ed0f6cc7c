"""An update that is not finite changes nothing: what is copied for that, and what is counted and told of it."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Protocol

import paddle

from ..contracts.task import Step
from ..errors import UserError

SCALER_SKIPS = 50  # more in a row with a loss scaler: from 65,536 it takes 16 to reach 1, from 2**40 it takes 40


class Kept:
    """A copy of tensors, for restoring them. It is made in every update and hardly ever needed, so that all tensors of
    one dtype are copied by one operation: a ResNet-50 has 106."""

    @paddle.no_grad()
    def __init__(self, tensors: Iterable[paddle.Tensor]) -> None:
        alike: Dict[Any, List[paddle.Tensor]] = {}
        for tensor in tensors:
            if tensor.size:
                alike.setdefault((tensor.dtype, str(tensor.place)), []).append(tensor)
        self._copies = [
            (group, paddle.concat([tensor if tensor.ndim == 1 else tensor.reshape([-1]) for tensor in group]))
            for group in alike.values()
        ]

    @paddle.no_grad()
    def put_back(self) -> None:
        """Restore the tensors' earlier values."""
        for group, copy in self._copies:
            for tensor, earlier in zip(group, paddle.split(copy, [tensor.size for tensor in group])):
                paddle.assign(earlier.reshape(tensor.shape), output=tensor)


class Evidence(Protocol):
    """What remains of an update that was skipped."""

    def keep(self, step: Step, in_a_row: int, is_last: bool) -> str:
        """Write it down and return what to tell about it. Every rank calls this at the same update."""


class SkippedUpdates:
    """Counts the updates that were not finite and changed nothing; after some in a row the run ends.

    Every rank has one and counts the same: an update is judged by the norm of gradients that are summed over all ranks.

    Args:
        limit: this many in a row end the run (TRAIN.MAX_SKIPPED_UPDATES).
        has_scaler: a loss scaler skips updates until it has found its scale: ``SCALER_SKIPS`` more are allowed, and
            only the one that ends the run is told.
        evidence: where they are written down; None: nowhere.
        say: takes a line for the log.

    Attributes:
        total: of the whole training.
        in_a_row: up to the last update.
    """

    def __init__(
        self,
        limit: int = 1,
        has_scaler: bool = False,
        evidence: Optional[Evidence] = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.limit = limit + (SCALER_SKIPS if has_scaler else 0)
        self.total = 0
        self.in_a_row = 0
        self._tells_each = not has_scaler
        self._evidence = evidence
        self._say = say

    def count(self, is_finite: bool, step: Step) -> None:
        """Take note of an update. Every rank must call this, in the state from before the update if it was skipped.

        Raises:
            UserError: it was one too many in a row.
        """
        if is_finite:
            self.in_a_row = 0
            return
        self.total += 1
        self.in_a_row += 1
        is_last = self.in_a_row >= self.limit
        kept = ""
        if self._evidence is not None and (is_last or self._tells_each):
            kept = self._evidence.keep(step, self.in_a_row, is_last)
        place = f"update {step.update + 1} in epoch {step.epoch} is not finite"
        if is_last:
            others = self.in_a_row - 1
            before = (
                "" if not others else ", nor was the one before" if others == 1 else f", nor were the {others} before"
            )
            raise UserError(
                f"the loss or a gradient of {place}{before}: training has diverged, and nothing has changed since "
                "then; lower TRAIN.BASE_LR, set TRAIN.GRAD_CLIP or a longer warm-up, and -resume=auto from the last "
                f"checkpoint{kept}"
            )
        if self._tells_each:
            self._say(
                f"the loss or a gradient of {place}: skipped, {self.in_a_row} in a row (TRAIN.MAX_SKIPPED_UPDATES "
                f"{self.limit}), {self.total} so far{kept}"
            )

    def state_dict(self) -> Dict[str, int]:
        """Plain numbers for the checkpoint."""
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        self.total, self.in_a_row = int(state["total"]), int(state["in_a_row"])
