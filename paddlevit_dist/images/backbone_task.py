"""Base class of tasks whose network uses the backbone of a classifier: detection and segmentation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..checkpoint.load import load_weights, require_trained
from ..registry.lookup import resolve
from ..runtime.errors import UserError
from ..runtime.transfers import to_device
from ..tasks.dataset import resolve_class_names
from ..tasks.figures import Color
from ..tasks.model import as_model
from ..tasks.model_factory import create_model, model_options
from ..tasks.prediction import CheckpointMeta, InputSamples
from ..tasks.protocols import LogContributor, ModelChecking, ParameterGrouping, Predictable, Recomputable
from ..tasks.step_types import TaskTraits
from ..tasks.task import Task
from .configured_options import configured_options
from .data.inspection import SplitInspection
from .data.quarantine import ReplacementReader, merge_quarantine
from .data.reading import ReadConfig
from .settings import ObjectSettings
from .transforms.on_device import PixelNormalizer

_LAST = "checkpoints/last"  # in the folder of a run that can be resumed
_MOST_NAMED = 90  # classes in a legend
TURNED = "turned by EXIF"  # key of a split's signature
_BACKBONE = "backbone."  # prefix of the backbone's parameter names


class BackboneTask(Task, Predictable, ParameterGrouping, Recomputable, ModelChecking, LogContributor):
    """Base class of tasks that locate objects or classes in an image.

    Their models have ``pretrained_part``, the ``Model`` with the ``backbone``, which loads a classifier's weights.
    """

    config: ObjectSettings
    notices: list[str]
    traits = TaskTraits(sample_name="images")
    #: the word for classes in messages
    classes_word = "classes"

    def __init__(self, config: ObjectSettings) -> None:
        super().__init__(config)
        self.num_classes: Any = config.MODEL.NUM_CLASSES  # None until data or weights define it
        self.class_names: list[str] = []
        self.normalizer = PixelNormalizer(config.DATA.IMAGENET_MEAN, config.DATA.IMAGENET_STD)
        self.replacements: ReplacementReader | None = None
        self._inspection: SplitInspection | None = SplitInspection(
            config.EVAL, config.DATA.ON_INVALID_SAMPLE == "skip", config.DATA.ALLOW_SKIPPED_FILES
        )
        self._learned: CheckpointMeta | None = None
        self.model_options, notices = configured_options(config.MODEL)
        if config.MODEL.BACKBONE is not None:
            if "backbone" not in model_options(config.MODEL.NAME).defaults:
                raise UserError(
                    f"MODEL.BACKBONE {config.MODEL.BACKBONE}: {config.MODEL.NAME} has no such option; remove it"
                )
            self.model_options["backbone"] = config.MODEL.BACKBONE
        self.notices += notices

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inspection": None}

    @property
    def _family(self) -> Any:
        """Class of the configured model."""
        return resolve("model", self.config.MODEL.NAME)

    # ---- data --------------------------------------------------------------------------------------------------

    def take_classes(self, names: Sequence[str]) -> None:
        """Set the class names from a split; all splits must have the same classes.

        Args:
            names: class names of the split, in the order of their numbers.

        Raises:
            UserError: the splits have different classes, or the model has fewer.
        """
        word = self.classes_word
        if self.class_names and list(names) != self.class_names[: len(names)]:
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: training and validation data name different {word}: "
                f"{', '.join(self.class_names)} and {', '.join(names)}; give both the same list of {word}"
            )
        self.class_names = resolve_class_names(self.config, names, word)
        self.num_classes = len(self.class_names)

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Take the number and the names of classes from a checkpoint's metadata."""
        self._learned = meta
        if meta.num_classes is not None:
            self.name_classes(meta.num_classes, meta)

    def name_classes(self, number: int, meta: CheckpointMeta) -> None:
        """Set ``number`` classes with the names in a checkpoint; a class without a name is called by its number."""
        names = [*(meta.class_names or ())]
        self.num_classes = number
        self.class_names = [*names[:number], *map(str, range(len(names), number))]

    @property
    def turns(self) -> bool:
        """Whether images to predict are turned by their EXIF orientation; by default, as in training."""
        configured = self.config.DATA.EXIF_ROTATE
        if configured is None and self._learned is not None:
            return bool(self._learned.data.get(TURNED))
        return bool(configured)

    def new_images(self, inputs: Sequence[Any], cache_folder: Path, transform: Any) -> InputSamples:
        """Open the result of ``open_inputs`` as samples with the given transform."""
        from .data.inputs import open_image_inputs

        reading = ReadConfig(self.turns, self.config.DATA.MAX_PIXELS)
        return open_image_inputs(inputs, cache_folder, transform, "RGB", reading)

    def predict_again(self, dataset: Any, index: int, model: paddle.nn.Layer) -> Any:
        """Read a sample again and return its ``predict_step`` result."""
        batch = self.collate([dataset.sample(index, np.random.default_rng(0))])
        tensors = {name: to_device(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()}
        return self.predict_step(model, tensors)[0]

    def replace_unreadable(self, dataset: Any) -> None:
        """Replace unreadable training images by the next readable ones, if DATA.ON_INVALID_SAMPLE is "skip"."""
        if self.config.DATA.ON_INVALID_SAMPLE == "skip":
            dataset.replacements = self.replacements = ReplacementReader(Path(self.config.SAVE).absolute())

    def finish_epoch(self) -> list[str]:
        """Merge the unreadable images of all ranks into one list; every rank must call this."""
        return merge_quarantine(self.replacements, Path(self.config.SAVE))

    def build_legend(self, colors: Sequence[Color]) -> list[tuple[str, Color]]:
        """Return the names and colors of the first classes, and an entry with the number of other classes."""
        shown = self.class_names[:_MOST_NAMED]
        others = len(self.class_names) - len(shown)
        return [*zip(shown, colors), *([(f"and {others} more", (255, 255, 255))] if others else [])]

    # ---- model -------------------------------------------------------------------------------------------------

    def check_model(self) -> list[str]:
        """Build the model without memory for its weights, to check its options."""
        with paddle.LazyGuard():  # shapes only
            self._create(self.num_classes or 1)
        return []

    def _create(self, num_classes: int) -> paddle.nn.Layer:
        """Create the configured model with initial weights."""
        return create_model(self.config.MODEL.NAME, num_classes, **self.model_options)

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model; a new training run loads MODEL.BACKBONE_PRETRAINED into its backbone."""
        if self._learned is not None and self._learned.num_classes is None and num_classes is not None:
            self.name_classes(num_classes, self._learned)  # as many as the weights have
        model = self._create(num_classes or self.num_classes)
        source = self.config.MODEL.BACKBONE_PRETRAINED
        if source is not None and self._starts_training():
            report = load_weights(model.pretrained_part, source)
            if not self.config.ALLOW_CHANGES:
                require_trained(report, model.pretrained_part.own_parts)
            self.notices.append(f"backbone from {source}: {report.summary()}")
        return model

    def _starts_training(self) -> bool:
        """Return whether a training run begins here without weights of the whole network."""
        model = self.config.MODEL
        if self.config.EVAL or model.PRETRAINED is not None:
            return False
        return model.RESUME is None or (model.RESUME == "auto" and not Path(self.config.SAVE, _LAST).exists())

    def decays(self, name: str, parameter: paddle.Tensor, exempt: set[str]) -> bool:
        """Return whether TRAIN.WEIGHT_DECAY applies: not to biases, norms and parameters that the model exempts."""
        return len(parameter.shape) > 1 and name not in exempt

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]]:
        """Group the trainable parameters by learning rate (backbone or rest) and weight decay."""
        decay, factor = self.config.TRAIN.WEIGHT_DECAY, self.config.TRAIN.BACKBONE_LR_FACTOR
        exempt = set(as_model(model).no_weight_decay())
        groups: dict[tuple[bool, bool], list[str]] = {}
        for name, parameter in model.named_parameters():
            if not parameter.stop_gradient:
                kind = name.startswith(_BACKBONE), self.decays(name, parameter, exempt)
                groups.setdefault(kind, []).append(name)
        return [
            {"names": names, "weight_decay": decay if decays else 0.0, "learning_rate": factor if is_slow else 1.0}
            for (is_slow, decays), names in groups.items()
        ]

    def recomputed_layers(self, model: paddle.nn.Layer) -> list[paddle.nn.Layer]:
        """Return the layers whose activations are recomputed.

        Raises:
            UserError: the model has none.
        """
        layers = as_model(model).recomputed_layers()
        if not layers:
            raise UserError(
                f"TRAIN.RECOMPUTE: {self.config.MODEL.NAME} has no layers to recompute; remove TRAIN.RECOMPUTE"
            )
        return layers


def is_turned(dataset: Any) -> bool:
    """Return whether a dataset turns its images by their EXIF orientation."""
    return dataset.reading is not None and dataset.reading.exif_rotate
