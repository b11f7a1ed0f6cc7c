"""Semantic segmentation of pictures: training, evaluation and prediction of any segmenter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...contracts.figures import Colour
from ...contracts.sample_checks import require_labels
from ...contracts.task import Labelled
from ...registry import WITH_LABEL_MAPS, contents_of
from ...runtime.environment import program
from ...runtime.errors import UserError
from ...runtime.printing import one_line
from ..backbone_task import TURNED, is_turned
from ..data.picture_samples import opened
from ..drawing import in_cell, overlaid, palette_of
from ..models.segmenter import Segmenter
from .data.segmentation_dataset import IGNORED, SegmentationDataset, look_at_labels
from .export import SegmentationExport
from .prediction import SegmentationPrediction
from .samples import LabelMapsPart, SegmentationSample, SegmentationSamples, collate
from .training import SegmentationTraining
from .transforms import evaluation_transform, training_transform


class ImageSegmentation(SegmentationTraining, SegmentationPrediction, SegmentationExport):
    """Trains and evaluates a network that gives each pixel of a picture a class."""

    batch_norm = "sync"
    of_each_rank = {
        **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
        "SEGMENTATION.OHEM_THRESHOLD": None,
    }

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if contents_of("model", config.MODEL.NAME) not in (None, WITH_LABEL_MAPS):  # None: a user's own
            raise UserError(
                f"MODEL.NAME {config.MODEL.NAME} is not a model that labels pixels: take segformer_b0, for example, or "
                f"another that '{program('inspect')} --list' names below TASK {config.TASK}"
            )

    # ---- data --------------------------------------------------------------------------------------------------

    def build_dataset(self, split: str, cache_folder: Path) -> SegmentationSamples:
        data, is_training = self.config.DATA, self.trains_on(split)
        dataset, notices = opened(self.config, SegmentationDataset, LabelMapsPart, split, cache_folder)
        if not len(dataset):
            raise UserError(f"dataset {data.DATASET} has no {split} pictures at {data.DATA_PATH}")
        if self._inspection is not None:
            notices += self._inspection.look(dataset, split, dataset.num_classes)
            notices += look_at_labels(dataset, split)
        transform: Any = training_transform(data) if is_training else evaluation_transform(data)
        samples = SegmentationSamples(dataset, transform, is_training)
        samples.notices = [one_line(line) for line in notices]
        self.take_classes(list(map(str, dataset.class_names or range(dataset.num_classes))))
        self.palette = dataset.palette
        weights = self.config.SEGMENTATION.CLASS_WEIGHTS
        if weights is not None and len(weights) != self.num_classes:
            raise UserError(
                f"SEGMENTATION.CLASS_WEIGHTS has {len(weights)} numbers: expected one for each of the "
                f"{self.num_classes} classes"
            )
        if is_training:
            self.replace_unreadable(samples)
        else:
            samples.protocol = self.protocol_line()
        return samples

    def about_data(self, samples: Any) -> dict[str, Any]:
        facts = {**super().about_data(samples), "number of classes": self.num_classes, "classes": self.class_names}
        if isinstance(samples, SegmentationSamples):  # not a program's own
            facts[TURNED] = is_turned(samples.dataset)
        return facts if self.palette is None else {**facts, "palette": self.palette.tobytes().hex()}

    def about_input(self) -> dict[str, Any]:
        data = self.config.DATA
        sides = ("EVAL_SHORTEST_SIDE", "EVAL_LONGEST_SIDE", "EVAL_DIVISOR")
        names = (*sides, "RESIZE", "IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE")
        return {f"DATA.{name}": data[name] for name in names}

    def classes_in(self, sample: SegmentationSample) -> np.ndarray | None:
        return np.setdiff1d(sample.labels, IGNORED).astype(np.int64)

    def check_sample(self, sample: SegmentationSample) -> None:
        require_labels(sample.labels.ravel(), self.num_classes, IGNORED, "class", "pixel")

    def collate(self, samples: Sequence[SegmentationSample]) -> dict[str, Any]:
        return collate(samples)

    def pictures(self, samples: Any, batch: dict[str, Any], epoch: int) -> list[Labelled]:
        """A collated training batch as the model sees it, under the colours of its labels."""
        return [self._picture(image, labels, samples) for image, labels in zip(batch["images"], batch["labels"])]

    def evaluation_pictures(self, samples: Any, indices: Sequence[int]) -> list[Labelled]:
        """Pictures as they are scored, at their stored size."""
        readings = map(samples.dataset.read, indices)
        return [self._picture(np.asarray(picture).transpose(2, 0, 1), labels, samples) for picture, labels in readings]

    def _picture(self, image: np.ndarray, labels: np.ndarray, samples: Any) -> Labelled:
        drawn = overlaid(image.transpose(1, 2, 0), labels, palette_of(samples.dataset, len(self.class_names)))
        share = np.count_nonzero(labels != IGNORED) / max(labels.size, 1)
        return in_cell(drawn), f"{labels.shape[1]} x {labels.shape[0]}, {share:.0%} labelled"

    def picture_legend(self) -> list[tuple[str, Colour]]:
        return self.legend_of([tuple(colour) for colour in palette_of(self, len(self.class_names)).tolist()])

    # ---- model -------------------------------------------------------------------------------------------------

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        model = super().build_model(num_classes)
        self.auxiliary_weight = getattr(model, "auxiliary_weight", Segmenter.auxiliary_weight)  # of a user's own
        return model
