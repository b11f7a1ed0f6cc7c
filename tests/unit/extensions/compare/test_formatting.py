"""What comparisons are told as: findings, rows of tables and lines."""

from types import SimpleNamespace

import pytest

from paddlevit_dist.extensions.compare import formatting
from paddlevit_dist.extensions.compare.formatting import format_lines, format_number
from paddlevit_dist.extensions.compare.significance import add_finding


def compare(second, value, p, **changes):
    """A comparison of a run with the first one as ``pairs`` builds it."""
    return {
        **{"first": "a", "second": second, "score": "top-1", "more_is_better": True, "percent": 90, "samples": 1234},
        "difference_percent": 97.5,
        **{"of_first": {"value": 70.0, "low": 66.5, "high": 73.25}, "of_second": {"value": 70.0 + value}},
        **{"difference": {"value": value, "low": value - 1.5, "high": value + 2}, "p": p, "test": "exact McNemar test"},
        **{"settings": {}, "notes": [], "warnings": [], "classes": []},
        **changes,
    }


def test_a_table_has_a_row_for_each_run_and_a_corrected_p_if_there_are_several():
    several = [add_finding(row, 2) for row in (compare("b", 2.0, 0.01), compare("c\n", -0.5, 0.00002))]
    assert formatting.build_rows(several, 2) == [
        ["run", "top-1", "difference", "p", "p (corrected)", ""],
        ["a", "70.00 [66.50, 73.25]", "", "", "", ""],
        ["b", "72.00", "+2.00 [+0.50, +4.00]", "0.01", "0.02", "better"],
        [r"c\n", "69.50", "-0.50 [-2.00, +1.50]", "< 0.0001", "< 0.0001", "worse"],
    ]
    assert formatting.build_rows([add_finding(compare("b", 2.0, 0.0123), 1)], 1) == [
        ["run", "top-1", "difference", "p", ""],
        ["a", "70.0 [66.5, 73.2]", "", "", ""],
        ["b", "72.0", "+2.0 [+0.5, +4.0]", "0.012", "better"],
    ]
    assert formatting.align_columns([["a", "bb", ""], ["cccc", "d", "e"]]) == ["a     bb", "cccc  d   e"]


def test_numbers_have_the_decimals_of_their_size():
    assert [formatting.count_decimals(values) for values in ([0.5, -1.9], [0.5, 2.0], [-3.0], [])] == [4, 2, 2, 4]
    assert [format_number(1.25, 1), format_number(-1.5, 3, True), format_number(2, 0, True)] == ["1.2", "-1.500", "+2"]


def test_methods_name_each_test_and_grouping_once():
    rows = [compare("b", 1.0, 0.5, groups={"number": 1200, "by": "scene"}), compare("c", 1.0, 0.5, test="sign test")]
    rows += [compare("d", 1.0, 0.5, groups={"number": 1200, "by": "scene"})]
    assert formatting.format_method(rows) == (
        "90 % intervals (97.5 % of differences and p times 3: Bonferroni) and p (exact McNemar test, sign test) of the "
        "same 1,234 samples, by 1,200 groups (scene)"
    )


def make_classes(number):
    interval = {"value": 0.25, "low": -0.5, "high": 1.0}
    sides = {"of_first": {"value": 0.5}, "of_second": {"value": 0.75}, "difference": interval}
    sides["listed"] = {"percent": 100 - 50 / number, "value": 0.25, "low": -0.75, "high": 1.25}
    return [{"class": f"c{place}", "score": f"IoU c{place}", **sides} for place in range(number)]


def test_details_of_a_comparison_are_its_settings_classes_and_changed_samples():
    samples = [{"sample": f"{number}.png", "class": "cat"} for number in range(7)]
    changed = {"fixed": samples, "broken": samples[:1], "worse": [{"sample": "x", "of_first": 0.12345, "of_second": 9}]}
    facts = {"settings": {"SEED": ("1", "2"), "AMP": ("a" * 50, "b")}, "notes": ["one\nline"], "warnings": ["odd"]}
    other = compare("b", 0.25, 0.5, classes=make_classes(12), **facts, **changed)
    first, second = {"of": "epoch 3", "split": "val"}, {"of": "best.pdparams", "split": ""}
    tables = [SimpleNamespace(run="a", about=first), SimpleNamespace(run="b", about=second)]
    lines = format_lines(tables, [add_finding(other, 1)], 4)
    assert lines.pop(7) == ""
    assert lines[:3] == ["a: val, epoch 3", "b: weights best.pdparams", ""]
    assert lines[3].split() == ["run", "top-1", "difference", "p"] and lines[6].startswith("90 % intervals")
    assert lines[7] == r"note: one\nline" and lines[8].startswith("settings that differ: SEED 1 -> 2, AMP aaaa")
    assert lines[8].endswith("... -> b") and len(lines[8]) < 90
    assert lines[9] == "IoU of each class, the 10 of 12 that differ most (95.83 % intervals, corrected for the choice):"
    assert lines[10].split() == ["class", "first", "second", "difference"]
    assert [line.split() for line in lines[11:21]] == [
        [f"c{place}", "0.5000", "0.7500", "+0.2500", "[-0.7500,", "+1.2500]"] for place in range(10)
    ]
    shown = ", ".join(f"{number}.png (cat)" for number in range(5))
    assert lines[21:] == [
        f"fixed 7 (wrong before, right now): {shown} and 2 more",
        "broken 1 (right before, wrong now): 0.png (cat)",
        "worse 1: x (0.1235 to 9)",
        "warning: odd",
    ]


