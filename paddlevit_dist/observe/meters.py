"""Training terms, summed on the device and divided once when shown."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import paddle

from ..parallel import reduce_dict


class Meters:
    """Sums and counts of the terms of training steps; nothing leaves the device before ``reduce``."""

    def __init__(self) -> None:
        self._names: List[str] = []
        self._sums: Optional[paddle.Tensor] = None  # (terms,) float64
        self._device_counts: Optional[paddle.Tensor] = None  # (terms,) float64, for counts that are tensors
        self._host_counts: List[float] = []
        self._epoch_sums: Dict[str, float] = {}
        self._epoch_counts: Dict[str, float] = {}

    def add(self, terms: Dict[str, Any]) -> None:
        """Add one micro-batch's terms (see ``contracts.task.Term``)."""
        if not self._names:
            self._names = list(terms)
            self._host_counts = [0.0] * len(self._names)
        # One stacked vector for all terms: a few small operations per step, regardless of their number.
        sums = paddle.stack([terms[name].sum.detach().astype("float32") for name in self._names]).astype("float64")
        self._sums = sums if self._sums is None else self._sums + sums
        counts = [terms[name].count for name in self._names]
        on_device = [count if isinstance(count, paddle.Tensor) else None for count in counts]
        if any(count is not None for count in on_device):
            zero = paddle.zeros([], dtype="float64")
            extra = paddle.stack([zero if c is None else c.detach().astype("float64").reshape([]) for c in on_device])
            self._device_counts = extra if self._device_counts is None else self._device_counts + extra
        for position, count in enumerate(counts):
            if on_device[position] is None:
                self._host_counts[position] += count

    def reduce(self) -> Dict[str, float]:
        """Means over all ranks since the last call, equal on every rank; one collective. Every rank must call this.

        Empty where nothing was added since then.
        """
        if self._sums is None:
            return {}
        counts = paddle.to_tensor(self._host_counts, dtype="float64")
        if self._device_counts is not None:
            counts = counts + self._device_counts
        totals = reduce_dict({"sums": self._sums, "counts": counts}, average=False)
        sums, counts = totals["sums"].numpy().tolist(), totals["counts"].numpy().tolist()
        for name, term_sum, count in zip(self._names, sums, counts):
            self._epoch_sums[name] = self._epoch_sums.get(name, 0.0) + term_sum
            self._epoch_counts[name] = self._epoch_counts.get(name, 0.0) + count
        self._sums, self._device_counts = None, None
        self._host_counts = [0.0] * len(self._names)
        return {name: total / count if count else 0.0 for name, total, count in zip(self._names, sums, counts)}

    def finish_epoch(self) -> Dict[str, float]:
        """Means since the last call of this method, over everything that ``reduce`` has seen."""
        means = {
            name: total / self._epoch_counts[name] if self._epoch_counts[name] else 0.0
            for name, total in self._epoch_sums.items()
        }
        self._epoch_sums, self._epoch_counts = {}, {}
        return means
