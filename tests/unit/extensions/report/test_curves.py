"""Where lines and bars of a chart lie."""

import itertools

import pytest

from paddlevit_dist.extensions.report import curves
from paddlevit_dist.extensions.report.curves import CurveLine, build_chart

LEFT, WIDTH = 62, 284  # pixels of the axes' box


def test_bars_of_several_series_stand_side_by_side_and_each_at_its_height():
    heights = {"a": [1.0, 4.0, 2.0], "b": [3.0, 1.0, 5.0], "c": [2.0, 2.5, 0.5]}
    lines = [CurveLine(name, list(enumerate(ys)), n, "bar") for n, (name, ys) in enumerate(heights.items())]
    lines.insert(1, CurveLine("mean", [(0, 2.0), (0.5, 2.25), (2, 2.5)]))  # not a bar, and takes no place
    drawn = build_chart("", lines, "x")["views"][0][1]
    bars = {name: [list(map(float, bar)) for bar in drawn[place]["bars"]] for name, place in zip("abc", (0, 2, 3))}
    assert drawn[1]["bars"] == [] and drawn[1]["path"]
    edges = [bar for place in range(3) for bar in (bars[name][place] for name in "abc")]
    for (left, _, width, _), (following, *_) in itertools.pairwise(edges):
        assert following >= left + width - 0.15  # in pixels, rounded to tenths
    widths = [bar[2] for bar in edges]
    assert max(widths) - min(widths) <= 0.1 + 1e-9
    low, high = build_chart("", lines, "x")["data"]["x"]
    assert (low, high) == (-0.5, 2.5)
    for place, triple in enumerate(zip(*bars.values())):  # each group is centered, and nearly as wide as its place
        middle = LEFT + (place - low) / (high - low) * WIDTH
        assert triple[0][0] + triple[2][0] + triple[2][2] == pytest.approx(2 * middle, abs=0.3)
        assert 3 * triple[0][2] == pytest.approx(0.9 * WIDTH / (high - low), abs=0.4)
    scale = bars["a"][0][3]  # of a bar of height 1
    for name, ys in heights.items():
        for y, (_, top, _, height) in zip(ys, bars[name]):
            assert abs(height - scale * y) < 0.5 and abs(top + height - bars["a"][0][1] - scale) < 0.2


def test_bars_below_zero_hang_from_it_and_narrow_or_low_ones_stay_visible():
    line = CurveLine("a", [(0, -2.0), (1, 1.0), (2, 1e-9)], 0, "bar")
    below, above, low = (list(map(float, bar)) for bar in build_chart("", [line], "x")["views"][0][1][0]["bars"])
    assert below[1] == pytest.approx(above[1] + above[3], abs=0.11) and below[3] == pytest.approx(2 * above[3], abs=0.2)
    assert low[3] == 0.3
    many = [CurveLine(name, [(x, 1.0) for x in range(450)], n, "bar") for n, name in enumerate("abc")]
    assert {float(bar[2]) for line in build_chart("", many, "x")["views"][0][1] for bar in line["bars"]} == {0.5}


def test_lines_keep_their_places_colors_and_values():
    lines = [
        CurveLine("up", [(0, 1.0), (5, 2.0), (10, 3.0)], 13),
        CurveLine("none", [], 1),
        CurveLine("one", [(10, 1.0)], 2),
        CurveLine("two", [(0, 2.0), (10, 1 / 3)], 3),
        CurveLine("of a bundle", [(0, 1.0), (5, 1.0), (10, 1.0)], 4, "thin"),
        CurveLine("long", [(x / 4, 1.5) for x in range(31)], 5),
        CurveLine("long with dots", [(x / 4, 1.5) for x in range(31)], 6, "dots"),
    ]
    chart = build_chart("title", lines, "x", "y", "note")
    assert (chart["title"], chart["x_label"], chart["y_label"], chart["note"]) == ("title", "x", "y", "note")
    assert chart["x_ticks"] == [(f"{LEFT + WIDTH / 10 * x:.1f}", str(x)) for x in (0, 2, 4, 6, 8, 10)]
    ((y_ticks, drawn),) = chart["views"]
    assert [label for _, label in y_ticks] == ["0", "1", "2", "3"]
    assert [float(place) for place, _ in y_ticks] == pytest.approx([200, 141.3, 82.7, 24], abs=0.06)
    up, one, two, bundled, long, dotted = drawn
    assert up["path"] == "M62.0 141.3L204.0 82.7L346.0 24.0" and up["dots"][1] == ("204.0", "82.7")
    assert [line["color"] for line in drawn] == [1, 2, 3, 4, 5, 6]
    assert [len(line["dots"]) for line in (up, one, two, bundled, long, dotted)] == [3, 1, 0, 0, 0, 31]
    data = {line["name"]: (line["x"], line["y"]) for line in chart["data"]["lines"]}
    assert data["two"] == ([0, 10], [2, 0.333333]) and list(data) == [line.name for line in lines if line.points]
    assert chart["data"]["box"] == [LEFT, 24, WIDTH, 176] and chart["data"]["x"] == [0, 10]
    assert "data" not in build_chart("t", lines[1:2], "x", note="n")


def test_a_line_that_is_flat_has_room_above_and_below():
    chart = build_chart("", [CurveLine("a", [(3, -40.0), (4, -40.0)])], "x")
    assert chart["data"]["y"] == [-42.0, -38.0] and chart["views"][0][1][0]["path"] == "M62.0 112.0L346.0 112.0"


