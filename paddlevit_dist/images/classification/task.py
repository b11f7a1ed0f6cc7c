"""Image classification with any registered model: cross-entropy with label smoothing and mixed labels, top-1, top-5."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ...core.distributed import rank
from ...core.losses import log_softmax
from ...core.metrics.classification import ClassificationMetrics, ClassifierTask, require_num_classes
from ...core.registry.required_methods import is_builtin
from ...core.runtime import device_graph
from ...core.runtime.device_kinds import accelerator_bytes
from ...core.runtime.printing import one_line
from ...core.runtime.transfers import to_device
from ...core.tasks.class_labels import require_label
from ...core.tasks.class_names import resolve_class_names
from ...core.tasks.dataset import is_training_split
from ...core.tasks.loss_checks import call_losses, require_form, require_sums
from ...core.tasks.model import as_model
from ...core.tasks.model_factory import build_network, model_options, require_unset
from ...core.tasks.network_checks import check_network
from ...core.tasks.sample_checks import BadSample, require_finite
from ...core.tasks.step_types import LossTerm, StepPosition, TaskTraits
from ...core.tasks.task import Task
from .. import expected_input
from ..configured_options import configured_options
from ..data.image_dataset import ImageDataset
from ..data.image_labels import CLASS
from ..data.imagenet import NUM_IMAGENET_1K_CLASSES
from ..data.inspection import SplitInspection
from ..data.quarantine import ReplacementReader
from ..data.reading import check_labels
from ..data.seen_images import see_whole
from ..imagenet_classes import names_by_synset
from ..settings import RGB
from ..transforms.crops import EvaluationTransform, TrainingTransform
from ..transforms.on_device import MixParameters, PixelNormalizer, RandomErasing, smooth_targets, soft_cross_entropy
from ..views import compute_logits, join_softmax
from .augmentation import build_mixing
from .class_balance import weighted_cross_entropy
from .distillation import LOGITS, TeacherModel, build_teacher, distillation_loss, split_heads
from .opening import choose_num_classes, open_images
from .samples import ClassificationSamples, build_view_transform, evaluation_transform
from .settings import ClassificationSettings
from .training_samples import build_training_samples, build_training_transform


class LabeledImageTask(Task):
    """Base class of tasks whose samples are images of one class each."""

    aspects = {
        "Checkable": ".checks:ImageClassChecks",
        "CheckpointMatching": ".checks:PretrainedMatching",
        "Drawable": ".figures:LabeledImageDrawing",
        "LogContributor": ".checks:ImageClassLog",
        "ModelChecking": ".checks:LabeledImageModelCheck",
        "Reportable": ".figures:LabeledImageFigures",
    }
    config: ClassificationSettings
    notices: list[str]
    best_metric = ("top-1", True)
    traits = TaskTraits(
        sample_name="images",
        supports_to_static=True,
        fixed_shapes=True,
        normalizers_per_sample={"loss": 1},
        selftest_overrides=dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
    )
    #: class of the samples of a split
    _samples_type: type[ClassificationSamples] = ClassificationSamples
    #: number of classes that a dataset needs
    _fewest_classes = 2
    #: what the label of an image is
    _truth = CLASS
    num_classes: int | None
    class_names: Sequence[str] | None
    evaluated_classes: Sequence[str] | None

    def __init__(self, config: ClassificationSettings) -> None:
        super().__init__(config)
        data = config.DATA
        self.normalizer = PixelNormalizer(data.IMAGENET_MEAN, data.IMAGENET_STD)
        self.num_classes = config.MODEL.NUM_CLASSES
        self.class_names = self.evaluated_classes = None
        self.class_weights: np.ndarray | None = None
        self.replacements: ReplacementReader | None = None
        self._inspection: SplitInspection | None = SplitInspection(
            config.EVAL, data.ON_INVALID_SAMPLE == "skip", data.ALLOW_SKIPPED_FILES
        )
        self.model_options, notices = configured_options(self)
        require_unset(self, ["in_channels"])
        self.notices += notices
        if data.IMAGE_CHANNELS == RGB:
            self.notices += filter(None, [expected_input.format_expected_input(config)])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inspection": None}

    def _open_labeled(self, split: str, cache_folder: Path) -> tuple[ImageDataset, list[str]]:
        """Open the images of a split, check their labels and some of their files, and return notices about them."""
        dataset, notes = open_images(self.config, split, cache_folder)
        dataset.read_as(self._truth)
        self.num_classes = choose_num_classes(self.config, dataset, self.num_classes, self._fewest_classes)
        class_names = list(map(str, dataset.class_names or ()))
        resolve_class_names(self.config, class_names, before=self.evaluated_classes or ())
        self.evaluated_classes = class_names or None
        number, name = int(dataset.num_classes or 0), f"dataset {self.config.DATA.DATASET}"
        if dataset.labels is not None:
            check_labels(np.asarray(dataset.labels), number, name, dataset.describe)
        if self._inspection is not None:
            data = self.config.DATA
            transform = evaluation_transform(data, dataset.kind)
            cropping = transform if isinstance(transform, EvaluationTransform) else None  # glyphs are not cropped
            seen = see_whole(data.IMAGE_SIZE, data.IMAGE_CHANNELS, cropping)
            notes += self._inspection.inspect(dataset, split, number, seen)
        return dataset, [*map(one_line, notes)]

    def _open_evaluated(self, split: str, cache_folder: Path) -> ClassificationSamples:
        """Open a split with the transform of one view."""
        dataset, notices = self._open_labeled(split, cache_folder)
        samples = self._samples_type(dataset, evaluation_transform(self.config.DATA, dataset.kind))
        samples.notices = notices
        return samples

    def signature(self, dataset: Any = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the labels and classes of samples."""
        if dataset is not None:
            facts = super().signature(dataset)
            return {**facts, **dataset.identify()} if isinstance(dataset, ClassificationSamples) else facts
        data = self.config.DATA
        crop = ("IMAGE_SIZE", "IMAGE_CHANNELS", "CROP_PCT", "CROP_MODE")
        names = (*crop, "IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE")
        return {**{f"DATA.{name}": data[name] for name in names}, "interpolation": data.INTERPOLATION}

    def check_sample(self, sample: Any) -> None:
        """Check the values of an image and its label, also of samples that a program has made."""
        require_finite(sample[0], "image")
        if np.ndim(sample[1]):
            raise BadSample(f"label is {sample[1]!r}, expected the whole number of a class")
        require_label(sample[1], self.num_classes)

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model."""
        if self.class_names is None and num_classes == NUM_IMAGENET_1K_CLASSES:  # trained weights
            self.class_names = list(names_by_synset().values())
            self.notices.append("note: the weights do not name their 1,000 classes; ImageNet's names are used")
        return self.create_network(num_classes or require_num_classes(self.num_classes))

    def create_network(self, num_classes: int) -> paddle.nn.Layer:
        """Create the configured model with its initial weights."""
        return self._create_model(num_classes, self.model_options)

    def _create_model(self, num_classes: int, options: dict[str, Any]) -> Any:
        """Create the model with these options, for images with the configured size and channels."""
        data, name = self.config.DATA, self.config.MODEL.NAME
        if data.IMAGE_CHANNELS != RGB or "in_channels" in model_options(name).defaults:
            options = {**options, "in_channels": data.IMAGE_CHANNELS}
        return build_network(name, num_classes, data.IMAGE_SIZE, options)

    def normalize(self, images: paddle.Tensor) -> paddle.Tensor:
        """Normalize uint8 pixels (batch, channels, height, width) to float32 of the same shape."""
        return self.normalizer(images)


class Classification(LabeledImageTask, ClassifierTask):
    """Trains and evaluates an image classifier; losses are summed over a batch."""

    aspects = {
        "Capturable": ".checks:ClassifierCapture",
        "Drawable": ".figures:MixedImageDrawing",
        "Ensembling": ".prediction:ImageClassPrediction",
        "Exportable": ".export:ImageClassExport",
        "ModelChecking": ".checks:ClassificationModelCheck",
        "Predictable": ".prediction:ImageClassPrediction",
        "Recomputable": ".checks:ClassifierRecomputation",
    }

    _join_views = staticmethod(join_softmax)  # of several views: logits of the mean of their probabilities
    traits = replace(
        LabeledImageTask.traits,
        normalizers_per_sample={"loss": 1, "distillation": 1},
        selftest_overrides={
            **LabeledImageTask.traits.selftest_overrides,
            **dict.fromkeys(("TRAIN.MIXUP_ALPHA", "TRAIN.CUTMIX_ALPHA", "TRAIN.RANDOM_ERASE_PROB"), 0.0),
            "TRAIN.CUTMIX_MINMAX": None,
        },
    )

    def __init__(self, config: ClassificationSettings) -> None:
        super().__init__(config)
        self.teacher: TeacherModel | None = None
        self._train_transform: TrainingTransform | None = None
        self._has_checked_sum = False  # of a user's loss
        train = config.TRAIN
        self.mixing = None if config.EVAL else build_mixing(train)
        self.erasing = None
        if train.RANDOM_ERASE_PROB:
            self.erasing = RandomErasing(train.RANDOM_ERASE_PROB, train.RANDOM_ERASE_MODE, train.RANDOM_ERASE_COUNT)

    def build_dataset(self, split: str, cache_folder: Path) -> ClassificationSamples:
        """Open a split with its transform, check it, and log what was found."""
        if not is_training_split(self.config, split):
            samples = self._open_evaluated(split, cache_folder)
            views = build_view_transform(self.config.DATA, samples.dataset.kind)
            if views is not None:
                samples.transform, samples.eval_protocol = views, views.describe()
            return samples
        dataset, notices = self._open_labeled(split, cache_folder)
        transform = build_training_transform(self.config, dataset.kind)
        self._train_transform = transform if isinstance(transform, TrainingTransform) else None
        samples, self.class_weights = build_training_samples(
            self.config, self._samples_type(dataset, transform, self.erasing), require_num_classes(self.num_classes)
        )
        samples.notices = [*notices, *samples.notices]
        self.replacements = samples.replacements
        return samples

    def collate(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        """Stack images and labels to a batch."""
        images, labels, *erased = zip(*samples)
        # images uint8 (batch, channels, size, size), a quarter of the bytes of float32; labels int64 (batch,)
        batch = {"images": np.stack(images), "labels": np.asarray(labels, dtype=np.int64)}
        if self.erasing is not None:
            for drawn in erased:
                batch.update(self.erasing.collate(drawn))
        return batch

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model, and in training its teacher."""
        config, model = self.config, super().build_model(num_classes)
        if not config.EVAL:
            self.notices += filter(None, [expected_input.format_stronger_pretrained_hint(config, accelerator_bytes())])
            if self._train_transform is not None:
                self._train_transform.prepare()
            self.teacher = build_teacher(config.TRAIN, require_num_classes(self.num_classes), config.DATA)
            if self.teacher is not None:
                self.teacher.require_task(config.TASK)
                self.teacher.match_classes(
                    as_model(model), self.evaluated_classes or (), require_num_classes(self.num_classes)
                )
                self.notices.append(self.teacher.fit_input(config.DATA))
                as_model(model).learn_from_teacher()
        return model

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the losses and the training accuracy of a batch."""
        labels = batch["labels"]
        images, mix = self.training_images(batch, step)
        count = labels.shape[0]
        heads = split_heads(model(images), model, (count, self.num_classes), self.teacher is not None)
        logits, teacher_logits = (head.astype("float32") for head in heads)
        with paddle.no_grad():
            # A mixed image counts as correct if its label with the larger share is predicted, so the training accuracy
            # is lower than with whole images.
            main_labels = labels if mix is None else mix.dominant(labels)
            correct = (logits.argmax(axis=-1) == main_labels).astype("float32").sum()
        shown_accuracy = LossTerm(100.0 * correct, count, weight=0.0)
        loss = self._compute_loss(logits, batch, mix)
        if self.teacher is None:
            return {"loss": LossTerm(loss, count), "top-1": shown_accuracy}
        train = self.config.TRAIN
        share = train.DISTILLATION_ALPHA
        distillation = distillation_loss(train.DISTILLATION_TYPE, teacher_logits, self.teacher(images))
        return {
            "loss": LossTerm(loss, count, weight=1.0 - share),
            "distillation": LossTerm(distillation, count, weight=share),
            "top-1": shown_accuracy,
        }

    def _compute_loss(
        self, logits: paddle.Tensor, batch: dict[str, paddle.Tensor], mix: MixParameters | None
    ) -> paddle.Tensor:
        """Compute the loss of a batch, summed over its images."""
        labels = batch["labels"]
        if is_builtin(type(self).losses):
            loss = self.summed_loss(logits, labels, mix)
            self._require_sum(loss, logits, labels)
            return loss
        of_labels = []
        for each in (labels,) if mix is None else (labels, labels.flip(axis=[0])):
            of_labels.append(call_losses(self, logits, {**batch, "labels": each}, labels.shape))
        return of_labels[0].sum() if mix is None else mix.losses(*of_labels).sum()

    def _require_sum(self, loss: paddle.Tensor, logits: paddle.Tensor, labels: paddle.Tensor) -> None:
        """Check the first loss of a user's ``summed_loss``."""
        if self._has_checked_sum or is_builtin(type(self).summed_loss):
            return

        def compute(logits: paddle.Tensor, labels: paddle.Tensor) -> dict[str, LossTerm]:
            return {"loss": LossTerm(self.summed_loss(logits, labels, None), len(labels))}

        require_form({"loss": LossTerm(loss, len(labels))}, type(self), "summed_loss")
        require_sums(compute, (logits, labels), type(self), "summed_loss")
        self._has_checked_sum = True

    def training_images(
        self, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> tuple[paddle.Tensor, MixParameters | None]:
        """Normalize, erase and mix a batch; also return the mix."""
        images = self.normalizer(batch["images"])
        if self.erasing is not None:
            images = self.erasing.fill(images, batch)
        if self.mixing is None:
            return images, None
        mixing, shape = self.mixing, tuple(images.shape)

        def draw(position: StepPosition) -> MixParameters | None:  # the mix of this process's micro-batch
            generator = np.random.default_rng([self.config.SEED, position.update, rank(), position.micro])
            return mixing.draw(generator, shape)

        mix: MixParameters | None
        if device_graph.is_entering():
            nothing = MixParameters.nothing(1 if mixing.mode == "batch" else shape[0])
            mix = replace(nothing, entered=device_graph.enter_value(lambda now: (draw(now) or nothing).to_tensor()))
        else:
            mix = draw(step)
        return (images if mix is None else mix.images(images)), mix

    def summed_loss(self, logits: paddle.Tensor, labels: paddle.Tensor, mix: MixParameters | None) -> paddle.Tensor:
        """Compute the cross-entropy, summed over the batch; a task with another loss overrides this method.

        Label smoothing (Szegedy et al., 2016, arXiv 1512.00567, section 7) mixes the true label's loss with the mean
        over all classes.

        Args:
            logits: float32 (batch, classes).
            labels: int64 (batch,), the classes of the images.
            mix: how mixup or cutmix mixed the images; None: not at all.
        """
        smoothing = self.config.TRAIN.SMOOTHING
        if self.class_weights is not None:
            unsmoothed_targets, targets = (self.soft_targets(labels, mix, share) for share in (0.0, smoothing))
            weights = device_graph.enter_value(lambda _: to_device(self.class_weights))
            return weighted_cross_entropy(logits, unsmoothed_targets, targets, weights)
        if mix is not None:
            return soft_cross_entropy(logits, self.soft_targets(labels, mix, smoothing))
        true_label = F.cross_entropy(logits, labels, reduction="sum")
        if not smoothing:
            return true_label
        uniform = -log_softmax(logits).mean(axis=-1).sum()
        return (1.0 - smoothing) * true_label + smoothing * uniform

    def soft_targets(self, labels: paddle.Tensor, mix: MixParameters | None, smoothing: float) -> paddle.Tensor:
        """Compute the share of each class in the label of each image, float32 (batch, classes).

        ``smoothing`` is the share that is spread over all classes, for example TRAIN.SMOOTHING.
        """
        targets = smooth_targets(labels, require_num_classes(self.num_classes), smoothing)
        return targets if mix is None else mix.targets(targets)

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        """Compute logits (batch, classes); if there are several views, of their mean probability."""
        compute = check_network(model, LOGITS, self.num_classes)
        return compute_logits(lambda images: compute(self.normalizer(images)), batch["images"], self._join_views)

    def _sum_own_loss(self, logits: paddle.Tensor, batch: dict[str, paddle.Tensor]) -> LossTerm:
        return LossTerm(self._compute_loss(logits, batch, None), len(batch["labels"]))

    def build_metrics(self) -> ClassificationMetrics:
        """Return the metrics of an evaluation."""
        return ClassificationMetrics(require_num_classes(self.num_classes), self.evaluated_classes)
