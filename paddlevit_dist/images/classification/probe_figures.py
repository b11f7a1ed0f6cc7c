"""Figures of a probe's evaluation."""

from collections.abc import Sequence

import paddle

from ...core.tasks.dataset import TransformedDataset
from ...core.tasks.figures import Figure
from .figures import LabeledImageFigures
from .probes import FeatureSamples
from .samples import ClassificationSamples


class ProbeFigures(LabeledImageFigures):
    """Makes the figures of a probe's evaluation."""

    def figures(
        self, dataset: TransformedDataset, records: Sequence[tuple[int, bytes]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Build the figures of a classifier, with the images."""
        if isinstance(dataset, FeatureSamples):
            dataset = ClassificationSamples(dataset.dataset, dataset.transform)
        return super().figures(dataset, records, model)
