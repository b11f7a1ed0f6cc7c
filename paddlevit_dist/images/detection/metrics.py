"""COCO's scores over the processes of a run: each process collects matches, which are accumulated once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...distributed import all_gather
from ...runtime.errors import UserError
from ...tasks.metrics import PerSampleMetrics, SampleTable
from ..run_lengths import compress_runs
from .detections import DetectedObjects
from .evaluation.accumulation import (
    MAX_DETECTIONS,
    GrowingTable,
    MatchTable,
    resolve_detection_limits,
)
from .evaluation.images import build_image_columns
from .evaluation.matching import CandidateDetections, ImageMasks, match, match_detections
from .evaluation.operating_points import (
    NO_WISHES,
    ClassDetections,
    WishedRates,
    find_thresholds,
    split_by_class,
)
from .evaluation.resampling import DetectionCurves, named_scores

if TYPE_CHECKING:
    from .data.detection_dataset import ImageAnnotations

_MASK_PREFIX = "mask "  # of the names of scores of masks


class DetectionMetrics(PerSampleMetrics):
    """Match tables of images, gathered from all ranks by ``compute``.

    Images evaluated twice, or not at all, raise an error, since the score would be of other data.

    Args:
        images: number of images of the split; None: unknown, and not checked.
        with_masks: also compare masks if both annotations and detections have them.
        least_score: lowest score of the detections counted in each image.
        max_detections: number of detections per image and class that count, COCO's maxDets; None: 100.
        wished: precision and recall for which the score threshold of each class is computed, of boxes.
    """

    lists = ("_image_ids",)

    def __init__(
        self,
        class_names: Sequence[str],
        images: int | None = None,
        with_masks: bool = False,
        least_score: float = 0.0,
        max_detections: int | None = None,
        wished: WishedRates = NO_WISHES,
    ) -> None:
        super().__init__()
        self.wished = wished
        self.least_score = least_score
        self.limits = resolve_detection_limits(max_detections)
        self.class_names = list(class_names)
        self.images = images
        self.state = {"images": 0, "detections": 0, "not finite": 0}
        self._boxes = GrowingTable(len(self.class_names))
        self._masks = GrowingTable(len(self.class_names)) if with_masks else None
        self._image_ids: list[int] = []  # of this rank, in the order of ``update``
        self._curves: dict[str, DetectionCurves] = {}  # of all ranks, by prefix
        self.joined_tables: dict[str, MatchTable] = {}
        self._classes: list[ClassDetections] = []  # of all ranks, if thresholds are wished

    def update(
        self, image_id: int, truth: "ImageAnnotations", detections: DetectedObjects, size: tuple[int, int] | None = None
    ) -> MatchTable:
        """Add an image and return the table of its boxes; detections that are not finite are ignored.

        Masks are compared if ``truth`` has ``masks``; they need ``size``, height and width of the image.
        """
        num_detections = len(detections.scores)
        detections = detections.finite()
        table = match(image_id, truth, detections, len(self.class_names), self.limits)
        self._boxes.add(table)
        if self._masks is not None and size is not None:
            masks = _get_masks(image_id, truth, detections, size)
            candidates = CandidateDetections(masks, detections.scores, detections.labels)
            self._masks.add(match_detections(image_id, truth, candidates, len(self.class_names), self.limits))
        self._image_ids.append(image_id)
        self.state["images"] += 1
        self.state["detections"] += len(detections.scores)
        self.state["not finite"] += num_detections - len(detections.scores)
        return table

    def merge(self, other: "DetectionMetrics") -> None:
        """Add the images of other metrics."""
        super().merge(other)
        self._boxes.add(other._boxes.joined())
        if self._masks is not None and other._masks is not None:
            self._masks.add(other._masks.joined())

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Return COCO's numbers as fractions, the AP of each class that occurs, and counts; every rank must call it.

        Names of numbers of masks begin with "mask". Undefined numbers are omitted, except AP and AP50, which are 0
        then; the summary mentions it.
        """
        self._gather(self._boxes, "")
        if self._masks is not None:
            self._gather(self._masks, _MASK_PREFIX)
        image_ids = self.joined_tables[""].image_ids
        self._classes = split_by_class(self.joined_tables[""]) if any(self.wished) else []
        zeros = [f"{prefix}{name}" for prefix in self.joined_tables for name in ("AP", "AP50")]
        values = {}
        for name, value in self.bootstrap_values([image_ids], np.ones((1, len(image_ids)))).items():
            if name in zeros or not np.isnan(value[0]):
                values[name] = float(np.nan_to_num(value[0]))
        return {**values, **{name: int(number) for name, number in state.items()}}

    def _gather(self, tables: GrowingTable, prefix: str) -> None:
        gathered = all_gather(tables.joined().pack())
        table = MatchTable.joined([MatchTable.unpack(packed) for packed in gathered])
        if self.images is not None and len(table.image_ids) != self.images:
            raise RuntimeError(f"{len(table.image_ids):,} images were evaluated of {self.images:,}")
        self.joined_tables[prefix] = table
        self._curves.pop(prefix, None)  # built from fewer images

    def per_sample(self) -> list[np.ndarray]:
        """Return the id of each image, int64 (images,); ``compute`` has gathered their matches."""
        return [np.array(self._image_ids, np.int64)]

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        """Return the scores of bootstrap draws by name."""
        values = named_scores(self._curves_and_places(table[0]), self.class_names, weights)
        if any(self.wished):
            image_ids = self.joined_tables[""].image_ids
            image_weights = np.zeros((len(weights), len(image_ids)))
            image_weights[:, np.searchsorted(image_ids, table[0])] = weights
            values.update(self._thresholds(image_weights))
        return values

    def _thresholds(self, image_weights: np.ndarray) -> dict[str, np.ndarray]:
        return find_thresholds(self._classes, self.class_names, self.wished, image_weights)

    def _curves_and_places(self, image_ids: np.ndarray) -> dict[str, tuple[DetectionCurves, np.ndarray]]:
        curves = {}
        for prefix, matches in self.joined_tables.items():
            if prefix not in self._curves:
                self._curves[prefix] = DetectionCurves.from_table(matches, self.limits)
            curves[prefix] = self._curves[prefix], np.searchsorted(matches.image_ids, image_ids)
        return curves

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable:
        """Return the matches of all images as a table for files."""
        columns = {
            f"{prefix}{name}": column
            for prefix, matches in self.joined_tables.items()
            for name, column in matches._asdict().items()
        }
        return SampleTable("boxes", self.class_names, {"ids": table[0], "limits": np.array(self.limits), **columns})

    def columns(self, table: Sequence[np.ndarray]) -> dict[str, Sequence[Any]]:
        """Return the columns of a table with one row per image, see ``build_image_columns``."""
        values: dict[str, Sequence[Any]] = {}
        for prefix, (curves, places) in self._curves_and_places(table[0]).items():
            image_columns = build_image_columns(self.joined_tables[prefix], curves, self.class_names, self.least_score)
            values.update(
                {f"{prefix}{name}": [column[place] for place in places] for name, column in image_columns.items()}
            )
        return values

    def summary(self, values: dict[str, float]) -> str:
        """Format the most important scores."""
        recall = f"AR_{self.limits[-1]}"
        names = ["AP", "AP50", "AP75", recall, f"{_MASK_PREFIX}AP", f"{_MASK_PREFIX}AP50"]
        parts = [f"{name} {values[name]:.4f}" for name in names if name in values]
        parts[0] += self.format_interval("AP", 3)
        if self.limits != MAX_DETECTIONS:
            parts.append(f"({self.limits[-1]:,} detections per image and category, COCO uses 100)")
        if recall not in values:  # defined whenever AP is
            parts.append("(no annotations: AP is undefined, -1 in COCO's tools)")
        if values.get("not finite"):  # unknown for a part of the images
            parts.append(f"({values['not finite']:,} detections are not finite)")
        return " ".join(parts)


def _get_masks(
    image_id: int, truth: "ImageAnnotations", detections: DetectedObjects, size: tuple[int, int]
) -> ImageMasks:
    """Return the compressed masks of an image; raise UserError if one is invalid or has another size."""
    compressed: list[list[bytes]] = []
    for kind, masks in (("a detection", detections.masks), ("an annotation", truth.masks)):
        try:
            compressed.append([compress_runs(mask, *size) for mask in masks or ()])
        except ValueError as error:
            raise UserError(f"image {image_id}: {kind} cannot be compared: its segmentation {error}") from None
    return ImageMasks(compressed[0], compressed[1], size[0])