@pytest.mark.parametrize("values", [(1.0, 1.0), (0.98, 0.98), (0.2, 1.0), (100.0, 100.0), (99.0, 99.0), (0.0, 0.0)])
def test_the_axis_of_a_share_or_of_percent_ends_where_they_do(values):
    low, high = build_chart("", [CurveLine("a", list(enumerate(values)))], "x")["data"]["y"]
    assert 0 <= low <= min(values) and max(values) <= high <= (1 if max(values) <= 1 else 100) and low < high


def test_a_line_whose_values_differ_by_less_than_its_ticks_say_fills_the_height():
    values = (0.10868307847683634, 0.10868307847711946)  # to twelve digits the same
    (line,) = build_chart("", [CurveLine("a", list(enumerate(values)))], "x")["views"][0][1]
    assert line["path"] == "M62.0 200.0L346.0 24.0"


def test_whole_numbers_are_short_unless_they_are_huge():
    chart = build_chart("", [CurveLine("a", [(0, -2e15), (1, 2e15), (2, -7.0), (3, -1 / 3)])], "x")
    assert list(map(repr, chart["data"]["lines"][0]["y"])) == [
        "-2000000000000000.0",
        "2000000000000000.0",
        "-7",
        "-0.333333",
    ]


def test_numbers_of_ticks_are_short():
    numbers = {1e15: "1e+15", 0.0: "0", 9e-4: "0.0009", -2.5e-5: "-2.5e-05", 0.001: "0.001", 9999.5: "9999.5"}
    numbers |= {1e4: "10k", -12_340.0: "-12.34k", 1e6: "1M", 2.5e9: "2.5G", 0.123456: "0.12346"}
    assert {number: curves.format_tick(number) for number in numbers} == numbers


def test_lines_of_runs_have_a_color_each_and_one_of_a_single_run_by_kind():
    first = ("a", {"loss": [(1, 2.0)]}, {"loss": [(1, 3.0)]})
    second = ("b", {"other": [(1, 5.0)]}, {"loss": [(1, 4.0), (2, 6.0)]})
    assert curves.build_lines([first], "loss") == [
        CurveLine("training", [(1, 2.0)], curves.MUTED, "line"),
        CurveLine("evaluation", [(1, 3.0)], 0, "dots"),
    ]
    assert [line.color for line in curves.build_lines([("a", {"loss": [(1, 2.0)]}, {})], "loss")] == [0]
    assert curves.build_lines([first, second], "loss") == [
        CurveLine("a training", [(1, 2.0)], 0, "line"),
        CurveLine("a evaluation", [(1, 3.0)], 0, "dots"),
        CurveLine("b evaluation", [(1, 4.0), (2, 6.0)], 1, "dots"),
    ]
    *_, mean = curves.build_lines([first, second], "loss", ["g", "g"])
    assert mean == CurveLine("g evaluation, mean of 2", [(1, 3.5), (2, 6.0)], 0, "dots")


def test_a_mean_goes_from_left_to_right_where_runs_have_other_epochs():
    runs = [("a", {}, {"loss": [(2, 1.0), (6, 2.0)]}), ("b", {}, {"loss": [(1, 3.0), (4, 5.0), (6, 8.0)]})]
    *_, mean = curves.build_lines(runs, "loss", ["g", "g"])
    assert mean.points == [(1, 3.0), (2, 1.0), (4, 5.0), (6, 5.0)]


def test_a_long_line_is_drawn_with_fewer_points_and_keeps_its_peaks():
    points = [(x, float(x % 7)) for x in range(3000)]
    points[1234], points[2345] = (1234, 99.0), (2345, -99.0)
    chart = build_chart("", [CurveLine("a", points)], "x")
    ((xs, ys),) = [(line["x"], line["y"]) for line in chart["data"]["lines"]]
    assert len(xs) == 499 and xs == sorted(set(xs)) and (xs[0], xs[-1]) == (0, 2999)
    assert {(1234, 99), (2345, -99)} < set(zip(xs, ys)) and set(zip(xs, ys)) <= {(x, int(y)) for x, y in points}
    assert chart["views"][0][1][0]["path"].count("L") == len(xs) - 1 and chart["views"][0][1][0]["dots"] == []
    assert curves.thin(points[:500]) == points[:500]


@pytest.mark.parametrize(("most", "shown"), [(3, "0 1 2 3"), (13, "0 5 10"), (12_500, "0 2500 5000 7500 10k 12.5k")])
def test_numbers_of_updates_are_whole_on_the_axis(most, shown):
    chart = build_chart("", [CurveLine("a", [(0, 0.25), (most, 0.5)])], "update")
    assert [label for _, label in chart["x_ticks"]] == shown.split()
    assert chart["description"] == "a from 0.25 to 0.5"
    halves = build_chart("", [CurveLine("a", [(0.5, 1), (1.5, 2)], 0, "bar")], "x")
    assert [label for _, label in halves["views"][0][0]] == ["0", "1", "2"]  # counts


def test_values_that_differ_much_have_a_second_view_with_a_logarithmic_axis():
    line = CurveLine("a", [(0, 0.0), (1, 100.0), (2, 10.0), (3, 1.0)])
    (_, drawn), (y_ticks, logarithmic) = build_chart("", [line], "x", offers_log=True)["views"]
    assert drawn[0]["path"].count("L") == 3 and logarithmic[0]["path"] == "M156.7 24.0L251.3 112.0L346.0 200.0"
    assert [label for _, label in y_ticks] == ["1", "2", "5", "10", "20", "50", "100"]
    assert len(build_chart("", [line._replace(points=line.points[2:])], "x", offers_log=True)["views"]) == 2
    near = [line._replace(points=[(0, 0.0), (1, 4.9), (2, 1.0)])]
    assert len(build_chart("", near, "x", offers_log=True)["views"]) == len(build_chart("", [line], "x")["views"]) == 1
