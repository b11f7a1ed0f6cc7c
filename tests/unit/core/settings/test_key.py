"""Keys as fields of classes: what a user may write follows from the annotation, and mypy knows each key."""

import dataclasses
import functools
import re
from typing import Literal

import pytest

from paddlevit_dist.core.settings import load
from paddlevit_dist.core.settings.key import (
    AT_LEAST_1,
    InvalidValue,
    Key,
    OutOfRange,
    Pair,
    PathText,
    Range,
    Section,
    Triple,
    key,
    rows,
    show,
)
from paddlevit_dist.core.settings.table import find_keys


class Inner(Section):
    WORD: str = key("a", "a word")


class Every(Section):
    WHOLE: int = key(1, "a count", AT_LEAST_1)
    REAL: float = key(1.0, "a factor")
    NUMBER: int | float = key(0, "epochs")
    SWITCH: bool = key(False, "on or off")
    ON_OR_TEXT: bool | str = key(False, "a policy")
    FOLDER: PathText | None = key(None, "a folder")
    CHOICE: Literal["sync", "local"] | None = key(None, "one of two")
    COUNT: Literal[1, 3] = key(3, "channels")
    LEVEL: Literal[False, 95, 99] = key(95, "percent")
    LIST: list[int] = key([], "epochs", AT_LEAST_1)
    CHOICES: list[Literal["x", "y"]] = key(["x"], "axes")
    PAIR: Pair[int] = key([1, 2], "smallest and largest")
    TRIPLE: Triple[float] | None = key(None, "spacing")
    TUPLE: tuple[float, float] = key((0.9, 0.999), "moments")
    ONE_OR_LIST: int | list[int] | None = key(None, "blocks")
    ONE_OR_PAIR: int | Pair[int] = key(9, "side, or height and width", AT_LEAST_1)
    LIST_OR_WORD: list[float] | Literal["balanced"] | None = key(None, "weights")
    INNER: Inner
    LAST: bool = key(True, "after a section")


ROWS = {row.name: row for row in rows(Every)}


