"""The keys for points are those of the pages."""

from support.key_pages import check_effects, check_rows

from paddlevit_dist.settings import load


def test_keys_are_on_the_page_with_values_default_meaning_and_flag():
    check_rows("points")


def test_what_another_value_changes_is_as_listed():
    check_effects("points")


def test_keys_of_drawn_solids_are_for_them_alone():
    words = ["-cfg=mink_classifier_solids", "SHAPES.SOLIDS.TRAIN", "9"]
    assert load(words).notices == []
    (told,) = load([*words, "-dataset=modelnet40_normal_resampled", "-data_path=."]).notices
    assert told.startswith("SHAPES.SOLIDS.TRAIN 9 ") and "no effect: it is for synthetic_solids" in told
