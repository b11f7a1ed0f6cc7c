"""COCO's scores over the processes of a run: each keeps what its pictures contribute, all of it is accumulated once."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import numpy as np

from ...contracts.task import Metrics
from ...parallel import all_gather
from .evaluation.accumulation import UNDEFINED, accumulate
from .evaluation.detections import Detections
from .evaluation.matching import match
from .evaluation.tables import MatchTable

_JOINED_AFTER = 256  # pictures: a table of many takes less memory than many tables


class DetectionMetrics(Metrics):
    """Match tables of pictures, gathered from all ranks by ``compute``.

    A picture that was evaluated twice, or not at all, is an error: the score would be that of other data.

    Args:
        class_names: in the order of labels.
        pictures: of the whole split; None: unknown, and not checked.
    """

    def __init__(self, class_names: Sequence[str], pictures: Optional[int] = None) -> None:
        super().__init__()
        self.class_names = list(class_names)
        self.pictures = pictures
        self.state = {"pictures": 0, "detections": 0, "not finite": 0}
        self._tables: List[MatchTable] = [MatchTable.empty(len(self.class_names))]

    def update(self, image_id: int, truth: Any, detections: Detections) -> MatchTable:
        """Add a picture; returns what it contributes. Detections that are not finite count as none.

        Args:
            image_id: different for each picture of the split.
            truth: what is annotated, as ``Truth``.
        """
        is_finite = np.isfinite(detections.boxes).all(axis=1) & np.isfinite(detections.scores)
        if not is_finite.all():
            self.state["not finite"] += int(np.count_nonzero(~is_finite))
            detections = only(detections, is_finite)
        table = match(image_id, truth, detections, len(self.class_names))
        self.state["pictures"] += 1
        self.state["detections"] += len(detections.scores)
        self._tables.append(table)
        if len(self._tables) > _JOINED_AFTER:
            self._tables = [MatchTable.joined(self._tables)]
        return table

    def compute(self, state: Dict[str, Any]) -> Dict[str, float]:
        """COCO's twelve numbers as fractions, AP of each class that occurs, and counts. A number of which nothing in
        the split can be found is left out, except AP, which is 0 then. Every rank must call this."""
        gathered = all_gather(MatchTable.joined(self._tables).packed())
        table = MatchTable.joined([MatchTable.unpacked(packed) for packed in gathered])
        if self.pictures is not None and len(table.image_ids) != self.pictures:
            raise RuntimeError(f"{len(table.image_ids):,} pictures were evaluated of {self.pictures:,}")
        accumulated = accumulate(table)
        values = {name: value for name, value in accumulated.named().items() if value != UNDEFINED}
        values = {"AP": 0.0, "AP50": 0.0, **values}
        for name, (ap, *_) in zip(self.class_names, accumulated.class_ap().tolist()):
            if ap != UNDEFINED:
                values[f"AP {name}"] = ap
        values.update({name: int(number) for name, number in state.items()})
        return values

    def summary(self, values: Dict[str, float]) -> str:
        shown = [f"{name} {values[name]:.4f}" for name in ("AP", "AP50", "AP75", "AR_100") if name in values]
        if values["not finite"]:
            shown.append(f"({values['not finite']:,} detections are not finite)")
        return " ".join(shown)


def only(detections: Detections, chosen: np.ndarray) -> Detections:
    """Some of the detections of a picture, in their order.

    Args:
        chosen: bool (n,), or positions.
    """
    masks = detections.masks
    if masks is not None:
        masks = [masks[place] for place in np.arange(len(masks))[chosen].tolist()]
    return Detections(detections.boxes[chosen], detections.scores[chosen], detections.labels[chosen], masks)
