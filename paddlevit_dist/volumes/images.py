"""Images of three orthogonal slices of a volume with its landmarks."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

from ..core.runtime.text_rendering import legend, render_text

Color = tuple[int, int, int]
_PREDICTED, _GROUND_TRUTH, _NOT_SHOWN = (255, 70, 70), (80, 230, 80), (130, 130, 130)
_SHORTEST_SIDE, _LONGEST_SIDE = 256, 768  # pixels; the longest side limits thin volumes
_SLICE_SIDE, _MOST_SLICES = 192, 24  # pixels and number of the slices that a reader goes through
_GAP = 6
_DIRECTIONS = (("axial", 1, 2), ("coronal", 0, 2), ("sagittal", 0, 1))  # name, rows, columns
_NUMBER_PX = 12
_ENDS = (("I", "S"), ("P", "A"), ("L", "R"))  # sides at the start and end of depth, height and width


def orthogonal_slices(
    volume: np.ndarray,
    spacing: Sequence[float],
    predicted: np.ndarray | None,
    true: np.ndarray | None = None,
    center: np.ndarray | None = None,
    shows_sides: bool = False,
    names: Sequence[str] | None = None,
    classes: tuple[np.ndarray, np.ndarray] | None = None,
    shortest_side: int = _SHORTEST_SIDE,
) -> np.ndarray:
    """Render axial, coronal and sagittal slices side by side, in true proportions, anterior or superior up.

    Landmarks are projected onto each slice: crosses within two voxels of it, small dots otherwise. Predictions are red,
    ground truth is green. The result is uint8 (height, width, 3).

    Args:
        volume: (depth, height, width), shown from 0 (black) to 1 (white).
        spacing: millimeters (depth, height, width).
        predicted: voxel positions (landmarks, 3), or None; NaN positions are skipped.
        true: ground truth, voxel positions (landmarks, 3), or None.
        center: the voxel that all three slices contain; None for the median of the landmarks.
        shows_sides: whether to write the patient's sides (left, right, anterior ...) at the edges.
        names: of the landmarks; each mark gets its number in a list to the right of the slices.
        classes: classes of the voxels, uint8 of the volume's shape, and color with opacity of each class, float32 (256,
            4), 0 to 255 and 0 to 1; None: none are shown.
        shortest_side: of the slices, in pixels; thin volumes get less.
    """
    if center is None:
        center = find_middle(volume.shape, true if predicted is None else predicted)
    index = np.clip(np.rint(center).astype(int), 0, np.array(volume.shape) - 1)
    sides = [length * step for length, step in zip(volume.shape, spacing)]
    scale = min(shortest_side / min(sides), _LONGEST_SIDE / max(sides))
    shown = [
        (points, color) for points, color in ((true, _GROUND_TRUTH), (predicted, _PREDICTED)) if points is not None
    ]
    panels = [_panel(volume, spacing, index, axis, scale, shown, shows_sides, names, classes) for axis in range(3)]
    height = max(each.shape[0] for each in panels)
    if names is not None:
        panels.append(_format_list(names, shown, height))
        height = max(height, panels[-1].shape[0])
    columns = []
    for panel in panels:
        filled = np.zeros((height, panel.shape[1] + _GAP, 3), dtype=np.uint8)
        filled[: panel.shape[0], : panel.shape[1]] = panel
        columns.append(filled)
    return np.concatenate(columns, axis=1)[:, :-_GAP]


def axial_slices(
    volume: np.ndarray,
    spacing: Sequence[float],
    chosen: Sequence[int],
    predicted: np.ndarray | None = None,
    true: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    classes: tuple[np.ndarray, np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Render the ``chosen`` axial slices as ``orthogonal_slices`` does, each uint8 (height, width, 3)."""
    sides = [length * step for length, step in zip(volume.shape[1:], spacing[1:])]
    scale = min(_SLICE_SIDE / min(sides), _LONGEST_SIDE / max(sides))
    shown = [
        (points, color) for points, color in ((true, _GROUND_TRUTH), (predicted, _PREDICTED)) if points is not None
    ]
    return [_panel(volume, spacing, np.array([index, 0, 0]), 0, scale, shown, True, names, classes) for index in chosen]