def test_what_a_user_writes_becomes_what_the_annotation_says(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    for name, written, held in (
        ("WHOLE", "1e2", 100),
        ("REAL", "3", 3.0),
        ("NUMBER", "3", 3),
        ("NUMBER", "0.5", 0.5),
        ("SWITCH", True, True),
        ("ON_OR_TEXT", True, True),
        ("ON_OR_TEXT", "rand-m9", "rand-m9"),
        ("ON_OR_TEXT", "none", False),
        ("FOLDER", "~/data", "/home/me/data"),
        ("FOLDER", "none", None),
        ("CHOICE", "SYNC", "sync"),
        ("COUNT", "1", 1),
        ("LEVEL", False, False),
        ("LEVEL", "99", 99),
        ("LIST", "1, 2", [1, 2]),
        ("LIST", 3, [3]),
        ("CHOICES", "[Y, x]", ["y", "x"]),
        ("PAIR", "(3, 4)", [3, 4]),
        ("TRIPLE", "1, 2, 3", [1.0, 2.0, 3.0]),
        ("TUPLE", [0, 1], (0.0, 1.0)),
        ("ONE_OR_LIST", "3", 3),
        ("ONE_OR_LIST", "3, 4", [3, 4]),
        ("ONE_OR_LIST", "3, 3", [3, 3]),
        ("ONE_OR_PAIR", "3", 3),
        ("ONE_OR_PAIR", "[3, 4]", [3, 4]),
        ("ONE_OR_PAIR", (3, 3), 3),
        ("LIST_OR_WORD", "Balanced", "balanced"),
        ("LIST_OR_WORD", "1, 2", [1.0, 2.0]),
        ("INNER.WORD", "b", "b"),
    ):
        parsed = ROWS[name].parse(written)

        assert parsed == held and type(parsed) is type(held), name


@pytest.mark.parametrize(
    "written, names",
    [
        ("['wall', 'floor']", ["wall", "floor"]),
        ('["a.*"]', ["a.*"]),
        ("('wall','floor',)", ["wall", "floor"]),
        ("'wall'", ["wall"]),
        ("wall, 'hall, left' , floor", ["wall", "hall, left", "floor"]),
        ("""["it's", 'it''s']""", ["it's", "it's"]),
        ("[driver's seat, b]", ["driver's seat", "b"]),
        ("['a'b, \"c]", ["'a'b", '"c']),
        ("[]", []),
    ],
)
def test_quotes_of_yaml_and_python_are_not_part_of_a_name(written, names):
    assert Key("NAMES", [], "text", "names", many=True).parse(written) == names


def test_quoted_items_of_other_kinds_are_read_too():
    assert ROWS["LIST"].parse("['1', 2]") == [1, 2] and ROWS["CHOICES"].parse('["x", Y]') == ["x", "y"]
    for written in ("['']", "[a,,b]", "['a', '']"):
        with pytest.raises(InvalidValue):
            Key("NAMES", [], "text", "names", many=True).parse(written)


@pytest.mark.parametrize("words, value", [(("on", "Yes", "TRUE"), True), (("off", "No", " false "), False)])
def test_words_in_quotes_switch_as_those_without(words, value):
    for word in words:
        assert ROWS["SWITCH"].parse(word) is value and ROWS["ON_OR_TEXT"].parse(word) is value
        assert Key("SIGNS", "on", "text", "a user's key", choices=("on", "off")).parse(value) == (
            "on" if value else "off"
        )
        if not value:
            assert ROWS["LEVEL"].parse(word) is False
    assert ROWS["LEVEL"].parse("95") == 95 and ROWS["CHOICE"].parse("None") is None


@pytest.mark.parametrize("written", ["3, 4, 5", "[3]", [], "[3, 0]", "3x4"])
def test_a_pair_has_two_items(written):
    with pytest.raises(InvalidValue):
        ROWS["ONE_OR_PAIR"].parse(written)
    assert ROWS["ONE_OR_PAIR"].expected() == "a whole number >= 1 or a list of 2 of them"
    assert ROWS["ONE_OR_LIST"].expected() == "a whole number or a list of them, or None"


def test_every_key_takes_its_default_in_quotes():
    """As users of other programs write a file: "off", "0.1", "[1, 2]", "none"."""
    for row in find_keys().values():
        written = {False: "off", True: "on"}[row.default] if isinstance(row.default, bool) else str(row.default)
        assert row.parse(written) == row.default, row.name


def test_every_optional_key_takes_none():
    for row in find_keys().values():
        for word in (None, "None", "none", "null", "~", " NONE ", ""):
            if row.optional:
                assert row.parse(word) is None, row.name
            else:
                with pytest.raises(InvalidValue):
                    assert row.parse(None), row.name


RECIPES = ("vit_digits", "detr_shapes", "segformer_b0_shapes", "minkunet14_synthetic_rooms", "landmark_unet3d") + (
    *("pointgroup_synthetic_rooms", "mink_classifier_solids", "volume_unet3d_phantoms", "mask_rcnn_shapes"),
)


@functools.cache
def find_task(recipe):
    return load([f"-cfg={recipe}"]).values.TASK


@pytest.mark.parametrize("recipe", RECIPES)
def test_none_is_taken_on_the_command_line_too_and_shown(recipe):
    """Each rule between keys has to expect it: those that refuse as those that describe.

    A key is set alone in the first of the recipes that has it, and with all others in each.
    """
    *others, task = map(find_task, RECIPES[: RECIPES.index(recipe) + 1])
    names = [name for name, row in find_keys(task).items() if row.optional]
    assert len(names) > 20
    known = set().union(*map(find_keys, others))
    for chosen in (*([name] for name in names if name not in known), names):
        words = [word for name in chosen for word in (name, "None")]
        shown = load([f"-cfg={recipe}", *words], recipe).describe()
        for name in chosen:
            assert re.search(rf" {name.rpartition('.')[2]}: |^{name}: ", shown, re.MULTILINE), name


def test_what_the_annotation_does_not_say_is_refused():
    for name, written in (
        ("WHOLE", 0),
        ("WHOLE", 1.5),
        ("WHOLE", None),
        ("REAL", "inf"),
        ("NUMBER", float("nan")),
        ("SWITCH", "maybe"),
        ("SWITCH", 1),
        ("CHOICE", "global"),
        ("COUNT", 2),
        ("LEVEL", 90),
        ("LIST", [0]),
        ("CHOICES", ["z"]),
        ("PAIR", [1, 2, 3]),
        ("TRIPLE", [1, 2]),
        ("TUPLE", 0.9),
        ("LIST_OR_WORD", "even"),
        ("LIST", None),
    ):
        with pytest.raises(InvalidValue):
            pytest.fail(f"{name} has taken {ROWS[name].parse(written)!r}")


def test_a_number_without_a_limit_is_one_that_libraries_take():
    whole = Key("WHOLE", 0, "int", "a number")
    for number in (2**31 - 1, 1 - 2**31):
        assert whole.parse(number) == number
        with pytest.raises(OutOfRange, match=r"^numbers beyond 2147483647 are not supported$"):
            whole.parse(number + (1 if number > 0 else -1))
    assert dataclasses.replace(whole, within=Range(high=1e12)).parse(2**31) == 2**31
    with pytest.raises(OutOfRange):
        dataclasses.replace(whole, within=AT_LEAST_1).parse(2**31)
    assert dataclasses.replace(whole, kind="number").parse(2**31) == 2**31


def test_long_values_are_shortened_in_messages():
    assert show("x" * 98) == repr("x" * 98) and len(show("x" * 99)) == 100 and "..." in show("x" * 99)
    for kind in (list, tuple, dict.fromkeys):
        assert show(kind(range(8))) == repr(kind(range(8)))
        assert "7" in show(kind(range(9))) and "8" not in show(kind(range(9))) and "..." in show(kind(range(9)))
    assert show([[[1]]]) == "[[[1]]]" and show([[[[1]]]]) == "[[[[...]]]]"


def test_rows_are_in_the_order_of_the_fields_and_without_those_inherited():
    class More(Inner):
        NUMBER: int = key(2, "beside the word")

    class Wider(Every):
        INNER: More

    assert list(ROWS)[-3:] == ["LIST_OR_WORD", "INNER.WORD", "LAST"]
    assert [row.name for row in rows(Wider)] == ["INNER.NUMBER"]
