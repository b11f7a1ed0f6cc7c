"""Keys that say nothing where nothing has labels, and settings of pretraining that contradict one another."""

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.settings import load

COMMON = ["MODEL.NAME", "vit", "-data_path=any"]


@pytest.mark.parametrize(
    ("task", "words", "reason"),
    [
        ("masked_autoencoder", "TRAIN.SMOOTHING 0.1 -dataset=unlabeled", "it is for images with labels, and TASK"),
        ("masked_autoencoder", "TRAIN.MIXUP_ALPHA 0.8 -dataset=unlabeled", "it is for images with labels, and TASK"),
        ("masked_autoencoder", "PRETRAINING.MORE_PATHS [b] -dataset=digits", "it is for unlabeled, and DATA.DATASET"),
        ("self_distillation", "SELF_DISTILLATION.SMALL_SIZE 64 SELF_DISTILLATION.SMALL_VIEWS 0 -dataset=unlabeled",
         "there are no small views"),
        ("self_distillation", "SELF_DISTILLATION.SMALL_SCALE [0.1,0.2] SELF_DISTILLATION.SMALL_VIEWS 0 "
         "-dataset=unlabeled", "there are no small views"),
        ("self_distillation", "DATA.CROP_SCALE [0.5,1.0] -dataset=unlabeled", "views have crops"),
    ],
)  # fmt: skip
def test_keys_that_nothing_reads_are_told(task, words, reason):
    notices = [notice for notice in load(["TASK", task, *COMMON, *words.split()]).notices if "no effect" in notice]
    assert [notice for notice in notices if words.split()[0] in notice and reason in notice], notices


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("masked_autoencoder", "PRETRAINING.MORE_PATHS [b] -dataset=unlabeled"),
        ("self_distillation", "SELF_DISTILLATION.SMALL_VIEWS 2 SELF_DISTILLATION.SMALL_SIZE 64 -dataset=unlabeled"),
    ],
)
def test_keys_that_are_read_are_not_told(task, words):
    assert not [notice for notice in load(["TASK", task, *COMMON, *words.split()]).notices if "no effect" in notice]


def test_images_that_are_evaluated_are_named_once():
    words = ["TASK", "masked_autoencoder", *COMMON, "-dataset=unlabeled", "PRETRAINING.LABELED_PATH", "b"]
    assert load(words).values.PRETRAINING.LABELED_PATH == "b"
    with pytest.raises(UserError, match=r"LABELED_PATH b .* and DATA.VAL_FRACTION 0.1 .*: both say which images are"):
        load([*words, "DATA.VAL_FRACTION", "0.1"])
