"""Configuration keys of panoptic segmentation."""

from collections.abc import Iterator

from ...core.runtime.errors import UserError
from ...core.settings.key import SHARE, Pair, PathText, Range, Section, key, rows
from ...core.settings.table import ConfigView, IgnoredKeys, KeyTable
from ..settings import SIDE_PX, ObjectSettings

_DRAWN = "panoptic_shapes"


class PanopticSection(Section):
    """Keys of PANOPTIC."""

    INPUT_SIZE: Pair[int] = key(
        [640, 640],
        "height and width of the network's input: of a training crop, and of an image that is resized to fit and "
        "padded at the right and the bottom",
        SIDE_PX,
    )
    SCALE_RANGE: Pair[float] = key(
        [0.1, 2.0],
        "training: smallest and largest scale of an image, drawn uniformly; at 1 it fits the input",
        Range(low=0.01, high=100),
        training_only=True,
    )
    SCORE_THRESHOLD: float = key(0.8, "omit segments whose score is not above it", SHARE)
    MASK_THRESHOLD: float = key(0.5, "probability from which a pixel belongs to the mask of its segment", SHARE)
    OVERLAP_THRESHOLD: float = key(
        0.8, "omit segments of whose mask a smaller share is not covered by better ones", SHARE
    )
    CATEGORIES: PathText | None = key(
        None,
        "file with the categories of maps whose numbers contain the class, below DATA_PATH or absolute, as a list in "
        "COCO's format: id, name and isthing; None: categories.json; also which classes are things in weights that do "
        "not say it",
        effect="data",
    )
    ID_DIVISOR: int = key(
        1_000,
        "maps whose numbers contain the class: a number is this times the category's id plus the number of the object; "
        "smaller ones are an id alone",
        Range(low=2, high=1 << 24),
        effect="data",
    )


class PanopticSettings(ObjectSettings):
    """Keys of panoptic segmentation."""

    PANOPTIC: PanopticSection


def _check(view: ConfigView[PanopticSettings]) -> list[str]:
    low, high = view.values.PANOPTIC.SCALE_RANGE
    if low > high:
        raise UserError(f"{view['PANOPTIC.SCALE_RANGE']}: expected the smaller number first, such as [{high}, {low}]")
    if view.values.DATA.ALBUMENTATIONS is not None:
        raise UserError(f"{view['DATA.ALBUMENTATIONS']}: it is not applied to segments: remove DATA.ALBUMENTATIONS")
    return []


def _find_unused(view: ConfigView[PanopticSettings]) -> Iterator[IgnoredKeys]:
    yield IgnoredKeys(
        ("DATA.EVAL_SHORTEST_SIDE", "DATA.EVAL_LONGEST_SIDE"), "PANOPTIC.INPUT_SIZE", "it decides, and {}"
    )
    yield IgnoredKeys(("DATA.SEARCH_IMAGES_RECURSIVELY",), "DATA.DATASET", "it is for coco, and {}")
    for split in ("TRAIN", "VAL"):
        if view.values.DATA[f"{split}_ANNOTATIONS"] is None:
            file = f"DATA.{split}_ANNOTATIONS"
            yield IgnoredKeys((f"DATA.{split}_IMAGES",), file, "images are found by the names of folders: {}")
    if view.values.DATA.DATASET == _DRAWN:
        yield IgnoredKeys(("PANOPTIC.ID_DIVISOR",), "DATA.DATASET", "shapes are drawn: {}")


TABLE = KeyTable(rows(PanopticSettings), check=_check, find_ignored=_find_unused)
