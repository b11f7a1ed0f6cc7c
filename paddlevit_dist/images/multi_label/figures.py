"""Figures of several labels: scores and thresholds of classes, curves, hardest images, contradicted labels, pairs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...core.intervals import quotient
from ...core.metrics.tables import round_share
from ...core.runtime.errors import UserError
from ...core.runtime.files import write_csv
from ...core.tasks.aspects import TaskAspect
from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Chart, ConfusionMatrix, Figure, FigureTable, Gallery
from ...core.tasks.protocols import Reportable
from ..classification.figures import LabeledImageDrawing
from ..classification.samples import evaluation_transform
from .curves import sigmoid, sort_labels, transpose_weights
from .metrics import read_records
from .mixing import KNOWN, TARGETS, apply_mix
from .samples import MultiLabelSamples
from .scores import sum_losses
from .task import MultiLabel, read_targets

_SHOWN = 12  # images of a gallery
_MOST_CURVES = 8
_MOST_NAMES = 40  # of the matrix of pairs; more are not readable
_MOST_ROWS = 100  # contradicted labels in the report; the file has all
_MOST_LABELS = 4  # in a caption
_FILE_ROWS = 10_000
_POINTS = 200  # of a curve
COLUMNS = ("image", "class", "label", "probability")


class LabelFigures(TaskAspect, Reportable):
    """Makes the figures of an evaluation."""

    task: MultiLabel

    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, bytes]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Build the figures, and write the table of contradicted labels into the folder of the run."""
        if not records:
            return []
        assert isinstance(dataset, MultiLabelSamples)
        names, config = self.task.outputs.names, self.task.config
        labels, logits = read_records([content for _, content in records], len(names))
        evaluated = EvaluatedLabels(
            [index for index, _ in records], labels, sigmoid(logits), self.task.outputs.thresholds.levels(names), names
        )
        rows = evaluated.list_contradicted(dataset.name)
        file = Path(config.SAVE) / ("eval_contradicted_labels.csv" if config.EVAL else "contradicted_labels.csv")
        write_csv(file, [COLUMNS, *rows])
        return [
            evaluated.classes(),
            *_contradicted(rows, evaluated.count_contradicted(), file.name),
            *_hardest(evaluated, sum_losses(labels, logits), dataset),
            *evaluated.curves(),
            *evaluated.pairs(),
        ]


class LabelDrawing(LabeledImageDrawing):
    """Draws images, which may be mixed, with their labels."""

    task: MultiLabel

    def visualize_batch(self, dataset: Any, batch: dict[str, np.ndarray], epoch: int) -> list[tuple[np.ndarray, str]]:
        """Return a collated training batch as the model sees it: uint8 (height, width[, 3]) images with captions."""
        names = ("images", "labels", TARGETS, KNOWN)
        tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
        assert set(names[:2]) <= tensors.keys()
        images = self.task.normalize(tensors["images"])
        if self.task.erasing is not None:
            images = self.task.erasing.fill(images, tensors)
        targets, known = (each.numpy() for each in read_targets(tensors))
        shares = np.where(known > 0, targets, -1.0)
        return self.caption_images(apply_mix(images, tensors), shares, dataset.class_names)

    def visualize_eval_samples(self, dataset: Any, indices: Sequence[int]) -> list[tuple[np.ndarray, str]]:
        """Return the images as an evaluation sees them, with captions."""
        transform = evaluation_transform(self.task.config.DATA, dataset.dataset.kind)
        readings = [dataset.dataset.read(index) for index in indices]
        images = np.stack([transform(image, np.random.default_rng(0)) for image, _ in readings])
        labels = np.stack([labels for _, labels in readings])
        return self.caption_images(self.task.normalize(paddle.to_tensor(images)), labels, dataset.class_names)

    def caption_images(
        self, images: paddle.Tensor, shares: np.ndarray, class_names: Sequence[str] | None
    ) -> list[tuple[np.ndarray, str]]:
        """Return normalized images as uint8, with labels of ``shares`` (n, classes), below 0 where not known."""
        names = class_names or [str(label) for label in range(shares.shape[1])]
        return list(zip(self.task.normalizer.pixels(images), (format_shares(row, names) for row in shares)))


