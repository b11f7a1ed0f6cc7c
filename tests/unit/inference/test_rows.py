"""The tables of a prediction, which people open with spreadsheets and terminals."""

import csv
import json

import pytest

from paddlevit_dist.inference.rows import begin, open_rank_writer, read_entries, write_tables
from paddlevit_dist.runtime.errors import UserError
from paddlevit_dist.tasks.prediction import InputSamples, PredictionRecord

NAMES = ["=cmd|'/c calc'!A1.png", "+1.png", "-2.png", "@sum.png", "red\x1b[31m.png", "two\nlines.png", "plain ä.png"]
IDENTITY = {"source": "a/b", "weights_sha256": "w", "settings_sha256": "s", "inputs": 2, "inputs_sha256": "i"}


class Named(InputSamples):
    names = NAMES
    unreadable = [("=gone.png", "no such file")]


def test_no_cell_is_a_formula_or_moves_a_cursor_and_the_lines_of_json_are_exact(tmp_path):
    begin(tmp_path, {"inputs": len(NAMES)}, restart=False)
    writer = open_rank_writer(tmp_path, 0)
    writer.add([PredictionRecord(index, [{"class": "=1+1", "score": -0.5}]) for index in range(len(NAMES))])
    writer.close()
    write_tables(tmp_path, Named())
    with open(tmp_path / "predictions.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["input", "class", "score"]
    shown = ["'=cmd|'/c calc'!A1.png", "'+1.png", "'-2.png", "'@sum.png", "red\\x1b[31m.png", "two\\nlines.png"]
    assert [row[0] for row in rows] == [*shown, "plain ä.png"]
    assert {tuple(row[1:]) for row in rows} == {("'=1+1", "-0.5")}
    assert (tmp_path / "unreadable.tsv").read_text().splitlines()[1] == "'=gone.png\tno such file"
    exact = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [row["input"] for row in exact] == NAMES and exact[0]["class"] == "=1+1"


IDENTITY = {"source": "a/b", "weights_sha256": "w", "settings_sha256": "s", "inputs": 2, "inputs_sha256": "i"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"weights_sha256": "v", "source": "c/d"}, "other weights:"),
        ({"settings_sha256": "r"}, "other settings:"),
        ({"weights_sha256": "v", "inputs": 3, "inputs_sha256": "j"}, "other weights and inputs:"),
    ],
)
def test_what_is_in_a_folder_is_continued_only_by_the_same_prediction(tmp_path, changed, said):
    assert list(begin(tmp_path, IDENTITY, restart=False)) == [0, 1]
    writer = open_rank_writer(tmp_path, 0)
    writer.add([PredictionRecord(1, [{"class": "a"}], summary="of the writer")])
    writer.close()
    with pytest.raises(UserError, match=f"predictions of a/b and 2 inputs, with {said} add -restart"):
        begin(tmp_path, {**IDENTITY, **changed}, restart=False)
    assert list(begin(tmp_path, IDENTITY, restart=False)) == [0]
    assert list(read_entries(tmp_path)) == [PredictionRecord(1, [{"class": "a"}], summary="of the writer")]
    other = {**IDENTITY, **changed}
    assert list(begin(tmp_path, other, restart=True)) == list(range(other["inputs"]))
    assert list(read_entries(tmp_path)) == []


def test_tables_that_nothing_is_known_of_and_files_that_cannot_be_written_are_told(tmp_path):
    (tmp_path / "predictions.csv").write_text("mine")
    with pytest.raises(UserError, match="exists without about.json, so its origin is unknown"):
        begin(tmp_path, IDENTITY, restart=False)
    with pytest.raises(UserError, match="cannot write .*run the same command to continue"):
        open_rank_writer(tmp_path / "gone", 0)
    (tmp_path / "about.json").write_text("{")
    with pytest.raises(UserError, match="about.json cannot be read .*: add -restart"):
        begin(tmp_path, IDENTITY, restart=False)
