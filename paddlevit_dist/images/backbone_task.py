"""Base class of tasks whose network uses the backbone of a classifier: detection and segmentation."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import paddle

from ..core.checkpoint.load import load_weights
from ..core.checkpoint.load_report import require_trained
from ..core.registry.lookup import resolve
from ..core.tasks.class_names import name_outputs, resolve_class_names
from ..core.tasks.model import as_model
from ..core.tasks.model_factory import build_network, model_options, require_unset
from ..core.tasks.prediction import CheckpointMeta
from ..core.tasks.step_types import TaskTraits
from ..core.tasks.task import Task
from .configured_options import configured_options
from .data.inspection import SplitInspection
from .data.quarantine import ReplacementReader
from .settings import ObjectSettings
from .transforms.on_device import PixelNormalizer

if TYPE_CHECKING:
    from .data.image_dataset import ImageDataset
    from .data.image_samples import ImageSamples

_LAST = "checkpoints/last"  # in the folder of a run that can be resumed
_MOST_NAMED = 90  # classes in a legend
TURNED = "turned by EXIF"  # key of a split's signature
_BACKBONE = "backbone."  # prefix of the backbone's parameter names


class _SplitFacts(msgspec.Struct):
    turned: bool = msgspec.field(name=TURNED, default=False)


class BackboneTask(Task):
    """Base class of tasks that locate objects or classes in an image.

    Their models have ``pretrained_part``, the ``Model`` with the ``backbone``, which loads a classifier's weights.
    """

    aspects = {
        "LogContributor": ".backbone_aspects:BackboneLog",
        "ModelChecking": ".backbone_aspects:BackboneModelCheck",
        "ParameterGrouping": ".backbone_aspects:BackboneGrouping",
        "Recomputable": ".backbone_aspects:BackboneRecomputation",
    }
    config: ObjectSettings
    notices: list[str]
    traits = TaskTraits(sample_name="images")
    #: the word for classes in messages
    _classes_word = "classes"

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
        self._opened_turned: bool | None = None  # whether images of the last opened split are turned
        self.model_options, notices = configured_options(self)
        self.notices += notices
        if "random_samples" in model_options(config.MODEL.NAME).defaults:
            self._set_options(random_samples=config.TRAIN.RANDOM_SAMPLING)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inspection": None}

    def _set_options(self, **options: Any) -> None:
        """Set options of the model that follow from other keys or the data; UserError: MODEL.OPTIONS sets one, too."""
        require_unset(self, options)
        self.model_options |= options

    @property
    def _family(self) -> Any:
        """Class of the configured model."""
        return resolve("model", self.config.MODEL.NAME)

    def _take_classes(self, names: Sequence[str]) -> None:
        """Set the class names from a split, in the order of their numbers.

        Raises:
            UserError: the splits have different classes, or the model has fewer.
        """
        word = self._classes_word
        self.class_names = resolve_class_names(self.config, names, word, before=self.class_names)
        self.num_classes = len(self.class_names)

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Take the number and the names of classes from a checkpoint's metadata."""
        self._learned = meta
        if meta.num_classes is not None:
            self._name_classes(meta.num_classes, meta)

    def _name_classes(self, number: int, meta: CheckpointMeta) -> None:
        """Set ``number`` classes with the names in a checkpoint; a class without a name is called by its number."""
        self.num_classes = number
        self.class_names = name_outputs(meta.class_names, number)

    @property
    def turns(self) -> bool:
        """Whether images are turned by their EXIF orientation; by default, as in the opened data, else in training."""
        for known in (self.config.DATA.EXIF_ROTATE, self._opened_turned):
            if known is not None:
                return known
        return self._learned is not None and self._learned.read_data(_SplitFacts).turned

    def _replace_unreadable(self, dataset: "ImageSamples") -> None:
        """Replace unreadable training images by the next readable ones, if DATA.ON_INVALID_SAMPLE is "skip"."""
        if self.config.DATA.ON_INVALID_SAMPLE == "skip":
            dataset.replacements = self.replacements = ReplacementReader(Path(self.config.SAVE).absolute())

    @property
    def network_size(self) -> tuple[int, int] | None:
        """Height and width that the network is built for; None: the variant's own."""
        return None

    def create_network(self, num_classes: int) -> paddle.nn.Layer:
        """Create the configured model with initial weights."""
        return build_network(self.config.MODEL.NAME, num_classes, self.network_size, self.model_options)

    def build_model(self, num_classes: int | None = None) -> paddle.nn.Layer:
        """Build the model; a new training run loads MODEL.BACKBONE_PRETRAINED into its backbone."""
        model = self.create_network(num_classes or self.num_classes)
        source = self.config.MODEL.BACKBONE_PRETRAINED
        if source is not None and self._starts_training():
            part = getattr(model, "pretrained_part", model)
            report = load_weights(part, source, part=self.config.MODEL.PRETRAINED_PART)
            if not self.config.ALLOW_CHANGES:
                require_trained(report, as_model(part).own_parts)
            self.notices.append(f"backbone from {source}: {report.summary()}")
        return model

    def _starts_training(self) -> bool:
        """Return whether a training run begins here without weights of the whole network."""
        model = self.config.MODEL
        if self.config.EVAL or model.PRETRAINED is not None:
            return False
        return model.RESUME is None or (model.RESUME == "auto" and not Path(self.config.SAVE, _LAST).exists())


def is_turned(dataset: "ImageDataset") -> bool:
    """Return whether a dataset turns its images by their EXIF orientation."""
    return dataset.reading is not None and dataset.reading.exif_rotate
