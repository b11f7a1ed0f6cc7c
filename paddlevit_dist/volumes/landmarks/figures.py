"""Figures of landmarks for the report: error distributions and the volumes with the largest errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ...core.tasks.aspects import TaskAspect
from ...core.tasks.class_names import name_all
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Chart, Figure, FigureTable, Gallery, SliceStack
from ...core.tasks.protocols import Drawable, Reportable
from ..geometry import VolumeGeometry, require_spacing
from ..images import axial_slices, choose_slices, orthogonal_slices
from ..samples import VolumeSamples
from .metrics import RADII_MM, describe, sum_errors, sum_volumes
from .results import LandmarkRecord
from .task import LandmarkDetection

_SHOWN, _STACKS = 12, 3  # volumes of the gallery; those with all slices
_MOST_LINES = 7  # landmarks in a chart, limited by the colors; the table has all
_MOST_ROWS = 1_000


class LandmarkFigures(TaskAspect, Reportable):
    """Makes the tables and images of a report."""

    task: LandmarkDetection

    def figures(
        self, samples: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Create the tables, the error curves and the gallery of the hardest volumes, worst first."""
        if not records or not isinstance(samples, VolumeSamples):
            return []
        names, spacing = self.task.names, require_spacing(self.task.spacing)
        errors = np.stack([record.errors for _, record in records])  # (volumes, landmarks)
        means = np.array([row[np.isfinite(row)].mean() if np.isfinite(row).any() else -1.0 for row in errors])
        order = np.argsort(-means, kind="stable")
        cases = [samples.dataset.case(index) for index, _ in records]
        return [
            *_galleries(samples, records, errors, means, order[:_SHOWN], cases, names, spacing),
            _landmarks(errors, names),
            _curves(errors, names),
            _volumes(errors, means, order, cases, names),
        ]


class LandmarkDrawing(TaskAspect, Drawable):
    """Draws slices of volumes with landmarks."""

    task: LandmarkDetection

    def visualize_batch(
        self, samples: VolumeSamples, batch: dict[str, Any], epoch: int
    ) -> list[tuple[np.ndarray, str]]:
        """Render three slices of each crop of a batch, with the landmarks inside it."""
        return [self._render_slices(volume[0], points) for volume, points in zip(batch["volume"], batch["points"])]

    def visualize_eval_samples(self, samples: VolumeSamples, indices: Sequence[int]) -> list[tuple[np.ndarray, str]]:
        """Render three slices of whole volumes."""
        volume_samples = [samples.sample(index, np.random.default_rng(0)) for index in indices]
        return [self._render_slices(sample["volume"][0], sample["points"]) for sample in volume_samples]

    def _render_slices(self, volume: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, str]:
        geometry = VolumeGeometry(volume.shape, np.eye(4))
        inside = np.where(geometry.contains(points)[:, None], points.astype(np.float64), np.nan)
        count = int(np.isfinite(inside).all(axis=1).sum())
        drawn = orthogonal_slices(volume, require_spacing(self.task.spacing), None, inside, names=self.task.names)
        return drawn, f"{count} of {len(self.task.names)} landmarks"


def _landmarks(errors: np.ndarray, names: Sequence[str]) -> FigureTable:
    rows: list[tuple[Any, ...]] = []
    scores = zip(*describe(sum_volumes(sum_errors(errors))).values())
    for name, landmark_errors, (mean, deviation, *rates) in zip([*names, name_all(names)], [*errors.T, errors], scores):
        finite = landmark_errors[np.isfinite(landmark_errors)]
        if not len(finite):
            rows.append((name, *[None] * (5 + len(RADII_MM)), 0))
            continue
        figures = (mean, deviation, np.median(finite), np.percentile(finite, 95), finite.max(), *rates)
        rows.append((name, *(round(float(value), 3) for value in figures), len(finite)))
    statistics = ("mean mm", "deviation mm", "median mm", "95 % below mm", "largest mm")
    radii = [f"% within {radius:g} mm" for radius in RADII_MM]
    columns = ("landmark", *statistics, *radii, "volumes")
    return FigureTable("Radial errors", columns, rows)


