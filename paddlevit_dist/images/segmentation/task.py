"""Semantic segmentation of pictures: training, evaluation and prediction of any segmenter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ...checkpoint.load import load_weights
from ...contracts.sample_checks import require_labels
from ...contracts.task import Task
from ...models import create_model
from ...registry import resolve
from ...runtime.environment import program
from ...runtime.errors import UserError
from ..data.inspection import Inspection
from ..data.quarantine import Replacements, merge_quarantine
from ..models.options import configured_options
from ..models.segmenter import Segmenter
from ..transforms.on_device import Normaliser
from .data.segmentation_dataset import IGNORED, SegmentationDataset
from .evaluation import SegmentationEvaluation
from .prediction import SegmentationPrediction
from .samples import SegmentationSample, SegmentationSamples, collate, open_samples
from .training import SegmentationTraining
from .transforms import evaluation_transform, training_transform

_LAST = "checkpoints/last"  # in the folder of a run that can be resumed


class ImageSegmentation(SegmentationTraining, SegmentationEvaluation, SegmentationPrediction, Task):
    """Trains and evaluates a network that gives each pixel of a picture a class."""

    sample_name = "pictures"
    draws_samples = True
    fixed_shapes = True
    batch_norm = "sync"
    of_each_rank = {
        **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
        "SEGMENTATION.OHEM": False,
    }

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_classes: int | None = config.MODEL.NUM_CLASSES
        self.class_names: list[str] = []
        self.normaliser = Normaliser(config.DATA.IMAGENET_MEAN, config.DATA.IMAGENET_STD)
        self.replacements: Replacements | None = None
        self._inspection: Inspection | None = Inspection(
            config.EVAL, config.DATA.ON_BAD_SAMPLE == "skip", config.DATA.ALLOW_LEFT_OUT
        )
        family = resolve("model", config.MODEL.NAME)
        if not (isinstance(family, type) and issubclass(family, Segmenter)):
            raise UserError(
                f"MODEL.NAME {config.MODEL.NAME} is not a model that labels pixels: take segformer_b0, for example, or "
                f"another that '{program('inspect')} --list' names below TASK {config.TASK}"
            )
        self.model_options, notices = configured_options(config.MODEL)
        self.notices += notices

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inspection": None}

    # ---- data --------------------------------------------------------------------------------------------------

    def build_dataset(self, split: str, cache_folder: Path) -> SegmentationSamples:
        data, is_training = self.config.DATA, self.trains_on(split)
        transform: Any = training_transform(data) if is_training else evaluation_transform(data)
        samples = open_samples(self.config, split, cache_folder, transform, is_training, self._inspection)
        self._check_classes(samples.dataset)
        if not is_training:
            samples.protocol = self.protocol_line()
        if is_training and data.ON_BAD_SAMPLE == "skip":
            samples.replacements = self.replacements = Replacements(Path(self.config.SAVE).absolute())
        return samples

    def _check_classes(self, dataset: SegmentationDataset) -> None:
        """Take the classes of the first split; those of every other one must be the same."""
        names, wanted = list(map(str, dataset.class_names or ())), self.config.MODEL.NUM_CLASSES
        if self.class_names and names != self.class_names[: len(names)]:
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: training and validation data name different classes: "
                f"{', '.join(self.class_names)} and {', '.join(names)}"
            )
        if wanted is not None and wanted < len(names):
            raise UserError(
                f"dataset {self.config.DATA.DATASET} has {len(names)} classes but MODEL.NUM_CLASSES (-num_classes) "
                f"is {wanted}; set it to {len(names)} or leave it out"
            )
        weights = self.config.SEGMENTATION.CLASS_WEIGHTS
        self.num_classes = wanted or len(names)
        if weights is not None and len(weights) != self.num_classes:
            raise UserError(
                f"SEGMENTATION.CLASS_WEIGHTS has {len(weights)} numbers: expected one for each of the "
                f"{self.num_classes} classes"
            )
        self.class_names = [*names, *map(str, range(len(names), self.num_classes))]

    def about_data(self, samples: Any) -> dict[str, Any]:
        facts = {**super().about_data(samples), "number of classes": self.num_classes, "classes": self.class_names}
        return facts if self.palette is None else {**facts, "palette": self.palette.tobytes().hex()}

    def about_input(self) -> dict[str, Any]:
        data = self.config.DATA
        names = ("EVAL_SHORTEST_SIDE", "EVAL_LONGEST_SIDE", "EVAL_DIVISOR", "IMAGENET_MEAN", "IMAGENET_STD")
        return {**{f"DATA.{name}": data[name] for name in (*names, "EXIF_ROTATE")}, "interpolation": "bilinear"}

    def classes_in(self, sample: SegmentationSample) -> np.ndarray | None:
        return np.setdiff1d(sample.labels, IGNORED).astype(np.int64)

    def check_sample(self, sample: SegmentationSample) -> None:
        require_labels(sample.labels.ravel(), self.num_classes, IGNORED, "class")

    def collate(self, samples: Sequence[SegmentationSample]) -> dict[str, Any]:
        return collate(samples)

    def finish_epoch(self) -> list[str]:
        """Merge the unreadable pictures found by all ranks into one list; every rank must call this."""
        return merge_quarantine(self.replacements, Path(self.config.SAVE))

    # ---- model -------------------------------------------------------------------------------------------------

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        model = create_model(self.config.MODEL.NAME, num_classes or self.num_classes, **self.model_options)
        self.auxiliary_weight = model.auxiliary_weight
        source = self.config.MODEL.BACKBONE_PRETRAINED
        if source is not None and self._begins():
            report = load_weights(model.pretrained_part, source)
            self.notices.append(f"backbone from {source}: {report.summary()}")
        return model

    def _begins(self) -> bool:
        """Whether a training begins here, without weights of a whole segmenter."""
        model = self.config.MODEL
        if self.config.EVAL or model.PRETRAINED is not None:
            return False
        return model.RESUME is None or (model.RESUME == "auto" and not Path(self.config.SAVE, _LAST).exists())

    def check_model(self) -> list[str]:
        with paddle.LazyGuard():  # shapes only
            create_model(self.config.MODEL.NAME, self.num_classes or 1, **self.model_options)
        return []

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]] | None:
        """The backbone's parameters, which learn at a rate of their own, and all others; no decay on norms, biases and
        what the model exempts."""
        decay, factor = self.config.TRAIN.WEIGHT_DECAY, self.config.TRAIN.BACKBONE_LR_FACTOR
        exempt = set(model.no_weight_decay())
        groups: dict[tuple[bool, bool], list[str]] = {}
        for name, parameter in model.named_parameters():
            if not parameter.stop_gradient:
                is_still = len(parameter.shape) <= 1 or name in exempt
                groups.setdefault((name.startswith("backbone."), is_still), []).append(name)
        return [
            {"names": names, "weight_decay": 0.0 if is_still else decay, "learning_rate": factor if is_slow else 1.0}
            for (is_slow, is_still), names in groups.items()
        ]

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        layers = model.recomputed_layers()
        if not layers:
            raise UserError(f"TRAIN.RECOMPUTE: {self.config.MODEL.NAME} has no layers for it; leave it out")
        return layers
