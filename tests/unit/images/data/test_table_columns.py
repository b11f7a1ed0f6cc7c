"""Columns of tables: files that are not tables, and the values of cells."""

import sys
from pathlib import Path

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.images.data import table_columns
from paddlevit_dist.images.data.class_cells import ClassValues
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


@pytest.fixture
def write_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    def write(columns: dict, **options) -> str:
        parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet", **options)
        return str(tmp_path / "a.parquet")

    return write


@pytest.mark.parametrize("as_dictionary", [True, False])
@pytest.mark.parametrize("rows", [1, 5000])
def test_a_cell_that_fills_the_memory_is_refused_by_its_column(write_parquet, rows, as_dictionary):
    long = "x" * (1 << 18)
    path = write_parquet({"image": ["a.png"] * rows, "note": [long, *["b"] * (rows - 1)]}, use_dictionary=as_dictionary)
    with pytest.raises(UserError, match=r"column note: a cell of .*[0-9,]{7} bytes.*; expected at most 131,072"):
        _ = open_columns(path).head
    ((images,),) = open_columns(path).batches([0])
    assert images == ["a.png"] * rows


def test_a_number_of_a_text_that_a_damaged_file_lacks_is_refused(write_parquet):
    texts = ["a.png", "b.png", "c.png"]
    path = Path(write_parquet({"image": texts * 8}, compression="NONE", use_dictionary=True, write_statistics=False))
    numbers = sum(row % 3 << 2 * row for row in range(24)).to_bytes(6, "little")  # 2 bits each
    content = path.read_bytes()
    assert content.count(numbers) == 1 and open_columns(str(path)).head[0] == texts * 8
    path.write_bytes(content.replace(numbers, b"\xff" * 6))  # 3, of a fourth text
    with pytest.raises(UserError, match=r"a\.parquet cannot be read: "):
        _ = open_columns(str(path)).head


def test_a_large_column_of_long_cells_is_refused_before_it_is_read(write_parquet, monkeypatch):
    monkeypatch.setattr(table_columns, "_LARGEST_COLUMN", 1 << 18)
    path = write_parquet({"image": ["a.png"] * 200, "note": [f"{row}" + "x" * 2000 for row in range(200)]})
    with pytest.raises(UserError, match=r"note: a cell of about 2,0\d\d bytes in a column of 40\d,\d+; "):
        _ = open_columns(path).head


def test_a_batch_has_as_many_rows_as_fit_into_its_bytes(write_parquet, monkeypatch):
    columns = {
        "image": [f"{row}.png" for row in range(500)],
        "labels": [["a", "b"][: row % 3] for row in range(500)],
        "box": [{"x": row, "y": None} for row in range(500)],
        **{f"gene{number}": [float(number)] * 500 for number in range(50)},
    }
    table = open_columns(write_parquet(columns, row_group_size=60))
    assert table._leaves[:4] == [0, 1, 2, 4] and table._leaves[-1] == 54
    expected = [columns["box"], columns["image"], [tuple(cell) for cell in columns["labels"]], [49.0] * 500]
    lengths = []
    for size in (1 << 20, 5_000):
        monkeypatch.setattr(table_columns, "_PARQUET_BYTES", size)
        batches = list(table.batches([2, 0, 1, 52]))
        assert [sum(map(list, parts), []) for parts in zip(*batches)] == expected
        lengths.append(max(len(parts[0]) for parts in batches))
    assert lengths[0] == 60 and 1 <= lengths[1] <= 5_000 // (4 * 64)


def test_a_text_that_repeats_is_in_memory_once(write_parquet):
    table = open_columns(write_parquet({"image": ["a.png", "b.png"] * 500, "label": ["x" * 1000, None] * 500}))
    ((labels,),) = table.batches([1])
    assert len(set(map(id, labels))) == 2 and labels[:3] == ["x" * 1000, None, "x" * 1000]


def test_the_head_of_a_wide_table_of_texts_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(table_columns, "_BATCH_CELLS", 100)
    rows = [["image", *(f"gene{number}" for number in range(49))], *([f"{row}.png", *"1" * 49] for row in range(100))]
    (tmp_path / "a.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    table = open_columns(str(tmp_path / "a.csv"))
    assert [len(column) for column in table.head] == [8] * 50
    assert [name for (names,) in table.batches([0]) for name in names] == [row[0] for row in rows[1:]]
