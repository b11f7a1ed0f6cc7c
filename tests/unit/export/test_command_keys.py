"""Keys of ``export`` change what is stored with the weights, as its options do."""

import pytest
from support.trainings.trained import write_weights

from paddlevit_dist.export.command import load_trained_model
from paddlevit_dist.runtime.errors import UserError


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return str(write_weights(tmp_path_factory.mktemp("weights"), ["ant", "bee"]))


def test_a_key_of_the_input_is_in_the_description(source):
    words = ["DATA.CROP_PCT=0.5", "-allow_changes", "-batch_size_eval=3"]
    said: list[str] = []
    trained = load_trained_model(source, words=words, log=said.append)
    assert said == ["DATA.BATCH_SIZE_EVAL 3 (-batch_size_eval): no effect: export does not read it"]
    stored = load_trained_model(source).about
    assert [name for name in stored if trained.about[name] != stored[name]] == ["crop_pct", "preprocessing"]
    assert trained.about["crop_pct"] == 0.5 and trained.about["preprocessing"]["resize_shorter_side"] == 32


def test_the_size_may_be_an_option_and_a_key_with_allowed_changes(source):
    by_option = load_trained_model(source, image_size=32).about
    by_key = load_trained_model(source, words=["DATA.IMAGE_SIZE=32", "-allow_changes"]).about
    assert by_option == by_key and by_key["input_shape"] == [None, 3, 32, 32]
    both = load_trained_model(source, image_size=32, words=["DATA.CROP_PCT=0.5", "-allow_changes"]).about
    assert (both["input_shape"], both["crop_pct"]) == (by_key["input_shape"], 0.5)


@pytest.mark.parametrize(
    "options, words, said",
    [
        ({}, ["DATA.CROP_PCT=0.5"], "was trained with different preprocessing: DATA.CROP_PCT 0.875 there, 0.5 here"),
        (
            {"image_size": 32},
            ["MODEL.DEPTH=2"],
            "is of another network: MODEL.DEPTH 1 there, 2 here; remove the change",
        ),
        ({}, ["MODEL.DEPTH=2", "-allow_changes"], "it lacks blocks.1."),
        (
            {"name": "vit"},
            ["DATA.CROP_PCT=0.5"],
            "-model=vit builds a network without a run's keys; remove one of both",
        ),
    ],
)
def test_keys_that_the_weights_do_not_fit_are_refused_in_one_line(source, options, words, said):
    with pytest.raises(UserError) as refusal:
        load_trained_model(source, words=words, **options)
    assert said in str(refusal.value) and "\n" not in str(refusal.value)
