"""Samples are found by the names that results give them."""

import unicodedata

import pytest
from support.refusals import refusal_of

from paddlevit_dist.core.runtime.tables import iterate_rows
from paddlevit_dist.core.tasks.sample_names import SampleNames

NAMES = "val/Épagneul/é.png", "val/Zèbre/ö.png"


@pytest.mark.parametrize("forms", [("NFC", "NFD"), ("NFD", "NFC")])
@pytest.mark.parametrize("end", [0, 4, 13])
def test_names_in_either_unicode_form_are_equal(forms, end):
    stored, given = ([unicodedata.normalize(form, name) for name in NAMES] for form in forms)
    finder = SampleNames(stored, "data")
    assert [finder.find_row(name[end:] if end < 13 else name.rpartition("/")[2]) for name in given] == [0, 1]


def test_cells_of_tables_are_composed(tmp_path):
    (tmp_path / "a.csv").write_text(unicodedata.normalize("NFD", "name,class\na.png,Zèbre\n"), encoding="utf-8")
    assert [row.cells for row in iterate_rows(str(tmp_path / "a.csv"), ",")] == [["name", "class"], ["a.png", "Zèbre"]]


@pytest.mark.parametrize(
    "names, given, rows",
    [
        (["x/a.png", "y/b.png"], ["a.txt", "z/b", "b.c"], [0, 1, 1]),  # another suffix
        (["x/a.png", "y/a.png", "y/b.png"], ["data/y/a.png", "x/a.png", "a.png"], [1, 0, None]),  # one folder
        (["w/x/a.png", "w/y/a.png"], ["w/y/a.png", "x/a.png", "v/w/x/a.png"], [1, None, 0]),  # two
        (["x/a.png", "y/a.png"], ["y/a.jpg", "x/a", "a"], [1, 0, None]),  # another suffix in folders
        (["x/a.nii.gz", "y/a.nii.gz"], ["y/a.nrrd", "x/a.nii"], [1, 0]),
        (["w/x/a.png", "v/x/b.png"], ["q/x/b.png", "x/a.png"], [1, 0]),
        (["a_0000.nii.gz", "b_0001.nii.gz"], ["in/a.nii.gz", "a_0000", "b_0001"], [0, 0, 1]),  # a case
        (["a_0000.png", "a.png"], ["a_0000.png", "a.jpg"], [0, None]),
        (["a.png", " b.png "], [" b.png", "./a.png", ""], [1, 0, None]),
        ([r"x\a.png", "b.png"], [r"y\x\a.png", "x/a.png"], [0, 0]),
    ],
)
def test_a_name_finds_the_sample_whose_path_ends_alike(names, given, rows):
    finder = SampleNames(names, "data")
    assert [finder.find_row(name) for name in given] == rows


def test_names_of_several_samples_are_refused_and_unknown_ones_choose_nothing():
    finder = SampleNames(["x/a.png", "x/b.png", "y/a.png"], "data", "scan")
    assert finder.choose_depth(["c", "z/d.png"]) is finder.choose_depth([]) is False and finder.find_row("c") is None
    assert refusal_of(finder.find_row, "a.jpg") == (
        "data: several scans are called a if names are compared as in 'a.jpg': results need more of the path, such as "
        "x/a.png"
    )
    assert finder.choose_depth(["c", "q/y/a.png"]) is True and finder.find_row("z/x/a.png") == 0
    assert SampleNames(["a"], "data").kind == "image"
