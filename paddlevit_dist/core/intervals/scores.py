"""Scores of weighted samples, for ``bootstrap``."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .recompute import ProportionRecompute, Recompute
from .resampling import weighted_sums
from .score_ranges import ERROR_RANGE, PERCENT_RANGE, SHARE_RANGE, ScoreRange


class ClassificationCounts(NamedTuple):
    """The answers for n classified samples; an instance is a ``Recompute``.

    Attributes:
        labels: int (n,), true classes from 0.
        places: int (n,), number of classes that the model ranked above the true one. If only the best class is known:
            0 if it is the true one, else 1.
        num_classes: the number of classes of the data.
        class_names: for the names of values; None uses the classes' numbers.
        top: the values of k for top-k accuracy.
    """

    labels: np.ndarray
    places: np.ndarray
    num_classes: int
    class_names: Sequence[str] | None = None
    top: Sequence[int] = (1,)

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the values of each draw, in percent, from weights, float64 (draws, samples).

        Returns:
            "top-1" and so on, "recall CLASS" of each class, and "balanced accuracy", each float (draws,). The last is
            the mean recall of the classes that occur, which is also called macro accuracy.
        """
        total = weights.sum(axis=1)
        hits = np.stack([self.places < k for k in self.top], axis=1)  # (samples, tops)
        values = {f"top-{k}": 100.0 * column / total for k, column in zip(self.top, weighted_sums(weights, hits).T)}
        labels, is_right = np.asarray(self.labels, np.int64), self.places == 0
        totals = np.stack([np.bincount(labels, draw, minlength=self.num_classes) for draw in weights])
        correct = np.stack([np.bincount(labels, draw * is_right, minlength=self.num_classes) for draw in weights])
        recalls = 100.0 * quotient(correct, totals)  # (draws, classes); NaN if a class does not occur
        values["balanced accuracy"] = nanmean(recalls)
        names = self.class_names or range(self.num_classes)
        values.update({f"recall {name}": column for name, column in zip(names, recalls.T)})
        return values

    def rates(self) -> dict[str, int]:
        """Return the number of samples of each proportion; see ``ProportionRecompute``."""
        class_counts = np.bincount(np.asarray(self.labels, np.int64), minlength=self.num_classes).tolist()
        names = self.class_names or range(self.num_classes)
        recalls = {f"recall {name}": number for name, number in zip(names, class_counts) if number}
        return {**{f"top-{k}": len(self.labels) for k in self.top}, **recalls}

    def declare(self) -> ProportionRecompute:
        """Return a function to the same values that names the rates and the range of each value."""
        names = self.class_names or range(self.num_classes)
        means = {"balanced accuracy": [f"recall {name}" for name in names]}
        return ProportionRecompute(self.__call__, self.rates(), means, lambda name: PERCENT_RANGE)


def means(numbers: Mapping[str, np.ndarray]) -> Recompute:
    """Return a function that computes weighted means of float (samples,) by name; NaN does not count.

    A mean is infinite if a number with a weight is.
    """
    columns = {name: np.asarray(column, np.float64) for name, column in numbers.items()}
    finite = [np.isfinite(column) for column in columns.values()]
    # (samples, 2 x names): finite values, and whether they are finite
    parts = [*(np.where(ok, column, 0.0) for ok, column in zip(finite, columns.values())), *finite]
    statistics = np.stack(parts, axis=1)
    infinite = {name: column for name, column in columns.items() if np.isinf(column).any()}

    def recompute(weights: np.ndarray) -> dict[str, np.ndarray]:
        sums, counts = np.split(weighted_sums(weights, statistics), 2, axis=1)
        values = dict(zip(numbers, quotient(sums, counts).T))
        for name, column in infinite.items():  # in a mean of the others it would hide
            high, low = weighted_sums(weights, np.stack([column == np.inf, column == -np.inf], axis=1)).T > 0
            values[name] = np.where(high, np.inf, np.where(low, -np.inf, values[name]))
        return values

    return recompute


