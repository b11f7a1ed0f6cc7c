"""Where lines and bars of a chart lie."""

import itertools

from paddlevit_dist.report.curves import CurveLine, build_chart


def test_bars_of_several_series_stand_side_by_side_and_each_at_its_height():
    heights = {"a": [1.0, 4.0, 2.0], "b": [3.0, 1.0, 5.0], "c": [2.0, 2.5, 0.5]}
    lines = [CurveLine(name, list(enumerate(ys)), n, "bar") for n, (name, ys) in enumerate(heights.items())]
    lines.insert(1, CurveLine("mean", [(0, 2.0), (2, 2.5)]))  # not a bar, and takes no place
    drawn = build_chart("", lines, "x")["drawn"]
    bars = {name: [list(map(float, bar)) for bar in drawn[place]["bars"]] for name, place in zip("abc", (0, 2, 3))}
    assert drawn[1]["bars"] == [] and drawn[1]["path"]
    edges = [bar for place in range(3) for bar in (bars[name][place] for name in "abc")]
    for (left, _, width, _), (following, *_) in itertools.pairwise(edges):
        assert following >= left + width - 0.15  # in pixels, rounded to tenths
    widths = [bar[2] for bar in edges]
    assert max(widths) - min(widths) <= 0.1 + 1e-9
    scale = bars["a"][0][3]  # of a bar of height 1
    for name, ys in heights.items():
        for y, (_, top, _, height) in zip(ys, bars[name]):
            assert abs(height - scale * y) < 0.5 and abs(top + height - bars["a"][0][1] - scale) < 0.2