def _curves(errors: np.ndarray, names: Sequence[str]) -> Chart:
    finite = [landmark_errors[np.isfinite(landmark_errors)] for landmark_errors in errors.T]
    worst = sorted(
        (n for n, landmark_errors in enumerate(finite) if len(landmark_errors)), key=lambda n: -float(finite[n].mean())
    )[:_MOST_LINES]
    lines = {
        name_all(names): _cumulative(errors[np.isfinite(errors)]),
        **{names[n]: _cumulative(finite[n]) for n in worst},
    }
    scope = f", of the {_MOST_LINES} worst of {len(names)} landmarks and of all" if len(names) > _MOST_LINES else ""
    note = f"Percent of landmarks with an error up to a distance{scope}."
    return Chart("Distribution of the errors", "radial error, mm", "found within, %", lines, note=note)


def _cumulative(errors: np.ndarray) -> tuple[list[float], list[float]]:
    """Return the distribution function of errors as steps from 0, at most 200."""
    ordered = np.sort(errors)
    shares = 100 * np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
    indices = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), 200)).astype(int)) if len(ordered) else []
    x, y = ordered[indices], shares[indices]
    return [0.0, *map(float, x)], [0.0, *map(float, y)]


def _volumes(
    errors: np.ndarray, means: np.ndarray, order: np.ndarray, cases: Sequence[str], names: Sequence[str]
) -> FigureTable:
    rows: list[tuple[Any, ...]] = []
    for place in order[:_MOST_ROWS].tolist():
        worst = _worst(errors[place])
        if worst is None:
            rows.append((cases[place], None, None, None))
        else:
            rows.append(
                (cases[place], round(float(means[place]), 3), names[worst], round(float(errors[place, worst]), 3))
            )
    note = f"The {_MOST_ROWS:,} worst of {len(order):,}." if len(order) > _MOST_ROWS else ""
    return FigureTable("Volumes", ("volume", "mean mm", "worst landmark", "its error mm"), rows, note)


def _worst(errors: np.ndarray) -> Any:
    return int(np.nanargmax(errors)) if np.isfinite(errors).any() else None


def _galleries(
    samples: VolumeSamples,
    records: Sequence[tuple[int, LandmarkRecord]],
    errors: np.ndarray,
    means: np.ndarray,
    order: np.ndarray,
    cases: Sequence[str],
    names: Sequence[str],
    spacing: Sequence[float],
) -> list[Figure]:
    images, stacks = [], list[tuple[list[np.ndarray], str]]()
    for place in order.tolist():
        index, record = records[place]
        worst = _worst(errors[place])
        sample = samples.sample(index, np.random.default_rng(0))
        true, predicted = sample["points"].astype(np.float64), record.voxels.astype(np.float64)
        center = None if worst is None else true[worst]
        drawn = orthogonal_slices(sample["volume"][0], spacing, predicted, true, center, shows_sides=True, names=names)
        caption = "no landmark is known"
        if worst is not None:
            caption = f"mean {means[place]:.2f} mm, worst {names[worst]} {errors[place, worst]:.2f} mm"
        images.append((drawn, f"{cases[place]}\n{caption}"))
        if len(stacks) < _STACKS:
            chosen = choose_slices(0, sample["volume"].shape[1] - 1)
            slices = axial_slices(sample["volume"][0], spacing, chosen, predicted, true, names)
            stacks.append((slices, f"{cases[place]}\n{caption}"))
    note = "Volumes with the largest mean error; slices through the worst landmark; predictions in red, truth in green."
    stack_note = "Axial slices of the first of them; a mark is a cross within two voxels of its slice, a dot elsewhere."
    return [Gallery("Hardest volumes", images, note), SliceStack("Slices", stacks, stack_note)]
