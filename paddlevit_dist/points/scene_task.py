"""Base class of the point cloud tasks: opening the data, class names, input metadata in checkpoints."""

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import paddle
from msgspec import Meta

from ..core.runtime.errors import UserError
from ..core.tasks.class_names import name_outputs, require_classes_of_own, resolve_class_names
from ..core.tasks.dataset import TransformedDataset, dataset_class, is_training_split
from ..core.tasks.network_checks import require_output
from ..core.tasks.prediction import CheckpointMeta
from ..core.tasks.sample_checks import require_finite, require_labels
from ..core.tasks.step_types import TaskTraits
from ..core.tasks.task import Task
from .data.features import COLORS, POSITION, require_channels
from .data.first_scenes import describe_scenes
from .data.samples import SceneSamples, VoxelizedSample, collate_samples
from .data.scene import AS_GIVEN, CENTERED, IGNORED
from .data.scenes import SceneDataset
from .settings import PointSettings
from .sparse import PlanSpec, SparseTensor, build_plan

_UNIT_ADVICE = "if its coordinates are in millimeters, set DATA.UNIT_M 0.001; else use larger voxels"


class _InputFacts(msgspec.Struct):
    coordinates: Annotated[str, Meta(pattern=f"^({CENTERED}|{AS_GIVEN})\\Z")] = CENTERED


