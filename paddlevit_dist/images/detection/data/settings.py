"""Configuration keys of pictures with boxes."""

from __future__ import annotations

from collections.abc import Iterator

from ....config.key import AT_LEAST_0, AT_LEAST_1, SHARE, Given, Key, Range, Table, Unused, optional
from ....errors import UserError

CATEGORIES = ("circle", "square", "triangle", "cross", "ring", "bar")  # what synthetic_shapes can draw
PIXELS, EDGES = "pixels", "edges"
PILLOW, TORCHVISION = "pillow", "torchvision"
_LARGE = Range(low=1, high=65_535)  # no picture format that is common has longer sides

_TRANSFORMS = (
    Key(
        "DATA.SHORTEST_SIDES",
        list(range(480, 801, 32)),
        "int",
        "training: each picture is resized so that its shorter side is one of these, in pixels",
        _LARGE,
        many=True,
    ),
    Key("DATA.LONGEST_SIDE", 1333, "int", "training: most pixels of the longer side, whatever the shorter one", _LARGE),
    Key("DATA.CROP_PROBABILITY", 0.5, "float", "training: probability of a picture that is cropped first", SHARE),
    Key(
        "DATA.CROP_SHORTEST_SIDES",
        [400, 500, 600],
        "int",
        "training: a picture to be cropped is resized to one of these first",
        _LARGE,
        many=True,
    ),
    Key("DATA.CROP_SIDES", [384, 600], "int", "training: smallest and largest side of the crop", _LARGE, None, True, 2),
    Key("DATA.COLOR_JITTER", 0.0, "float", "training: range of brightness, contrast and saturation", AT_LEAST_0),
    Key("DATA.EVAL_SHORTEST_SIDE", 800, "int", "evaluation and prediction: the shorter side in pixels", _LARGE),
    Key("DATA.EVAL_LONGEST_SIDE", 1333, "int", "evaluation and prediction: most pixels of the longer side", _LARGE),
    Key(
        "DATA.EVAL_RESIZE",
        PILLOW,
        "text",
        "evaluation and prediction: resize with Pillow's filter, to whole levels; or as torchvision's detectors do, "
        "whose weights then find the same boxes",
        choices=(PILLOW, TORCHVISION),
    ),
    Key(
        "DATA.GROUP_BY_SHAPE",
        0,
        "int",
        "training: so many pictures that follow one another have similar shapes, which saves padding; a multiple of "
        "BATCH_SIZE; 0: the order is free",
        AT_LEAST_0,
    ),
)

_FILES = (
    optional(
        "DATA.TRAIN_ANNOTATIONS",
        "path",
        "coco: file of the training annotations, below DATA_PATH or absolute; voc: name of a list such as trainval",
    ),
    optional("DATA.VAL_ANNOTATIONS", "path", "the same for validation"),
    optional("DATA.TRAIN_PICTURES", "path", "coco: folder of the training pictures, below DATA_PATH or absolute"),
    optional("DATA.VAL_PICTURES", "path", "coco: folder of the validation pictures"),
    Key(
        "DATA.VOC_CORNERS",
        PIXELS,
        "text",
        "voc: corners are numbers of pixels, from 1 and inside the box, as VOC has them; or distances from the "
        "picture's edges, from 0, as some programs write them",
        choices=(PIXELS, EDGES),
    ),
    Key(
        "DATA.PICTURES_ANYWHERE",
        False,
        "bool",
        "coco: a file_name may lead out of DATA_PATH and the folder of pictures, as ../a.jpg or /a.jpg do",
    ),
    Key("DATA.KEEP_EMPTY", True, "bool", "training: keep pictures in which there is nothing to learn"),
)

