"""Scores of images with several labels. Needs no Paddle."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...core.checkpoint.model_record import THRESHOLD
from ...core.intervals import ScoreRange, means, nanmean, quotient
from ...core.intervals.recompute import Recompute
from ...core.intervals.score_ranges import ERROR_RANGE, SHARE_RANGE
from ...core.runtime.json_format import format_json
from ...core.tasks.score_kind import CROSS_ENTROPY, LOSS, Arrays, FormatInterval, ScoreKind, join_arrays, name_loss
from .curves import GOALS, sigmoid, sort_labels, transpose_weights

KIND = "labels"
_FRACTIONS = ("mAP", "micro AP", "AUC", "micro F1", "macro F1", "Hamming loss")
_MOST_NAMED = 3


class LabelScores(ScoreKind):
    """Average precision of the labels, and scores of the labels that are chosen; unknown labels count in none.

    Arrays have a row for each image: "labels", int8 (images, classes), 1: has it, 0: has it not, -1: not known;
    "logits", float (images, classes); "chosen", bool (images, classes), the labels above the thresholds. "goal" are the
    number of a goal in ``GOALS`` and the wished precision or recall, for which thresholds are computed.

    A class without a known positive has no average precision, and the means of classes are without it. F1 is not
    defined either for a class without positives, known or chosen.
    """

    class_score = "AP {}"
    class_means = dict.fromkeys(("mAP", "AUC", "macro F1"), class_score)
    other_class_scores = (THRESHOLD,)
    directions = {"Hamming loss": "lower", "threshold": ""}
    swaps = 1_000
    right_rate = "exact match"
    settings = ("goal",)
    unsaved = ("goal",)
    has_cross_entropy = True

    def recompute(self, parts: Sequence[Arrays], classes: Sequence[str]) -> Recompute:
        """Return a function that computes mAP, AUC, AP of all labels together and of each class, F1, and the rest.

        All are fractions, and exact match is in percent.
        """
        labels, logits, chosen = (join_arrays(parts, name) for name in ("labels", "logits", "chosen"))
        goal, wished = parts[0].get("goal", (0, 0.0))
        together, curves = sort_labels(labels, logits, chosen, bool(goal))
        losses, exact = sum_losses(labels, logits), 100.0 * find_exact(labels, chosen)
        of_images = means({"exact match": np.where((labels >= 0).any(axis=1), exact, np.nan)})
        names = list(classes)

        def compute_scores(weights: np.ndarray) -> dict[str, np.ndarray]:
            drawn = transpose_weights(weights)
            each = [curve.count_draws(drawn, GOALS[int(goal)], wished) for curve in curves]
            micro = together.count_draws(drawn)
            ap, auc = (np.stack(columns, axis=1) for columns in zip(*((one.ap, one.auc) for one in each)))
            f1 = [quotient(2 * one.hits, one.chosen + one.positives) for one in each]
            infinite = weights @ ~np.isfinite(losses) > 0
            loss = quotient(weights @ np.where(np.isfinite(losses), losses, 0.0), micro.known)
            values = {
                "mAP": nanmean(ap),
                "micro AP": micro.ap,
                "AUC": nanmean(auc),
                "micro F1": quotient(2 * micro.hits, micro.chosen + micro.positives),
                "macro F1": nanmean(np.stack(f1, axis=1)),
                **of_images(weights),
                "Hamming loss": quotient(micro.chosen + micro.positives - 2 * micro.hits, micro.known),
                name_loss(parts[0]): np.where(infinite, np.inf, loss),
                **{self.class_score.format(name): column for name, column in zip(names, ap.T)},
            }
            thresholds = {THRESHOLD.format(name): one.threshold for name, one in zip(names, each)}
            return {**values, **thresholds} if goal else values

        return self.declare(compute_scores, {"labels": labels}, classes)

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the ranges of the loss and of fractions."""
        of_classes = [score.format(name) for score in (self.class_score, THRESHOLD) for name in classes]
        names = [*_FRACTIONS, *of_classes]
        return {**dict.fromkeys((LOSS, CROSS_ENTROPY), ERROR_RANGE), **dict.fromkeys(names, SHARE_RANGE)}

    def counts(self, arrays: Arrays) -> dict[str, int]:
        """Count the images and the known labels."""
        return {"images": len(arrays["labels"]), "known labels": int((arrays["labels"] >= 0).sum())}

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the line that an evaluation ends with; it names classes without a known positive."""
        parts = [f"{name} {values[name]:.4f}" for name in ("mAP", "micro AP", "micro F1", "macro F1") if name in values]
        if "mAP" in values:
            parts[0] += format_interval("mAP", 3)
        if "exact match" in values:
            parts.append(f"exact match {values['exact match']:.2f}%{format_interval('exact match', 1)}")
        parts += [f"{name} {values[name]:.4f}" for name in ("Hamming loss", LOSS, CROSS_ENTROPY) if name in values]
        missing = [name for name in self.classes if self.class_score.format(name) not in values]
        if missing:
            named = ", ".join(missing[:_MOST_NAMED]) + (", …" if len(missing) > _MOST_NAMED else "")
            number = len(self.classes) - len(missing)
            parts.append(f"(mAP of {number:,} of {len(self.classes):,} classes: no image has {named})")
        if "AUC" not in values and len(missing) < len(self.classes):
            parts.append("(mAP says nothing: no class has both images with it and images without it)")
        return " ".join(parts)

    def columns(self, arrays: Arrays) -> dict[str, Sequence[Any]]:
        """Return known and chosen labels, wrong decisions, the mean loss, and the probability of each class."""
        labels, chosen = arrays["labels"], arrays["chosen"]
        known = labels >= 0
        numbers = known.sum(axis=1)
        return {
            "truth": [self._join(row == 1) for row in labels],
            "unknown": [self._join(row) for row in ~known],
            "prediction": [self._join(row) for row in chosen],
            "correct": [right if number else None for right, number in zip(find_exact(labels, chosen), numbers)],
            "wrong labels": (known & (chosen != (labels == 1))).sum(axis=1).tolist(),
            name_loss(arrays): quotient(sum_losses(labels, arrays["logits"]), numbers),
            **{f"probability {name}": column for name, column in zip(self.classes, sigmoid(arrays["logits"]).T)},
        }

    def _join(self, is_listed: np.ndarray) -> str:
        return join_names(self.classes, is_listed)

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there are labels from -1 to 1, logits and decisions for each image and class."""
        labels, logits, chosen = (arrays[name] for name in ("labels", "logits", "chosen"))
        has_shapes = all(array.shape == (samples, classes) for array in (labels, logits, chosen))
        has_types = labels.dtype == np.int8 and logits.dtype.kind == "f" and chosen.dtype == np.bool_
        return has_shapes and has_types and bool(np.isin(labels, (-1, 0, 1)).all())

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Return the labels of each image."""
        return arrays["labels"]

    def hits(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, np.ndarray]:
        """Return for which images with a known label all known labels are chosen, and no others."""
        return {self.right_rate: self.find_correct(arrays, classes)[(arrays["labels"] >= 0).any(axis=1)]}

    def find_correct(self, arrays: Arrays, classes: Sequence[str]) -> np.ndarray:
        """Return ``hits`` of all images; an image without a known label is right."""
        return find_exact(arrays["labels"], arrays["chosen"])

    def count_decisions(self, arrays: Arrays) -> dict[str, int]:
        """Count the images with a known label."""
        number = int((arrays["labels"] >= 0).any(axis=1).sum())
        return {self.right_rate: number} if number else {}


def find_exact(labels: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return for which images all known labels (images, classes) are decided right, bool (images,)."""
    return ((labels < 0) | (chosen == (labels == 1))).all(axis=1)


def sum_losses(labels: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Sum the binary cross-entropies of the known labels of each image, float64 (images,).

    They are infinite where a logit of the image is not a finite number.
    """
    logits = logits.astype(np.float64)
    is_finite = np.isfinite(logits).all(axis=1)
    logits = np.where(is_finite[:, None], logits, 0.0)
    losses = np.maximum(logits, 0.0) - logits * (labels == 1) + np.log1p(np.exp(-np.abs(logits)))
    return np.where(is_finite, (losses * (labels >= 0)).sum(axis=1), np.inf)


def join_names(names: Sequence[str], is_listed: np.ndarray) -> str:
    """Join the names of the listed labels, bool (classes,), by semicolons; as a JSON list if a table needs one."""
    listed = [names[label] for label in np.flatnonzero(is_listed)]
    is_ambiguous = any(";" in name or "|" in name or name.startswith("[") for name in listed)
    return format_json(listed, ensure_ascii=False) if is_ambiguous else ";".join(listed)