def format_shares(shares: np.ndarray, names: Sequence[str]) -> str:
    """Format the labels that an image has, with shares if it is mixed, and the number of those that are not known."""
    listed = [
        names[label] + (f" {shares[label]:.0%}" if shares[label] < 0.995 else "")
        for label in np.flatnonzero(shares > 0.005).tolist()
    ]
    unknown = int((shares < 0).sum())
    return ", ".join(listed or ["no label"]) + (f"; {unknown} not known" if unknown else "")


class EvaluatedLabels:
    """The labels of all images of an evaluation, with the network's probabilities.

    Args:
        indices: of the images in the dataset.
        labels: int8 (images, classes), -1 where not known.
        probabilities: float64 (images, classes).
        thresholds: float64 (classes,).
        names: of the classes.
    """

    def __init__(
        self,
        indices: Sequence[int],
        labels: np.ndarray,
        probabilities: np.ndarray,
        thresholds: np.ndarray,
        names: Sequence[str],
    ) -> None:
        self.indices, self.labels, self.names, self.thresholds = indices, labels, names, thresholds
        self.probabilities = np.nan_to_num(probabilities, nan=0.0)
        self.chosen = self.probabilities > thresholds

    def classes(self) -> Figure:
        """Return the table of the scores of each class."""
        ones, rows = transpose_weights(np.ones((1, len(self.labels)))), []
        _, curves = sort_labels(self.labels, self.probabilities, self.chosen)
        for label, (name, curve) in enumerate(zip(self.names, curves)):
            one = curve.count_draws(ones)
            hits, chosen, positives = one.hits[0], one.chosen[0], one.positives[0]
            shares = quotient(np.array([hits, 2 * hits, hits]), np.array([positives, chosen + positives, chosen]))
            threshold = round(float(self.thresholds[label]), 4)
            numbers = map(int, (positives, chosen, one.known[0]))
            rows.append((name, *map(round_share, (one.ap[0], *shares)), threshold, *numbers))
        names = ("AP", "recall", "F1", "precision")
        columns = ("class", *names, "threshold", "has it", "chosen", "known")
        note = "Of the images whose label is known. Empty: not defined."
        return FigureTable("Classes", columns, rows, note, shares=names)

    def curves(self) -> list[Figure]:
        """Return curves of precision and recall of the most frequent classes."""
        positives = (self.labels == 1).sum(axis=0)
        lines = {}
        for label in np.argsort(-positives, kind="stable")[:_MOST_CURVES].tolist():
            if positives[label]:
                lines[self.names[label]] = self._precision_and_recall(label)
        note = f"The {_MOST_CURVES} most frequent classes." if (positives > 0).sum() > _MOST_CURVES else ""
        return [Chart("Precision and recall", "recall", "precision", lines, note=note)] if lines else []

    def _precision_and_recall(self, label: int) -> tuple[np.ndarray, np.ndarray]:
        known = self.labels[:, label] >= 0
        scores, truth = self.probabilities[known, label], self.labels[known, label] == 1
        order = np.argsort(-scores, kind="stable")
        is_last = np.append(np.diff(scores[order]) != 0, True)
        right, number = np.cumsum(truth[order])[is_last], np.arange(1, len(order) + 1)[is_last]
        places = np.unique(np.linspace(0, len(right) - 1, _POINTS).astype(np.int64))
        return (right / truth.sum())[places], (right / number)[places]

    def pairs(self) -> list[Figure]:
        """Return the matrix of labels that images have together."""
        true = (self.labels == 1).astype(np.int64)
        frequent = np.sort(np.argsort(-true.sum(axis=0), kind="stable")[:_MOST_NAMES])
        counts = true[:, frequent].T @ true[:, frequent]
        more = f" The {_MOST_NAMES} most frequent classes." if len(self.names) > _MOST_NAMES else ""
        note = f"Images that have both labels; in the diagonal, images that have the label.{more}"
        names = [self.names[label] for label in frequent]
        return [ConfusionMatrix("Labels together", names, counts, note, is_confusion=False)]

    def count_contradicted(self) -> int:
        """Count the known labels on the other side of the threshold."""
        return int(self._is_contradicted().sum())

    def _is_contradicted(self) -> np.ndarray:
        return (self.labels >= 0) & (self.chosen != (self.labels == 1))

    def list_contradicted(self, name: Callable[[int], str]) -> list[tuple[str, str, int, float]]:
        """List the known labels that the network contradicts most: image, class, label and probability."""
        distance = np.where(self.labels == 1, 1.0 - self.probabilities, self.probabilities)
        distance = np.where(self._is_contradicted(), distance, -1.0)
        order = np.argsort(-distance, axis=None, kind="stable")[: min(int((distance >= 0).sum()), _FILE_ROWS)]
        rows = []
        for image, label in zip(*np.unravel_index(order, distance.shape)):
            probability = round(float(self.probabilities[image, label]), 6)
            rows.append((name(self.indices[image]), self.names[label], int(self.labels[image, label]), probability))
        return rows

    def caption(self, row: int, description: str) -> str:
        """Describe an image: what it has and is not found, what is found and it has not, and where it is from."""
        known, true = self.labels[row] >= 0, self.labels[row] == 1
        parts = {
            "right": true & self.chosen[row],
            "missed": true & ~self.chosen[row],
            "wrong": known & ~true & self.chosen[row],
        }
        lines = [f"{word}: {self._list(row, which)}" for word, which in parts.items() if which.any()]
        return "\n".join([*(lines or ["no label"]), description])

    def _list(self, row: int, which: np.ndarray) -> str:
        listed = np.flatnonzero(which)
        shown = [
            f"{self.names[label]} ({self.probabilities[row, label]:.0%})" for label in listed[:_MOST_LABELS].tolist()
        ]
        return ", ".join(shown) + (", …" if len(listed) > _MOST_LABELS else "")


