"""Object detection: training, evaluation and prediction of any detector."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import paddle

from ...checkpoint.load import load_weights
from ...contracts.prediction import Learned
from ...contracts.sample_checks import require_finite, require_labels
from ...contracts.task import EvaluationStep, Records, Step, Task, Term
from ...errors import UserError
from ...models import create_model, model_options
from ...parallel import all_gather, is_main
from ...registry import resolve
from ..data.left_out import printable
from ..data.quarantine import QUARANTINE_FILE, Replacements, write_quarantine
from ..models.options import configured_options
from ..transforms.normalising import Normaliser
from .batches import (
    EVALUATED_AS,
    chosen_pictures,
    host_facts,
    passes,
    with_host_facts,
    zero_padding,
)
from .data.detection_dataset import DetectionDataset
from .data.opening import open_samples
from .data.samples import DetectionSample, DetectionSamples, collate
from .detector import Criterion, Detector, Outputs, Targets
from .evaluation.detections import Detections
from .metrics import DetectionMetrics
from .settings import OPTIONS

_BACKBONE = "backbone."  # what the names of a backbone's parameters begin with


class Detection(Task):
    """Trains and evaluates a network that finds objects in pictures."""

    best_metric = ("AP", True)
    sample_name = "pictures"
    of_each_rank = {
        **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
        "TRAIN.DETECTION_NORMALISER": "global",
    }

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_classes = config.MODEL.NUM_CLASSES
        self.class_names: List[str] = []
        self.category_ids: List[int] = []
        self.evaluated: Optional[DetectionDataset] = None
        self.replacements: Optional[Replacements] = None
        self.normaliser = Normaliser(config.DATA.IMAGENET_MEAN, config.DATA.IMAGENET_STD)
        self._criterion: Optional[Criterion] = None
        self.model_options, notices = configured_options(config.MODEL)
        self.model_options.update(self._own_options())
        self.notices += notices
        self.notices.append(f"evaluated with {EVALUATED_AS[config.DETECTION.EVALUATE_AS]}")

    @property
    def _family(self) -> Any:
        """The class of the configured model."""
        return resolve("model", self.config.MODEL.NAME)

    def _own_options(self) -> Dict[str, Any]:
        """Options of the model that are keys of this task.

        Raises:
            UserError: the model is no detector, or cannot do what is asked of it.
        """
        model = self.config.MODEL
        if not (isinstance(self._family, type) and issubclass(self._family, Detector)):
            raise UserError(
                f"MODEL.NAME {model.NAME} is not a model that finds objects: take detr_resnet50, for example, or "
                "another that python -m paddlevit_dist inspect --list names below TASK detection"
            )
        known = model_options(model.NAME).defaults
        options = {"dropout": model.DROPOUT} if "dropout" in known else {}  # also where 0 is not the variant's
        for key, option in OPTIONS.items():
            if model[key] is None:
                continue
            if option not in known:
                raise UserError(f"MODEL.{key} {model[key]}: {model.NAME} has no such option; leave it out")
            options[option] = model[key]
        if model.MASK_PADDING:
            if "mask_padding" not in known:
                raise UserError(f"MODEL.MASK_PADDING true: {model.NAME} cannot do that; leave it out")
            options["mask_padding"] = True
        return options

    # ---- data --------------------------------------------------------------------------------------------------

    def build_dataset(self, split: str, cache_folder: Path) -> DetectionSamples:
        is_training = self.trains_on(split)
        samples = open_samples(self.config, split, cache_folder, is_training, self._family.learns_masks)
        self._check_classes(samples.dataset)
        if not is_training:
            self.evaluated = samples.dataset
        elif self.config.DATA.ON_BAD_SAMPLE == "skip":
            samples.replacements = self.replacements = Replacements(Path(self.config.SAVE).absolute())
        return samples

    def _check_classes(self, dataset: DetectionDataset) -> None:
        """Take the categories of the first split; those of every other one must be the same."""
        names, ids = list(map(str, dataset.class_names or ())), list(dataset.category_ids)
        if self.class_names and (names, ids) != (self.class_names[: len(names)], self.category_ids):
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: training and validation data name different categories: "
                f"{', '.join(self.class_names)} and {', '.join(names)}; give both files the same list of categories"
            )
        wanted = self.config.MODEL.NUM_CLASSES
        if wanted is not None and wanted < len(names):
            raise UserError(
                f"dataset {self.config.DATA.DATASET} has {len(names)} categories but MODEL.NUM_CLASSES (-num_classes) "
                f"is {wanted}; set it to {len(names)} or leave it out"
            )
        self.num_classes = wanted or len(names)
        self.class_names = [*names, *map(str, range(len(names), self.num_classes))]
        self.category_ids = ids

    def describe_samples(self, samples: Any) -> str:
        if not isinstance(samples, DetectionSamples):  # a program's own
            return super().describe_samples(samples)
        return printable(samples.dataset.summary())

    def about_data(self, samples: Any) -> Dict[str, Any]:
        facts = super().about_data(samples)
        if isinstance(samples, DetectionSamples):
            facts["number of classes"] = len(samples.dataset.category_ids)
            facts["classes"] = list(map(str, samples.dataset.class_names or ()))
            facts["category ids"] = list(map(int, samples.dataset.category_ids))
        return facts

    def about_input(self) -> Dict[str, Any]:
        data = self.config.DATA
        names = ("EVAL_SHORTEST_SIDE", "EVAL_LONGEST_SIDE", "IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE")
        return {**{f"DATA.{name}": data[name] for name in names}, "interpolation": "bilinear"}

    def check_sample(self, sample: DetectionSample) -> None:
        require_finite(sample.boxes, "boxes")
        require_labels(sample.labels, self.num_classes, -1, "category")

    def collate(self, samples: Sequence[DetectionSample]) -> Dict[str, Any]:
        return with_host_facts(collate(samples))

    def finish_epoch(self) -> List[str]:
        """Merge the unreadable pictures found by all ranks into one list; every rank must call this."""
        if self.replacements is None:
            return []
        found = sorted({line for lines in all_gather(self.replacements.collect()) for line in lines})
        if not found:
            return []
        file = Path(self.config.SAVE, QUARANTINE_FILE)
        if is_main():
            write_quarantine(file, found)
        number = f"{len(found):,} unreadable picture{'s' if len(found) > 1 else ''}"
        return [f"{number} so far replaced by the next readable one, listed in {file}"]

    # ---- model -------------------------------------------------------------------------------------------------

    @property
    def criterion(self) -> Criterion:
        """The losses of the configured model, known once the data are open."""
        if self._criterion is None:
            losses = {"normaliser": self.config.TRAIN.DETECTION_NORMALISER}
            name = self.config.MODEL.NAME
            self._criterion = self._family.criterion(name, self.num_classes, losses, **self.model_options)
        return self._criterion

    @property
    def count_names(self) -> Tuple[str, ...]:  # type: ignore[override] # the model's
        return self.criterion.count_names

    def counts(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        return dict(self.criterion.counts(batch))

    def build_model(self, num_classes: Optional[int] = None) -> paddle.nn.Layer:
        model = create_model(self.config.MODEL.NAME, num_classes or self.num_classes, **self.model_options)
        source = self.config.MODEL.BACKBONE_PRETRAINED
        if source is not None and not self.config.EVAL:
            report = load_weights(model.backbone, source)
            self.notices.append(f"backbone from {source}: {report.summary()}")
        return model

    def check_model(self) -> List[str]:
        with paddle.LazyGuard():  # shapes only
            create_model(self.config.MODEL.NAME, self.num_classes or 1, **self.model_options)
        return []

    def parameter_groups(self, model: paddle.nn.Layer) -> Optional[List[Dict[str, Any]]]:
        """The backbone's parameters, which learn at a rate of their own, and all others; frozen ones are in neither."""
        decay, factor = self.config.TRAIN.WEIGHT_DECAY, self.config.TRAIN.BACKBONE_LR_FACTOR
        exempt = set(model.no_weight_decay())
        groups: Dict[Tuple[bool, bool], List[str]] = {}
        for name, parameter in model.named_parameters():
            if not parameter.stop_gradient:
                is_still = not self.config.TRAIN.DECAY_ALL and (len(parameter.shape) <= 1 or name in exempt)
                groups.setdefault((name.startswith(_BACKBONE), is_still), []).append(name)
        return [
            {"names": names, "weight_decay": 0.0 if is_still else decay, "learning_rate": factor if is_slow else 1.0}
            for (is_slow, is_still), names in groups.items()
        ]

    def recomputed_layers(self, model: paddle.nn.Layer) -> List[paddle.nn.Layer]:
        layers = model.recomputed_layers()
        if not layers:
            raise UserError(f"TRAIN.RECOMPUTE: {self.config.MODEL.NAME} has no layers for it; leave it out")
        return layers

    # ---- training ----------------------------------------------------------------------------------------------

    def normalise(self, images: paddle.Tensor, sizes: np.ndarray) -> paddle.Tensor:
        """uint8 pixels (N, 3, H, W) -> float32; exactly zero where padded.

        Args:
            sizes: int64 (N, 2), height and width of each picture without padding.
        """
        return zero_padding(self.normaliser(images), sizes)

    def train_step(self, model: paddle.nn.Layer, batch: Dict[str, Any], step: Step) -> Dict[str, Term]:
        facts = host_facts(batch)
        targets = Targets(batch["boxes"], batch["labels"], batch["sizes"], facts["box_counts"], batch.get("masks"))
        images = self.normalise(batch["images"], facts["sizes"])
        outputs = model(images, batch["sizes"], targets)
        return dict(self.criterion.terms(outputs, targets))

    # ---- evaluation --------------------------------------------------------------------------------------------

    def build_metrics(self) -> DetectionMetrics:
        pictures = None if self.evaluated is None else len(self.evaluated)
        return DetectionMetrics(self.class_names, pictures)

    def eval_step(self, model: paddle.nn.Layer, batch: Dict[str, Any], step: EvaluationStep) -> Optional[Records]:
        if self.evaluated is None:
            raise UserError("detection is evaluated on the data that its configuration names")
        indices = host_facts(batch)["indices"].tolist()
        for index, found in zip(indices, self.predict_step(model, batch)):
            image_id = self.evaluated.image_id(index)
            step.metrics.update(image_id, self.evaluated.annotations(index), found)
        return None

    def predict_step(self, model: paddle.nn.Layer, batch: Dict[str, Any]) -> List[Detections]:
        """What is found in each picture, in its own pixels, best first."""
        facts = host_facts(batch)
        found: List[Any] = [None] * len(facts["sizes"])
        for rows in passes(facts["sizes"], self.config.DETECTION.EVALUATE_AS):
            sizes = facts["sizes"][rows]
            images = self.normalise(chosen_pictures(batch["images"], rows, sizes), sizes)
            is_padded = (sizes != sizes[0]).any()
            outputs: Outputs = model(images, paddle.to_tensor(sizes) if is_padded else None)
            for row, one in zip(rows, model.decode(outputs, sizes, facts["original_sizes"][rows])):
                found[row] = one
        return found

    def recall(self, learned: Learned) -> None:
        self.num_classes = learned.num_classes or len(learned.class_names or ()) or None
        if self.num_classes is None:
            raise UserError("the weights do not say which categories they find: name them with --class_names=FILE")
        self.class_names = [*(learned.class_names or ())][: self.num_classes]
        self.class_names += map(str, range(len(self.class_names), self.num_classes))
