"""COCO's scores over the processes of a run: each keeps what its images contribute, all of it is accumulated once."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...distributed import all_gather
from ...runtime.errors import UserError
from ...tasks.metrics import Metrics, SampleTable
from ..run_lengths import compress_runs
from .detections import DetectedObjects
from .evaluation.accumulation import (
    MAX_DETECTIONS,
    UNDEFINED,
    AccumulatedResults,
    GrowingTable,
    MatchTable,
    accumulate,
    resolve_detection_limits,
)
from .evaluation.images import build_image_columns
from .evaluation.matching import CandidateDetections, ImageMasks, match, match_detections
from .evaluation.resampling import DetectionCurves, named_scores

_OF_MASKS = "mask "  # before the names of the numbers that masks are compared for


class DetectionMetrics(Metrics):
    """Match tables of images, gathered from all ranks by ``compute``.

    An image that was evaluated twice, or not at all, is an error: the score would be that of other data.

    Args:
        class_names: in the order of labels.
        images: of the whole split; None: unknown, and not checked.
        with_masks: masks are compared as well, where both annotations and detections have them.
        least_score: of detections that count where those of one image are counted.
        max_detections: how many of an image and class count, COCO's maxDets; None: 100.

    Attributes:
        joined_tables: the matches of all ranks, once computed, by what is before the names of their numbers.
    """

    lists = ("_image_ids",)

    def __init__(
        self,
        class_names: Sequence[str],
        images: int | None = None,
        with_masks: bool = False,
        least_score: float = 0.0,
        max_detections: int | None = None,
    ) -> None:
        super().__init__()
        self.least_score = least_score
        self.limits = resolve_detection_limits(max_detections)
        self.class_names = list(class_names)
        self.images = images
        self.state = {"images": 0, "detections": 0, "not finite": 0}
        self._boxes = GrowingTable(len(self.class_names))
        self._masks = GrowingTable(len(self.class_names)) if with_masks else None
        self._image_ids: list[int] = []  # of this rank, in the order in which they were added
        self._curves: dict[str, DetectionCurves] = {}  # of all ranks, by prefix
        self.joined_tables: dict[str, MatchTable] = {}

    def update(
        self, image_id: int, truth: Any, detections: DetectedObjects, size: tuple[int, int] | None = None
    ) -> MatchTable:
        """Add an image; returns what its boxes contribute. Detections that are not finite count as none.

        Args:
            image_id: different for each image of the split.
            truth: what is annotated, as ``BoxGroundTruth``; with ``masks`` where these are compared.
            size: height and width of the image; only masks need it.
        """
        given = len(detections.scores)
        detections = detections.finite()
        table = match(image_id, truth, detections, len(self.class_names), self.limits)
        self._boxes.add(table)
        if self._masks is not None and size is not None:
            masks = _get_masks(image_id, truth, detections, size)
            found = CandidateDetections(masks, detections.scores, detections.labels)
            self._masks.add(match_detections(image_id, truth, found, len(self.class_names), self.limits))
        self._image_ids.append(image_id)
        self.state["images"] += 1
        self.state["detections"] += len(detections.scores)
        self.state["not finite"] += given - len(detections.scores)
        return table

    def merge(self, other: "DetectionMetrics") -> None:  # type: ignore[override] # one of this class
        super().merge(other)
        self._boxes.add(other._boxes.joined())
        if self._masks is not None and other._masks is not None:
            self._masks.add(other._masks.joined())

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """COCO's twelve numbers as fractions, AP of each class that occurs, and counts; those of masks begin with
        "mask". A number of which nothing in the split can be found is left out, except AP and AP50, which are 0 then;
        the summary says so.
        Every rank must call this."""
        values = self._values(self._accumulated(self._boxes, ""), "")
        if self._masks is not None:
            values.update(self._values(self._accumulated(self._masks, _OF_MASKS), _OF_MASKS))
        values.update({name: int(number) for name, number in state.items()})
        return values

    def _accumulated(self, tables: GrowingTable, prefix: str) -> AccumulatedResults:
        gathered = all_gather(tables.joined().pack())
        table = MatchTable.joined([MatchTable.unpack(packed) for packed in gathered])
        if self.images is not None and len(table.image_ids) != self.images:
            raise RuntimeError(f"{len(table.image_ids):,} images were evaluated of {self.images:,}")
        self.joined_tables[prefix] = table
        self._curves.pop(prefix, None)  # of fewer images
        return accumulate(table, self.limits)

    def _values(self, accumulated: AccumulatedResults, prefix: str) -> dict[str, float]:
        values = {f"{prefix}{name}": number for name, number in accumulated.named().items() if number != UNDEFINED}
        values = {f"{prefix}AP": 0.0, f"{prefix}AP50": 0.0, **values}
        for name, (ap, *_) in zip(self.class_names, accumulated.class_ap().tolist()):
            if ap != UNDEFINED:
                values[f"{prefix}AP {name}"] = ap
        return values

    def per_sample(self) -> list[np.ndarray]:
        """The id of each image, int64 (images,): what they contribute has been gathered by ``compute``."""
        return [np.array(self._image_ids, np.int64)]

    def bootstrap_values(self, table: Sequence[np.ndarray], weights: np.ndarray) -> dict[str, np.ndarray]:
        return named_scores(self._curves_and_places(table[0]), self.class_names, weights)

    def _curves_and_places(self, image_ids: np.ndarray) -> dict[str, tuple[DetectionCurves, np.ndarray]]:
        found = {}
        for prefix, matches in self.joined_tables.items():
            if prefix not in self._curves:
                self._curves[prefix] = DetectionCurves.of(matches, self.limits)
            found[prefix] = self._curves[prefix], np.searchsorted(matches.image_ids, image_ids)
        return found

    def to_sample_table(self, table: Sequence[np.ndarray]) -> SampleTable:
        named = {
            f"{prefix}{name}": column
            for prefix, matches in self.joined_tables.items()
            for name, column in matches._asdict().items()
        }
        return SampleTable("boxes", self.class_names, {"ids": table[0], "limits": np.array(self.limits), **named})

    def columns(self, table: Sequence[np.ndarray]) -> dict[str, Sequence[Any]]:
        """See ``build_image_columns``."""
        values: dict[str, Sequence[Any]] = {}
        for prefix, (curves, places) in self._curves_and_places(table[0]).items():
            of_all = build_image_columns(self.joined_tables[prefix], curves, self.class_names, self.least_score)
            values.update({f"{prefix}{name}": [column[place] for place in places] for name, column in of_all.items()})
        return values

    def summary(self, values: dict[str, float]) -> str:
        recall = f"AR_{self.limits[-1]}"
        names = ["AP", "AP50", "AP75", recall, f"{_OF_MASKS}AP", f"{_OF_MASKS}AP50"]
        shown = [f"{name} {values[name]:.4f}" for name in names if name in values]
        shown[0] += self.format_interval("AP", 3)
        if self.limits != MAX_DETECTIONS:
            shown.append(f"({self.limits[-1]:,} detections of an image and category, COCO's numbers are of 100)")
        if recall not in values:  # which is defined wherever AP is
            shown.append("(nothing is annotated: AP is not defined, -1 for COCO's tools)")
        if values.get("not finite"):  # not known of some of the images
            shown.append(f"({values['not finite']:,} detections are not finite)")
        return " ".join(shown)


def _get_masks(image_id: int, truth: Any, detections: DetectedObjects, size: tuple[int, int]) -> ImageMasks:
    """The masks of an image as they are compared.

    Raises:
        UserError: what stands for a mask is none of this image.
    """
    texts: list[list[bytes]] = []
    for what, masks in (("a detection", detections.masks), ("an annotation", truth.masks)):
        try:
            texts.append([compress_runs(mask, *size) for mask in masks or ()])
        except ValueError as error:
            raise UserError(f"image {image_id}: {what} cannot be compared: its segmentation {error}") from None
    return ImageMasks(texts[0], texts[1], size[0])
