"""Combinations of a detector's keys that are refused, and keys that have no effect."""

from types import SimpleNamespace

import numpy as np
import pytest

from paddlevit_dist.core.settings import load
from paddlevit_dist.images.detection.model_options import list_fixed_sizes, require_evaluated_sizes
from paddlevit_dist.images.detection.settings import _find_ignored

COCO = ["TASK", "detection", "MODEL.NAME", "detr_resnet50", "-dataset=coco", "-data_path=x"]


@pytest.mark.parametrize(
    "words, said",
    [
        (
            ["DETECTION.EVAL_BATCHING=padded", "MODEL.MASK_PADDING=false"],
            "DETECTION.EVAL_BATCHING padded (command line): padding changes detections, so that scores would depend on",
        ),
        (["DATA.CROP_SIDES=[9, 8]"], "DATA.CROP_SIDES [9, 8] (command line): expected the smaller number first, such"),
        (["DATA.SHORTEST_SIDES=[]"], "DATA.SHORTEST_SIDES [] (command line): expected at least one"),
        (["DATA.CROP_SHORTEST_SIDES=[]"], "DATA.CROP_SHORTEST_SIDES [] (command line): expected at least one"),
        (
            ["DATA.BATCH_SIDES=[32, 64]", "DATA.RESIZE_TO_SQUARE=true", "DATA.SHORTEST_SIDES=[32, 64]"],
            "DATA.BATCH_SIDES [32, 64] (command line): images must be squares of one size first: set "
            "DATA.RESIZE_TO_SQUARE true and DATA.SHORTEST_SIDES [64], for example",
        ),
        (["DATA.BATCH_SIDES=[32]", "DATA.RESIZE_TO_SQUARE=false", "DATA.SHORTEST_SIDES=[32]"], "DATA.BATCH_SIDES [32]"),
        (
            ["DATA.GROUP_BY_SHAPE=7", "-batch_size=4"],
            "DATA.GROUP_BY_SHAPE 7 (command line): expected a multiple of DATA.BATCH_SIZE 4, so that no batch contains "
            "two groups: 8, for example",
        ),
    ],
)
def test_keys_that_do_not_fit_together_are_refused(refuse, words, said):
    assert refuse(load, [*COCO, *words]).startswith(said)


def test_what_fits_is_accepted():
    words = ["DATA.CROP_SIDES=[8, 8]", "DATA.GROUP_BY_SHAPE=8", "-batch_size=4", "DATA.BATCH_SIDES=[32, 64]"]
    words += ["DATA.RESIZE_TO_SQUARE=true", "DATA.SHORTEST_SIDES=[32]", "DETECTION.EVAL_BATCHING=padded"]
    loaded = load([*COCO, *words, "MODEL.MASK_PADDING=true"]).values
    assert loaded.DATA.GROUP_BY_SHAPE == 8
    sides = load(COCO).values.DATA
    assert (sides.EVAL_SHORTEST_SIDE, sides.EVAL_LONGEST_SIDE, sides.EXIF_ROTATE) == (800, 1333, None)
    given = load([*COCO, "DATA.EVAL_SHORTEST_SIDE=640", "DATA.EXIF_ROTATE=true"]).values.DATA
    assert (given.EVAL_SHORTEST_SIDE, given.EVAL_LONGEST_SIDE, given.EXIF_ROTATE) == (640, 1333, True)


USED = {
    "DATASET": "coco",
    "RESIZE_TO_SQUARE": False,
    "SCALE_JITTER": None,
    "SSD_AUGMENT": True,
    "NO_AUGMENT_EPOCHS": 4,
    "CROP_PROBABILITY": 0.5,
}
USED |= {"BATCH_SIDES": None, "MOSAIC": 0, "COPY_PASTE": 0}
OWN = {"EVAL_BATCHING": "single", "EXPORT_SIZE": None, "WINDOW": (4, 4), "FLIP": True}
VOC = "DATA.VOC_CORNERS"
ANNOTATIONS = ("DATA.TRAIN_ANNOTATIONS", "DATA.VAL_ANNOTATIONS")
IMAGES = ("DATA.TRAIN_IMAGES", "DATA.VAL_IMAGES", "DATA.SEARCH_IMAGES_RECURSIVELY")
ENDED = ("DATA.SSD_AUGMENT", "DATA.BATCH_SIDES", "DATA.MOSAIC", "DATA.COPY_PASTE")


