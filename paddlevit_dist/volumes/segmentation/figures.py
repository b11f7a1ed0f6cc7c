"""Figures of an evaluation of label maps: scores of classes, and slices of the worst volumes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import paddle

from ...core.runtime.text_rendering import legend
from ...core.runtime.transfers import batch_to_device
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Figure, FigureTable, Gallery, SliceStack, class_colors
from ...core.tasks.protocols import Drawable, Reportable
from ..geometry import step_lengths
from ..images import axial_slices, choose_slices, orthogonal_slices
from .dataset import IGNORED
from .fingerprint import fingerprint
from .metrics import VolumeScores, select
from .regions import group_labels, name_labels
from .samples import SegmentedSamples, SegmentedVolume
from .task import VolumeSegmentation

_SHOWN, _STACKS = 12, 3  # volumes of the gallery; those with all slices
_MOST_ROWS = 1_000
_OPACITY = 0.5  # of a class's color
CLASS_VALUES = ("Dice", "labeled Dice", "pooled Dice", "assd_mm", "hd95_mm")  # values of the metrics


class VolumeLabelFigures(TaskAspect, Reportable):
    """Makes the tables and images of a report."""

    task: VolumeSegmentation

    def figures(
        self, samples: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Create the tables and images of the report."""
        if not records or not isinstance(samples, SegmentedSamples):
            return []
        task = self.task

        def segment(index: int) -> tuple[SegmentedVolume, np.ndarray]:
            batch = task.collate([samples.sample(index, np.random.default_rng(0))])
            return next(task.segment_batch(model, batch_to_device(batch)))

        names = list(group_labels(task.class_names, task.regions))
        return segmentation_figures(
            samples, records, names, name_labels(task.class_names, task.regions, task.numbers), segment
        )


class VolumeLabelDrawing(TaskAspect, Drawable):
    """Draws slices of volumes with their labels."""

    task: VolumeSegmentation

    def visualize_batch(
        self, samples: TransformedDataset, batch: dict[str, Any], epoch: int
    ) -> list[tuple[np.ndarray, str]]:
        """Render three slices of each crop of a batch, with its classes."""
        pairs = zip(batch["volume"], batch["labels"])
        return [self._render_slices(np.asarray(volume[0]), np.asarray(labels)) for volume, labels in pairs]

    def summarize_samples(self, samples: TransformedDataset) -> Iterable[str]:
        """Return the statistics of the dataset that help to choose keys."""
        return fingerprint(samples.dataset)

    def visualize_eval_samples(
        self, samples: TransformedDataset, indices: Sequence[int]
    ) -> list[tuple[np.ndarray, str]]:
        """Render three slices of whole volumes."""
        volumes = [samples.dataset.read(index) for index in indices]
        return [
            self._render_slices(np.asarray(channels[0].array, np.float32), labels.array) for channels, labels in volumes
        ]

    def _render_slices(self, volume: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, str]:
        label_names = name_labels(self.task.class_names, self.task.regions, self.task.numbers)
        names = [label_names[label] for label in np.setdiff1d(labels, [0, IGNORED]).tolist()]
        return class_slices(volume, self.task.spacing, labels, label_names), ", ".join(names) or "background"