@pytest.mark.parametrize("kind", ["fixed", "worse"])
@pytest.mark.parametrize(("number", "more"), [(1, ""), (4, ""), (5, ""), (6, " and 1 more"), (1239, " and 1,234 more")])
def test_up_to_five_samples_are_named(kind, number, more):
    lines = format_lines(
        [], [add_finding(compare("b", 1.0, 0.5, **{kind: [{"sample": f"s{n}"} for n in range(number)]}), 1)], 2
    )
    meaning = " (wrong before, right now)" if kind == "fixed" else ""
    shown = ", ".join(f"s{place}" for place in range(min(number, 5)))
    assert lines[-1] == f"{kind} {number:,}{meaning}: {shown}{more}"


@pytest.mark.parametrize(
    ("number", "told"),
    [(1, ""), (9, ""), (10, ""), (11, ", the 10 of 11 that differ most (95.45 % intervals, corrected for the choice)")],
)
def test_up_to_ten_classes_are_listed(number, told):
    lines = format_lines([], [add_finding(compare("b", 1.0, 0.5, classes=make_classes(number)), 1)], 2)
    at = lines.index(f"IoU of each class{told}:")
    assert [line.split()[0] for line in lines[at + 2 :]] == [f"c{place}" for place in range(min(number, 10))]


def test_several_comparisons_have_a_heading_each():
    rows = compare("b", 0.25, 0.5, better=[]), compare("c", 0.0, 1.0, classes=make_classes(1))
    lines = format_lines([], [add_finding(row, 2) for row in rows], 2)
    at = lines.index("b against a")
    assert lines[at - 1 : at + 4] == ["", "b against a", "better 0", "", "c against a"]
    assert lines[at + 4] == "IoU of each class:" and len(lines) == at + 7


def test_captions_tell_the_class_that_was_predicted_wrongly():
    row = {"sample": "a.png", "class": "cat", "taken_for": "dog"}
    assert formatting.format_caption(row, "fixed") == "a.png: cat, predicted dog before"
    assert formatting.format_caption(row, "broken") == "a.png: cat, predicted dog now"
    assert formatting.format_caption({"sample": "b", "class": "cow"}, "fixed") == "b (cow)"
    assert formatting.format_sample({"sample": "s" * 99, "class": ""}) == formatting.shorten("s" * 99, 60)


@pytest.mark.parametrize(
    ("of", "split", "told"),
    [
        ("epoch 3", "val", "a: val, epoch 3"),
        ("epoch", "test", "a: test, weights epoch"),
        ("results r.csv", "", "a: results r.csv"),
        ("best/model.pdparams", "", "a: weights best/model.pdparams"),
    ],
)
def test_a_table_is_of_an_epoch_of_results_or_of_weights(of, split, told):
    assert formatting.format_evaluation(SimpleNamespace(run="a", about={"of": of, "split": split})) == told


@pytest.mark.parametrize(("p", "told"), [(0.99999e-4, "< 0.0001"), (1e-4, "0.0001"), (0.012345, "0.012"), (1.0, "1")])
def test_p_values_have_two_digits_down_to_a_ten_thousandth(p, told):
    assert formatting.format_p_value(p) == told
    rows = formatting.build_rows([{**compare("b", 1.0, p), "p_corrected": 0.5, "finding": ""}] * 2, 2)
    assert [row[3:5] for row in rows[1:]] == [["", ""], [told, "0.5"], [told, "0.5"]]


@pytest.mark.parametrize(("score", "of_class"), [("IoU c0", "IoU"), ("c0 mre_mm", "mre_mm"), ("c0 at c0", "at")])
def test_the_score_of_classes_is_named_without_the_class(score, of_class):
    (row,) = make_classes(1)
    lines = format_lines([], [add_finding(compare("b", 1.0, 0.5, classes=[{**row, "score": score}]), 1)], 2)
    assert f"{of_class} of each class:" in lines


def test_names_are_cut_where_a_line_would_get_long():
    for length, has_all in ((60, True), (61, False)):
        name = "s" * length
        caption = formatting.format_caption({"sample": name, "class": name, "taken_for": name}, "fixed")
        assert (caption == f"{name}: {name}, predicted {name} before") is has_all
        assert (formatting.format_sample({"sample": name}) == name) is has_all
        (row,) = make_classes(1)
        _, (shown, *_) = formatting.build_class_rows([{**row, "class": name}], 2)
        assert (shown == name) is has_all
    for length, has_all in ((40, True), (41, False)):
        text = "c" * length
        assert (formatting.format_sample({"sample": "s", "class": text}) == f"s ({text})") is has_all
        (line,) = formatting.format_settings({"settings": {"A": (text, text)}})
        assert (line == f"settings that differ: A {text} -> {text}") is has_all


def test_what_only_one_side_has_gets_no_caption_of_two_classes():
    for row in ({"sample": "s", "class": "cat"}, {"sample": "s", "taken_for": "dog"}, {"sample": "s"}):
        assert formatting.format_caption(row, "broken") == formatting.format_sample(row)
    numbers = {"sample": "s", "class": "cat", "of_first": 0.5, "of_second": 1234.56}
    assert formatting.format_sample(numbers) == "s (0.5 to 1235)"
