"""Keys of keypoints in images, for all of its tasks."""

from typing import Literal, get_args

from ...settings.key import ABOVE_0, Section, key, rows
from ...settings.table import KeyTable
from ..detection.settings import DetectionSettings

Figure = Literal["person", "hand"]  # figures that can be drawn
FIGURES: tuple[Figure, ...] = get_args(Figure)


class KeypointKeys(Section):
    """Keys of KEYPOINTS."""

    NAMES: list[str] | None = key(
        None, "names of the points; None: as in the annotations, else point 1, point 2 and so on", effect="neutral"
    )
    PAIRS: list[str] | None = key(
        None,
        "points that a mirror exchanges, such as [left_eye/right_eye, 3/4], by names or numbers from 1; None: as in "
        "the annotations, else names that differ in left and right; []: none, and no image is mirrored",
    )
    SIGMAS: list[float] | float | None = key(
        None,
        "COCO's sigma of each point, or one of all; None: as in the annotations, else COCO's for its 17 names, "
        "else 0.05",
        ABOVE_0,
    )
    SKELETON: list[str] | None = key(
        None,
        "points with a line between them in drawings, written as PAIRS; None: as in the annotations",
        effect="neutral",
    )
    FIGURES: list[Figure] = key(list(FIGURES), "drawn_figures: kinds of figures", effect="data")


class KeypointSettings(DetectionSettings):
    """Keys of all tasks of keypoints."""

    KEYPOINTS: KeypointKeys


TABLE = KeyTable(keys=rows(KeypointSettings))
