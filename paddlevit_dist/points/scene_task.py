"""Shared by the point cloud tasks: opening the data, class names, input metadata in checkpoints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from ..runtime.errors import UserError
from ..tasks.dataset import TransformedDataset, dataset_class, resolve_class_names
from ..tasks.figures import Figure
from ..tasks.prediction import CheckpointMeta
from ..tasks.sample_checks import require_finite, require_labels
from ..tasks.task import Task
from .data.features import COLORS, build_channels, require_channels
from .data.images import get_palette
from .data.samples import PointSample, SceneSamples, join
from .data.scene import AS_GIVEN, CENTERED, IGNORED, Scene
from .data.scenes import SceneDataset
from .inputs import InputScenes, SceneInputs, find_scenes
from .scene_figures import Layers, choose_scenes, point_set, semantic_tables, short_name
from .settings import PointSettings
from .sparse import Plan, PlanSpec, SparseTensor, build_plan

_UNIT_ADVICE = "if its coordinates are in millimeters, set DATA.UNIT_M 0.001; else take larger voxels"


class SceneTask(Task):
    """Base class of the point cloud tasks."""

    config: PointSettings
    batch_norm = "sync"
    sample_name = "scenes"
    draws_samples = True
    makes_figures = True
    empty_cache_freq = 10
    #: default of POINTS.VOXEL_FEATURES: "first" or "mean"
    usual_voxel_features = "first"

    def __init__(self, config: PointSettings) -> None:
        super().__init__(config)
        self.num_classes: int | None = config.MODEL.NUM_CLASSES
        self.class_names: list[str] = []
        #: of the network; known once a worker has built it
        self.plan_spec: PlanSpec | None = None
        #: where the scenes are, which matters to networks that take positions: CENTERED or AS_GIVEN
        self.coordinates: str | None = None
        self.features: tuple[str, ...] = tuple(config.POINTS.FEATURES)
        self.voxel_features: str = config.POINTS.VOXEL_FEATURES or self.usual_voxel_features
        self._tells_unit = True

    def open_scenes(self, split: str, cache_folder: Path) -> SceneDataset:
        """The dataset of ``split``; its classes and coordinates convention are stored.

        A prepared store reports the same convention for all its splits, so that evaluation, which opens only one,
        agrees with training; splits that differ count as AS_GIVEN.

        Raises:
            UserError: it cannot be opened, or has more classes than MODEL.NUM_CLASSES.
        """
        dataset = dataset_class(self.config, SceneDataset).open(self.config, split, cache_folder)
        self.coordinates = dataset.coordinates if self.coordinates in (None, dataset.coordinates) else AS_GIVEN
        self.class_names = resolve_class_names(self.config, dataset.class_names, number=dataset.num_classes)
        self.num_classes = len(self.class_names)
        return dataset

    def build_dataset(self, split: str, cache_folder: Path) -> SceneSamples:
        dataset = self.open_scenes(split, cache_folder)
        if dataset.channels is not None:
            require_channels(self.features, dataset.channels, f"the scenes of dataset {self.config.DATA.DATASET}")
        return self.build_samples(dataset, self.trains_on(split))

    def list_notices(self, dataset: SceneDataset) -> list[str]:
        """The dataset's own, and a warning if its unit seems wrong, once for all splits."""
        notice = dataset.unit_notice(self.config.DATA.VOXEL_SIZE_M / self.config.DATA.UNIT_M)
        if notice is None or not self._tells_unit:
            return list(dataset.notices)
        self._tells_unit = False
        return [*dataset.notices, f"note: {notice}: {_UNIT_ADVICE}"]

    def classes_in(self, sample: PointSample) -> np.ndarray | None:
        return sample.scene.semantic[sample.scene.semantic != IGNORED]

    def check_sample(self, sample: PointSample) -> None:
        require_labels(sample.scene.semantic, self.num_classes, IGNORED, "class")
        for view in sample.views:
            require_finite(view.features, "features")

    def collate(self, samples: Sequence[PointSample]) -> dict[str, Any]:
        """``join`` the samples, with the network's plan in place of the coordinates."""
        batch = join(samples)
        if self.plan_spec is not None:  # else a batch for display, without a network
            num_views = len(samples) * len(samples[0].views)
            batch.update(build_plan(batch.pop("coordinates"), self.plan_spec, num_views))
        return batch

    # ---- report ------------------------------------------------------------------------------------------------

    def predict_again(
        self, samples: TransformedDataset, index: int, model: paddle.nn.Layer
    ) -> tuple[Scene, Any] | None:
        """A scene as it is stored and what ``predict_step`` gives for it; None where samples are a program's own."""
        if not isinstance(samples, SceneSamples):
            return None
        batch = self.collate([samples.sample(index, np.random.default_rng(0))])
        tensors = {
            name: paddle.to_tensor(value) if isinstance(value, np.ndarray) else value for name, value in batch.items()
        }
        return samples.dataset.read(index), self.predict_step(model, tensors)[0]

    def scene_figures(
        self, samples: TransformedDataset, confusions: Sequence[tuple[int, np.ndarray]], model: paddle.nn.Layer
    ) -> list[Figure]:
        """Tables of classes and scenes, and a few scenes to turn.

        Args:
            confusions: number of a scene, and ``count_confusion`` its points; at least one.
        """
        made: list[Figure] = []
        for place in choose_scenes([confusion for _, confusion in confusions]):
            again = self.predict_again(samples, confusions[place][0], model)
            if again is not None:
                made.append(point_set(again[0].name, again[0], *self.build_layers(*again)))
        names = [short_name(samples.describe(index)) for index, _ in confusions]
        return [*semantic_tables([confusion for _, confusion in confusions], names, self.class_names), *made]

    def build_layers(self, scene: Scene, prediction: Any) -> Layers:
        """Return what a scene is colored by, truth beside ``prediction``, and the legends."""
        raise NotImplementedError

    # ---- prediction --------------------------------------------------------------------------------------------

    def build_samples(self, dataset: SceneDataset, is_training: bool) -> SceneSamples:
        """A dataset with what this task does to its scenes."""
        raise NotImplementedError

    def sees_colors(self) -> bool:
        """Whether the network is shown the points' colors."""
        return COLORS in self.features

    def load_meta(self, learned: CheckpointMeta) -> None:
        names = learned.class_names or dataset_class(self.config, SceneDataset).fixed_classes
        self.num_classes = learned.num_classes or (len(names) if names else None)
        if self.num_classes is None:
            raise UserError("the weights do not say which classes they know: name them with --class_names=FILE")
        self.class_names = [*(names or ())][: self.num_classes]
        self.class_names += map(str, range(len(self.class_names), self.num_classes))
        self.coordinates = learned.input.get("coordinates", CENTERED)

    def open_inputs(self, inputs: Sequence[Any], cache_folder: Path) -> SceneInputs:
        scenes, unreadable = find_scenes(list(map(str, inputs)))
        dataset = InputScenes(
            scenes, self.coordinates, self.sees_colors(), self.class_names, build_channels(self.features)
        )
        notices = [*self.list_notices(dataset), *(f"note: {remark}" for remark in dataset.remarks())]
        return SceneInputs(self.build_samples(dataset, is_training=False), unreadable, notices)

    def image_legend(self) -> list[tuple[str, tuple[int, int, int]]]:
        return [(name, tuple(color)) for name, color in zip(self.class_names, get_palette(self.class_names).tolist())]

    def describe_samples(self, samples: TransformedDataset) -> str:
        return f"{super().describe_samples(samples)} of {len(self.class_names)} classes: {', '.join(self.class_names)}"

    def dataset_signature(self, samples: TransformedDataset) -> dict[str, Any]:
        return {**super().dataset_signature(samples), "classes": list(self.class_names)}

    def preprocess_signature(self) -> dict[str, Any]:
        return {
            "DATA.VOXEL_SIZE_M": self.config.DATA.VOXEL_SIZE_M,
            "POINTS.COLOR_RANGE": list(self.config.POINTS.COLOR_RANGE),
            "POINTS.VOXEL_FEATURES": self.voxel_features,
            "POINTS.FEATURES": list(self.features),
            "coordinates": self.coordinates,
        }


def compute_outputs(model: paddle.nn.Layer, batch: dict[str, Any], name: str, rows: int, each: str) -> paddle.Tensor:
    """Compute what a network gives for the voxels of a batch, float32 (rows, classes).

    Args:
        name: MODEL.NAME.
        each: what a row is for, such as "voxel".

    Raises:
        UserError: it gives something else.
    """
    outputs = model(SparseTensor(batch["features"], plan=Plan.of_batch(batch)))
    if not isinstance(outputs, paddle.Tensor) or outputs.shape[0] != rows:
        found = list(outputs.shape) if isinstance(outputs, paddle.Tensor) else type(outputs).__name__
        raise UserError(f"MODEL.NAME {name} gives {found} for {rows} {each}s: this task needs a row for each {each}")
    return outputs.astype("float32")


def get_slices(batch: dict[str, Any]) -> list[slice]:
    """The point range of each scene in a batch."""
    ends = batch["offsets"].tolist()
    return [slice(first, end) for first, end in zip(ends[:-1], ends[1:])]
