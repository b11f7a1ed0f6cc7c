"""Words and numbers that a key reads, one by one; words are those of YAML, which another library reads here."""

import math

import pytest
import yaml

from paddlevit_dist.core.settings.values import PARSERS, InvalidValue, read_word

REFUSED = "refused"


def parse(kind, value):
    try:
        return PARSERS[kind](value)
    except InvalidValue:
        return REFUSED


@pytest.mark.parametrize("word", ["true", "yes", "on", "false", "no", "off"])
def test_words_of_a_switch_are_those_of_yaml_in_any_case(word):
    expected = yaml.safe_load(word)
    for written in (word, word.upper(), word.title(), f" {word} ", expected):
        assert [parse(kind, written) for kind in ("bool", "switch")] == [expected] * 2
        assert read_word(written) is expected
    assert read_word(f"{word}x") == f"{word}x" and parse("bool", f"{word}x") == REFUSED


@pytest.mark.parametrize("word", ["", "none", "null", "~"])
def test_words_for_nothing_turn_a_switch_off(word):
    assert [parse("switch", written) for written in (word, word.upper(), f" {word} ")] == [False] * 3
    assert parse("bool", word) == REFUSED and parse("switch", "rand-m9") == "rand-m9"


@pytest.mark.parametrize(
    ("value", "whole", "real", "number"),
    [
        ("3", 3, 3.0, 3),
        ("-3", -3, -3.0, -3),
        ("1e2", 100, 100.0, 100),
        (2.0, 2, 2.0, 2),
        ("2.5", REFUSED, 2.5, 2.5),
        (0, 0, 0.0, 0),
        (10**400, 10**400, REFUSED, REFUSED),
        *((value, REFUSED, REFUSED, REFUSED) for value in (True, False, None, "x", "", [1], math.nan, "inf", "-inf")),
    ],
)
def test_numbers_are_whole_or_real_and_finite(value, whole, real, number):
    for kind, expected in (("int", whole), ("float", real), ("number", number)):
        found = parse(kind, value)
        assert found == expected and type(found) is type(expected), kind


def test_texts_have_letters_and_paths_a_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert [parse("text", value) for value in ("a b", "", "a\0b", 3, None, ["a"])] == ["a b", *[REFUSED] * 5]
    assert [parse("path", value) for value in ("~/a", "a/~", "")] == ["/home/me/a", "a/~", REFUSED]


@pytest.mark.parametrize(
    ("written", "held"),
    [
        ("{a: 1, b_2: [x, 0.5], c: {d: null}}", {"a": 1, "b_2": ["x", 0.5], "c": {"d": None}}),
        ("{a: 1e-3, b: '2E+4', c: 1e3x, d: +1.e2}", {"a": 1e-3, "b": 2e4, "c": "1e3x", "d": 100.0}),
        ({"a": "None", "b": (1, "None"), "c": {3: "None"}}, {"a": None, "b": [1, None], "c": {"3": None}}),
        ({"a": "none", "b": True}, {"a": "none", "b": True}),
        *(
            (value, REFUSED)
            for value in ("[a]", "3", "{a b: 1}", "{a: [}", {"a-b": 1}, {1: 2}, {"a": math.nan}, {"a": {1}}, None)
        ),
    ],
)
def test_options_are_names_with_plain_values(written, held):
    assert parse("options", written) == held