def segmentation_figures(
    samples: TransformedDataset,
    records: Sequence[tuple[int, np.ndarray]],
    class_names: Sequence[str],
    label_names: Sequence[str],
    segment: Callable[[int], tuple[Any, np.ndarray]],
) -> list[Figure]:
    """Create the tables of classes and volumes, and the gallery of the hardest volumes, worst first.

    Args:
        samples: samples of the evaluated dataset.
        records: index and sums of each volume, see ``VolumeMetrics``.
        class_names: the background first, then the classes or regions that have scores.
        label_names: names of the labels in predicted label maps.
        segment: predicts a volume again; returns a ``SegmentedVolume`` and its labels.
    """
    arrays = {"sums": np.stack([record for _, record in records])}  # (volumes, classes - 1, columns)
    scores = VolumeScores(class_names[1:])
    totals = scores.compute_scores(arrays, np.ones((1, len(records))))
    numbers = [select(arrays["sums"], what).sum(axis=0).astype(int).tolist() for what in ("labeled", "missed")]
    rows = []
    columns, few = scores.columns(arrays), []
    for name, labeled, missed in zip(class_names[1:], *numbers):
        dice, *values = (_round(totals.get(f"{what} {name}", [np.nan])[0]) for what in CLASS_VALUES)
        rows.append((name, dice, missed, labeled, *values))
        measured = int(np.isfinite(columns.get(f"assd_mm {name}", [])).sum())
        few += [f"{name} {measured} of {labeled}"] if 0 < measured < labeled else []
    note = "Dice: mean over volumes; pooled: over the voxels of all volumes. Missed: only labeled, or only predicted."
    note += f" Distances are of fewer volumes, where a class is found: {', '.join(few)}." if few else ""
    names = ["class", "Dice", "missed in", "volumes with it", *CLASS_VALUES[1:]]
    classes = FigureTable("Classes of voxels", names, rows, note)
    order = np.argsort(np.nan_to_num(columns["Dice"], nan=2.0), kind="stable").tolist()
    names = [samples.dataset.case(i) for i, _ in records]
    rows = [(names[at], *(_round(column[at]) for column in columns.values())) for at in order[:_MOST_ROWS]]
    note = f"The {_MOST_ROWS:,} worst of {len(order):,}." if len(order) > _MOST_ROWS else ""
    volumes = FigureTable("Volumes", ("volume", *columns), rows, note)
    images, stacks = [], list[tuple[list[np.ndarray], str]]()
    for place in [at for at in order[:_SHOWN] if columns["Dice"][at] < 1]:
        predicted, labels = segment(records[place][0])
        spacing = step_lengths(predicted.spacing) * predicted.labels.shape / np.array(predicted.volume.shape)
        wrong = (predicted.labels != labels) & (labels != IGNORED)
        center = [wrong.sum(axis=tuple({0, 1, 2} - {axis})).argmax() for axis in range(3)]  # of the slices
        views = [
            class_slices(predicted.volume, spacing, class_map, label_names, center)
            for class_map in (labels, predicted.labels)
        ]
        caption = f"Dice {columns['Dice'][place]:.3f}\n{names[place]}"
        images.append((np.concatenate(views), caption))
        if len(stacks) < _STACKS:
            stacks.append((stack_slices(predicted.volume, spacing, labels, predicted.labels, label_names), caption))
    if not images:
        return [classes, volumes]
    note = "Volumes with the lowest mean Dice: truth above, prediction below; slices with the most errors."
    slices = SliceStack("Slices", stacks, "Axial slices of the hardest volumes; left: truth, right: prediction.")
    return [classes, Gallery("Hardest volumes", images, note), slices, volumes]


def _round(value: float) -> float | None:
    return round(float(value), 4) if np.isfinite(value) else None


def class_slices(
    volume: np.ndarray,
    spacing: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    center: Sequence[int] | None = None,
) -> np.ndarray:
    """Render axial, coronal and sagittal slices with colored classes and a legend, uint8 (height, width, 3).

    Anterior or superior is up. ``volume``, float32 (depth, height, width), is shown from percentile 0.5 (black) to 99.5
    (white), ``spacing`` in millimeters. ``labels``, uint8 of the same extent, may have other numbers of voxels. All
    slices contain ``center``, a voxel of ``labels``, by default the middle of all voxels with a class. The background
    is the first of ``class_names``.
    """
    if center is None:
        inside = np.argwhere((labels > 0) & (labels != IGNORED))
        center = inside.mean(axis=0) if len(inside) else (np.array(labels.shape) - 1) / 2
    share = np.array(volume.shape) / labels.shape
    shades, (shown, colors) = _prepare_shown(volume, labels, class_names)
    drawn = orthogonal_slices(
        shades, spacing, None, center=(np.array(center) + 0.5) * share - 0.5, classes=(shown, colors)
    )
    entries = []
    for number, name in enumerate(class_names[1:], 1):
        red, green, blue = map(int, colors[number, :3])
        entries.append((name, (red, green, blue)))
    names = np.asarray(legend(entries, len(drawn), ink="white", paper="black"))[: len(drawn)]
    return np.concatenate([drawn, np.pad(names, ((0, len(drawn) - len(names)), (0, 0), (0, 0)))], axis=1)


def _prepare_shown(
    volume: np.ndarray, labels: np.ndarray, class_names: Sequence[str]
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return the volume from 0 (black) to 1 (white), its labels at the same voxels, and the colors of classes."""
    share = np.array(volume.shape) / labels.shape
    low, high = np.percentile(volume[:: max(1, len(volume) // 64)], (0.5, 99.5))
    nearest = [((np.arange(n) + 0.5) / axis_share).astype(int) for n, axis_share in zip(volume.shape, share)]
    colors = np.zeros((IGNORED + 1, 4), np.float32)
    colors[1 : len(class_names)] = np.insert(class_colors(len(class_names) - 1).astype(np.float32), 3, _OPACITY, 1)
    return (np.asarray(volume) - low) / max(high - low, 1e-6), (labels[np.ix_(*nearest)], colors)


def stack_slices(
    volume: np.ndarray, spacing: np.ndarray, true: np.ndarray, predicted: np.ndarray, class_names: Sequence[str]
) -> list[np.ndarray]:
    """Render axial slices with true and predicted classes side by side, see ``class_slices``, without a legend."""
    sides = []
    for labels in (true, predicted):
        shades, classes = _prepare_shown(volume, labels, class_names)
        sides.append(axial_slices(shades, spacing, choose_slices(0, len(volume) - 1), classes=classes))
    return [np.concatenate(pair, axis=1) for pair in zip(*sides)]
