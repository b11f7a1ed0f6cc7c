"""The keys for points are those of the pages."""

from support.key_pages import check_effects, check_rows

from paddlevit_dist.core.settings import load


def test_keys_are_on_the_page_with_values_default_meaning_and_flag():
    check_rows("points")


def test_what_another_value_changes_is_as_listed():
    check_effects("points")


def test_keys_of_drawn_solids_are_for_them_alone():
    words = ["-cfg=mink_classifier_solids", "SHAPES.SOLIDS.TRAIN", "9"]
    assert load(words).notices == []
    (told,) = load([*words, "-dataset=modelnet40_normal_resampled", "-data_path=."]).notices
    assert told.startswith("SHAPES.SOLIDS.TRAIN 9 ") and "no effect: it is for synthetic_solids" in told


def test_a_score_network_that_is_never_trained_is_told():
    words = ["-cfg=pointgroup_synthetic_rooms", "-epochs=3", "POINTS.INSTANCES.PREPARE_EPOCHS"]
    assert load([*words, "2"]).notices == []
    assert load([*words, "3"]).notices == [
        "POINTS.INSTANCES.PREPARE_EPOCHS 3 (command line): the score network is never trained in TRAIN.NUM_EPOCHS 3 "
        "(-epochs): set PREPARE_EPOCHS lower, or train longer"
    ]
    assert not [line for line in load([*words, "3", "-eval", "-pretrained=x"]).notices if "score network" in line]