_SHAPES = (
    Key("DATA.SHAPES.TRAIN", 2000, "int", "synthetic_shapes: training pictures", AT_LEAST_1),
    Key("DATA.SHAPES.VAL", 200, "int", "synthetic_shapes: validation pictures", AT_LEAST_1),
    Key(
        "DATA.SHAPES.SIDES",
        [64, 64],
        "int",
        "synthetic_shapes: smallest and largest height and width of a picture",
        Range(low=16, high=4096),
        None,
        True,
        2,
    ),
    Key(
        "DATA.SHAPES.PER_PICTURE",
        [1, 4],
        "int",
        "synthetic_shapes: fewest and most shapes of a picture",
        Range(low=0, high=100),
        None,
        True,
        2,
    ),
    Key(
        "DATA.SHAPES.CATEGORIES",
        list(CATEGORIES[:3]),
        "text",
        "synthetic_shapes: what is drawn",
        choices=CATEGORIES,
        many=True,
    ),
)


def _check(given: Given) -> list[str]:
    values = given.values.DATA
    for name, (low, high) in (
        ("DATA.CROP_SIDES", values.CROP_SIDES),
        ("DATA.SHAPES.SIDES", values.SHAPES.SIDES),
        ("DATA.SHAPES.PER_PICTURE", values.SHAPES.PER_PICTURE),
    ):
        if low > high:
            raise UserError(f"{given[name]}: expected the smaller number first, such as [{high}, {low}]")
    for name, several in (
        ("DATA.SHORTEST_SIDES", values.SHORTEST_SIDES),
        ("DATA.CROP_SHORTEST_SIDES", values.CROP_SHORTEST_SIDES),
        ("DATA.SHAPES.CATEGORIES", values.SHAPES.CATEGORIES),
    ):
        if not several:
            raise UserError(f"{given[name]}: expected one at least")
    if len(set(values.SHAPES.CATEGORIES)) < len(values.SHAPES.CATEGORIES):
        raise UserError(f"{given['DATA.SHAPES.CATEGORIES']}: expected each one once")
    group, batch = values.GROUP_BY_SHAPE, values.BATCH_SIZE
    if group and group % batch:
        raise UserError(
            f"{given['DATA.GROUP_BY_SHAPE']}: expected a multiple of DATA.BATCH_SIZE {batch}, or batches would be of "
            f"two groups: {-(-group // batch) * batch}, for example"
        )
    return []


def _unused(given: Given) -> Iterator[Unused]:
    dataset = given.values.DATA.DATASET
    if dataset != "synthetic_shapes":
        yield Unused(("DATA.SHAPES.",), "DATA.DATASET", "it is for synthetic_shapes, and {}")
    if dataset not in ("coco", "voc"):
        yield Unused(
            ("DATA.TRAIN_ANNOTATIONS", "DATA.VAL_ANNOTATIONS"), "DATA.DATASET", "it is for coco and voc, and {}"
        )
    if dataset != "voc":
        yield Unused(("DATA.VOC_CORNERS",), "DATA.DATASET", "it is for voc, and {}")
    if dataset != "coco":
        of_coco = ("DATA.TRAIN_PICTURES", "DATA.VAL_PICTURES", "DATA.PICTURES_ANYWHERE")
        yield Unused(of_coco, "DATA.DATASET", "it is for coco, and {}")
    if given.values.DATA.VAL_FRACTION is None:
        yield Unused(("DATA.VAL_SEED",), "DATA.VAL_FRACTION", "nothing is held out: {}")
    if not given.values.DATA.CROP_PROBABILITY:
        yield Unused(
            ("DATA.CROP_SHORTEST_SIDES", "DATA.CROP_SIDES"), "DATA.CROP_PROBABILITY", "no picture is cropped: {}"
        )


_ONLY_TRAINING = tuple(key.name for key in (*_TRANSFORMS, *_FILES) if key.meaning.startswith("training:"))
TABLE = Table(
    (*_TRANSFORMS, *_FILES, *_SHAPES), training=(*_ONLY_TRAINING, "DATA.GROUP_BY_SHAPE"), check=_check, unused=_unused
)
