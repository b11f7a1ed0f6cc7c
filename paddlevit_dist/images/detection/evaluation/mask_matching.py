"""Compares the masks found in one picture with those of its annotations; the rules are those of ``matching``."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np

from ....compiled import compiled
from ....errors import UserError
from ..run_lengths import Runs, runs_of
from .detections import Detections
from .matching import decided, pair
from .tables import MAX_DETECTIONS, MatchTable


def match_masks(
    image_id: int,
    truth: Any,
    detections: Detections,
    height: int,
    width: int,
    num_classes: int,
    use_classes: bool = True,
    max_detections: Sequence[int] = MAX_DETECTIONS,
) -> MatchTable:
    """The table of one picture, by the IoU of masks.

    Args:
        truth: as ``Truth``, and with ``masks``: a list of polygons or run lengths for each annotation.
        detections: with masks, of the original picture.
        height, width: of the original picture.
        others: as ``matching.match``.
    Raises:
        UserError: a score is not a finite number, or what stands for a mask is none of this picture.
    """
    if not np.isfinite(detections.scores).all():
        raise UserError(f"picture {image_id}: a detection has a score that is not a finite number")
    found, true = (
        [_runs(image_id, what, mask, height, width) for mask in masks or ()]
        for what, masks in (("a detection", detections.masks), ("an annotation", truth.masks))
    )
    return match_runs(
        image_id, truth, true, found, detections.scores, detections.labels, num_classes, use_classes, max_detections
    )


def _runs(image_id: int, what: str, mask: Any, height: int, width: int) -> Runs:
    try:
        return runs_of(mask, height, width)
    except ValueError as error:
        raise UserError(f"picture {image_id}: {what} cannot be compared: its segmentation {error}") from None


def match_runs(
    image_id: int,
    truth: Any,
    true_runs: Sequence[Runs],
    runs: Sequence[Runs],
    scores: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    use_classes: bool = True,
    max_detections: Sequence[int] = MAX_DETECTIONS,
    areas: Optional[np.ndarray] = None,
) -> MatchTable:
    """As ``match_masks``, for runs of pixels.

    Args:
        true_runs: of each annotation.
        runs: of each detection.
        areas: float64 (n,) of the detections; None: pixels of their masks.
    """
    pairing = pair(truth.labels, labels, scores, num_classes, use_classes, max_detections)
    is_crowd = np.asarray(truth.is_crowd, bool)[pairing.true_rows]
    found = _Joined.of([runs[row] for row in pairing.rows])
    true = _Joined.of([true_runs[row] for row in pairing.true_rows])
    overlaps = _mask_overlaps(*found, *true, is_crowd, pairing.groups, pairing.size)
    areas = found.areas.astype(np.float64) if areas is None else np.asarray(areas, np.float64)[pairing.rows]
    return decided(image_id, truth, pairing, overlaps, areas)


class _Joined(NamedTuple):
    """Runs of several masks, one behind the other; those of mask i from ``first[i]`` to before ``first[i + 1]``."""

    starts: np.ndarray
    ends: np.ndarray
    first: np.ndarray
    areas: np.ndarray
    rows: np.ndarray  # the picture's rows that each mask reaches

    @classmethod
    def of(cls, masks: List[Runs]) -> _Joined:
        first = np.cumsum([0] + [len(mask.starts) for mask in masks]).astype(np.int64)
        starts, ends = (
            np.concatenate([mask[column] for mask in masks] + [np.zeros(0, np.int64)]).astype(np.int64)
            for column in (2, 3)
        )
        sums = np.concatenate([[0], np.cumsum(ends - starts)])
        rows = _rows(starts, ends, first, masks[0].height if masks else 1)
        return cls(starts, ends, first, np.diff(sums[first]), rows)


@compiled
def _rows(starts, ends, first, height):
    """First row of each mask, and one past its last: int64 (masks, 2)."""
    rows = np.zeros((len(first) - 1, 2), np.int64)
    for mask in range(len(rows)):
        top, end = height, 0
        for run in range(first[mask], first[mask + 1]):
            if starts[run] // height != (ends[run] - 1) // height:  # it goes on in the next column
                top, end = 0, height
            else:
                top, end = min(top, starts[run] % height), max(end, (ends[run] - 1) % height + 1)
        rows[mask] = top, end
    return rows


@compiled
def _mask_overlaps(
    starts, ends, first, areas, rows, true_starts, true_ends, true_first, true_areas, true_rows, is_crowd, groups, size
):
    """IoU of each detection with each annotation of its class; float64 (size,)."""
    overlaps = np.zeros(size)
    position = -1
    for group in range(len(groups)):
        for mask in range(groups[group, 1], groups[group, 2]):
            for true_mask in range(groups[group, 3], groups[group, 4]):
                position += 1
                if rows[mask, 0] >= true_rows[true_mask, 1] or true_rows[true_mask, 0] >= rows[mask, 1]:
                    continue
                run, last = first[mask], first[mask + 1]
                true_run, true_last = true_first[true_mask], true_first[true_mask + 1]
                if ends[last - 1] <= true_starts[true_run] or true_ends[true_last - 1] <= starts[run]:
                    continue
                shared = 0
                while run < last and true_run < true_last:
                    both = min(ends[run], true_ends[true_run]) - max(starts[run], true_starts[true_run])
                    shared += max(both, 0)
                    if ends[run] < true_ends[true_run]:
                        run += 1
                    else:
                        true_run += 1
                if shared > 0:
                    whole = areas[mask] if is_crowd[true_mask] else areas[mask] + true_areas[true_mask] - shared
                    overlaps[position] = shared / whole
    return overlaps
