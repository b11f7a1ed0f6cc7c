"""Samples are found by the names that results give them."""

import unicodedata

import pytest

from paddlevit_dist.runtime.tables import iterate_rows
from paddlevit_dist.tasks.sample_names import SampleNames

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
