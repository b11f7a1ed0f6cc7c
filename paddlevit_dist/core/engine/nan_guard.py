"""Guards against NaN and infinity: skips steps that are not finite and keeps diverged weights out of checkpoints."""

import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from ..runtime.errors import UserError
from ..tasks.step_types import LossTerm, StepPosition

SCALER_SKIPS = 50  # further skips in a row with a loss scaler: it takes 16 from 65,536 to 1, 40 from 2**40


class BufferSnapshot:
    """A copy of tensors that can be restored; one operation copies all of a dtype, since each step makes one."""

    @paddle.no_grad()
    def __init__(self, tensors: Iterable[paddle.Tensor]) -> None:
        alike: dict[Any, list[paddle.Tensor]] = {}
        for tensor in tensors:
            if tensor.size and tensor._is_initialized():  # the dropout state of Paddle's recurrent layers is not
                alike.setdefault((tensor.dtype, str(tensor.place)), []).append(tensor)
        self._copies = [
            (group, paddle.concat([each if each.ndim == 1 else each.reshape([-1]) for each in group]))
            for group in alike.values()
        ]

    @paddle.no_grad()
    def restore(self) -> None:
        """Write the copied values back to the tensors."""
        for group, copy in self._copies:
            for tensor, earlier in zip(group, paddle.split(copy, [each.size for each in group])):
                paddle.assign(earlier.reshape(tensor.shape), output=tensor)


class NonFiniteGuard:
    """Counts steps that were not finite and were skipped, and ends the run after too many in a row.

    Every rank has one and counts the same: the norm that decides is of gradients summed over all ranks.

    Args:
        limit: number of consecutive skipped steps that ends the run (TRAIN.MAX_SKIPPED_UPDATES).
        has_scaler: whether a loss scaler is in use. It skips steps until it has found its scale, so ``SCALER_SKIPS``
            more are allowed, and only the last one is logged.
        explain: functions that analyze the step that ends the run. Each is called on every rank with its micro-batches,
            step and normalizers, and returns log lines. The first line is also part of the error.

    Attributes:
        total: skipped steps since the start of the training.
        in_a_row: skipped steps since the last finite one.
    """

    def __init__(
        self,
        limit: int = 1,
        has_scaler: bool = False,
        explain: Sequence[Callable[..., list[str]]] = (),
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.limit = limit + (SCALER_SKIPS if has_scaler else 0)
        self.total = 0
        self.in_a_row = 0
        self._logs_each = not has_scaler
        self._explain = explain
        self._log = log

    def count(
        self,
        is_finite: bool,
        step: StepPosition,
        batches: Sequence[Any] = (),
        counts: object = None,
        terms: Sequence[Mapping[str, LossTerm]] = (),
    ) -> None:
        """Count a step. Every rank must call this; after a skipped step, once the earlier state is restored.

        The log names the ``terms``, by micro-batch, that are not finite; after a finite step they are not read.
        Raises UserError if it is one skipped step too many in a row.
        """
        if is_finite:
            self.in_a_row = 0
            return
        self.total += 1
        self.in_a_row += 1
        is_last = self.in_a_row >= self.limit
        place = f"update {step.update + 1} in epoch {step.epoch} is not finite"
        if is_last:
            num_earlier = self.in_a_row - 1
            few = {0: "", 1: ", nor was the one before"}
            before = few.get(num_earlier, f", nor were the {num_earlier} before")
            lines = [text for explain in self._explain for text in explain(batches, step, counts)]
            for line in lines:
                self._log(line)
            first = _name_terms(terms) + (f"; {lines[0]}" if lines else "")
            raise UserError(
                f"the loss or a gradient of {place}{before}: training has diverged, and nothing has changed since "
                "then; lower TRAIN.BASE_LR, set TRAIN.GRAD_CLIP or a longer warm-up, and -resume=auto from the last "
                f"checkpoint{first}"
            )
        if self._logs_each:
            self._log(
                f"the loss or a gradient of {place}: skipped, {self.in_a_row} in a row (TRAIN.MAX_SKIPPED_UPDATES "
                f"{self.limit}), {self.total} so far{_name_terms(terms)}"
            )

    def state_dict(self) -> dict[str, int]:
        """Return the counts as plain numbers for the checkpoint."""
        return {"total": self.total, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the counts of a ``state_dict``."""
        self.total, self.in_a_row = int(state["total"]), int(state["in_a_row"])


def _name_terms(terms: Sequence[Mapping[str, LossTerm]]) -> str:
    """Return an end of a line that names the terms of the loss that are not finite; empty if all are."""
    sums: dict[str, float] = {}
    for name, term in (each for part in terms for each in part.items() if each[1].weight):
        sums[name] = sums.get(name, 0.0) + float(term.sum)
    odd = [f"'{name}' is {value:g}" for name, value in sums.items() if not math.isfinite(value)]
    return f"; the loss term {' and '.join(odd)}" if odd else ""


def weights_digest(arrays: Mapping[str, np.ndarray]) -> str:
    """Digest parameters and buffers to compare them between ranks, from the CRC-32 and the sum modulo 2**64 of each.

    Not safe against forgery: all ranks wait for it at each save, and a cryptographic hash takes five times as long.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        content = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        whole = len(content) // 8 * 8
        total = int(content[:whole].view(np.uint64).sum(dtype=np.uint64))
        digest.update(f"{name} {arrays[name].shape} {total} {zlib.crc32(content)}\n".encode())
    return digest.hexdigest()


def not_finite(arrays: Mapping[str, np.ndarray]) -> str | None:
    """Return the name of the first parameter or buffer that contains NaN or infinity, or None."""
    with np.errstate(all="ignore"):
        for name, array in arrays.items():
            # A finite sum has finite terms only; it takes a third of the time of checking each.
            is_certain = array.dtype.kind != "f" or math.isfinite(float(array.sum()))
            if not is_certain and not np.isfinite(array).all():
                return name
    return None
