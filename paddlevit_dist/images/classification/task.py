"""Image classification with any registered model: cross-entropy with label smoothing and mixed labels, top-1, top-5."""

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from ... import extension
from ...distributed import has_batch_norm, rank
from ...metrics.classification import ClassificationMetrics, ClassifierTask, join_records
from ...metrics.classifier_figures import EvaluatedPredictions
from ...models import create_model
from ...runtime.device_kinds import accelerator_bytes
from ...runtime.environment import program
from ...runtime.errors import UserError
from ...runtime.printing import one_line
from ...runtime.text_rendering import printable_or
from ...runtime.transfers import to_device
from ...tasks.dataset import TransformedDataset, is_training_split
from ...tasks.figures import Figure
from ...tasks.model import as_model
from ...tasks.prediction import InputSamples
from ...tasks.protocols import (
    Checkable,
    Drawable,
    Exportable,
    LogContributor,
    ModelChecking,
    Recomputable,
    SampleChecking,
    SampleDescription,
)
from ...tasks.sample_checks import require_finite, require_label
from ...tasks.step_types import ExportParts, LossTerm, StepPosition, TaskTraits
from .. import expected_input
from ..configured_options import configured_options
from ..data.image_dataset import ImageDataset
from ..data.imagenet import NUM_IMAGENET_1K_CLASSES, names_by_synset
from ..data.inputs import open_image_inputs
from ..data.inspection import SplitInspection
from ..data.parts import PartReader
from ..data.quarantine import ReplacementReader, merge_quarantine
from ..data.reading import ReadConfig, check_labels, count_labels, label_parts
from ..settings import RGB
from ..transforms.albumentations_file import AlbumentationsFile
from ..transforms.crops import GlyphTransform, TrainingTransform
from ..transforms.decoding_opencv import FastReader, FastTransform, require_opencv
from ..transforms.on_device import (
    MixParameters,
    PixelNormalizer,
    RandomErasing,
    smooth_targets,
    soft_cross_entropy,
)
from .augmentation import build_augmentation, build_mixing
from .class_balance import compute_class_weights, format_imbalance, weighted_cross_entropy
from .distillation import TeacherModel, build_teacher, distillation_loss
from .export import export_parts
from .figures import attention_rollout, report_figures
from .opening import open_images
from .prediction import ImageClassWriter
from .samples import ClassificationInput, ClassificationSamples, evaluation_transform, find_dataset_class
from .settings import ClassificationSettings

_ANY_NUMBER_OF_CLASSES = 10  # for a model that is only built to check its dimensions
_MOST_CLASSES_SHOWN = 20


