"""Loss terms of points, which may be unlabeled, and intersection over union per class."""

import paddle

from ...core.losses import cross_entropies, summed_cross_entropy
from ...core.metrics.confusion import ConfusionMetrics
from ...core.tasks.step_types import LossTerm
from ..data.scene import IGNORED


class SemanticMetrics(ConfusionMetrics):
    """Counts of points and the summed cross-entropy of each scene, without ``IGNORED`` points."""

    def update(
        self,
        predictions: paddle.Tensor,
        labels: paddle.Tensor,
        loss: paddle.Tensor | None = None,
        offsets: paddle.Tensor | None = None,
    ) -> None:
        """Add points: predictions and labels, int64 (points,), ``IGNORED`` for none.

        ``loss`` is the cross-entropy of each point, (points,), 0 without a label; for a single scene also their sum.
        ``offsets`` (scenes + 1,) are the first points of scenes; None: all points are of one scene.
        """
        number, scenes = len(self.class_names), 1 if offsets is None else offsets.shape[0] - 1
        no_losses = paddle.zeros([1, labels.shape[0]], "float64")
        losses = no_losses if loss is None else loss.astype("float64").reshape([1, -1])
        # An extra bin counts the ignored points, to avoid a data-dependent shape.
        pairs = labels * number + predictions
        if offsets is not None and scenes > 1 and pairs.shape[0]:
            scene = paddle.searchsorted(offsets[1:].astype("int64"), paddle.arange(pairs.shape[0]), right=True)
            pairs = pairs + scene * number * number
            is_in_scene = scene.unsqueeze(0) == paddle.arange(scenes).unsqueeze(1)  # (scenes, points)
            # ``cumsum`` would wait for a GPU.
            losses = paddle.where(is_in_scene, losses.reshape(no_losses.shape), no_losses)
        bins = scenes * number * number
        pairs = paddle.where(labels == IGNORED, paddle.full_like(labels, bins), pairs)
        if pairs.shape[0]:  # Paddle can neither count nor sum empty input, and 2.6 not compare it
            counts = paddle.bincount(pairs, minlength=bins + 1)[:bins]
            confusions = counts.astype("int64").reshape([scenes, number, number])
            losses = losses.sum(axis=1)  # (scenes,)
        else:
            confusions = paddle.zeros([scenes, number, number], dtype="int64")
            losses = paddle.zeros([scenes], dtype="float64")
        right = paddle.diagonal(confusions, axis1=1, axis2=2)  # (scenes, classes), like the two sums
        statistics = paddle.stack([right, confusions.sum(axis=2), confusions.sum(axis=1)], axis=1)
        # Infinite instead of NaN, which means that losses are not known.
        losses = paddle.where(losses == losses, losses, paddle.full_like(losses, float("inf")))
        self.add_batch(statistics=statistics, losses=losses)


def point_losses(outputs: paddle.Tensor, logits: paddle.Tensor, labels: paddle.Tensor) -> paddle.Tensor:
    """Return the cross-entropy of each point, float32 (P,), NaN where a network's outputs are not finite.

    On CPUs Paddle's operation for eight classes and more takes NaN for a small logit. ``outputs`` are float32 (views x
    P, classes), ``logits`` (P, classes) what was computed from them, and ``labels`` int64 (P,).
    """
    not_finite = (outputs * 0.0).sum(axis=-1).reshape([-1, labels.shape[0]]).sum(axis=0)  # 0 or NaN
    return cross_entropies(logits, labels, IGNORED) + not_finite


def semantic_terms(logits: paddle.Tensor, labels: paddle.Tensor) -> tuple[LossTerm, LossTerm]:
    """Return cross-entropy, and accuracy for the log, of logits float32 (P >= 1, classes), both over labeled points.

    Labels are int64 (P,), ``IGNORED`` for none.
    """
    with paddle.no_grad():
        valid = (labels != IGNORED).astype("float32").sum()
        correct = (logits.argmax(axis=-1) == labels).astype("float32").sum()
    return LossTerm(summed_cross_entropy(logits, labels, IGNORED), valid), LossTerm(correct, valid, weight=0.0)