def confusion_scores(
    statistics: np.ndarray,
    class_names: Sequence[str],
    losses: np.ndarray | None = None,
    boundaries: np.ndarray | None = None,
) -> Recompute:
    """Return a function that computes the scores of labeled points or pixels, as fractions.

    The scores are mIoU, accuracy, mean class accuracy, mean Dice coefficient and the IoU of each class; also the
    boundary IoU and the loss if they are known.

    Args:
        statistics: int (samples, 3, classes). The three rows count, for a sample and a class, the points that are
            correctly predicted, labeled, and predicted as the class. Points without a label do not count.
        class_names: the name of each class.
        losses: float (samples,), each summed over the sample's points; None: there is no loss.
        boundaries: like ``statistics``, for pixels near boundaries; None: there are none.
    """

    def recompute(weights: np.ndarray) -> dict[str, np.ndarray]:
        counts = weighted_sums(weights, statistics)  # (draws, 3, classes)
        right, labeled, _ = counts.sum(axis=2).T  # (draws,) each
        by_class = class_shares(counts)
        values = {
            "mIoU": nanmean(by_class["IoU"]),
            "accuracy": quotient(right, labeled),
            "mean class accuracy": nanmean(by_class["recall"]),
            "mean Dice": nanmean(by_class["Dice"]),
        }
        if boundaries is not None:
            values["boundary IoU"] = nanmean(class_shares(weighted_sums(weights, boundaries))["IoU"])
        if losses is not None:
            values["loss"] = quotient(weighted_sums(weights, losses), labeled)
        return {**values, **{f"IoU {name}": column for name, column in zip(class_names, by_class["IoU"].T)}}

    return ProportionRecompute(recompute, {}, find_range=find_share_range)


def find_share_range(name: str) -> ScoreRange:
    """Return the range of a fraction, or of a loss."""
    return ERROR_RANGE if name == "loss" else SHARE_RANGE


def class_shares(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Compute IoU, recall, precision and the Dice coefficient of classes, float (..., classes) each; NaN: undefined.

    Counts are numbers (..., 3, classes), see ``confusion_scores``.
    """
    right, true, predicted = np.moveaxis(counts, -2, 0)
    return {
        "IoU": quotient(right, true + predicted - right),
        "recall": quotient(right, true),
        "precision": quotient(right, predicted),
        "Dice": quotient(2 * right, true + predicted),
    }


def panoptic_scores(
    counts: np.ndarray,
    ious: np.ndarray,
    class_names: Sequence[str],
    is_thing: np.ndarray,
    parts: Sequence[str] = ("PQ",),
) -> Recompute:
    """Return a function that computes the panoptic quality (PQ) of segments, as fractions.

    For each class, segmentation quality (SQ) is the mean IoU of matched segments, recognition quality (RQ) is matched /
    (matched + false / 2 + missed / 2), and PQ is their product. Classes without a segment have no value. PQ dagger has
    the IoU of the points of stuff classes instead of PQ. Source: A. Kirillov et al., "Panoptic Segmentation", CVPR
    2019, arXiv 1801.00868; L. Porzi et al., "Seamless Scene Segmentation", CVPR 2019, arXiv 1905.01220.

    Args:
        counts: int (samples, 6, classes): matched, false and missed segments; correct elements, elements of the class,
            and elements predicted as the class.
        ious: float (samples, classes), sum of the IoU of matched segments.
        class_names: the name of each class.
        is_thing: bool (classes,), classes with instances.
        parts: which of PQ, SQ and RQ things, stuff and each class have, too.
    """

    def recompute(weights: np.ndarray) -> dict[str, np.ndarray]:
        sums = weighted_sums(weights, counts)  # (draws, 6, classes)
        iou = weighted_sums(weights, ious)  # (draws, classes)
        matched, false, missed = np.moveaxis(sums[:, :3], 1, 0)  # (draws, classes) each
        rq = quotient(matched, matched + (false + missed) / 2)
        sq = np.where(np.isnan(rq), np.nan, iou / matched.clip(1))
        pq = sq * rq
        dagger = np.where(is_thing, pq, class_shares(sums[:, 3:])["IoU"])
        means = {"PQ": pq, "SQ": sq, "RQ": rq, "PQ_dagger": dagger}
        of_parts = {name: means[name] for name in parts}
        for name, per_class in of_parts.items():  # without spaces: "PQ stuff" is the score of a class "stuff"
            means |= {f"{name}_things": per_class[:, is_thing], f"{name}_stuff": per_class[:, ~is_thing]}
        values = {name: nanmean(per_class) for name, per_class in means.items()}
        for name, per_class in of_parts.items():
            values |= {f"{name} {of_class}": column for of_class, column in zip(class_names, per_class.T)}
        return values

    return ProportionRecompute(recompute, {}, find_range=find_share_range)


def quotient(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Divide element by element; the result is NaN where ``whole`` is 0."""
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)


def nanmean(values: np.ndarray) -> np.ndarray:
    """Average over the last axis without NaN; the result is NaN where all are."""
    defined = ~np.isnan(values)
    return quotient(np.where(defined, values, 0.0).sum(axis=-1), defined.sum(axis=-1))
