"""Figures of an evaluation of volumes with label maps: scores of classes, and slices of those that go wrong."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from ...contracts.figures import Figure, Gallery, Table, class_colours
from ...intervals import mean_of_defined
from ...runtime.lettering import legend
from .dataset import IGNORED
from .metrics import COLUMNS, VolumeMetrics

_SHOWN = 12  # volumes of the gallery
_MOST_ROWS = 1_000
_SIDE_PX, _GAP_PX = 256, 6
_SHARE = 0.5  # of a class's colour in a pixel


def segmentation_figures(
    samples: Any,
    records: Sequence[tuple[int, np.ndarray]],
    class_names: Sequence[str],
    again: Callable[[int], tuple[Any, np.ndarray]],
) -> list[Figure]:
    """Tables of classes and volumes, and the hardest volumes, worst first.

    Args:
        records: of each volume its index and sums, see ``VolumeMetrics``.
        again: what is found in a volume, a ``Segmented``, and its labels.
    """
    sums = np.stack([record for _, record in records])  # (volumes, classes - 1, columns)
    metrics = VolumeMetrics(class_names)
    totals = metrics.compute({"sums": sums.sum(axis=0)})
    rows = []
    for place, name in enumerate(class_names[1:]):
        shown = [
            totals.get(f"{what} {name}") for what in ("Dice", "labelled Dice", "pooled Dice", "assd_mm", "hd95_mm")
        ]
        numbers = [int(sums[:, place, COLUMNS.index(what)].sum()) for what in ("labelled", "missed")]
        rows.append((name, *(None if own is None else round(own, 4) for own in shown), *numbers))
    titles = ["class", "Dice", "labelled Dice", "pooled Dice", "surface mm", "95 % surface mm"]
    note = "Dice: mean over volumes; pooled: of the voxels of all volumes. Missed: only labelled, or only predicted."
    classes = Table("Classes of voxels", [*titles, "volumes with it", "missed in"], rows, note)
    alone = np.array([[np.nan if not row[1] else row[0] for row in record] for _, record in records])
    means = mean_of_defined(alone)
    order = np.argsort(np.nan_to_num(means, nan=2.0), kind="stable").tolist()
    names = [samples.dataset.case(index) for index, _ in records]
    return [
        classes,
        _volumes(alone, means, order, names, class_names),
        *_hardest(records, means, order[:_SHOWN], names, class_names, again),
    ]


def _volumes(
    alone: np.ndarray, means: np.ndarray, order: Sequence[int], names: Sequence[str], class_names: Sequence[str]
) -> Table:
    rows = [
        (names[place], *(round(float(one), 4) if np.isfinite(one) else None for one in (means[place], *alone[place])))
        for place in order[:_MOST_ROWS]
    ]
    note = f"The {_MOST_ROWS:,} worst of {len(order):,}." if len(order) > _MOST_ROWS else ""
    return Table("Volumes", ("volume", "Dice", *(f"Dice {name}" for name in class_names[1:])), rows, note)


def _hardest(
    records: Sequence[tuple[int, np.ndarray]],
    means: np.ndarray,
    order: Sequence[int],
    names: Sequence[str],
    class_names: Sequence[str],
    again: Callable[[int], tuple[Any, np.ndarray]],
) -> list[Figure]:
    pictures = []
    for place in order:
        if not means[place] < 1:
            continue
        found, labels = again(records[place][0])
        spacing = found.spacing * found.labels.shape / np.array(found.volume.shape)
        centre = _worst_voxel(found.labels, labels)
        views = [class_slices(found.volume, spacing, own, class_names, centre) for own in (labels, found.labels)]
        width = max(view.shape[1] for view in views)
        padded = [np.pad(view, ((0, _GAP_PX), (0, width - view.shape[1]), (0, 0))) for view in views]
        pictures.append((np.concatenate(padded), f"Dice {means[place]:.3f}\n{names[place]}"))
    note = "Those with the lowest mean Dice of their classes: truth above, prediction below, through most errors."
    return [Gallery("Hardest volumes", pictures, note)] if pictures else []


def _worst_voxel(found: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The slices with most errors, as shares of each axis."""
    wrong = (found != labels) & (labels != IGNORED)
    counts = [wrong.sum(axis=tuple({0, 1, 2} - {axis})) for axis in range(3)]
    return np.array([(int(own.argmax()) + 0.5) / len(own) for own in counts])


def class_slices(
    volume: np.ndarray,
    spacing: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    centre: np.ndarray | None = None,
) -> np.ndarray:
    """Axial, coronal and sagittal slices side by side under the colours of their classes, anterior or superior up, and
    what the colours mean: uint8 (height, width, 3).

    Args:
        volume: float32 (depth, height, width), shown from its percentile 0.5 (black) to 99.5 (white).
        spacing: of it, millimetres.
        labels: uint8 (depth, height, width) of the same extent, perhaps with more or fewer voxels.
        centre: shares of each axis that the slices go through; None: through the middle of all that has a class.
    """
    if centre is None:
        inside = np.argwhere((labels > 0) & (labels != IGNORED))
        middle = inside.mean(axis=0) if len(inside) else (np.array(labels.shape) - 1) / 2
        centre = (middle + 0.5) / np.array(labels.shape)
    low, high = np.percentile(volume[:: max(1, len(volume) // 64)], (0.5, 99.5))
    extent = np.array(volume.shape) * spacing
    colours = np.zeros((IGNORED + 1, 3), np.float32)
    colours[1 : len(class_names)] = class_colours(len(class_names) - 1)
    panels = []
    for axis in range(3):
        size = np.maximum(np.rint(np.delete(extent, axis) * _SIDE_PX / extent.max()).astype(int), 1)
        plane = _slice(volume, axis, centre[axis])
        grey = np.rint(((plane - low) / max(high - low, 1e-6)).clip(0, 1) * 255).astype(np.uint8)
        shown = np.asarray(Image.fromarray(grey).resize(size[::-1].tolist(), Image.Resampling.BILINEAR))
        classes = Image.fromarray(np.ascontiguousarray(_slice(labels, axis, centre[axis])))
        classes = np.asarray(classes.resize(size[::-1].tolist(), Image.Resampling.NEAREST))
        share = np.where((classes > 0) & (classes != IGNORED), np.float32(_SHARE), np.float32(0))[:, :, None]
        panel = np.rint((1 - share) * shown[:, :, None] + share * colours[classes]).astype(np.uint8)
        panels.append(np.pad(panel, ((0, _SIDE_PX - len(panel)), (0, _GAP_PX), (0, 0))))
    entries = [(name, tuple(colours[n].astype(int).tolist())) for n, name in enumerate(class_names) if n]
    names = np.asarray(legend(entries, _SIDE_PX, ink="white", paper="black"))[:_SIDE_PX]
    panels.append(np.pad(names, ((0, _SIDE_PX - len(names)), (0, 0), (0, 0))))
    return np.concatenate(panels, axis=1)


def _slice(array: np.ndarray, axis: int, share: float) -> np.ndarray:
    """Upright: arrays begin inferior and posterior."""
    return array.take(min(int(share * array.shape[axis]), array.shape[axis] - 1), axis=axis)[::-1]