class Classification(
    ClassifierTask,
    Exportable,
    Drawable,
    Checkable,
    Recomputable,
    ModelChecking,
    SampleChecking,
    SampleDescription,
    LogContributor,
):
    """Trains and evaluates an image classifier; losses are summed over a batch."""

    config: ClassificationSettings
    notices: list[str]
    traits = TaskTraits(
        sample_name="images",
        supports_to_static=True,
        fixed_shapes=True,
        normalizers_per_sample={"loss": 1, "distillation": 1},
        selftest_overrides={
            **dict.fromkeys(("TRAIN.MIXUP_ALPHA", "TRAIN.CUTMIX_ALPHA", "TRAIN.RANDOM_ERASE_PROB"), 0.0),
            "TRAIN.CUTMIX_MINMAX": None,
            **dict.fromkeys(("MODEL.DROPOUT", "MODEL.ATTENTION_DROPOUT", "MODEL.DROPPATH"), 0.0),
        },
    )
    evaluated_classes: Sequence[str] | None = None  # their names, if the data have them

    def __init__(self, config: ClassificationSettings) -> None:
        super().__init__(config)
        data = config.DATA
        self.normalizer = PixelNormalizer(data.IMAGENET_MEAN, data.IMAGENET_STD)
        self.num_classes = config.MODEL.NUM_CLASSES
        self.class_names = None
        self.class_weights = None
        self.replacements: ReplacementReader | None = None
        self.teacher: TeacherModel | None = None
        self._train_transform: TrainingTransform | None = None
        self._inspection: SplitInspection | None = SplitInspection(
            config.EVAL, data.ON_INVALID_SAMPLE == "skip", data.ALLOW_SKIPPED_FILES
        )
        train = config.TRAIN
        self.mixing = None if config.EVAL else build_mixing(train)
        self.erasing = None
        if train.RANDOM_ERASE_PROB:
            self.erasing = RandomErasing(train.RANDOM_ERASE_PROB, train.RANDOM_ERASE_MODE, train.RANDOM_ERASE_COUNT)
        self.model_options, notices = configured_options(config.MODEL)
        self.notices += notices
        if data.IMAGE_CHANNELS == RGB:
            self.notices += filter(None, [expected_input.format_expected_input(config)])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inspection": None}

    # ---- data ----------------------------------------------------------------------------------------------------

    def is_augmented(self, split: str) -> bool:
        """Return whether images of the split are augmented."""
        return is_training_split(self.config, split)

    def build_dataset(self, split: str, cache_folder: Path) -> ClassificationSamples:
        """Open a split with its transform, check it, and log what was found."""
        data = self.config.DATA
        dataset, notes = open_images(self.config, split, cache_folder)
        num_classes = self._check_classes(dataset)
        if dataset.labels is not None:
            check_labels(np.asarray(dataset.labels), num_classes, f"dataset {data.DATASET}", dataset.describe)
        if self._inspection is not None:
            notes += self._inspection.inspect(dataset, split, num_classes)
        is_training = self.is_augmented(split)
        transform = self.training_transform(dataset.kind) if is_training else evaluation_transform(data, dataset.kind)
        samples = ClassificationSamples(dataset, transform, self.erasing if is_training else None)
        samples.notices = [*map(one_line, notes)]
        if not is_training:
            self.evaluated_classes = samples.class_names and list(map(str, samples.class_names))
        if is_training:
            self._train_transform = transform if isinstance(transform, TrainingTransform) else None
            self._apply_balancing_and_readers(samples)
        return samples

    def training_transform(self, kind: str) -> TrainingTransform | GlyphTransform:
        """Build the transform of training images; ``kind``: "photo" or "glyph"."""
        data = self.config.DATA
        augment = build_augmentation(self.config.TRAIN, data.IMAGENET_MEAN)
        if kind == "glyph":
            distortion = data.GLYPH_DISTORTION
            return GlyphTransform(data.IMAGE_SIZE, True, data.IMAGE_CHANNELS, distortion=distortion, augment=augment)
        crop = (data.CROP_SCALE[0], data.CROP_SCALE[1]), (data.CROP_RATIO[0], data.CROP_RATIO[1])
        transform = extension.CompiledTrainingTransform if extension.has("cpu_kernels") else TrainingTransform
        return transform(data.IMAGE_SIZE, *crop, data.HORIZONTAL_FLIP, data.IMAGE_CHANNELS, augment)

    def describe_samples(self, samples: Any) -> str:
        """Describe a split: number of images, and images in each class."""
        text = super().describe_samples(samples)
        # A program may pass its own samples to the trainer.
        if not isinstance(samples, ClassificationSamples) or samples.dataset.labels is None:
            return text
        labels = samples.dataset.labels
        numbers = count_labels(np.asarray(labels), samples.dataset.num_classes)
        if len(numbers) > _MOST_CLASSES_SHOWN:
            return f"{text} of {len(numbers):,} classes, {numbers.min():,} to {numbers.max():,} each"
        names = samples.class_names or range(len(numbers))
        return f"{text}: " + ", ".join(f"{name} {number:,}" for name, number in zip(names, numbers))

    def signature(self, samples: Any = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the labels and classes of samples."""
        if samples is not None:
            return self._identify(samples)
        data = self.config.DATA
        crop = ("IMAGE_SIZE", "IMAGE_CHANNELS", "CROP_PCT", "CROP_MODE")
        names = (*crop, "IMAGENET_MEAN", "IMAGENET_STD", "EXIF_ROTATE")
        return {**{f"DATA.{name}": data[name] for name in names}, "interpolation": data.INTERPOLATION}

    def _identify(self, samples: Any) -> dict[str, Any]:
        """Return what identifies the data of a split: number, labels and classes."""
        facts = super().signature(samples)
        if not isinstance(samples, ClassificationSamples):  # a program's samples
            return facts
        facts["number of classes"] = samples.dataset.num_classes
        labels = samples.dataset.labels
        if labels is not None:
            digest = hashlib.sha256()
            for part in label_parts(np.asarray(labels)):
                digest.update(part.astype("<i8", copy=False).data)
            facts["labels"] = digest.hexdigest()[:16]
        if samples.class_names is not None:
            facts["classes"] = list(map(str, samples.class_names))
        return facts

    def _apply_balancing_and_readers(self, samples: ClassificationSamples) -> None:
        """Set class weights, balanced order, decoder and the replacement of unreadable images for training samples."""
        data = self.config.DATA
        labels = samples.dataset.labels
        if labels is None and (data.CLASS_BALANCED or self.config.TRAIN.CLASS_WEIGHTS is not None):
            raise UserError(
                f"dataset {data.DATASET} does not expose its labels: give it an attribute 'labels', or remove "
                "DATA.CLASS_BALANCED and TRAIN.CLASS_WEIGHTS"
            )
        self.class_weights = compute_class_weights(self.config.TRAIN.CLASS_WEIGHTS, labels, self._require_num_classes())
        samples.is_balanced = data.CLASS_BALANCED
        if samples.dataset.reading is not None:  # image files
            packing = f"store smaller images once ({program('prepare images')} -h)"
            samples.reading_advice = (packing,) if data.DECODER == "fast" else ("DATA.DECODER fast", packing)
        if labels is not None:
            is_corrected = data.CLASS_BALANCED or self.class_weights is not None
            samples.notices += map(one_line, format_imbalance(labels, samples.class_names, is_corrected))
        if data.ALBUMENTATIONS is not None:
            samples.augmentation = AlbumentationsFile(data.ALBUMENTATIONS)
        if data.DECODER == "fast":
            self._use_fast_decoder(samples)
        if data.ON_INVALID_SAMPLE == "skip":
            samples.replacements = self.replacements = ReplacementReader(Path(self.config.SAVE).absolute())
        elif (
            samples.augmentation is None
            and samples.dataset.reads_parts
            and isinstance(samples.transform, TrainingTransform)
        ):
            # Not with ON_INVALID_SAMPLE skip: PartReader decodes only the crop, in the transform, too late to replace a
            # bad image.
            samples.reader = PartReader(samples.dataset)

    def _use_fast_decoder(self, samples: ClassificationSamples) -> None:
        cv2 = require_opencv()
        if samples.dataset.reading is None or not isinstance(samples.transform, TrainingTransform):
            raise UserError(f"DATA.DECODER fast is for datasets of image files, not for {self.config.DATA.DATASET}")
        samples.reader = FastReader(samples.dataset, self.config.DATA.IMAGE_CHANNELS)
        samples.transform = FastTransform(samples.transform)
        samples.notices.append(f"training images are read with OpenCV {cv2.__version__} (DATA.DECODER fast)")

    def finish_epoch(self) -> list[str]:
        """Merge the unreadable images of all ranks into one list; every rank must call this."""
        return merge_quarantine(self.replacements, Path(self.config.SAVE))

    def _check_classes(self, dataset: Any) -> int:
        """Return the number of the dataset's classes, which sets the number of the model's unless it is configured."""
        num_classes: int = dataset.num_classes
        if self.num_classes is None:
            if num_classes < 2:
                name = f", {one_line(dataset.class_names[0])}" if dataset.class_names else ""
                raise UserError(
                    f"dataset {self.config.DATA.DATASET} at {self.config.DATA.DATA_PATH} has only one class{name}: a "
                    "classifier needs two or more, one folder each"
                )
            self.num_classes = num_classes
        if self.num_classes < num_classes:
            raise UserError(
                f"dataset {self.config.DATA.DATASET} has labels 0 to {num_classes - 1} but MODEL.NUM_CLASSES "
                f"(-num_classes) is {self.num_classes}; set it to {num_classes} or remove it"
            )
        return num_classes

    def _require_num_classes(self) -> int:
        """Return the number of the model's classes, which the configuration, the data or the weights have set."""
        if self.num_classes is None:
            raise ValueError("the number of classes is not known: open a dataset, or load metadata of trained weights")
        return self.num_classes

    def get_labels(self, samples: Any) -> np.ndarray | None:
        """Return the label of each sample, int64 (samples,); None if they are not known."""
        labels = samples.dataset.labels if isinstance(samples, ClassificationSamples) else None
        return None if labels is None else np.asarray(labels, dtype=np.int64)

    def labels_in(self, sample: Any) -> np.ndarray | None:
        """Return the class of a sample."""
        return np.asarray(sample[1], dtype=np.int64)

    def check_sample(self, sample: Any) -> None:
        """Check the values of an image and its label."""
        require_finite(sample[0], "image")
        require_label(sample[1], self.num_classes)

    def collate(self, samples: Sequence[Any]) -> dict[str, np.ndarray]:
        """Stack images and labels to a batch."""
        images, labels, *erased = zip(*samples)
        # images uint8 (batch, channels, size, size), a quarter of the bytes of float32; labels int64 (batch,)
        batch = {"images": np.stack(images), "labels": np.asarray(labels, dtype=np.int64)}
        if self.erasing is not None:
            for drawn in erased:
                batch.update(self.erasing.collate(drawn))
        return batch

    # ---- model ---------------------------------------------------------------------------------------------------

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model, and in training its teacher."""
        config = self.config
        if self.class_names is None and num_classes == NUM_IMAGENET_1K_CLASSES:  # trained weights
            self.class_names = list(names_by_synset().values())
            self.notices.append("note: the weights do not name their 1,000 classes; ImageNet's names are used")
        model = self._create_model(num_classes or self._require_num_classes())
        if not config.EVAL:
            self.notices += filter(None, [expected_input.format_stronger_pretrained_hint(config, accelerator_bytes())])
            if self._train_transform is not None:
                self._train_transform.prepare()
            self.teacher = build_teacher(config.TRAIN, self._require_num_classes(), config.DATA)
            if self.teacher is not None:
                as_model(model).learn_from_teacher()
        return model

    def _create_model(self, num_classes: int) -> paddle.nn.Layer:
        data = self.config.DATA
        return create_model(
            self.config.MODEL.NAME,
            num_classes=num_classes,
            image_size=data.IMAGE_SIZE,
            in_channels=data.IMAGE_CHANNELS,
            **self.model_options,
        )

    def check_model(self) -> list[str]:
        """Build the model without memory for its weights, to check its options."""
        with paddle.LazyGuard():  # shapes only
            self._create_model(self.num_classes or _ANY_NUMBER_OF_CLASSES)
        train = self.config.TRAIN
        if self.config.EVAL or train.DISTILLATION_TYPE == "none" or train.TEACHER_MODEL is not None:
            return []
        return [f"note: training needs TRAIN.TEACHER_MODEL (TRAIN.DISTILLATION_TYPE {train.DISTILLATION_TYPE})"]

    def normalize(self, images: paddle.Tensor) -> paddle.Tensor:
        """Normalize uint8 pixels (batch, channels, height, width) to float32 of the same shape."""
        return self.normalizer(images)

    # ---- training ------------------------------------------------------------------------------------------------

    def train_step(
        self, model: paddle.nn.Layer, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> dict[str, LossTerm]:
        """Compute the losses and the training accuracy of a batch."""
        labels = batch["labels"]
        images, mix = self.training_images(batch, step)
        outputs = model(images)
        # A distilled model has two heads, for the labels and for the teacher; each (batch, classes).
        heads = outputs if isinstance(outputs, tuple) else (outputs, outputs)
        logits, teacher_logits = (head.astype("float32") for head in heads)
        count = labels.shape[0]
        with paddle.no_grad():
            # A mixed image counts as correct if its label with the larger share is predicted, so the training accuracy
            # is lower than with whole images.
            main_labels = labels if mix is None else mix.dominant(labels)
            correct = (logits.argmax(axis=-1) == main_labels).astype("float32").sum()
        shown_accuracy = LossTerm(100.0 * correct, count, weight=0.0)
        loss = self._cross_entropy(logits, labels, mix)
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

    def training_images(
        self, batch: dict[str, paddle.Tensor], step: StepPosition
    ) -> tuple[paddle.Tensor, MixParameters | None]:
        """Normalize, erase and mix a batch; also return the mix."""
        images = self.normalizer(batch["images"])
        if self.erasing is not None:
            images = self.erasing.fill(images, batch)
        mix = self._draw_mix(images.shape, step)
        return (images if mix is None else mix.images(images)), mix

    def _draw_mix(self, shape: Sequence[int], step: StepPosition) -> MixParameters | None:
        """Draw the mix of this process's micro-batch; None: not mixed."""
        if self.mixing is None:
            return None
        generator = np.random.default_rng([self.config.SEED, step.update, rank(), step.micro])
        return self.mixing.draw(generator, tuple(shape))

    def _cross_entropy(self, logits: paddle.Tensor, labels: paddle.Tensor, mix: MixParameters | None) -> paddle.Tensor:
        """Compute the cross-entropy, summed over the batch.

        Label smoothing (Szegedy et al., 2016, arXiv 1512.00567, section 7) mixes the true label's loss with the mean
        over all classes.
        """
        smoothing = self.config.TRAIN.SMOOTHING
        if self.class_weights is not None:
            unsmoothed_targets = smooth_targets(labels, logits.shape[-1], 0.0)
            targets = smooth_targets(labels, logits.shape[-1], smoothing)
            if mix is not None:
                unsmoothed_targets, targets = mix.targets(unsmoothed_targets), mix.targets(targets)
            return weighted_cross_entropy(logits, unsmoothed_targets, targets, to_device(self.class_weights))
        if mix is not None:
            return soft_cross_entropy(logits, mix.targets(smooth_targets(labels, logits.shape[-1], smoothing)))
        true_label = F.cross_entropy(logits, labels, reduction="sum")
        if not smoothing:
            return true_label
        uniform = -F.log_softmax(logits, axis=-1).mean(axis=-1).sum()
        return (1.0 - smoothing) * true_label + smoothing * uniform

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        """Return the layers whose activations are recomputed.

        Raises:
            UserError: the model has none, or has batch norms.
        """
        blocks = as_model(model).recomputed_layers()
        if not blocks and has_batch_norm(model):
            raise UserError(
                f"TRAIN.RECOMPUTE: {self.config.MODEL.NAME} has batch norms, whose running statistics "
                "recomputation would update twice per batch; remove TRAIN.RECOMPUTE"
            )
        if not blocks:
            raise UserError(
                f"TRAIN.RECOMPUTE: {self.config.MODEL.NAME} has no LayerList named 'blocks'; add one, or remove "
                "TRAIN.RECOMPUTE"
            )
        return blocks

    def expected_losses(self) -> dict[str, float]:
        """Return the loss of uniform predictions, to compare the first loss with."""
        return {} if self.class_weights is not None else {"loss": math.log(self._require_num_classes())}

    # ---- evaluation ----------------------------------------------------------------------------------------------

    def logits(self, model: paddle.nn.Layer, batch: dict[str, Any]) -> paddle.Tensor:
        """Compute logits (batch, classes)."""
        return model(self.normalizer(batch["images"]))

    def build_metrics(self) -> ClassificationMetrics:
        """Return the metrics of an evaluation."""
        return ClassificationMetrics(self._require_num_classes(), self.evaluated_classes)

    def figures(
        self, samples: TransformedDataset, records: Sequence[tuple[int, bytes]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Build the figures of an evaluation."""
        evaluated = EvaluatedPredictions(*join_records(records), self._require_num_classes(), samples.class_names)
        return report_figures(evaluated, samples, lambda images: attention_rollout(model, self.normalizer(images)))

    # ---- prediction and export -----------------------------------------------------------------------------------

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> InputSamples:
        """Open images at paths, or in memory, with the transform of an evaluation.

        Raises:
            UserError: paths and images in memory are mixed.
        """
        data, dataset = self.config.DATA, find_dataset_class(self.config)
        transform = ClassificationInput(evaluation_transform(data, dataset.kind), data.MAX_PIXELS)
        reading = ReadConfig(bool(data.EXIF_ROTATE), data.MAX_PIXELS)
        samples = open_image_inputs(inputs, cache_folder, transform, dataset.image_mode, reading)
        if dataset is ImageDataset:
            note = f"note: dataset {data.DATASET} is not registered here; its images are treated as photographs"
            samples.notices = [note, *samples.notices]
        return samples

    def prediction_writer(self, folder: Path, samples: TransformedDataset) -> "ImageClassWriter":
        """Return the writer that draws the predicted classes."""
        return ImageClassWriter(folder, samples, self.class_names)

    def export_parts(self) -> ExportParts:
        """Return what an export contains in addition to the model."""
        return export_parts(self.config.DATA, find_dataset_class(self.config).kind, self.num_classes)

    # ---- images ------------------------------------------------------------------------------------------------

    def visualize_batch(
        self, samples: ClassificationSamples, batch: dict[str, np.ndarray], epoch: int
    ) -> list[tuple[np.ndarray, str]]:
        """Return a collated training batch as the model sees it: uint8 (height, width[, 3]) images with captions."""
        tensors = {name: paddle.to_tensor(array) for name, array in batch.items()}
        # Any update number will do: it only seeds mixing.
        images, mix = self.training_images(tensors, StepPosition(epoch, epoch, epoch + 1))
        targets = F.one_hot(tensors["labels"], self.num_classes)
        shares = (targets if mix is None else mix.targets(targets)).numpy()  # (batch, classes)
        return list(zip(self.normalizer.pixels(images), (self._caption(row, samples.class_names) for row in shares)))

    def visualize_eval_samples(
        self, samples: ClassificationSamples, indices: Sequence[int]
    ) -> list[tuple[np.ndarray, str]]:
        """Return the images as an evaluation sees them, with captions."""
        transform = evaluation_transform(self.config.DATA, samples.dataset.kind)
        readings = [samples.dataset.read(index) for index in indices]
        images = np.stack([transform(image, np.random.default_rng(0)) for image, _ in readings])
        shares = np.eye(self.num_classes)[[label for _, label in readings]]
        pixels = self.normalizer.pixels(self.normalizer(paddle.to_tensor(images)))
        return list(zip(pixels, (self._caption(row, samples.class_names) for row in shares)))

    def _caption(self, shares: np.ndarray, class_names: Sequence[str] | None) -> str:
        """Format the names of the labels, with their shares if there are several."""
        best = [label for label in np.argsort(-shares)[:2].tolist() if shares[label] > 0.005]
        names = [printable_or(class_names[label], f"class {label}") if class_names else str(label) for label in best]
        return names[0] if len(best) == 1 else " ".join(f"{n} {shares[i]:.0%}" for n, i in zip(names, best))
