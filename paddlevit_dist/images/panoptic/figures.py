"""Figures about segments, and images with the colors of their classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ...core.intervals import panoptic_scores
from ...core.metrics.tables import round_share
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Color, Figure, FigureTable
from ...core.tasks.protocols import CaptionedImage, Drawable, Reportable, predict_again
from ..drawing import build_gallery, build_legend, fit_in_cell, get_palette
from .data.segments import Segments
from .drawing import draw_segments
from .samples import PanopticSamples
from .task import PanopticSegmentation

_SHOWN = 12  # images of the gallery
_MOST_ROWS = 1_000
_SHARES = ("PQ", "SQ", "RQ")
_NUMBERS = ("matched", "false", "missed")


class SegmentFigures(TaskAspect, Reportable):
    """Makes the figures of an evaluation."""

    task: PanopticSegmentation

    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Build the figures of an evaluation, the most informative first."""
        if not records or not isinstance(dataset, PanopticSamples):
            return []
        names, is_thing = self.task.class_names, np.array(self.task.is_thing, bool)
        counts, ious = (np.stack(part) for part in zip(*(record for _, record in records)))
        values = panoptic_scores(counts, ious, names, is_thing, _SHARES)
        per_image = values(np.eye(len(records)))
        indices = [index for index, _ in records]
        palette, scores = get_palette(dataset.dataset, len(names)), per_image["PQ"]
        order = [place for place in np.argsort(scores, kind="stable")[:_SHOWN].tolist() if scores[place] < 1]

        def draw(index: int, pixels: np.ndarray, truth: Segments) -> list[np.ndarray]:
            found = predict_again(self.task, dataset, index, model)
            sides = [truth] if found is None else [truth, found]
            return [fit_in_cell(draw_segments(pixels, side, palette)) for side in sides]

        note = "Images with the lowest PQ of their own segments: ground truth and prediction."
        chosen = [(indices[place], f"PQ {scores[place]:.4f}") for place in order]
        return [
            *build_gallery(dataset, chosen, draw, note),
            self._tabulate_classes(counts, values(np.ones((1, len(records))))),
            _tabulate_images([dataset.name(index) for index in indices], counts, per_image),
        ]

    def _tabulate_classes(self, counts: np.ndarray, values: Any) -> FigureTable:
        """Return the table of the classes that occur."""
        numbers = counts[:, :3].sum(axis=0)
        rows = []
        for label, name in enumerate(self.task.class_names):
            if numbers[:, label].any():
                shares = [round_share(values[f"{of} {name}"][0]) for of in _SHARES]
                kind = "thing" if self.task.is_thing[label] else "stuff"
                rows.append((name, kind, *shares, *numbers[:, label].tolist()))
        return FigureTable("Classes of segments", ("class", "kind", *_SHARES, *_NUMBERS), rows, shares=_SHARES)


def _tabulate_images(names: Sequence[str], counts: np.ndarray, values: Any) -> FigureTable:
    """Return the table of the images, worst first."""
    numbers = counts[:, :3].sum(axis=2).tolist()
    rows = [
        (name, *(round_share(values[of][place]) for of in _SHARES), *numbers[place]) for place, name in enumerate(names)
    ]
    rows.sort(key=lambda row: -np.inf if row[1] is None else row[1])
    note = f"The {_MOST_ROWS:,} worst of {len(rows):,}." if len(rows) > _MOST_ROWS else ""
    return FigureTable("Images", ("image", *_SHARES, *_NUMBERS), rows[:_MOST_ROWS], note, shares=_SHARES)


class SegmentDrawing(TaskAspect, Drawable):
    """Draws images with the colors of their segments' classes."""

    task: PanopticSegmentation

    def visualize_batch(self, dataset: TransformedDataset, batch: dict[str, Any], epoch: int) -> list[CaptionedImage]:
        """Return a collated training batch as the model sees it."""
        drawn = []
        for image, places, labels in zip(batch["images"], batch["places"], batch["labels"]):
            own = labels[labels >= 0]
            number = len(own)
            segments = Segments(places, own, np.zeros(number, bool), np.zeros(number, np.int64), np.arange(number))
            drawn.append(self._draw(image.transpose(1, 2, 0), segments, dataset))
        return drawn

    def visualize_eval_samples(self, dataset: TransformedDataset, indices: Sequence[int]) -> list[CaptionedImage]:
        """Return the scored images at their stored size."""
        readings = map(dataset.dataset.read, indices)
        return [self._draw(np.asarray(image), segments, dataset) for image, segments in readings]

    def _draw(self, pixels: np.ndarray, segments: Segments, dataset: TransformedDataset) -> CaptionedImage:
        palette = get_palette(dataset.dataset, len(self.task.class_names))
        height, width = segments.places.shape
        things = int(np.array(self.task.is_thing)[segments.labels].sum())
        caption = f"{width} x {height}, {things} things, {len(segments.labels) - things} stuff"
        return fit_in_cell(draw_segments(pixels, segments, palette)), caption

    def image_legend(self) -> list[tuple[str, Color]]:
        """Return the names and colors of the classes."""
        names = self.task.class_names
        return build_legend(names, [tuple(color) for color in get_palette(self.task, len(names)).tolist()])