class SceneTask(Task):
    """Base class of the point cloud tasks."""

    aspects = {"LogContributor": ".scene_checks:SceneLog", "Checkable": ".scene_checks:SceneChecks"}
    config: PointSettings
    traits = TaskTraits(sample_name="scenes", batch_norm="sync", uses_cross_entropies=True, empty_cache_freq=10)
    #: default of POINTS.VOXEL_FEATURES: "first" or "mean"
    _default_voxel_features = "first"

    def __init__(self, config: PointSettings) -> None:
        super().__init__(config)
        self.num_classes: int | None = config.MODEL.NUM_CLASSES
        self.class_names: list[str] = []
        #: tables that the network needs; known once a worker has built it
        self.plan_spec: PlanSpec | None = None
        #: convention of the scenes' coordinates, which matters to networks that use positions: CENTERED or AS_GIVEN
        self.coordinates: str | None = None
        self.features: tuple[str, ...] = tuple(config.POINTS.FEATURES)
        self.voxel_features: str = config.POINTS.VOXEL_FEATURES or self._default_voxel_features
        self._should_check_unit = self._should_note_positions = True
        self._first_notes: list[str] = []  # on the first training scenes, until they are listed

    def _open_scenes(self, split: str, cache_folder: Path) -> SceneDataset:
        """Open the dataset of ``split`` and store its classes and coordinate convention.

        A prepared store reports the same convention for all its splits, so that evaluation, which opens only one,
        agrees with training. If splits differ, the convention is AS_GIVEN. UserError if the dataset cannot be opened,
        or has more classes than MODEL.NUM_CLASSES.
        """
        dataset = dataset_class(self.config, SceneDataset).open(self.config, split, cache_folder)
        self.coordinates = dataset.coordinates if self.coordinates in (None, dataset.coordinates) else AS_GIVEN
        require_classes_of_own(dataset, self.config)
        names, number, before = dataset.class_names, dataset.num_classes, self.class_names
        self.class_names = resolve_class_names(self.config, names, number=number, before=before)
        self.num_classes = len(self.class_names)
        return dataset

    def build_dataset(self, split: str, cache_folder: Path) -> SceneSamples:
        """Return the samples of ``split``, with augmentation if the task trains on it."""
        dataset = self._open_scenes(split, cache_folder)
        if dataset.channels is not None:
            owner = f"the scenes of dataset {self.config.DATA.DATASET}"
            require_channels(self.features, dataset.channels, owner, dataset.lacking)
        is_training = is_training_split(self.config, split)
        if is_training:
            self._first_notes = describe_scenes(dataset.first_scenes(), COLORS in self.features)
        return self.build_samples(dataset, is_training)

    def list_notices(self, dataset: SceneDataset) -> list[str]:
        """Return the dataset's notices and, once for all splits, warnings about first scenes, unit and positions."""
        notices = [*dataset.notices, *self._first_notes]
        notices += self._note_positions() if self._should_note_positions else []
        self._should_note_positions, self._first_notes = False, []
        notice = dataset.unit_notice(self.config.DATA.VOXEL_SIZE_M / self.config.DATA.UNIT_M)
        if notice is None or not self._should_check_unit:
            return notices
        self._should_check_unit = False
        return [*notices, f"note: {notice}: {_UNIT_ADVICE}"]

    def _note_positions(self) -> list[str]:
        """Return a note for each key by which training crops scenes whose positions an evaluation measures as a whole.

        In an evaluation in blocks, positions are measured as in training.
        """
        points = self.config.POINTS
        if POSITION not in self.features or points.get("FRAGMENT_SIZE_M") is not None:
            return []
        crops = [f"POINTS.{name} {points.get(name)}" for name in ("CROP", "MAX_POINTS") if points.get(name) is not None]
        return [
            f"note: {crop}: training measures {POSITION} from the middle of what it crops, evaluations and predictions "
            "from that of whole scenes"
            for crop in crops
        ]

    def check_sample(self, sample: VoxelizedSample) -> None:
        """Check the range of labels, and that features are finite."""
        require_labels(sample.scene.semantic, self.num_classes, IGNORED, "class")
        for view in sample.views:
            require_finite(view.features, "features")

    def collate(self, samples: Sequence[Any]) -> dict[str, Any]:
        """Collate the samples, with the network's plan instead of the coordinates."""
        batch = collate_samples(samples)
        if self.plan_spec is not None:  # None: a batch for display, without a network
            num_views = len(samples) * len(samples[0].views)
            batch.update(build_plan(batch.pop("coordinates"), self.plan_spec, num_views))
        return batch

    @abstractmethod
    def build_samples(self, dataset: SceneDataset, is_training: bool) -> SceneSamples:
        """Return the dataset with this task's processing of scenes."""

    def load_meta(self, meta: CheckpointMeta) -> None:
        """Take classes and coordinate convention from a checkpoint's metadata."""
        names = meta.class_names or dataset_class(self.config, SceneDataset).fixed_classes
        self.num_classes = meta.num_classes or (len(names) if names else None)
        if self.num_classes is None:
            raise UserError("the weights contain no class names: give them with --class_names=FILE")
        self.class_names = name_outputs(names, self.num_classes)
        self.coordinates = meta.read_input(_InputFacts).coordinates

    def signature(self, samples: TransformedDataset | None = None) -> dict[str, Any]:
        """Return the preprocessing settings that the weights depend on, or the number and classes of samples."""
        if samples is not None:
            return {**super().signature(samples), "classes": list(self.class_names)}
        return {
            "DATA.VOXEL_SIZE_M": self.config.DATA.VOXEL_SIZE_M,
            "POINTS.COLOR_RANGE": list(self.config.POINTS.COLOR_RANGE),
            "POINTS.VOXEL_FEATURES": self.voxel_features,
            "POINTS.FEATURES": list(self.features),
            "coordinates": self.coordinates,
        }


def compute_outputs(
    model: paddle.nn.Layer, inputs: SparseTensor, shape: tuple[int, int | None], row_name: str
) -> paddle.Tensor:
    """Compute outputs, float32 of ``shape`` (rows, classes), on the device.

    ``row_name`` is what a row belongs to, such as "voxel". UserError if the network returns something else.
    """
    return require_output(model(inputs), shape, model, f"logits ({row_name}s, classes)").astype("float32")


def get_slices(batch: dict[str, Any]) -> list[slice]:
    """Return the point range of each scene in a batch."""
    ends = batch["offsets"].tolist()
    return [slice(first, end) for first, end in zip(ends[:-1], ends[1:])]
