"""How well the voxels of volumes are labeled: sums over all volumes, at the size in which their labels are stored."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...intervals import nanmean, quotient, weighted_sums
from ...metrics.counts import count_confusion, reduce_confusions
from ...runtime.errors import UserError
from ...tasks.metrics import Metrics, SampleTable
from ..geometry import step_lengths
from .dataset import IGNORED

# What is summed of each class: Dice and in how many volumes it has one; the same of volumes with a label of it; voxels
# that are right, labeled, predicted; distances and in how many volumes they exist; volumes where only one side has it.
COLUMNS = ("dice", "volumes", "labeled dice", "labeled", "right", "true", "taken", "assd", "hd95", "close", "missed")
_MEANS = {  # of a class: name -> sum and what divides it
    "Dice": ("dice", "volumes"),
    "labeled Dice": ("labeled dice", "labeled"),
    "assd_mm": ("assd", "close"),
    "hd95_mm": ("hd95", "close"),
}
_DISTANCES = ("assd_mm", "hd95_mm")
_RIGHT_ANGLE = 1e-5  # cosine: formats keep other last digits
KIND = "volume classes"  # of what is kept for comparisons


class VolumeMetrics(Metrics):
    """Dice coefficients and surface distances of classes other than the background. "Dice" is the mean over classes of
    the mean over volumes in which the class is labeled or predicted, which is nnU-Net's; "labeled Dice" counts only
    volumes with a label of it, which is MONAI's ``DiceMetric(reduction="mean_batch")`` (with "mean" that averages over
    the classes of each volume first); "pooled Dice" is of the voxels of all volumes together.
    A distance exists where the class is labeled and predicted; MONAI has infinity where only one of both is so: such
    volumes are counted as "missed".

    Args:
        class_names: the background first.
        has_distances: whether surface distances are computed.
    """

    lists = ("_volumes",)

    def __init__(self, class_names: Sequence[str], has_distances: bool = True) -> None:
        super().__init__()
        self.num_classes, self.names, self.has_distances = len(class_names), list(class_names[1:]), has_distances
        self.state = {"sums": np.zeros((len(self.names), len(COLUMNS)))}
        self._volumes: list[np.ndarray] = []

    def update(self, predicted: np.ndarray, labels: np.ndarray, spacing: np.ndarray) -> np.ndarray:
        """Add a volume; returns its sums, float64 (classes - 1, columns).

        Args:
            predicted: uint8 (depth, height, width), the class of each voxel.
            labels: uint8 of that shape, the same or ``IGNORED``.
            spacing: as of ``surface_distances``.
        Raises:
            UserError: a voxel has no prediction.
        """
        if (predicted == IGNORED).any():
            raise UserError("the network's outputs for a volume are not finite: nothing is scored")
        counts = reduce_confusions(count_confusion(labels, predicted, self.num_classes, IGNORED))[:, 1:]
        right, true, taken = counts.astype(np.float64)
        dice = quotient(2 * right, true + taken)
        known, is_true = np.isfinite(dice), true > 0
        distances = np.full((len(self.names), 2), np.nan)
        if self.has_distances:
            for number in np.flatnonzero(is_true & (taken > 0)).tolist():
                masks = labels == number + 1, (predicted == number + 1) & (labels != IGNORED)
                distances[number] = surface_distances(*masks, spacing)
        close = np.isfinite(distances[:, 0])
        found = [dice, known, np.where(is_true, dice, 0), is_true, right, true, taken, *distances.T, close]
        found.append((true > 0) != (taken > 0))
        sums = np.nan_to_num(np.stack(found, axis=1).astype(np.float64))
        self.state["sums"] += sums
        self._volumes.append(sums)
        return sums

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        values = {name: float(column[0]) for name, column in self._values(state["sums"][None]).items()}
        known = {name: value for name, value in values.items() if np.isfinite(value)}
        return {"Dice": 0.0, "pooled Dice": 0.0, **known, "missed": int(state["sums"][:, -1].sum())}

    def _values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        """Of sums (draws, classes - 1, columns) the values by name, (draws,); not a number where one is undefined."""
        column = {name: sums[..., place] for place, name in enumerate(COLUMNS)}
        of_classes = {name: quotient(column[of], column[by]) for name, (of, by) in _MEANS.items()}
        of_classes["pooled Dice"] = quotient(2 * column["right"], column["true"] + column["taken"])
        if not self.has_distances:
            of_classes = {name: own for name, own in of_classes.items() if name not in _DISTANCES}
        values = {name: nanmean(own) for name, own in of_classes.items()}
        for place, name in enumerate(self.names):
            values.update({f"{what} {name}": own[:, place] for what, own in of_classes.items()})
        return values

    def per_sample(self) -> list[np.ndarray]:
        """The sums of each volume, float64 (volumes, classes - 1, columns)."""
        return [np.array(self._volumes).reshape(-1, *self.state["sums"].shape)]

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        flat = table[0].reshape(len(table[0]), -1)
        return self._values(weighted_sums(weights, flat).reshape(len(weights), *table[0].shape[1:]))

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable:
        return SampleTable(KIND, self.names, {"sums": table[0]})

    def columns(self, table: Sequence[np.ndarray]) -> dict[str, Sequence[Any]]:
        """Dice and distances of each volume: of it alone the three sorts of Dice are one."""
        values = self._values(table[0])
        return {name: own for name, own in values.items() if not name.startswith(("pooled", "labeled"))}

    def summary(self, values: dict[str, float]) -> str:
        said = f"Dice {values['Dice']:.4f}{self.format_interval('Dice', 3)} pooled Dice {values['pooled Dice']:.4f}"
        if any(name in values for name in _DISTANCES):
            said += f" assd {values.get('assd_mm', np.nan):.3f} mm hd95 {values.get('hd95_mm', np.nan):.3f} mm"
        return said


def surface_distances(true: np.ndarray, predicted: np.ndarray, spacing: np.ndarray) -> tuple[float, float]:
    """The average symmetric surface distance and the 95 % Hausdorff distance, in millimeters.

    A surface voxel belongs to the mask and touches with a face one that does not, or the end of the volume. The average
    is over the surface voxels of both masks, each to the nearest of the other; the second is the larger of the two
    masks' 95th percentiles. MONAI's ``compute_average_surface_distance(symmetric=True)`` and
    ``compute_hausdorff_distance(percentile=95)`` are the same numbers.

    Source: T. Heimann et al., 2009, "Comparison and Evaluation of Methods for Liver Segmentation From CT Datasets",
    IEEE TMI 28, section IV, for the first.

    Args:
        true, predicted: bool (depth, height, width), neither of them empty.
        spacing: millimeters (depth, height, width), or the steps along these axes, (3, 3), see ``turned_spacing``.
    """
    from scipy.ndimage import binary_erosion

    either = true | predicted
    part = tuple(
        slice(int(places[0]), int(places[-1]) + 1)
        for places in (np.flatnonzero(either.any(axis=tuple({0, 1, 2} - {axis}))) for axis in range(3))
    )
    surfaces = [mask[part] & ~binary_erosion(mask[part]) for mask in (true, predicted)]
    steps = np.diag(spacing) if np.ndim(spacing) == 1 else np.asarray(spacing)
    there, back = (_to_nearest(*surfaces[::turn], steps) for turn in (-1, 1))
    average = float(np.concatenate([there, back]).mean())
    return average, float(max(np.percentile(there, 95), np.percentile(back, 95)))


def _to_nearest(surface: np.ndarray, other: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the millimeters from each voxel of a surface to the nearest of another, float64 (voxels,)."""
    from scipy.ndimage import distance_transform_edt
    from scipy.spatial import cKDTree

    spacing = step_lengths(steps)
    cosines = (steps @ steps.T) / np.outer(spacing, spacing)
    if abs(cosines - np.eye(3)).max() > _RIGHT_ANGLE:
        return cKDTree(np.argwhere(other) @ steps).query(np.argwhere(surface) @ steps)[0]
    # Places in place of distances of all voxels: a quarter of the memory.
    nearest = distance_transform_edt(~other, sampling=spacing, return_distances=False, return_indices=True)
    shifts = nearest[:, surface] - np.stack(np.nonzero(surface))  # (3, voxels)
    return np.sqrt((np.square(shifts.T * spacing)).sum(axis=1))