def choose_slices(first: int, last: int) -> list[int]:
    """Choose evenly spaced slices from the first to the last one, both included."""
    return np.unique(np.linspace(first, last, _MOST_SLICES).round().astype(int)).tolist()


def find_middle(shape: Sequence[int], points: np.ndarray | None) -> np.ndarray:
    """Return the voxel (3,) amid landmarks (landmarks, 3), NaN where absent; without any, amid the volume."""
    if points is None or not np.isfinite(points).all(axis=1).any():
        return (np.array(shape) - 1) / 2
    return np.nanmedian(points, axis=0)


def _panel(
    volume: np.ndarray,
    spacing: Sequence[float],
    index: np.ndarray,
    axis: int,
    scale: float,
    shown: Sequence[tuple[np.ndarray, Color]],
    shows_sides: bool,
    names: Sequence[str] | None,
    classes: tuple[np.ndarray, np.ndarray] | None,
) -> np.ndarray:
    title, rows, columns = _DIRECTIONS[axis]
    plane = volume.take(index[axis], axis=axis)
    gray = np.rint(plane.clip(0, 1) * 255).astype(np.uint8)
    zoom = np.array([spacing[rows] * scale, spacing[columns] * scale])  # pixels per voxel
    size = np.maximum(np.rint(np.array(gray.shape) * zoom).astype(int), 1)
    image = Image.fromarray(gray[::-1])  # arrays begin inferior and posterior
    image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR).convert("RGB")
    if classes is not None:
        label_image = Image.fromarray(np.ascontiguousarray(classes[0].take(index[axis], axis=axis)[::-1]))
        colors, opacity = np.split(
            classes[1][np.asarray(label_image.resize(image.size, Image.Resampling.NEAREST))], [3], axis=2
        )
        mixed = (1 - opacity) * np.asarray(image) + opacity * colors
        image = Image.fromarray(np.rint(mixed).astype(np.uint8))
    drawing = ImageDraw.Draw(image)
    is_numbered = set()
    for points, color in shown[::-1]:  # predictions first: they get the number, and the truth is drawn over them
        for number in np.flatnonzero(np.isfinite(points).all(axis=1)).tolist():
            point = points[number]
            row, column = (point[[rows, columns]] + 0.5) * zoom
            row = size[0] - row
            _mark(drawing, (row, column), color, is_near=abs(point[axis] - index[axis]) <= 2)
            if names is not None and number not in is_numbered:
                is_numbered.add(number)
                image.paste(color, (int(column) + 5, int(row) - _NUMBER_PX), render_text(str(number + 1), _NUMBER_PX))
    drawing.text((4, 4), f"{title} {index[axis]}", fill=(255, 255, 255))
    if shows_sides:
        _write_sides(drawing, image.size, _ENDS[rows][::-1], _ENDS[columns])
    return np.asarray(image)


def _format_list(names: Sequence[str], shown: Sequence[tuple[np.ndarray, Color]], height: int) -> np.ndarray:
    """Render numbers and names in the color of their marks, gray if the landmark is not shown."""
    colors = [[color for points, color in shown if np.isfinite(points[n]).all()] for n in range(len(names))]
    entries = [(f"{n + 1} {name}", (colors[n] or [_NOT_SHOWN])[-1]) for n, name in enumerate(names)]
    return np.asarray(legend(entries, height, ink="white", paper="black"))


def _write_sides(
    drawing: ImageDraw.ImageDraw, size: tuple[int, int], rows: Sequence[str], columns: Sequence[str]
) -> None:
    """Write letters at the middle of the four edges of a panel of ``size`` (width, height)."""
    width, height = size
    positions = {(width // 2, 16): rows[0], (width // 2, height - 14): rows[1]}
    positions.update({(4, height // 2): columns[0], (width - 10, height // 2): columns[1]})
    for position, letter in positions.items():
        drawing.text(position, letter, fill=(255, 220, 90))


def _mark(
    drawing: ImageDraw.ImageDraw, position: tuple[float, float], color: tuple[int, int, int], is_near: bool
) -> None:
    row, column = position
    if not is_near:
        drawing.point([(column, row), (column + 1, row), (column, row + 1), (column + 1, row + 1)], fill=color)
        return
    drawing.line([(column - 4, row), (column + 4, row)], fill=color)
    drawing.line([(column, row - 4), (column, row + 4)], fill=color)
