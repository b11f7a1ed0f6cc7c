"""The keys of several seeds are those of the pages."""

import pytest
from support.key_pages import check_effects, check_rows
from support.refusals import refusal_of

from paddlevit_dist.core.settings import load


def test_keys_are_on_the_page_with_values_default_meaning_and_flag():
    check_rows("extensions.compare")


def test_what_another_value_changes_is_as_listed():
    check_effects("extensions.compare")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-eval -pretrained=x", "EVAL True (-eval): -seeds trains; remove one of them"),
        ("-resume=auto", None),
        (
            "-resume=x",
            "MODEL.RESUME x (-resume): -resume continues one run; to continue a group of seeds, repeat its command "
            "without -resume",
        ),
        ("-selftest", "SELFTEST True (-selftest): -seeds trains; remove one of them"),
    ],
)
def test_several_seeds_train_from_the_beginning(words, told):
    if told is None:
        assert load(["-cfg=vit_digits", "-seeds=3", *words.split()]).values.SEEDS == 3
        return
    assert refusal_of(load, ["-cfg=vit_digits", "-seeds=3", *words.split()]) == f"SEEDS 3 (-seeds) and {told}"


def test_seeds_of_a_recipe_are_not_for_its_evaluation(tmp_path):
    (tmp_path / "own.yaml").write_text("SEEDS: 4\n")
    recipe = f"-cfg={tmp_path / 'own.yaml'}"
    assert load([recipe]).values.SEEDS == 4 and load([recipe, "-eval", "-pretrained=x"]).values.SEEDS is None
