"""Columns of tables: files that are not tables, and the values of cells."""

import sys

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.data.label_layouts import ClassValues
from paddlevit_dist.images.data.table_columns import open_columns

ENDINGS = {
    "it is compressed: unpack it": ".gz .zip .bz2 .xz .zst .7z .csv.GZ",
    "it is a spreadsheet: save it as CSV": ".XLSX .xls .ods .numbers",
    "save its labels as CSV": ".json .jsonl .xml .yaml .yml .pkl .Mat",
}


@pytest.mark.parametrize(
    ("name", "remedy"), [(f"a{ending}", told) for told, endings in ENDINGS.items() for ending in endings.split()]
)
def test_other_files_are_refused_by_their_ending(tmp_path, name, remedy):
    (tmp_path / name).write_bytes(b"\x1f\x8b\0image,label")
    with pytest.raises(UserError, match=f"{name} .*{remedy}"):
        open_columns(str(tmp_path / name))


def test_a_parquet_file_needs_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    message = (
        r"^a\.parquet: Parquet needs pyarrow \(pip install pyarrow\), but .*pyarrow\.parquet.*; or save .* as CSV$"
    )
    with pytest.raises(UserError, match=message):
        open_columns("a.parquet")


def test_not_a_number_is_not_kept_as_a_value():
    values = ClassValues()
    assert [values[float("nan")] for _ in range(3)] == [-1] * 3 and len(values) == 0
