"""Figures of an evaluation of volumes with label maps: scores of classes, and slices of those that go wrong."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...runtime.text_rendering import legend
from ...tasks.figures import Figure, FigureTable, Gallery, class_colors
from ..geometry import step_lengths
from ..images import orthogonal_slices
from .dataset import IGNORED
from .metrics import COLUMNS, VolumeMetrics

_SHOWN = 12  # volumes of the gallery
_MOST_ROWS = 1_000
_OPACITY = 0.5  # of a class's color
_OF_CLASS = ("Dice", "labeled Dice", "pooled Dice", "assd_mm", "hd95_mm")  # values of the metrics


def segmentation_figures(
    samples: Any,
    records: Sequence[tuple[int, np.ndarray]],
    class_names: Sequence[str],
    again: Callable[[int], tuple[Any, np.ndarray]],
) -> list[Figure]:
    """Tables of classes and volumes, and the hardest volumes, worst first.

    Args:
        records: of each volume its index and sums, see ``VolumeMetrics``.
        again: what is found in a volume, a ``SegmentedVolume``, and its labels.
    """
    sums = np.stack([record for _, record in records])  # (volumes, classes - 1, columns)
    metrics = VolumeMetrics(class_names)
    totals = metrics.compute({"sums": sums.sum(axis=0)})
    rows = []
    for place, name in enumerate(class_names[1:]):
        shown = [totals.get(f"{what} {name}") for what in _OF_CLASS]
        numbers = [int(sums[:, place, COLUMNS.index(what)].sum()) for what in ("labeled", "missed")]
        rows.append((name, *(None if own is None else round(own, 4) for own in shown), *numbers))
    note = "Dice: mean over volumes; pooled: of the voxels of all volumes. Missed: only labeled, or only predicted."
    classes = FigureTable("Classes of voxels", ["class", *_OF_CLASS, "volumes with it", "missed in"], rows, note)
    columns = metrics.columns([sums])
    order = np.argsort(np.nan_to_num(columns["Dice"], nan=2.0), kind="stable").tolist()
    names = [samples.dataset.case(index) for index, _ in records]
    rows = [
        (names[place], *(round(float(own[place]), 4) if np.isfinite(own[place]) else None for own in columns.values()))
        for place in order[:_MOST_ROWS]
    ]
    note = f"The {_MOST_ROWS:,} worst of {len(order):,}." if len(order) > _MOST_ROWS else ""
    volumes = FigureTable("Volumes", ("volume", *columns), rows, note)
    images = []
    for place in [place for place in order[:_SHOWN] if columns["Dice"][place] < 1]:
        found, labels = again(records[place][0])
        spacing = step_lengths(found.spacing) * found.labels.shape / np.array(found.volume.shape)
        wrong = (found.labels != labels) & (labels != IGNORED)
        center = [wrong.sum(axis=tuple({0, 1, 2} - {axis})).argmax() for axis in range(3)]  # of the slices
        views = [class_slices(found.volume, spacing, own, class_names, center) for own in (labels, found.labels)]
        images.append((np.concatenate(views), f"Dice {columns['Dice'][place]:.3f}\n{names[place]}"))
    note = "Those with the lowest mean Dice of their classes: truth above, prediction below, through most errors."
    return [classes, volumes, *([Gallery("Hardest volumes", images, note)] if images else [])]


def class_slices(
    volume: np.ndarray,
    spacing: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    center: Sequence[int] | None = None,
) -> np.ndarray:
    """Axial, coronal and sagittal slices side by side under the colors of their classes, anterior or superior up, and
    what the colors mean: uint8 (height, width, 3).

    Args:
        volume: float32 (depth, height, width), shown from its percentile 0.5 (black) to 99.5 (white).
        spacing: of it, millimeters.
        labels: uint8 (depth, height, width) of the same extent, perhaps with more or fewer voxels.
        center: the voxel of ``labels`` that the slices go through; None: the middle of all that has a class.
    """
    if center is None:
        inside = np.argwhere((labels > 0) & (labels != IGNORED))
        center = inside.mean(axis=0) if len(inside) else (np.array(labels.shape) - 1) / 2
    share = np.array(volume.shape) / labels.shape
    low, high = np.percentile(volume[:: max(1, len(volume) // 64)], (0.5, 99.5))
    nearest = [((np.arange(n) + 0.5) / one).astype(int) for n, one in zip(volume.shape, share)]
    colors = np.zeros((IGNORED + 1, 4), np.float32)
    colors[1 : len(class_names)] = np.insert(class_colors(len(class_names) - 1).astype(np.float32), 3, _OPACITY, 1)
    drawn = orthogonal_slices(
        (np.asarray(volume) - low) / max(high - low, 1e-6),
        spacing,
        None,
        center=(np.array(center) + 0.5) * share - 0.5,
        classes=(labels[np.ix_(*nearest)], colors),
    )
    entries = [(name, tuple(map(int, colors[n, :3]))) for n, name in enumerate(class_names) if n]
    names = np.asarray(legend(entries, len(drawn), ink="white", paper="black"))[: len(drawn)]
    return np.concatenate([drawn, np.pad(names, ((0, len(drawn) - len(names)), (0, 0), (0, 0)))], axis=1)
