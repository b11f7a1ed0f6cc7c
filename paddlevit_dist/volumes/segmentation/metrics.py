"""Metrics of segmented volumes: sums of each volume, at the stored size of its labels."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...core.intervals import ScoreRange, nanmean, quotient, weighted_sums
from ...core.intervals.score_ranges import ERROR_RANGE, SHARE_RANGE
from ...core.metrics.counts import count_confusion
from ...core.runtime.errors import UserError
from ...core.tasks.metrics import TableMetrics
from ...core.tasks.score_kind import LOSS, Arrays, FormatInterval, ScoreKind, format_losses
from ..geometry import step_lengths
from .dataset import IGNORED

# Sums of each class: Dice and the number of volumes with a Dice; Dice and number of volumes with a label; voxels that
# are right, labeled, predicted; distances and the number of volumes with distances; volumes labeled or predicted only.
COLUMNS = ("dice", "volumes", "labeled dice", "labeled", "right", "true", "taken", "assd", "hd95", "close", "missed")
_LABELED, _POOLED = "labeled Dice", "pooled Dice"
_MEANS = {  # of a class: name -> sum and divisor
    "Dice": ("dice", "volumes"),
    _LABELED: ("labeled dice", "labeled"),
    "assd_mm": ("assd", "close"),
    "hd95_mm": ("hd95", "close"),
}
_DISTANCES = ("assd_mm", "hd95_mm")
_RIGHT_ANGLE = 1e-5  # cosine: last digits differ between formats


class VolumeMetrics(TableMetrics):
    """Collect the sums of each volume, from which ``VolumeScores`` computes Dice coefficients and surface distances.

    Args:
        class_names: the background first.
        has_distances: whether surface distances are computed.
        labels: labels of each class but the background, which may share labels; None: labels 1, 2 and so on.
    """

    def __init__(
        self, class_names: Sequence[str], has_distances: bool = True, labels: Sequence[tuple[int, ...]] | None = None
    ) -> None:
        super().__init__("volume classes", class_names[1:])
        self.has_distances = has_distances
        self._labels = [(label,) for label in range(1, len(class_names))] if labels is None else list(labels)

    def update(self, predicted: np.ndarray, labels: np.ndarray, spacing: np.ndarray) -> np.ndarray:
        """Add a volume and return its sums, float64 (classes - 1, columns); UserError if a voxel has no prediction.

        ``predicted`` and ``labels`` are uint8 (depth, height, width), labels or ``IGNORED``; for ``spacing`` see
        ``surface_distances``.
        """
        if (predicted == IGNORED).any():
            raise UserError("the network's outputs for a volume are not finite, so it cannot be scored")
        num_labels = 1 + max(label for each in self._labels for label in each)
        confusion = count_confusion(labels, predicted, num_labels, IGNORED)
        counts = [
            (confusion[np.ix_(each, each)].sum(), confusion[list(each)].sum(), confusion[:, list(each)].sum())
            for each in self._labels
        ]
        right, true, selected = np.array(counts, np.float64).T
        dice = quotient(2 * right, true + selected)
        is_defined, is_true = np.isfinite(dice), true > 0
        distances = np.full((len(self._labels), 2), np.nan)
        if self.has_distances:
            for number in np.flatnonzero(is_true & (selected > 0)).tolist():
                group = self._labels[number]
                masks = np.isin(labels, group), np.isin(predicted, group) & (labels != IGNORED)
                distances[number] = surface_distances(*masks, spacing)
        close = np.isfinite(distances[:, 0])
        columns = [dice, is_defined, np.where(is_true, dice, 0), is_true, right, true, selected, *distances.T, close]
        columns.append((true > 0) != (selected > 0))
        sums = np.nan_to_num(np.stack(columns, axis=1).astype(np.float64))
        self.add(sums=sums)
        return sums


class VolumeScores(ScoreKind):
    """Dice coefficients and surface distances of the classes, which are without the background.

    - "Dice": mean over classes of the mean over volumes in which the class is labeled or predicted, as in nnU-Net.
    - "labeled Dice": only volumes in which the class is labeled, as MONAI's ``DiceMetric(reduction="mean_batch")``;
      MONAI's "mean" averages over the classes of each volume first.
    - "pooled Dice": Dice of the voxels of all volumes together.

    A distance exists if the class is labeled and predicted. If only one is true, MONAI's distance is infinite; here the
    volume is counted as "missed". Tables without any distance have no values of them.

    The array "sums" is float64 (volumes, classes, columns), see ``COLUMNS``.
    """

    class_score = "Dice {}"
    other_class_scores = (*(f"{score} {{}}" for score in (_LABELED, _POOLED, *_DISTANCES)),)
    class_means = {score: f"{score} {{}}" for score in (*_MEANS, _POOLED)}
    units = dict.fromkeys(_DISTANCES, "mm")
    is_ranking = False

    def compute(self, arrays: Arrays, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the values of weighted volumes."""
        return self._divide(arrays, weighted_sums(weights, arrays["sums"]))

    def _divide(self, arrays: Arrays, sums: np.ndarray) -> dict[str, np.ndarray]:
        """Compute the values by name, (draws,), from sums (draws, classes, columns); NaN where undefined."""
        column = dict(zip(COLUMNS, np.moveaxis(sums, -1, 0)))  # (draws, classes) each
        class_values = {score: quotient(column[total], column[divisor]) for score, (total, divisor) in _MEANS.items()}
        class_values[_POOLED] = quotient(2 * column["right"], column["true"] + column["taken"])
        if not select(arrays["sums"], "close").any():
            class_values = {score: by_class for score, by_class in class_values.items() if score not in _DISTANCES}
        values = {score: nanmean(by_class) for score, by_class in class_values.items()}
        for index, name in enumerate(self.classes):
            values.update({f"{score} {name}": by_class[:, index] for score, by_class in class_values.items()})
        return values

    def find_ranges(self, arrays: Arrays, classes: Sequence[str]) -> dict[str, ScoreRange | None]:
        """Return the ranges of distances and of Dice coefficients, of all classes and of each."""
        ranges = {score: ERROR_RANGE if score in _DISTANCES else SHARE_RANGE for score in (*_MEANS, _POOLED)}
        return {name: bounds for score, bounds in ranges.items() for name in _name_all(score, classes)}

    def counts(self, arrays: Arrays) -> dict[str, int]:
        """Count the volumes in which a class is only labeled or only predicted, of all classes and of each."""
        missed = select(arrays["sums"], "missed").sum(axis=0).astype(int).tolist()
        return {"missed": sum(missed), **{f"missed {name}": number for name, number in zip(self.classes, missed)}}

    def columns(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """Return Dice and distances of each volume; for a single volume the three kinds of Dice are equal."""
        values = self._divide(arrays, arrays["sums"])
        equal = {name for score in (_POOLED, _LABELED) for name in _name_all(score, self.classes)}
        return {name: column for name, column in values.items() if name not in equal}

    def summary(self, values: Mapping[str, float], format_interval: FormatInterval) -> str:
        """Format the main values as one log line."""
        text = f"Dice {values['Dice']:.4f}{format_interval('Dice', 3)} pooled Dice {values['pooled Dice']:.4f}"
        if any(name in values for name in _DISTANCES):
            text += f" assd {values.get('assd_mm', np.nan):.3f} mm hd95 {values.get('hd95_mm', np.nan):.3f} mm"
        text += f" {format_losses(values)}" if LOSS in values else ""
        counts = {name: values.get(f"missed {name}", 0) for name in self.classes}
        missed = ", ".join(f"{name} {number}" for name, number in counts.items() if number)
        absent = [name for name in self.classes if f"Dice {name}" not in values]
        text += f"; volumes where a class is only labeled or only predicted: {missed}" if missed else ""
        return text + (f"; neither labeled nor predicted: {', '.join(absent)}" if absent else "")

    def is_valid(self, arrays: Arrays, samples: int, classes: int) -> bool:
        """Return whether there are sums of each volume and class."""
        return arrays["sums"].shape == (samples, classes, len(COLUMNS))

    def truth(self, arrays: Arrays) -> np.ndarray:
        """Return the number of labeled voxels of each volume and class."""
        return select(arrays["sums"], "true")


def _name_all(score: str, classes: Sequence[str]) -> list[str]:
    """Return the names of a score: of all classes, and of each."""
    return [score, *(f"{score} {name}" for name in classes)]


def select(sums: np.ndarray, column: str) -> np.ndarray:
    """Return one of the ``COLUMNS`` of sums (..., columns)."""
    return sums[..., COLUMNS.index(column)]


def surface_distances(true: np.ndarray, predicted: np.ndarray, spacing: np.ndarray) -> tuple[float, float]:
    """Compute the average symmetric surface distance and the 95 % Hausdorff distance, in millimeters.

    A surface voxel belongs to the mask and shares a face with a voxel outside it, or is at the end of the volume. The
    average is over the surface voxels of both masks, each to the nearest surface voxel of the other. The second
    distance is the larger one of the masks' 95th percentiles. MONAI's
    ``compute_average_surface_distance(symmetric=True)`` and ``compute_hausdorff_distance(percentile=95)`` return the
    same numbers. The masks are bool (depth, height, width), not empty; ``spacing`` is millimeters along these axes, or
    their steps, (3, 3), see ``turned_spacing``. Source: T. Heimann et al., 2009, "Comparison and Evaluation of Methods
    for Liver Segmentation From CT Datasets", IEEE TMI 28, section IV, for the average.
    """
    from scipy.ndimage import binary_erosion

    either = true | predicted
    part = tuple(
        slice(int(indices[0]), int(indices[-1]) + 1)
        for indices in (np.flatnonzero(either.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3))
    )
    true_surface, predicted_surface = (mask[part] & ~binary_erosion(mask[part]) for mask in (true, predicted))
    steps = np.diag(spacing) if np.ndim(spacing) == 1 else np.asarray(spacing)
    forward = _to_nearest(predicted_surface, true_surface, steps)
    backward = _to_nearest(true_surface, predicted_surface, steps)
    average = float(np.concatenate([forward, backward]).mean())
    return average, float(max(np.percentile(forward, 95), np.percentile(backward, 95)))


def _to_nearest(surface: np.ndarray, other: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the millimeters from each voxel of a surface to the nearest voxel of another, float64 (voxels,)."""
    from scipy.ndimage import distance_transform_edt
    from scipy.spatial import cKDTree

    spacing = step_lengths(steps)
    cosines = (steps @ steps.T) / np.outer(spacing, spacing)
    if abs(cosines - np.eye(3)).max() > _RIGHT_ANGLE:
        return cKDTree(np.argwhere(other) @ steps).query(np.argwhere(surface) @ steps)[0]
    # Indices instead of distances of all voxels take a quarter of the memory.
    nearest = distance_transform_edt(~other, sampling=spacing, return_distances=False, return_indices=True)
    shifts = nearest[:, surface] - np.stack(np.nonzero(surface))  # (3, voxels)
    return np.sqrt((np.square(shifts.T * spacing)).sum(axis=1))
