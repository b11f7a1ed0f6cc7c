"""Scores of tables of classified samples, which ``ClassificationMetrics`` writes. Needs no Paddle."""

from collections.abc import Sequence

import numpy as np

from ..intervals import ClassificationCounts, ProportionRecompute, means
from ..tasks.score_kind import Arrays, ScoreKind, are_below, join_arrays


class ClassificationScores(ScoreKind):
    """Accuracies, recalls and the mean loss of samples that have one class each."""

    class_score = "recall {}"
    decimals = 2
    right_rate = "top-1"

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> ProportionRecompute:
        """Return a function that computes accuracies, recalls and the mean loss."""
        labels, places = join_arrays(parts, "labels"), join_arrays(parts, "places")
        classified = ClassificationCounts(labels, places, len(classes), classes, parts[0]["top"].tolist())
        loss = means({"loss": join_arrays(parts, "losses")})
        return ProportionRecompute(lambda weights: {**classified(weights), **loss(weights)}, classified.rates())

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there is a label, a place and a loss for each sample."""
        columns = [arrays[name] for name in ("labels", "places", "losses")]
        predictions = arrays.get("predictions", arrays["labels"])  # results of other programs have none
        has_shapes = all(column.shape == (samples,) for column in [*columns, predictions])
        return has_shapes and are_below(arrays["labels"], classes) and are_below(predictions + 1, classes + 1)

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Return the class of each sample."""
        return arrays["labels"]

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, np.ndarray]:
        """Return which samples are right among the best k, and which of each class."""
        places, labels = arrays["places"], arrays["labels"]
        recalls = {f"recall {name}": places[labels == label] == 0 for label, name in enumerate(classes)}
        return {**{f"top-{k}": places < k for k in arrays["top"].tolist()}, **recalls}

    def predictions(self, arrays: Arrays) -> np.ndarray | None:
        """Return the best class of each sample."""
        return arrays.get("predictions")
