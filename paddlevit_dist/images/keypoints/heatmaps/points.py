"""The categories and points that the heatmaps of a network belong to: of the data, or stored with weights."""

from collections.abc import Sequence
from typing import Any

from ....core.runtime.errors import UserError
from ....core.tasks.class_names import name_outputs, resolve_class_names
from ....core.tasks.dataset import TransformedDataset
from ....core.tasks.prediction import CheckpointMeta
from ...backbone_task import TURNED, BackboneTask, is_turned
from ...data.image_samples import ImageSamples
from ..data.keypoint_dataset import KeypointDataset
from ..described_points import SIGMA
from ..keypoint_set import COCO_PERSON, KeypointFacts, KeypointSet
from .boxes import WholeImages
from .channels import PointChannels
from .settings import HeatmapSettings


class NamedPointsTask(BackboneTask):
    """Base of the task of heatmaps: keeps its categories and their points, one heatmap of the network for each point.

    The first split that is opened sets them, or the weights that are loaded.
    """

    config: HeatmapSettings

    def __init__(self, config: HeatmapSettings) -> None:
        super().__init__(config)
        self.keypoint_sets: tuple[KeypointSet, ...] = ()  # points of each category
        self.category_ids: list[int] = []
        self.point_names: list[str] = []  # of the heatmaps
        self.channels = PointChannels((), ())

    def _take_points(self, dataset: KeypointDataset) -> None:
        """Take categories and points of the first split; UserError: another split has other points."""
        class_names = list(map(str, dataset.class_names or ()))
        channels = PointChannels(class_names, dataset.keypoint_sets)
        before = self.point_names
        if self.class_names and class_names != self.class_names:
            raise UserError(
                f"dataset {self.config.DATA.DATASET}: the categories of training and validation data differ: "
                f"{', '.join(self.class_names)} and {', '.join(class_names)}"
            )
        self.point_names = resolve_class_names(self.config, channels.names, "points", before=before)
        self.num_classes = len(self.point_names)
        self._set_points(class_names, dataset.keypoint_sets, list(map(int, dataset.category_ids)))

    def _set_points(
        self, class_names: list[str], keypoint_sets: Sequence[KeypointSet], category_ids: list[int]
    ) -> None:
        self.class_names, self.keypoint_sets = class_names, tuple(keypoint_sets)
        self.category_ids, self.channels = category_ids, PointChannels(class_names, keypoint_sets)

    def signature(self, dataset: TransformedDataset | None = None) -> dict[str, Any]:
        """Return categories and points of samples."""
        if dataset is None:
            return super().signature()
        facts = {**super().signature(dataset), "number of classes": self.num_classes, "classes": self.point_names}
        if isinstance(dataset, ImageSamples):
            facts["categories"] = self.class_names
            facts["category ids"] = self.category_ids
            facts["points"] = [points.to_plain() for points in self.keypoint_sets]
            facts[TURNED] = is_turned(dataset.dataset)
        return facts

    def _name_classes(self, number: int, meta: CheckpointMeta) -> None:
        """Take categories and points from the weights; 17 points without names are COCO's person."""
        self.num_classes, self.point_names = number, name_outputs(meta.class_names, number)
        facts = meta.read_data(KeypointFacts)
        if facts.points:
            categories = facts.categories or [str(label) for label in range(len(facts.points))]
            self._set_points(categories, facts.sets, facts.category_ids or list(range(1, len(categories) + 1)))
            if len(self.channels.names) != number:
                raise UserError(
                    f"{meta.source}: points of {len(self.channels.names)} heatmaps, and {number} classes; remove the "
                    "file to continue without it"
                )
            return
        points = COCO_PERSON
        if number != len(points.names):
            names = tuple(self.point_names) if meta.class_names else tuple(f"point {k + 1}" for k in range(number))
            points = KeypointSet(names, (), (SIGMA,) * number, ())
        self.point_names = list(points.names)
        self._set_points(["person" if points is COCO_PERSON else "object"], [points], [1])

    @property
    def whole_images(self) -> WholeImages:
        """Takes whole images as one object of each category with points."""
        return WholeImages([label for label, points in enumerate(self.keypoint_sets) if points.names])
