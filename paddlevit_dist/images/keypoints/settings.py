"""Keys of keypoints in images, for all of its tasks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

from yacs.config import CfgNode

from ...core.runtime.errors import UserError
from ...core.settings.key import ABOVE_0, Section, key, rows
from ...core.settings.table import ConfigView, IgnoredKeys, KeySetting, KeyTable
from ..detection.settings import DetectionSettings

Figure = Literal["person", "hand"]  # figures that can be drawn
FIGURES: tuple[Figure, ...] = get_args(Figure)
DRAWN, TABLES = "drawn_figures", "keypoint_table"  # datasets


class KeypointKeys(Section):
    """Keys of KEYPOINTS."""

    NAMES: list[str] | None = key(
        None, "names of the points; None: as in the annotations, else point 1, point 2 and so on"
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
    SPACING_MM: float | None = key(
        None,
        "keypoint_table: width and height of a pixel in millimeters, for errors in millimeters; None: as in the "
        "column spacing_mm of the table, if it has one",
        ABOVE_0,
        effect="score",
    )
    FIGURES: list[Figure] = key(list(FIGURES), "drawn_figures: kinds of figures", effect="training")


class KeypointSettings(DetectionSettings):
    """Keys of all tasks of keypoints."""

    KEYPOINTS: KeypointKeys


def _complete(values: CfgNode, settings: Mapping[str, KeySetting], _: Sequence[KeySetting]) -> list[str]:
    """Set the sizes and numbers of drawn figures, which need more room than shapes, unless configured."""
    if values.DATA.DATASET == DRAWN:
        for name, value in (("SIDES", [96, 128]), ("OBJECTS_PER_IMAGE", [1, 3])):
            if f"DATA.SHAPES.{name}" not in settings:
                values.DATA.SHAPES[name] = value
    return []


def _check(view: ConfigView[KeypointSettings]) -> list[str]:
    figures = view.values.KEYPOINTS.FIGURES
    if not figures or len(set(figures)) < len(figures):
        raise UserError(f"{view['KEYPOINTS.FIGURES']}: expected at least one kind, each only once")
    return []


def _find_unused(view: ConfigView[KeypointSettings]) -> Iterator[IgnoredKeys]:
    if view.values.DATA.DATASET == DRAWN:
        of_files = tuple(f"KEYPOINTS.{name}" for name in ("NAMES", "PAIRS", "SIGMAS", "SKELETON"))
        yield IgnoredKeys(("DATA.SHAPES.CATEGORIES", *of_files), "DATA.DATASET", "figures have their own points: {}")
    else:
        yield IgnoredKeys(("KEYPOINTS.FIGURES",), "DATA.DATASET", f"it is for {DRAWN}, and {{}}")
    if view.values.DATA.DATASET != TABLES:
        yield IgnoredKeys(("KEYPOINTS.SPACING_MM",), "DATA.DATASET", f"it is for {TABLES}, and {{}}")


TABLE = KeyTable(keys=rows(KeypointSettings), resolve_defaults=_complete, check=_check, find_ignored=_find_unused)
