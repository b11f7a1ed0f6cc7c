"""Words in images: which scripts are drawn, and what is said of the others."""

import cv2
import numpy as np
import pytest

from paddlevit_dist.runtime import text_rendering

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
    assert np.array_equal(text_rendering.render_text("猫"), text_rendering.render_text("?"))


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
