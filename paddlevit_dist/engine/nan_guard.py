"""Nothing that is not finite is kept: an update changes nothing then, what is copied for that, what is counted and told
of it; and weights are not saved, nor those that differ between ranks."""

import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from ..runtime.errors import UserError
from ..tasks.task import StepPosition

SCALER_SKIPS = 50  # more in a row with a loss scaler: from 65,536 it takes 16 to reach 1, from 2**40 it takes 40


class BufferSnapshot:
    """A copy of tensors, for restoring them. It is made in every update and hardly ever needed, so that all tensors of
    one dtype are copied by one operation: a ResNet-50 has 106."""

    @paddle.no_grad()
    def __init__(self, tensors: Iterable[paddle.Tensor]) -> None:
        alike: dict[Any, list[paddle.Tensor]] = {}
        for tensor in tensors:
            if tensor.size:
                alike.setdefault((tensor.dtype, str(tensor.place)), []).append(tensor)
        self._copies = [
            (group, paddle.concat([tensor if tensor.ndim == 1 else tensor.reshape([-1]) for tensor in group]))
            for group in alike.values()
        ]

    @paddle.no_grad()
    def restore(self) -> None:
        """Restore the tensors' earlier values."""
        for group, copy in self._copies:
            for tensor, earlier in zip(group, paddle.split(copy, [tensor.size for tensor in group])):
                paddle.assign(earlier.reshape(tensor.shape), output=tensor)


class NonFiniteGuard:
    """Counts the updates that were not finite and changed nothing; after some in a row the run ends.

    Every rank has one and counts the same: an update is judged by the norm of gradients that are summed over all ranks.

    Args:
        limit: this many in a row end the run (TRAIN.MAX_SKIPPED_UPDATES).
        has_scaler: a loss scaler skips updates until it has found its scale: ``SCALER_SKIPS`` more are allowed, and
            only the one that ends the run is told.
        explain: each looks into the update that ends the run: takes its micro-batches, step and normalizers, on every
            rank, and returns lines for the log, of which the first is told at the end, too.
        say: takes a line for the log.

    Attributes:
        total: of the whole training.
        in_a_row: up to the last update.
    """

    def __init__(
        self,
        limit: int = 1,
        has_scaler: bool = False,
        explain: Sequence[Callable[..., list[str]]] = (),
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.limit = limit + (SCALER_SKIPS if has_scaler else 0)
        self.total = 0
        self.in_a_row = 0
        self._tells_each = not has_scaler
        self._explain = explain
        self._say = say

    def count(self, is_finite: bool, step: StepPosition, batches: Sequence[Any] = (), counts: Any = None) -> None:
        """Take note of an update. Every rank must call this, in the state from before the update if it was skipped.

        Args:
            batches, counts: what it was computed of, and the normalizers.

        Raises:
            UserError: it was one too many in a row.
        """
        if is_finite:
            self.in_a_row = 0
            return
        self.total += 1
        self.in_a_row += 1
        is_last = self.in_a_row >= self.limit
        place = f"update {step.update + 1} in epoch {step.epoch} is not finite"
        if is_last:
            others = self.in_a_row - 1
            before = (
                "" if not others else ", nor was the one before" if others == 1 else f", nor were the {others} before"
            )
            lines = [line for explain in self._explain for line in explain(batches, step, counts)]
            for line in lines:
                self._say(line)
            first = f"; {lines[0]}" if lines else ""
            raise UserError(
                f"the loss or a gradient of {place}{before}: training has diverged, and nothing has changed since "
                "then; lower TRAIN.BASE_LR, set TRAIN.GRAD_CLIP or a longer warm-up, and -resume=auto from the last "
                f"checkpoint{first}"
            )
        if self._tells_each:
            self._say(
                f"the loss or a gradient of {place}: skipped, {self.in_a_row} in a row (TRAIN.MAX_SKIPPED_UPDATES "
                f"{self.limit}), {self.total} so far"
            )

    def state_dict(self) -> dict[str, int]:
        """Plain numbers for the checkpoint."""
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        self.total, self.in_a_row = int(state["total"]), int(state["in_a_row"])


def weights_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """A digest of all parameters and buffers, to compare ranks by: CRC-32 and the sum modulo 2**64 of each.

    It tells weights apart that have drifted apart, not weights that somebody has chosen to look alike. All ranks wait
    for it at each save, and a cryptographic hash takes five times as long.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        content = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        whole = len(content) // 8 * 8
        total = int(content[:whole].view(np.uint64).sum(dtype=np.uint64))
        digest.update(f"{name} {arrays[name].shape} {total} {zlib.crc32(content)}\n".encode())
    return digest.hexdigest()


def not_finite(arrays: Mapping[str, np.ndarray]) -> str | None:
    """The first parameter or buffer that is not finite everywhere, or None."""
    with np.errstate(all="ignore"):
        for name, array in arrays.items():
            # A finite sum has no term that is not, and takes a third of the time that looking at each does.
            is_certain = array.dtype.kind != "f" or math.isfinite(float(array.sum()))
            if not is_certain and not np.isfinite(array).all():
                return name
    return None
