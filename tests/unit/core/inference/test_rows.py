"""The tables of a prediction, which people open with spreadsheets and terminals."""

import csv
import json

import pytest

from paddlevit_dist import UserError
from paddlevit_dist.core.inference.rows import (
    begin,
    choose_folder,
    finish,
    format_reason,
    open_rank_writer,
    read_entries,
    read_unreadable,
    write_tables,
)
from paddlevit_dist.core.tasks.prediction import InputSamples, PredictionRecord

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


def test_other_predictions_count_the_folder_up_and_the_same_ones_find_theirs(tmp_path):
    path = tmp_path / "out"
    others = [{**IDENTITY, "inputs_sha256": digest} for digest in "jkl"]
    assert choose_folder(path, IDENTITY) == (path, "")
    for number, identity in enumerate([IDENTITY, *others], 1):
        folder, line = choose_folder(path, identity)
        assert folder == (path if number == 1 else tmp_path / f"out-{number}")
        told = f"output folder: {folder}, as {path} contains predictions of a/b with other inputs (add -restart to"
        assert line == "" if number == 1 else line.startswith(told)
        folder.mkdir()
        begin(folder, identity, restart=False)
    assert [choose_folder(path, each)[0].name for each in [IDENTITY, *others]] == ["out", "out-2", "out-3", "out-4"]
    (tmp_path / "out-9").mkdir()  # of something else
    assert choose_folder(path, {**IDENTITY, "weights_sha256": "v"})[0].name == "out-10"


def test_tables_that_nothing_is_known_of_and_files_that_cannot_be_written_are_told(tmp_path):
    (tmp_path / "predictions.csv").write_text("mine")
    with pytest.raises(UserError, match="exists without about.json, so its origin is unknown"):
        begin(tmp_path, IDENTITY, restart=False)
    with pytest.raises(UserError, match="cannot write .*run the same command to continue"):
        open_rank_writer(tmp_path / "gone", 0)
    (tmp_path / "about.json").write_text("{")
    with pytest.raises(UserError, match="about.json cannot be read .*: add -restart"):
        begin(tmp_path, IDENTITY, restart=False)


class Few(InputSamples):
    names = [f"{number}.png" for number in range(6)]
    unreadable = [("gone.png", "no such file"), ("torn\t.png", "two\nlines")]


def write_entries(folder, rank, *entries):
    writer = open_rank_writer(folder, rank)
    writer.add(entries)
    writer.close()


def test_each_row_has_the_columns_of_the_first_and_each_input_is_counted_once(tmp_path):
    begin(tmp_path, {"inputs": 6}, restart=False)
    boxes = [{"class": "cat", "score": 0.5}, {"class": "dog", "score": 0.25}]
    write_entries(tmp_path, 0, PredictionRecord(0, None, "torn"), PredictionRecord(3, []), PredictionRecord(4, boxes))
    write_entries(tmp_path, 1, PredictionRecord(1, [{"score": 1.0, "class": "ant"}]), PredictionRecord(5, [{"x": 1}]))
    counts = write_tables(tmp_path, Few())
    assert counts == (4, 3)
    lines = (tmp_path / "predictions.csv").read_text().splitlines()
    assert lines == ["input,score,class", "1.png,1.0,ant", "4.png,0.5,cat", "4.png,0.25,dog", "5.png,,"]
    exact = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert exact[1:3] == [{"input": "4.png", **box} for box in boxes] and exact[3] == {"input": "5.png", "x": 1}
    assert (tmp_path / "unreadable.tsv").read_text().splitlines()[0] == "path\treason"
    listed = [("gone.png", "no such file"), ("torn\\t.png", "two\\nlines"), ("0.png", "torn")]
    assert list(read_unreadable(tmp_path)) == listed
    finish(tmp_path, counts)
    left = {"about.json", "predictions.csv", "predictions.jsonl", "unreadable.tsv"}
    assert {path.name for path in tmp_path.iterdir()} == left
    assert begin(tmp_path, {"inputs": 6}, restart=False) is None  # all are predicted
    assert list(begin(tmp_path, {"inputs": 6}, restart=True)) == list(range(6))
    assert {path.name for path in tmp_path.iterdir()} == {"about.json", "unfinished"}


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("a b.ply has no points; remove it", "has no points; remove it"),
        ("a b.ply: torn", "torn"),
        ("a b.ply.gz is torn", "a b.ply.gz is torn"),
        ("torn: a b.ply has no points", "torn: a b.ply has no points"),
    ],
)
def test_a_reason_does_not_repeat_the_path(reason, expected):
    assert format_reason(reason, "a b.ply") == expected
    assert format_reason(UserError(reason)) == reason


def test_without_a_prediction_only_the_list_of_unreadable_inputs_is_kept(tmp_path):
    begin(tmp_path, {"inputs": 1}, restart=True)
    write_entries(tmp_path, 0, PredictionRecord(2, None, "torn"))
    counts = write_tables(tmp_path, Few())
    assert counts == (0, 3) and (tmp_path / "predictions.csv").read_text() == "input\n"
    finish(tmp_path, counts)
    assert [path.name for path in tmp_path.iterdir()] == ["unreadable.tsv"]
    finish(tmp_path, counts)  # again, as after a kill


def test_what_a_prediction_is_of_is_stored_and_damage_to_it_is_another_one(tmp_path):
    begin(tmp_path, IDENTITY, restart=False)
    assert json.loads((tmp_path / "about.json").read_text()) == IDENTITY
    (tmp_path / "about.json").write_text("[]")
    said = "contains predictions of None and None inputs, with other weights and settings and inputs: add -restart"
    with pytest.raises(UserError, match=said):
        begin(tmp_path, IDENTITY, restart=False)
    (tmp_path / "about.json").unlink()
    (tmp_path / "unfinished").rmdir()
    (tmp_path / "predictions.jsonl").touch()
    with pytest.raises(UserError, match="predictions.jsonl exists without about.json"):
        begin(tmp_path, IDENTITY, restart=False)
