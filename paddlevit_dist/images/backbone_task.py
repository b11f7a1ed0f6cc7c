"""Common parts of tasks whose network stands on the backbone of a classifier: detection and segmentation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..checkpoint.load import load_weights
from ..models import create_model, model_options
from ..registry import resolve
from ..runtime.errors import UserError
from ..runtime.transfers import to_device
from ..tasks.dataset import names_of_classes
from ..tasks.figures import Color
from ..tasks.model import as_model
from ..tasks.prediction import CheckpointMeta, InputSamples
from ..tasks.task import Task
from .data.inspection import SplitInspection
from .data.quarantine import ReplacementReader, merge_quarantine
from .data.reading import ReadConfig
from .models.options import configured_options
from .settings import ObjectSettings
from .transforms.on_device import PixelNormalizer

_LAST = "checkpoints/last"  # in the folder of a run that can be resumed
_MOST_NAMED = 90  # classes in a legend
TURNED = "turned by EXIF"  # what is said of the images of a split
_BACKBONE = "backbone."  # what the names of a backbone's parameters begin with


class BackboneTask(Task):
    """Base class of tasks that say what is where in an image.

    A model of theirs has ``pretrained_part``, the ``Model`` whose weights a classifier brings: its ``backbone``.
    """

    config: ObjectSettings
    notices: list[str]
    sample_name = "images"
    draws_samples = True
    #: what classes are called in messages
    classes_word = "classes"

    def __init__(self, config: ObjectSettings) -> None:
        super().__init__(config)
        self.num_classes: Any = config.MODEL.NUM_CLASSES  # None until data or weights say
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
        """The class of the configured model."""
        return resolve("model", self.config.MODEL.NAME)

    # ---- data --------------------------------------------------------------------------------------------------

    def take_classes(self, names: Sequence[str]) -> None:
        """Take the classes of the first split; those of every other one must be the same.

        Raises:
            UserError: they are not, or the model is to have fewer.
        """
        word = self.classes_word
        if self.class_names and list(names) != self.class_names[: len(names)]:
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: training and validation data name different {word}: "
                f"{', '.join(self.class_names)} and {', '.join(names)}; give both the same list of {word}"
            )
        self.class_names = names_of_classes(self.config, names, word)
        self.num_classes = len(self.class_names)

    def load_meta(self, learned: CheckpointMeta) -> None:
        self._learned = learned
        if learned.num_classes is not None:
            self.name_classes(learned.num_classes, learned)

    def name_classes(self, number: int, learned: CheckpointMeta) -> None:
        """Take so many classes, by the names that weights have for them; those without one are called by their
        number."""
        names = [*(learned.class_names or ())]
        self.num_classes = number
        self.class_names = [*names[:number], *map(str, range(len(names), number))]

    @property
    def turns(self) -> bool:
        """Whether new images are turned as their EXIF orientation says: as those were that the weights learned
        from."""
        configured = self.config.DATA.EXIF_ROTATE
        if configured is None and self._learned is not None:
            return bool(self._learned.data.get(TURNED))
        return bool(configured)

    def new_images(self, inputs: Sequence[Any], cache_folder: Path, transform: Any) -> InputSamples:
        """Open what ``open_inputs`` returns, with a transform as ``Images`` takes it."""
        from .data.inputs import image_inputs

        reading = ReadConfig(self.turns, self.config.DATA.MAX_PIXELS)
        return image_inputs(inputs, cache_folder, transform, "RGB", reading)

    def predict_again(self, samples: Any, index: int, model: paddle.nn.Layer) -> Any:
        """Compute what ``predict_step`` gives for a sample, which is read once more."""
        batch = self.collate([samples.sample(index, np.random.default_rng(0))])
        tensors = {name: to_device(one) if isinstance(one, np.ndarray) else one for name, one in batch.items()}
        return self.predict_step(model, tensors)[0]

    def replace_unreadable(self, samples: Any) -> None:
        """Let the next readable image take an unreadable one's place in training, where that is configured."""
        if self.config.DATA.ON_INVALID_SAMPLE == "skip":
            samples.replacements = self.replacements = ReplacementReader(Path(self.config.SAVE).absolute())

    def finish_epoch(self) -> list[str]:
        """Merge the unreadable images found by all ranks into one list; every rank must call this."""
        return merge_quarantine(self.replacements, Path(self.config.SAVE))

    def build_legend(self, colors: Sequence[Color]) -> list[tuple[str, Color]]:
        """The names of the first classes with their colors, and how many others there are."""
        shown = self.class_names[:_MOST_NAMED]
        left = len(self.class_names) - len(shown)
        return [*zip(shown, colors), *([(f"and {left} more", (255, 255, 255))] if left else [])]

    # ---- model -------------------------------------------------------------------------------------------------

    def check_model(self) -> list[str]:
        with paddle.LazyGuard():  # shapes only
            self._create(self.num_classes or 1)
        return []

    def _create(self, num_classes: int) -> paddle.nn.Layer:
        """The configured model with initial weights."""
        return create_model(self.config.MODEL.NAME, num_classes, **self.model_options)

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        if self._learned is not None and self._learned.num_classes is None and num_classes is not None:
            self.name_classes(num_classes, self._learned)  # as many as the weights have
        model = self._create(num_classes or self.num_classes)
        source = self.config.MODEL.BACKBONE_PRETRAINED
        if source is not None and self._begins():
            report = load_weights(model.pretrained_part, source)
            self.notices.append(f"backbone from {source}: {report.summary()}")
        return model

    def _begins(self) -> bool:
        """Whether a training begins here, without weights of a whole network."""
        model = self.config.MODEL
        if self.config.EVAL or model.PRETRAINED is not None:
            return False
        return model.RESUME is None or (model.RESUME == "auto" and not Path(self.config.SAVE, _LAST).exists())

    def decays(self, name: str, parameter: paddle.Tensor, exempt: set[str]) -> bool:
        """Whether TRAIN.WEIGHT_DECAY holds for a parameter: not for biases, norms and what the model exempts."""
        return len(parameter.shape) > 1 and name not in exempt

    def parameter_groups(self, model: paddle.nn.Layer) -> list[dict[str, Any]] | None:
        """The backbone's parameters, which learn at a rate of their own, and all others; frozen ones are in neither."""
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
        layers = as_model(model).recomputed_layers()
        if not layers:
            raise UserError(f"TRAIN.RECOMPUTE: {self.config.MODEL.NAME} has no layers for it; leave it out")
        return layers


def is_turned(dataset: Any) -> bool:
    """Whether its images are turned as their EXIF orientation says."""
    return dataset.reading is not None and dataset.reading.exif_rotate
