"""Figures about the classes of pixels, and images with the colors of their labels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from ...core.metrics.counts import Packed, reduce_confusions, unpack_counts
from ...core.metrics.tables import class_tables, sample_table, score_samples
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Color, Figure
from ...core.tasks.protocols import CaptionedImage, Drawable, Reportable, predict_again
from ..drawing import build_gallery, build_legend, fit_in_cell, get_palette, overlay_labels
from .data.segmentation_dataset import IGNORED
from .samples import SegmentationSamples
from .task import ImageSegmentation

_SHOWN = 12  # images of the gallery
_WRONG = np.array([(230, 30, 30)], np.uint8)


class LabelMapFigures(TaskAspect, Reportable):
    """Makes the figures of an evaluation."""

    task: ImageSegmentation

    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, Any]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Build the figures of an evaluation, the most informative first."""
        if not records or not isinstance(dataset, SegmentationSamples):
            return []
        class_names = self.task.class_names
        confusion, boundaries, scores = sum_counts([counts for _, counts in records])
        ious = scores[:, 0]
        hardest = [place for place in np.argsort(ious, kind="stable")[:_SHOWN].tolist() if ious[place] < 1]
        palette = get_palette(dataset.dataset, len(class_names))

        def draw(index: int, pixels: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
            predicted = predict_again(self.task, dataset, index, model)
            wrong = np.where((labels == IGNORED) | (predicted == labels), np.uint8(IGNORED), np.uint8(0))
            gray = pixels.mean(axis=2, keepdims=True).repeat(3, axis=2)
            shown = (pixels, labels, palette), (pixels, predicted, palette), (gray, wrong, _WRONG)
            return [fit_in_cell(overlay_labels(*arguments)) for arguments in shown]

        indices = [index for index, _ in records]
        chosen = [(indices[place], f"mIoU {ious[place]:.4f}") for place in hardest]
        note = "Images with the lowest mean IoU of their own classes: ground truth, prediction, and mistakes in red."
        return [
            *build_gallery(dataset, chosen, draw, note),
            *class_tables(confusion, class_names, "pixels", boundaries),
            sample_table("Images", "image", [dataset.name(index) for index in indices], scores, "pixels"),
        ]


def sum_counts(all_counts: Sequence[Packed]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum the packed counts of images to a confusion matrix and boundaries, and return ``score_samples`` of the images.

    One image at a time is unpacked: a matrix of 250 classes takes half a megabyte.
    """
    totals, scores = [np.zeros_like(part) for part in unpack_counts(all_counts[0])], []
    for counts in all_counts:
        confusion, boundaries = unpack_counts(counts)
        totals[0] += confusion
        totals[1] += boundaries
        scores.append(score_samples(reduce_confusions(confusion)[None]))
    return totals[0], totals[1], np.concatenate(scores)


class LabelMapDrawing(TaskAspect, Drawable):
    """Draws images overlaid with the colors of their labels."""

    task: ImageSegmentation

    def visualize_batch(self, dataset: TransformedDataset, batch: dict[str, Any], epoch: int) -> list[CaptionedImage]:
        """Return a collated training batch as the model sees it, overlaid with the colors of its labels."""
        return [self._image(image, labels, dataset) for image, labels in zip(batch["images"], batch["labels"])]

    def visualize_eval_samples(self, dataset: TransformedDataset, indices: Sequence[int]) -> list[CaptionedImage]:
        """Return the scored images at their stored size, overlaid with the colors of their labels."""
        readings = map(dataset.dataset.read, indices)
        return [self._image(np.asarray(image).transpose(2, 0, 1), labels, dataset) for image, labels in readings]

    def _image(self, image: np.ndarray, labels: np.ndarray, dataset: TransformedDataset) -> CaptionedImage:
        overlay = overlay_labels(
            image.transpose(1, 2, 0), labels, get_palette(dataset.dataset, len(self.task.class_names))
        )
        share = np.count_nonzero(labels != IGNORED) / max(labels.size, 1)
        return fit_in_cell(overlay), f"{labels.shape[1]} x {labels.shape[0]}, {share:.0%} labeled"

    def image_legend(self) -> list[tuple[str, Color]]:
        """Return the names and colors of the classes."""
        names = self.task.class_names
        return build_legend(names, [tuple(color) for color in get_palette(self.task, len(names)).tolist()])
