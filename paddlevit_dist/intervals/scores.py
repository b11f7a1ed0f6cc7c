"""Scores of weighted samples, for ``bootstrap``."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from .resampling import Recompute, weighted_sums


class ClassificationCounts(NamedTuple):
    """Hold the answers for n classified samples; an instance is a ``Recompute``.

    Attributes:
        labels: int (n,), true classes from 0.
        places: int (n,), how many classes the model preferred to the true one. Where only the best class is known: 0 if
            it is the true one, else 1.
        num_classes: the number of classes of the data.
        class_names: for the names of values; None uses the classes' numbers.
        top: for each of these k the share of samples whose place is below k is a value.
    """

    labels: np.ndarray
    places: np.ndarray
    num_classes: int
    class_names: Sequence[str] | None = None
    top: Sequence[int] = (1,)

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the values of each draw, in percent.

        Args:
            weights: float64 (draws, samples).

        Returns:
            "top-1" and so on, "recall CLASS" of each class, and "balanced accuracy", each float (draws,). The last is
            the mean recall of the classes that occur, which is also called macro accuracy.
        """
        total = weights.sum(axis=1)
        hits = np.stack([self.places < k for k in self.top], axis=1)  # (samples, tops)
        values = {f"top-{k}": 100.0 * column / total for k, column in zip(self.top, weighted_sums(weights, hits).T)}
        recalls = 100.0 * np.stack([self._recalls(one) for one in weights])  # (draws, classes)
        values["balanced accuracy"] = mean_of_defined(recalls)
        names = self.class_names or range(self.num_classes)
        values.update({f"recall {name}": column for name, column in zip(names, recalls.T)})
        return values

    def rates(self) -> dict[str, int]:
        """Count the samples that each share is of; see ``ProportionRecompute``."""
        of_class = np.bincount(np.asarray(self.labels, np.int64), minlength=self.num_classes).tolist()
        names = self.class_names or range(self.num_classes)
        recalls = {f"recall {name}": number for name, number in zip(names, of_class) if number}
        return {**{f"top-{k}": len(self.labels) for k in self.top}, **recalls}

    def _recalls(self, weights: np.ndarray) -> np.ndarray:
        """Compute the share of each class that is found, (classes,); not a number where a class does not occur."""
        labels, number = np.asarray(self.labels, np.int64), self.num_classes
        all_of_class = np.bincount(labels, weights, minlength=number)
        found = np.bincount(labels, weights * (self.places == 0), minlength=number)
        return quotient(found, all_of_class)


def means(numbers: Mapping[str, np.ndarray]) -> Recompute:
    """Make a function that computes weighted means of these numbers.

    Args:
        numbers: float (samples,) each, by name. Entries that are not finite do not count.
    """
    columns = [np.asarray(column, np.float64) for column in numbers.values()]
    known = [np.isfinite(column) for column in columns]
    # (samples, 2 x names): what is known, and whether it is
    statistics = np.stack([*(np.where(ok, column, 0.0) for ok, column in zip(known, columns)), *known], axis=1)

    def recompute(weights: np.ndarray) -> dict[str, np.ndarray]:
        sums, counts = np.split(weighted_sums(weights, statistics), 2, axis=1)
        return dict(zip(numbers, quotient(sums, counts).T))

    return recompute


def confusion_scores(
    statistics: np.ndarray,
    class_names: Sequence[str],
    losses: np.ndarray | None = None,
    boundaries: np.ndarray | None = None,
) -> Recompute:
    """Make a function that computes the scores of labeled points or pixels, as fractions.

    The scores are mIoU, accuracy, mean class accuracy, mean Dice coefficient and the IoU of each class; also the
    boundary IoU and the loss where they are known.

    Args:
        statistics: int (samples, 3, classes). The three rows count, for a sample and a class, the points that are of
            the class and taken for it, that are of it, and that are taken for it. Points without a label do not count.
        class_names: the name of each class.
        losses: float (samples,), each summed over the sample's points; None: there is no loss.
        boundaries: the same as ``statistics`` for the pixels near boundaries alone; None: there are none.
    """
    number = len(class_names)
    tables = [statistics] if boundaries is None else [statistics, boundaries]
    flat = np.concatenate([table.reshape(len(table), -1) for table in tables], axis=1)

    def recompute(weights: np.ndarray) -> dict[str, np.ndarray]:
        sums = weighted_sums(weights, flat).reshape(len(weights), len(tables), 3, number)
        right, true, taken = np.moveaxis(sums[:, 0], 1, 0)  # (draws, classes) each
        ious = quotient(right, true + taken - right)
        values = {
            "mIoU": mean_of_defined(ious),
            "accuracy": quotient(right.sum(axis=1), true.sum(axis=1)),
            "mean class accuracy": mean_of_defined(quotient(right, true)),
            "mean Dice": mean_of_defined(quotient(2 * right, true + taken)),
        }
        if boundaries is not None:
            right, near, taken = np.moveaxis(sums[:, 1], 1, 0)
            values["boundary IoU"] = mean_of_defined(quotient(right, near + taken - right))
        if losses is not None:
            values["loss"] = quotient(weighted_sums(weights, losses[:, None])[:, 0], true.sum(axis=1))
        return {**values, **{f"IoU {name}": column for name, column in zip(class_names, ious.T)}}

    return recompute


def quotient(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Divide element by element; the result is not a number where ``whole`` is 0."""
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=whole > 0)


def mean_of_defined(values: np.ndarray) -> np.ndarray:
    """Average over the last axis what is a number; the result is not a number where nothing is."""
    known = ~np.isnan(values)
    return quotient(np.where(known, values, 0.0).sum(axis=-1), known.sum(axis=-1))
