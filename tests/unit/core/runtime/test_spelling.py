"""Names in macOS's decomposed form equal those in the composed form of other systems."""

import unicodedata

import pytest

from paddlevit_dist.core.runtime.spelling import compose, find_spelling, find_suffix

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "Zoë/café.jpg") for form in ("NFC", "NFD"))


def test_equal_names_have_one_composed_form():
    assert COMPOSED != DECOMPOSED and compose(DECOMPOSED) == compose(COMPOSED) == COMPOSED


@pytest.mark.parametrize(("stored", "asked"), [(COMPOSED, DECOMPOSED), (DECOMPOSED, COMPOSED), (COMPOSED, COMPOSED)])
def test_a_path_is_found_in_the_spelling_of_the_file_system(tmp_path, stored, asked):
    (tmp_path / stored).parent.mkdir()
    (tmp_path / stored).write_bytes(b"x")
    assert find_spelling(str(tmp_path / asked)) == str(tmp_path / stored)
    assert find_spelling(str(tmp_path / "Zoe.jpg")) == str(tmp_path / "Zoe.jpg")


def test_a_path_that_does_not_exist_is_unchanged(tmp_path):
    for path in ("é/a.jpg", "/é", "\udce9.jpg", "é\0"):
        assert find_spelling(path) == path


def test_of_two_files_that_differ_in_their_spelling_each_is_itself(tmp_path):
    for name in (COMPOSED, DECOMPOSED):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    for name in (COMPOSED, DECOMPOSED):
        assert find_spelling(str(tmp_path / name)) == str(tmp_path / name)


def test_a_folder_is_found_with_a_separator_at_its_end(tmp_path):
    folder = unicodedata.normalize("NFD", "café")
    (tmp_path / folder).mkdir()
    assert find_spelling(f"{tmp_path}/café/") == f"{tmp_path}/{folder}/"
    assert find_spelling(f"{tmp_path}/cafö//") == f"{tmp_path}/cafö//"


@pytest.mark.parametrize(
    ("stored", "found"), [("é.txt", "é.txt"), ("é.TXT", "é.TXT"), ("é.Txt", "é.txt"), ("a", "é.txt")]
)
def test_a_suffix_in_capitals_is_found_unless_the_file_has_the_other(tmp_path, stored, found):
    (tmp_path / unicodedata.normalize("NFD", stored)).touch()
    names = unicodedata.normalize("NFC", find_suffix(str(tmp_path / "é.txt")))
    assert names == str(tmp_path / found)
    (tmp_path / "é.txt").touch()
    assert find_suffix(str(tmp_path / "é.txt")) == str(tmp_path / "é.txt")
