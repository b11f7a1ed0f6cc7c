"""Keys of an evaluation without leaked samples: where they apply, and what is refused."""

import pytest
from support.key_pages import check_effects, check_rows

from paddlevit_dist import UserError
from paddlevit_dist.core import settings

EVAL = ["-cfg=vit_digits", "-eval", "-pretrained=w"]


def test_rows_of_the_pages_are_those_of_the_keys():
    check_rows("extensions.leakage")


def test_effects_of_the_keys_are_those_of_the_table():
    check_effects("extensions.leakage")


@pytest.mark.parametrize(
    "words, said",
    [
        (["-cfg=vit_digits", "-exclude_leaked"], "is for an evaluation: add -eval, or drop -exclude_leaked$"),
        ([*EVAL, "-exclude_leaked", "DATA.SPLIT=train"], "is the training set: evaluate another split$"),
    ],
)
def test_a_training_and_its_samples_are_refused(words, said):
    with pytest.raises(UserError, match=said) as refusal:
        settings.load(words)
    assert "-exclude_leaked" in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_training_set_without_a_search_has_no_effect():
    def told(*words):
        return [line for line in settings.load([*EVAL, *words]).notices if "TRAIN_DATA" in line]

    assert told("TRAIN_DATA=there") == ["TRAIN_DATA there (command line): no effect without EXCLUDE_LEAKED"]
    assert told("TRAIN_DATA=there", "-exclude_leaked") == told() == []
    (line,) = [line for line in settings.load(["-cfg=vit_digits", "TRAIN_DATA=there"]).notices if "TRAIN_DATA" in line]
    assert line.endswith(": no effect without EXCLUDE_LEAKED")
    assert settings.load([*EVAL, "DATA.SPLIT=train"]).values.EXCLUDE_LEAKED is False
