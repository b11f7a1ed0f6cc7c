"""Words in images: which scripts are drawn, and what is said of the others."""

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from paddlevit_dist.core.runtime import text_rendering

in_unicode = pytest.mark.skipif(not hasattr(cv2, "FontFace"), reason="OpenCV 4 has no such font")


@pytest.fixture
def ascii_only(monkeypatch):
    """As on a machine without OpenCV 5."""
    monkeypatch.delattr(cv2, "FontFace", raising=False)
    caches = (text_rendering.render_text, text_rendering._is_drawable, text_rendering._unicode_font)
    for one in caches:
        one.cache_clear()
    yield
    for one in caches:
        one.cache_clear()


@in_unicode
@pytest.mark.parametrize("text", ["łódź ğ", "собака", "κάστρο", "猫犬", "ねこ", "고양이", "חתול", "قطة"])
def test_letters_of_many_scripts_are_drawn(text):
    assert text_rendering.printable_or(text, "class 1") == text and text_rendering.format_note([text]) == []
    drawn = np.asarray(text_rendering.render_text(text))
    as_unknown = np.asarray(text_rendering.render_text("?" * len(text)))
    assert (drawn > 128).sum() > 20 and not np.array_equal(drawn, as_unknown)
    assert not np.array_equal(drawn, np.asarray(text_rendering.render_text(text[0])))


def test_bytes_that_are_no_text_are_drawn_as_question_marks():
    name = b"c\xe4t".decode("utf-8", "surrogateescape")
    assert text_rendering.printable_or(name) == "c?t" and text_rendering.printable_or("\ud800") == "?"
    np.testing.assert_array_equal(text_rendering.render_text(name), text_rendering.render_text("c?t"), strict=True)


@in_unicode
def test_names_that_no_font_draws_are_numbers_and_told():
    names = ["cat", "猫", "ไก่", "a ไก่"]
    assert [text_rendering.printable_or(name, f"class {n}") for n, name in enumerate(names)] == [
        "cat",
        "猫",
        "class 2",
        "a ???",
    ]
    (note,) = text_rendering.format_note(names)
    assert "2 ไก่, 3 a ไก่" in note and "opencv" not in note


def test_without_a_font_for_them_names_are_numbers_and_the_remedy_is_told(ascii_only):
    assert (
        text_rendering.printable_or("猫", "class 0") == "class 0"
        and text_rendering.printable_or("naïve", "class 0") == "na?ve"
    )
    (note,) = text_rendering.format_note(["猫", "dog", *"一二三四五六"])
    assert "0 猫, 2 一" in note and "and 2 more" in note and "opencv-python-headless" in note
    np.testing.assert_array_equal(text_rendering.render_text("猫"), text_rendering.render_text("?"), strict=True)


def test_names_of_several_lines_stay_in_theirs():
    assert text_rendering.render_text("a\nb").size == text_rendering.render_text("a?b").size
    assert "0 a\nb" in text_rendering.format_note(["a\nb"])[0]


def test_a_legend_goes_on_in_a_further_column():
    entries = [(f"name {number}", (200, number, 0)) for number in range(7)]
    one, two = (np.asarray(text_rendering.legend(entries, height)) for height in (1000, 4 * text_rendering.LINE_PX))
    assert (len(one), len(two)) == (7 * text_rendering.LINE_PX, 4 * text_rendering.LINE_PX) and two.shape[
        1
    ] > 1.9 * one.shape[1]
    places = [np.argwhere((two == (200, number, 0)).all(axis=2)).min(axis=0) for number in range(7)]
    assert places[4][0] == places[0][0] and places[4][1] > places[0][1] and places[1][1] == places[0][1]


def draw_ascii(text, size_px, height):
    font = ImageFont.load_default(size_px)
    mask = Image.new("L", (int(font.getlength(text)) + 1, height))
    ImageDraw.Draw(mask).text((0, 0), text, fill=255, font=font)
    return np.asarray(mask)


@pytest.mark.parametrize("size_px, height", [(15, 21), (30, 42), (11, 15)])
def test_a_line_is_as_high_as_its_letters_need(size_px, height):
    drawn = np.asarray(text_rendering.render_text("Wide y", size_px))
    assert np.array_equal(drawn, draw_ascii("Wide y", size_px, height)) and drawn.max() == 255
    np.testing.assert_array_equal(text_rendering.render_text("a"), text_rendering.render_text("a", 15), strict=True)


@in_unicode
@pytest.mark.parametrize("size_px, height", [(15, 21), (30, 42)])
def test_a_line_of_another_script_is_as_wide_as_it_is(size_px, height):
    font = cv2.FontFace("uni")
    left, _, width, _ = cv2.getTextSize((1, 1), "собака", (0, size_px), font, size_px, 400)
    expected = np.zeros((height, left + width + 1), np.uint8)
    cv2.putText(expected, "собака", (0, size_px), (255,), font, size_px, 400)
    assert (
        np.array_equal(np.asarray(text_rendering.render_text("собака", size_px)), expected) and expected[:, -8:].any()
    )


def test_up_to_five_names_that_cannot_be_drawn_are_listed(ascii_only):
    start = 'note: no font here supports all of these names, so "?" or the number is drawn: '
    end = "; opencv-python-headless from version 5 on supports more scripts"
    names = ["a", *"一二三四五"]
    five = "1 一, 2 二, 3 三, 4 四, 5 五"
    assert text_rendering.format_note(names) == [f"{start}{five}{end}"]
    assert text_rendering.format_note([*names, "b", *["六"] * 1200]) == [f"{start}{five} and 1,200 more{end}"]
    assert text_rendering.format_note(["a", "b"]) == []
    assert [text_rendering.printable_or(text, "n") for text in ("??", "猫?", "猫 a", "")] == ["??", "n", "? a", ""]


@pytest.mark.parametrize("height, rows", [(5, 1), (41, 1), (42, 2), (63, 3), (900, 5)])
def test_a_legend_has_a_square_and_a_name_in_each_line(height, rows):
    names = ["one", "W" * 50, "", "three", "a"]
    colors = [(200, number, 90) for number in range(5)]
    masks = [draw_ascii(name[:40], 15, 21) for name in names]
    columns = [range(first, min(first + rows, 5)) for first in range(0, 5, rows)]
    widths = [48 + max(masks[number].shape[1] for number in column) for column in columns]
    expected = np.full((21 * rows, sum(widths), 3), 250, np.uint8)
    for column, members in enumerate(columns):
        left = sum(widths[:column]) + 12
        for row, number in enumerate(members):
            top = 21 * row
            expected[top + 4 : top + 17, left : left + 13] = (9, 8, 7)
            expected[top + 5 : top + 16, left + 1 : left + 12] = colors[number]
            mask = masks[number][..., None] / 255
            part = expected[top : top + 21, left + 18 : left + 18 + mask.shape[1]]
            part[:] = np.round(part * (1 - mask) + np.array((9, 8, 7)) * mask)
    drawn = text_rendering.legend(list(zip(names, colors)), height, (9, 8, 7), (250, 250, 250))
    assert drawn.size == expected.shape[1::-1]
    assert np.abs(np.asarray(drawn).astype(int) - expected).max() <= 1  # of rounding
    assert np.asarray(text_rendering.legend([("", (1, 2, 3))], 21))[[0, 4, 5], [0, 12, 13]].tolist() == [
        *([255] * 3, [0] * 3, [1, 2, 3]),
    ]
