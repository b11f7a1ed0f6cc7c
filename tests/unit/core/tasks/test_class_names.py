"""How classes are named: as their dataset does, by numbers where it does not, and each by a name of its own."""

import itertools
from types import SimpleNamespace

import pytest
from support.refusals import refusal_of

from paddlevit_dist import UserError
from paddlevit_dist.core.tasks.class_names import (
    make_unique,
    name_all,
    name_outputs,
    require_unique,
    resolve_class_names,
)


def config_of(classes, dataset="birds"):
    return SimpleNamespace(DATA=SimpleNamespace(DATASET=dataset), MODEL=SimpleNamespace(NUM_CLASSES=classes))


def test_classes_beyond_the_names_are_numbered():
    names = ["owl", "tit", "wren"]
    assert resolve_class_names(config_of(None), names) == names
    assert resolve_class_names(config_of(5), names) == [*names, "3", "4"]
    assert resolve_class_names(config_of(3), None, number=2) == ["0", "1", "2"]
    assert resolve_class_names(config_of(None), None) == []
    assert resolve_class_names(config_of(5), ["2", "4", "10"]) == ["2", "4", "10", "3", "output 4"]
    message = refusal_of(resolve_class_names, config_of(2), names, "landmarks")
    expected = "dataset birds has 3 landmarks but MODEL.NUM_CLASSES (-num_classes) is 2; set it to 3 or remove it"
    assert message == expected


def test_splits_have_the_same_classes_in_the_same_order():
    resolve, names = resolve_class_names, ["owl", "tit", "wren"]
    before = resolve(config_of(4), names)
    assert resolve(config_of(4), names, before=before) == before
    assert resolve(config_of(4), names[:2], before=before) == ["owl", "tit", "2", "3"]
    assert resolve(config_of(None), None, number=3, before=["0", "1"]) == ["0", "1", "2"]
    for other in (["tit", "owl", "wren"], ["owl", "wren"], ["owl", "tit", "wren", "kite", "rook"]):
        with pytest.raises(
            UserError, match="dataset birds: training and validation data name different classes: owl, "
        ):
            resolve(config_of(9), other, before=before)


def test_outputs_beyond_the_names_have_their_number():
    assert name_outputs(["cat", "dog", "cow"], 2) == ["cat", "dog"]
    assert name_outputs(["cat", 3, "4"], 6) == ["cat", "3", "4", "output 3", "output 4", "5"]
    assert name_outputs(None, 2) == ["0", "1"]


def test_a_name_twice_is_refused_with_its_two_places():
    message = refusal_of(resolve_class_names, config_of(None), ["owl", "tit", "wren", "tit", "owl"])
    assert message == "dataset birds: classes 1 and 3 are both 'tit'; each needs its own name"
    message = refusal_of(require_unique, ["tit", "tit"], "birds.txt lines", itertools.count(1))
    assert message == "birds.txt lines 1 and 2 are both 'tit'; each needs its own name"
    assert message.count("\n") == 0
    require_unique(["owl", "Owl", "owl "], "classes")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["owl", "tit", "owl"], ["owl (id 7)", "tit", "owl (id 9)"]),
        (["owl", "owl (id 7)", "owl"], ["owl (id 7)'", "owl (id 7)", "owl (id 9)"]),
        (["owl", "tit", "wren"], ["owl", "tit", "wren"]),
    ],
)
def test_marks_tell_classes_of_one_name_apart(names, expected):
    assert make_unique(names, ["id 7", "id 8", "id 9"]) == expected


def test_no_two_outputs_have_one_name():
    assert name_outputs(["crane", "owl", "crane"], 4) == ["crane (output 0)", "owl", "crane (output 2)", "3"]
    assert name_outputs(["2", "output 2"], 4) == ["2", "output 2", "output output 2", "3"]


def test_the_overall_row_has_a_name_that_no_class_has():
    assert name_all(["left", "right"]) == "all" and name_all(["left", "all"]) == "all together"
