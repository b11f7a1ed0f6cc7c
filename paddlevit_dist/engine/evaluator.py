"""One pass over the validation samples, each exactly once, with metrics equal on every rank."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import paddle

from ..parallel import barrier, reduce_dict
from .task import Task


@paddle.no_grad()
def evaluate(
    task: Task, model: paddle.nn.Layer, loader: Any, on_batch: Optional[Callable[[], None]] = None
) -> Tuple[Dict[str, float], str]:
    """Evaluate the inner model (not its data-parallel wrapper) in float32. Every rank must call this.

    Ranks may have different numbers of batches: nothing is communicated before all have finished.

    Args:
        loader: batches of this rank's share.
        on_batch: called after each batch, for a progress bar.
    Returns:
        Metric values, equal on every rank, and the line that tells them.
    """
    was_training = model.training
    model.eval()
    metrics = task.build_metrics()
    for batch in loader:
        task.eval_step(model, batch, metrics)
        if on_batch is not None:
            on_batch()
    barrier()
    values = metrics.compute(reduce_dict(metrics.state, average=False))
    if was_training:
        model.train()
    return values, metrics.summary(values)
