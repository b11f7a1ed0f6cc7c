"""What figures of a classifier need to know of each picture: 48 bytes."""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ...contracts.task import Records
from ...transfers import read_later

BEST = 5  # classes with the largest scores

#: the true class and its score (a probability), and the best classes with theirs; -1 and 0 where there are fewer
RECORD = np.dtype([("label", "<i4"), ("true", "<f4"), ("classes", "<i4", (BEST,)), ("scores", "<f4", (BEST,))])


def record_later(logits: paddle.Tensor, labels: paddle.Tensor) -> Records:
    """A function that gives a record, bytes, for each picture of a batch. Nothing waits for the device before it is
    called; what it holds until then is as small as the records.

    Args:
        logits: (batch, classes).
        labels: int64 (batch,).
    """
    return _later(F.softmax(logits.astype("float32"), axis=-1), labels)


def record(probabilities: Sequence[np.ndarray], labels: np.ndarray) -> List[bytes]:
    """The same for probabilities, (classes,) each, and labels, int (batch,), in the host's memory."""
    scores = np.stack(probabilities).astype(np.float32)  # (batch, classes)
    return list(_later(paddle.to_tensor(scores), paddle.to_tensor(np.asarray(labels, np.int64)))())


def _later(probabilities: paddle.Tensor, labels: paddle.Tensor) -> Records:
    scores, classes = paddle.topk(probabilities, min(BEST, probabilities.shape[-1]), axis=-1)  # (batch, best)
    true = paddle.take_along_axis(probabilities, labels.unsqueeze(-1), axis=-1)  # (batch, 1)
    arrived = read_later(labels, true, classes, scores)

    def records() -> List[bytes]:
        of_labels, of_true, best, their_scores = arrived()
        rows = np.zeros(len(of_labels), RECORD)
        rows["classes"] = -1
        rows["label"], rows["true"] = of_labels, of_true[:, 0]
        rows["classes"][:, : best.shape[1]] = best
        rows["scores"][:, : their_scores.shape[1]] = their_scores
        return [row.tobytes() for row in rows]

    return records


def joined(records: Sequence[Tuple[int, Any]]) -> Tuple[np.ndarray, np.ndarray]:
    """Indices int64 (pictures,) and records, ``RECORD`` (pictures,)."""
    indices = np.array([index for index, _ in records], np.int64)
    return indices, np.frombuffer(b"".join(content for _, content in records), RECORD)