@pytest.mark.parametrize(
    "data, own, expected",
    [
        ({}, {}, [((VOC,), "DATA.DATASET")]),
        ({"DATASET": "voc"}, {}, [(IMAGES, "DATA.DATASET")]),
        ({"DATASET": "yolo"}, {}, [(names, "DATA.DATASET") for names in (ANNOTATIONS, (VOC,), IMAGES)]),
        ({"RESIZE_TO_SQUARE": True}, {}, [((VOC,), "DATA.DATASET"), (("DATA.LONGEST_SIDE",), "DATA.RESIZE_TO_SQUARE")]),
        ({"SSD_AUGMENT": False}, {}, [((VOC,), "DATA.DATASET"), (("DATA.NO_AUGMENT_EPOCHS",), "DATA.SSD_AUGMENT")]),
        ({"SSD_AUGMENT": False, "MOSAIC": 0.5}, {}, [((VOC,), "DATA.DATASET")]),
        ({"NO_AUGMENT_EPOCHS": 5}, {}, [((VOC,), "DATA.DATASET"), (ENDED, "DATA.NO_AUGMENT_EPOCHS")]),
        (
            {},
            {"EVAL_BATCHING": "one_size"},
            [((VOC,), "DATA.DATASET"), (("DATA.EVAL_LONGEST_SIDE",), "DETECTION.EVAL_BATCHING")],
        ),
        (
            {},
            {"EVAL_BATCHING": "one_size", "EXPORT_SIZE": 640},
            [
                ((VOC,), "DATA.DATASET"),
                (("DATA.EVAL_LONGEST_SIDE", "DATA.EVAL_SHORTEST_SIDE"), "DETECTION.EVAL_BATCHING"),
            ],
        ),
        ({}, {"WINDOW": None}, [((VOC,), "DATA.DATASET"), (("DETECTION.WINDOW_OVERLAP",), "DETECTION.WINDOW")]),
        (
            {},
            {"WINDOW": None, "FLIP": False},
            [
                ((VOC,), "DATA.DATASET"),
                (("DETECTION.WINDOW_OVERLAP",), "DETECTION.WINDOW"),
                (("DETECTION.MERGE_IOU",), "DETECTION.WINDOW"),
            ],
        ),
        (
            {"CROP_PROBABILITY": 0.0},
            {},
            [((VOC,), "DATA.DATASET"), (("DATA.CROP_SHORTEST_SIDES", "DATA.CROP_SIDES"), "DATA.CROP_PROBABILITY")],
        ),
    ],
)
def test_keys_without_an_effect_are_named_with_the_key_that_decides(data, own, expected):
    class Data(SimpleNamespace):
        __getitem__ = SimpleNamespace.__getattribute__

    train = SimpleNamespace(NUM_EPOCHS=5)
    values = SimpleNamespace(DATA=Data(**USED | data), DETECTION=SimpleNamespace(**OWN | own), TRAIN=train)
    assert [tuple(ignored[:2]) for ignored in _find_ignored(SimpleNamespace(values=values))] == expected


SIDES = [*COCO, "DATA.EVAL_SHORTEST_SIDE=64", "DATA.EVAL_LONGEST_SIDE=96", "DATA.SHORTEST_SIDES=[48, 80]"]
SQUARE = [("DATA.SHORTEST_SIDES", (48, 48)), ("DATA.SHORTEST_SIDES", (80, 80))]


@pytest.mark.parametrize(
    "words, expected",
    [
        ([], []),
        (["DATA.RESIZE_TO_SQUARE=true"], SQUARE),
        (["DATA.RESIZE_TO_SQUARE=true", "-eval", "-pretrained=x"], []),
        (["DETECTION.EVAL_BATCHING=one_size"], [("DATA.EVAL_SHORTEST_SIDE", (64, 64))]),
        (
            ["DATA.RESIZE_TO_SQUARE=true", "DETECTION.EVAL_BATCHING=one_size", "DETECTION.EXPORT_SIZE=[32, 96]"],
            [*SQUARE, ("DETECTION.EXPORT_SIZE", (32, 96))],
        ),
        (
            ["DATA.RESIZE_TO_SQUARE=true", "DATA.SHORTEST_SIDES=[80]", "DATA.BATCH_SIDES=[32, 64]"],
            [SQUARE[1], ("DATA.BATCH_SIDES", (32, 32)), ("DATA.BATCH_SIDES", (64, 64))],
        ),
    ],
)
def test_sizes_that_keys_fix_are_listed_with_their_keys(words, expected):
    assert list_fixed_sizes(load([*SIDES, *words]).values) == expected


@pytest.mark.parametrize(
    "words, stored, said",
    [
        ([], [(40, 60), (20, 30), (90, 60)], None),  # become 64 x 96 and 96 x 64
        ([], [(40, 60), (40, 50)], "an image of 40 x 50 pixels would be evaluated with 64 x 80"),
        ([], [(50, 40)], "an image of 50 x 40 pixels would be evaluated with 80 x 64"),
        (["DETECTION.WINDOW=[20, 20]"], [(40, 60)], None),  # windows become 64 x 64
        (["DETECTION.WINDOW=[25, 20]"], [(40, 60)], "an image of 40 x 60 pixels would be evaluated with 80 x 64"),
        (["DETECTION.EVAL_BATCHING=one_size"], [(40, 50)], None),
    ],
)
def test_images_that_keep_their_proportions_have_sides_that_the_network_takes(refuse, words, stored, said):
    config, sizes = load([*SIDES, *words]).values, np.array(stored)
    require_evaluated_sizes(config, SimpleNamespace(side_multiple=1), sizes)
    if said is None:
        require_evaluated_sizes(config, SimpleNamespace(side_multiple=32), sizes)
    else:
        message = refuse(require_evaluated_sizes, config, SimpleNamespace(side_multiple=32), sizes)
        assert said in message and "multiples of 32" in message
