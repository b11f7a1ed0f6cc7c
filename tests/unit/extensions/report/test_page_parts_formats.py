"""Captions, columns, charts and templates of the sections of a page."""

import jinja2
import pytest

from paddlevit_dist.extensions.report import page, parts


@pytest.mark.parametrize(
    "origins, shown, note",
    [
        (
            ["sample 1 of data/digits.npz", "sample 20 of data/digits.npz"],
            ["sample 1", "sample 20"],
            "… of data/digits.npz",
        ),
        (["some/folder/cat/1.png", "some/folder/dog/12.png"], ["cat/1.png", "dog/12.png"], "some/folder/…"),
        (["val 1 of x", "val 2 of x"], ["val 1 of x", "val 2 of x"], None),
        (["some/folder/1.png"] * 2, ["1.png"] * 2, "some/folder/…"),
    ],
)
def test_captions_tell_what_they_have_in_common_once(origins, shown, note):
    images = [{"caption": ["true: 1", origin], "size": [4, 4]} for origin in origins]
    gallery = page.prepare_gallery({"title": "t", "note": "Wrong.", "images": images})
    assert [image["caption"] for image in gallery["images"]] == [["true: 1", name] for name in shown]
    assert gallery["note"] == ("Wrong." if note is None else f"Wrong. Names in full: {note}.")


@pytest.mark.parametrize(("shape", "style"), [("bar", "bar"), ("line", "line"), ("odd", "line")])
def test_a_chart_has_all_its_lines_without_points_that_are_not_finite(shape, style):
    lines = [{"name": "a", "x": [0, 1, 2], "y": [3, None, 5]}, {"name": "b", "x": [0, None, 2], "y": [1, 2, 4]}]
    labels = {"title": "t", "x_label": "x", "y_label": "y", "note": "n"}
    chart = page.prepare_chart({"lines": lines, "shape": shape, **labels})
    assert {name: chart[name] for name in labels} == labels
    assert chart["data"]["lines"] == [
        {"name": "a", "color": 0, "style": style, "x": [0, 2], "y": [3, 5]},
        {"name": "b", "color": 1, "style": style, "x": [0, 2], "y": [1, 4]},
    ]


def test_templates_escape_text_leave_no_blank_lines_and_know_all_names_and_numbers():
    jinja = page.open_templates(jinja2.Environment)
    assert jinja.from_string("  {% if 1 %}\n{{ '<' }}\n  {% endif %}\nb").render() == "&lt;\nb"
    assert (
        jinja.from_string("{{ {'a': [1, 2]} | tojson }}{{ content | base64 }}").render(content=b"xyz")
        == '{"a":[1,2]}eHl6'
    )
    with pytest.raises(jinja2.UndefinedError, match="'absent' is undefined"):
        jinja.from_string("{{ absent }}").render()
    with pytest.raises(ValueError, match="not JSON compliant"):
        jinja.from_string("{{ [number] | tojson }}").render(number=float("nan"))


def test_a_column_has_equal_decimals_and_shares_have_bars():
    assert parts.format_numbers([0.0002, 0.0]) == ["0.0002", "0.0000"]
    rows = [
        ("a", 91.5, 0.5, 12345, 0.123, 3e-5),
        ("b", 40.25, 1.0, None, 110.4, 2e-4),
        ("c", 100.0, 0.1234, 7, 2.0, 0.0),
    ]
    columns = ("class", "recall %", "IoU", "images", "mean mm", "rate")
    table = parts.lay_out_table({**parts.make_table("t", columns, rows), "shares": ["IoU"]})
    assert table["columns"] == list(zip(columns, [False, *[True] * 5]))
    texts = list(zip(*([text for text, _, _ in row] for row in table["rows"])))
    assert texts[1:] == [
        ("91.50", "40.25", "100.00"),
        ("0.5000", "1.0000", "0.1234"),
        ("12,345", "", "7"),
        ("0.12", "110.40", "2.00"),
        ("3e-05", "0.0002", "0"),
    ]
    assert [[share for _, _, share in row] for row in table["rows"]][:2] == [
        [None, 0.915, 0.5, None, None, None],
        [None, 0.4025, 1.0, None, None, None],
    ]
