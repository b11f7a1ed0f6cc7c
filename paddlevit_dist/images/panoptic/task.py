"""Panoptic segmentation of images: training, evaluation and prediction of a network with queries."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import paddle
from msgspec import Meta

from ...core.registry.lookup import annotation_type
from ...core.registry.manifest import SEGMENT_LABELS
from ...core.runtime.environment import program
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line, shorten
from ...core.runtime.transfers import read
from ...core.tasks.dataset import TransformedDataset, is_training_split
from ...core.tasks.metrics import Metrics
from ...core.tasks.prediction import CheckpointMeta
from ...core.tasks.sample_checks import require_labels
from ...core.tasks.step_types import EvaluationStep, LossTerm, StepPosition
from ...core.tasks.task import Records
from ..backbone_task import TURNED, BackboneTask, is_turned
from ..data.image_samples import open_dataset
from ..data.panoptic_files import Categories, read_categories
from ..mask_queries.criterion import QueryTargets
from ..mask_queries.points import NumberMaps
from ..mask_queries.segments import MaskView, SegmentRules, find_segments
from .data.layouts import find_published
from .data.panoptic_dataset import PanopticDataset, summarize_segments
from .data.segments import Segments
from .metrics import PanopticMetrics
from .samples import HOST, EvaluatedSegments, PanopticSample, PanopticSamples, SegmentsPart, collate
from .settings import PanopticSettings
from .transforms import build_evaluation_transform, build_training_transform, see_segments

_PALETTE = r"^([0-9a-f]{6}){1,65536}\Z"


class _SplitFacts(msgspec.Struct):
    things: list[bool] | None = None
    category_ids: list[Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]] | None = msgspec.field(
        name="category ids", default=None
    )
    palette: Annotated[str, Meta(pattern=_PALETTE)] | None = None  # colors of the classes


class PanopticSegmentation(BackboneTask):
    """Trains and evaluates a network that divides an image into segments of things and of stuff.

    Each image is evaluated alone, resized to fit the network's input and padded, and scored at its stored size; results
    do not depend on batches or processes.
    """

    aspects = {
        "Checkable": ".checks:SegmentChecks",
        "Drawable": ".figures:SegmentDrawing",
        "Exportable": ".export:SegmentExport",
        "LogContributor": ".checks:SegmentLog",
        "Predictable": ".prediction:SegmentPrediction",
        "Reportable": ".figures:SegmentFigures",
    }
    config: PanopticSettings
    best_metric = ("PQ", True)
    traits = replace(
        BackboneTask.traits,
        fixed_shapes=True,
        selftest_overrides={
            **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
            "TRAIN.RANDOM_SAMPLING": False,
        },
    )

    def __init__(self, config: PanopticSettings) -> None:
        super().__init__(config)
        self.is_thing: list[bool] = []
        self.category_ids: list[int] = []
        self.palette: np.ndarray | None = None
        self.criterion: Any = None  # losses, once classes are known, in training
        keys = config.PANOPTIC
        self.rules = SegmentRules(keys.SCORE_THRESHOLD, keys.MASK_THRESHOLD, keys.OVERLAP_THRESHOLD)
        if annotation_type("model", config.MODEL.NAME) not in (None, SEGMENT_LABELS):  # None: a user's model
            raise UserError(
                f"MODEL.NAME {config.MODEL.NAME} is not a model for segments; set one that "
                f"'{program('inspect')} --list' names below TASK {config.TASK}"
            )

    def build_dataset(self, split: str, cache_folder: Path) -> PanopticSamples:
        """Open a split with its transform, check it, and log what was found."""
        is_training = is_training_split(self.config, split)
        dataset, notices = open_dataset(self.config, PanopticDataset, SegmentsPart, split, cache_folder)
        self._opened_turned = is_turned(dataset)
        if self._inspection is not None:
            seen = see_segments(self.config, is_training)
            notices += self._inspection.inspect(dataset, split, dataset.num_classes, seen)
            notices += summarize_segments(dataset, split)
        self._take_dataset(dataset)
        transform: Any = build_training_transform if is_training else build_evaluation_transform
        samples = PanopticSamples(dataset, transform(self.config), is_training)
        samples.notices = [one_line(line) for line in notices]
        if is_training:
            self._replace_unreadable(samples)
            self._build_criterion()
        return samples

    def _take_dataset(self, dataset: PanopticDataset) -> None:
        """Use the classes of the first split, and check that the other splits have the same."""
        self._take_classes(list(map(str, dataset.class_names or range(dataset.num_classes))))
        is_thing = [bool(flag) for flag in dataset.is_thing]
        ids = list(dataset.category_ids or range(1, dataset.num_classes + 1))
        if self.is_thing and (is_thing, ids) != (self.is_thing, self.category_ids):
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: things or ids of categories differ between training and "
                "validation data; use the same categories in both"
            )
        self.is_thing, self.category_ids, self.palette = is_thing, ids, dataset.palette

    def signature(self, dataset: TransformedDataset | None = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the categories of samples."""
        if dataset is not None:
            return self._identify(dataset)
        data = self.config.DATA
        names = ("IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE")
        return {
            **{f"DATA.{name}": data[name] for name in names},
            "PANOPTIC.INPUT_SIZE": list(self.config.PANOPTIC.INPUT_SIZE),
        }

    def _identify(self, dataset: TransformedDataset) -> dict[str, Any]:
        """Return what identifies the data of a split: names, things, ids, orientation and colors of classes."""
        facts = {**super().signature(dataset), "number of classes": self.num_classes, "classes": self.class_names}
        if isinstance(dataset, PanopticSamples):  # not a program's samples
            facts |= {"things": self.is_thing, "category ids": self.category_ids, TURNED: is_turned(dataset.dataset)}
        return facts if self.palette is None else {**facts, "palette": self.palette.tobytes().hex()}

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Take classes, things, ids and colors from a checkpoint's metadata."""
        super().load_meta(meta)
        facts = meta.read_data(_SplitFacts)
        if facts.palette is not None:
            self.palette = np.frombuffer(bytes.fromhex(facts.palette), np.uint8).reshape(-1, 3)
        if facts.things is not None and len(facts.things) == self.num_classes:
            self.is_thing = facts.things
        if facts.category_ids is not None and len(facts.category_ids) == self.num_classes:
            self.category_ids = facts.category_ids

    def _name_classes(self, number: int, meta: CheckpointMeta) -> None:
        """Take the classes of weights that do not say which are things from PANOPTIC.CATEGORIES or published data."""
        file, names = self.config.PANOPTIC.CATEGORIES, list(meta.class_names or ())
        is_told = len(meta.read_data(_SplitFacts).things or ()) == number
        if file is not None and not is_told:
            known = read_categories(os.path.join(self.config.DATA.DATA_PATH or "", file))
            own = known.names if all(map(str.isdecimal, names)) else names  # a number is not a name
            order = [known.names.index(name) for name in own if name in known.names]
            if known.is_thing is None or not number == len(order) == len(known.names):
                listed = shorten(", ".join(known.names), 80) if known.is_thing else "without isthing"
                raise UserError(
                    f"PANOPTIC.CATEGORIES {file} lists {len(known.names):,} categories, {listed}, but the weights have "
                    f"{number:,} classes, {shorten(', '.join(names) or 'without names', 80)}: list each with isthing"
                )
            palette = None if known.palette is None else known.palette[order]
            is_thing = [known.is_thing[place] for place in order]
            ids, listed_names = [known.ids[place] for place in order], [known.names[place] for place in order]
            found = Categories(ids, listed_names, palette, is_thing)
        elif (published := find_published(number, names)) is not None:
            found = published
        else:
            found = Categories(list(range(1, number + 1)), names, None, [True] * number)
            notice = (
                f"things and stuff of {number:,} classes are not known: each is a thing; PANOPTIC.CATEGORIES "
                'categories.json lists them, as [{"id": 1, "name": "car", "isthing": 1}]'
            )
            if not is_told and notice not in self.notices:
                self.notices.append(notice)
        super()._name_classes(number, meta._replace(class_names=tuple(names or found.names) or None))
        self.is_thing, self.category_ids, self.palette = list(found.is_thing or ()), list(found.ids), found.palette

    def check_sample(self, sample: PanopticSample) -> None:
        """Check the labels of a sample."""
        if sample.segments is not None:
            require_labels(sample.segments.labels, self.num_classes, -1, "class", "segment")

    def collate(self, samples: Sequence[PanopticSample]) -> dict[str, Any]:
        """Collate samples to a batch."""
        return collate(samples)

    def _build_criterion(self) -> None:
        """Build the losses of the configured model, so that its errors are raised before processes start."""
        criterion = self._family.criterion(self.config.MODEL.NAME, self.num_classes, **self.model_options)
        self.criterion = criterion
        self.traits = replace(
            self.traits, normalizer_names=criterion.normalizer_names, communicates_in_step=criterion.communicates
        )

    @property
    def network_size(self) -> tuple[int, int]:
        """Height and width that the network is built for."""
        height, width = self.config.PANOPTIC.INPUT_SIZE
        return height, width

    def loss_normalizers(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the normalizers of a batch."""
        return dict(self.criterion.count(np.array(batch[HOST], np.int64)))

    def train_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: StepPosition) -> dict[str, LossTerm]:
        """Run the forward pass of a micro-batch and return its loss terms."""
        labels, counts = batch["labels"], np.array(batch[HOST], np.int64)
        numbers = paddle.arange(labels.shape[1]).expand_as(labels)
        numbers = paddle.where(labels >= 0, numbers, paddle.full_like(numbers, -2))  # no pixel has it
        self.criterion.note_objects(counts, step)
        outputs = model(self.normalizer(batch["images"]), step.update, step.total_updates)
        places = batch["places"].astype("int32")  # Paddle 2.6 gathers no int16
        targets = QueryTargets(NumberMaps(places, numbers), labels, counts)
        return dict(self.criterion.terms(outputs, targets))

    def build_metrics(self) -> Metrics:
        """Return the metrics of an evaluation."""
        return PanopticMetrics(self.class_names, np.array(self.is_thing, bool))

    def predict_segments(self, model: paddle.nn.Layer, images: paddle.Tensor, view: MaskView) -> Segments | None:
        """Find the segments of an image (1, 3, height, width); None if the network's outputs are not finite."""
        outputs = model(self.normalizer(images))
        classes, masks = read(outputs["classes"][0].astype("float32"), outputs["masks"][0].astype("float32"))
        if not (np.isfinite(classes).all() and np.isfinite(masks).all()):
            return None
        found = find_segments(classes, masks, view, np.array(self.is_thing, bool), self.rules)
        number = len(found.labels)
        areas = np.bincount(found.places[found.places >= 0], minlength=number)
        scores = found.scores.astype(np.float64)
        return Segments(found.places, found.labels, np.zeros(number, bool), areas, np.arange(1, number + 1), scores)

    def predict_batch(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> list[Segments | None]:
        """Find the segments of each image of an evaluation batch, one image at a time."""
        images = batch["images"]
        return [
            self.predict_segments(model, images[place : place + 1], MaskView(*map(tuple, view)))
            for place, (_, view, _) in enumerate(batch[HOST])
        ]

    def eval_step(self, model: paddle.nn.Layer, batch: dict[str, Any], step: EvaluationStep) -> Records | None:
        """Update the metrics, and write the predictions of a batch."""
        predictions, records = self.predict_batch(model, batch), list[Any]()
        for found, facts in zip(predictions, batch[HOST]):
            truth = EvaluatedSegments(*facts).segments()
            if found is None:
                raise UserError("the network's outputs for an image are not finite: nothing is scored")
            truth = found.choose(np.zeros(0, np.int64)) if truth is None else truth  # without labels: void
            records.append(step.metrics.update(truth, found))
        if step.writer is not None:
            step.writer.add(predictions)
        return (lambda: records) if step.keeps_records else None
