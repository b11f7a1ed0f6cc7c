"""Compares the masks found in one picture with those of its annotations; the rules are those of ``matching``."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np

from ....compiled import compiled
from ....errors import UserError
from ..run_lengths import ManyRuns, text_of
from .detections import Detections
from .matching import Federated, decided, pair
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
    federated: Optional[Federated] = None,
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
        [_text(image_id, what, mask, height, width) for mask in masks or ()]
        for what, masks in (("a detection", detections.masks), ("an annotation", truth.masks))
    )
    return match_texts(
        image_id, truth, true, found, height, detections.scores, detections.labels, num_classes, use_classes,
        max_detections, federated=federated,
    )  # fmt: skip


def _text(image_id: int, what: str, mask: Any, height: int, width: int) -> bytes:
    try:
        return text_of(mask, height, width)
    except ValueError as error:
        raise UserError(f"picture {image_id}: {what} cannot be compared: its segmentation {error}") from None


def match_texts(
    image_id: int,
    truth: Any,
    true_masks: Sequence[bytes],
    masks: Sequence[bytes],
    height: int,
    scores: np.ndarray,
    labels: np.ndarray,
    num_classes: int,
    use_classes: bool = True,
    max_detections: Sequence[int] = MAX_DETECTIONS,
    areas: Optional[np.ndarray] = None,
    federated: Optional[Federated] = None,
) -> MatchTable:
    """As ``match_masks``, for compressed run lengths as ``run_lengths.text_of`` returns them.

    Args:
        true_masks: of each annotation.
        masks: of each detection.
        height: of the picture.
        areas: float64 (n,) of the detections; None: pixels of their masks.
    """
    pairing = pair(truth.labels, labels, scores, num_classes, use_classes, max_detections, federated)
    is_crowd = np.asarray(truth.is_crowd, bool)[pairing.true_rows]
    found = ManyRuns.of([masks[row] for row in pairing.rows.tolist()], height)
    true = ManyRuns.of([true_masks[row] for row in pairing.true_rows.tolist()], height)
    overlaps = _mask_overlaps(*found, *true, is_crowd, pairing.groups, pairing.size)
    areas = found.areas.astype(np.float64) if areas is None else np.asarray(areas, np.float64)[pairing.rows]
    return decided(image_id, truth, pairing, overlaps, areas)


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
