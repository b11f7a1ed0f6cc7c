"""COCO's scores over the processes of a run: each process matches its images, and scores are computed once of all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.registry.required_methods import is_builtin
from ...core.runtime.errors import UserError
from ...core.runtime.printing import count
from ...core.tasks.metrics import TableMetrics
from ...core.tasks.score_kind import Arrays
from ..run_lengths import compress_runs
from .detections import DetectedObjects
from .evaluation.curves import name_recall
from .evaluation.match_tables import MAX_DETECTIONS, MatchTable, resolve_detection_limits
from .evaluation.matching import CandidateDetections, ImageMasks, match, match_detections
from .evaluation.operating_points import NO_WISHES, WishedRates
from .evaluation.score_kind import PREFIXES

if TYPE_CHECKING:
    from .data.image_annotations import ImageAnnotations

_MATCHES = ("boxes", "masks")  # columns of ``MatchTable``, by ``PREFIXES``


class MatchMetrics(TableMetrics):
    """Collect the matches of each image, from which a kind of scores such as ``BoxScores`` computes all values.

    Images evaluated twice, or not at all, raise an error, since the score would be of other data.

    Args:
        kind: registered name of the kind of scores.
        images: number of images of the split; None: unknown, and not checked.
        settings: see ``TableMetrics``.
    """

    def __init__(self, kind: str, class_names: Sequence[str], images: int | None, settings: Arrays) -> None:
        super().__init__(kind, class_names, settings)
        self.images = images
        self.state = {"images": 0, "detections": 0, "not finite": 0}
        self._joined: tuple[np.ndarray, Arrays] | None = None  # by ``to_arrays``

    def add_matches(
        self, image_id: int, tables: Sequence[MatchTable], given: int, counted: int, **columns: np.ndarray
    ) -> None:
        """Add an image: its table, for masks a second one, its detections, and the finite ones among them.

        ``columns`` are more columns of its row, (1, ...) each.
        """
        matched = np.empty((len(tables), 1), object)  # of tuples, which an array would take apart
        matched[:, 0] = tables
        self.add_batch(ids=np.array([image_id], np.int64), **dict(zip(_MATCHES, matched)), **columns)
        self.state["images"] += 1
        self.state["detections"] += counted
        self.state["not finite"] += given - counted

    def compute(self, state: dict[str, Any]) -> dict[str, float]:
        """Return COCO's numbers as fractions, the AP of each class that occurs, and counts; every rank must call it.

        Names of numbers of masks begin with "mask". Undefined numbers are omitted; the summary mentions it.
        """
        values = super().compute(state)
        images = int(values.get("images", 0))
        if self.images is not None and images != self.images and self.is_complete:
            raise RuntimeError(f"{images:,} images were evaluated of {self.images:,}")
        if state["images"] > images:  # the table has each sample once
            repeated = count(int(state["images"]) - images, "image")
            raise UserError(f"{repeated} of {images:,} evaluated twice: give each image to one process")
        return {**values, **{name: int(number) for name, number in state.items()}}

    def to_arrays(self, table: Sequence[np.ndarray]) -> Arrays:
        """Return the ids of the images, their matches, and further columns.

        Raises:
            UserError: an image is in two rows.
        """
        if self._joined is None or self._joined[0] is not table[0]:
            columns = dict(zip(self.column_names, table))
            for prefix, name in zip(PREFIXES, _MATCHES):
                if name in columns:
                    columns.update(MatchTable.joined(list(columns.pop(name))).to_arrays(prefix))
            self._joined = table[0], {**columns, **self.settings}
        return self._joined[1]


class DetectionMetrics(MatchMetrics):
    """Collect the matches of boxes, and of masks if there are some, see ``MatchMetrics``.

    Args:
        images: number of images of the split; None: unknown, and not checked.
        with_masks: also compare masks; both annotations and detections need them.
        least_score: lowest score of the detections counted in each image.
        max_detections: number of detections per image and class that count, COCO's maxDets; None: 100.
        wished: precision and recall for which the score threshold of each class is computed, of boxes.
    """

    def __init__(
        self,
        class_names: Sequence[str],
        images: int | None = None,
        with_masks: bool = False,
        least_score: float = 0.0,
        max_detections: int | None = None,
        wished: WishedRates = NO_WISHES,
    ) -> None:
        self.limits = resolve_detection_limits(max_detections)
        limits, wished_rates = np.array(self.limits), np.array(wished, np.float64)
        settings = {"limits": limits, "wished": wished_rates, "least_score": np.array(least_score)}
        super().__init__("boxes", class_names, images, settings)
        self.with_masks = with_masks

    def update(
        self, image_id: int, truth: "ImageAnnotations", detections: DetectedObjects, size: tuple[int, int] | None = None
    ) -> MatchTable:
        """Add an image and return the table of its boxes; detections that are not finite are ignored.

        Masks need ``size``, height and width of the image.
        """
        num_detections = len(detections.scores)
        detections = detections.finite()
        tables = [match(image_id, truth, detections, len(self.class_names), self.limits)]
        if self.with_masks:
            masks = _get_masks(image_id, truth, detections, size or (0, 0))
            candidates = CandidateDetections(masks, detections.scores, detections.labels)
            tables.append(match_detections(image_id, truth, candidates, len(self.class_names), self.limits))
        self.add_matches(image_id, tables, num_detections, len(detections.scores))
        return tables[0]

    def summary(self, values: dict[str, float]) -> str:
        """Format the line of the kind of scores, and what it leaves out."""
        recall, parts = name_recall(self.limits[-1]), [super().summary(values)]
        if self.limits != MAX_DETECTIONS:
            parts.append(f"({self.limits[-1]:,} detections per image and category, COCO uses 100)")
        # Defined whenever AP is; a user's kind may not compute it.
        if recall not in values and (is_builtin(type(self.scores)) or recall in self.find_undefined(values)):
            parts.append("(no annotations: -1 in COCO's tools)")
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