def _hardest(evaluated: EvaluatedLabels, losses: np.ndarray, dataset: MultiLabelSamples) -> list[Figure]:
    """Return the gallery of the images with the largest loss of a known label; unreadable ones are omitted."""
    means = quotient(losses, (evaluated.labels >= 0).sum(axis=1))
    images = []
    for row in np.argsort(-np.nan_to_num(means, nan=-1.0), kind="stable")[:_SHOWN].tolist():
        index = evaluated.indices[row]
        try:
            pixels = dataset.sample(index, np.random.default_rng(0))[0]
        except (UserError, OSError):
            continue
        pixels = pixels[0] if pixels.ndim == 4 else pixels  # the first of several views
        pixels = pixels.transpose(1, 2, 0) if len(pixels) == 3 else pixels[0]
        images.append((pixels, evaluated.caption(row, dataset.describe(index))))
    note = "By their mean loss, as the network sees them, with its probabilities in brackets."
    return [Gallery("Hardest images", images, note)] if images else []


def _contradicted(rows: Sequence[Sequence[Any]], number: int, file: str) -> list[Figure]:
    if not rows:
        return []
    listed = "all" if number == len(rows) else f"the first {len(rows):,}"
    more = f"The first {_MOST_ROWS} of {number:,}; {listed}: {file}." if number > _MOST_ROWS else f"Also in {file}."
    note = f"Known labels on the other side of the threshold. Wrong: the probability that the label is. {more}"
    shown = [(*row[:2], round_share(abs(row[2] - row[3])), *row[2:]) for row in rows[:_MOST_ROWS]]
    columns = (*COLUMNS[:2], "wrong", *COLUMNS[2:])
    return [FigureTable("Contradicted labels", columns, shown, note, shares=("wrong",))]
