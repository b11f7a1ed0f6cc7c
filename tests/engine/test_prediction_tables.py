"""The tables of a prediction, which people open with spreadsheets and terminals."""

from __future__ import annotations

import csv
import json

from paddlevit_dist.contracts.prediction import InputSamples
from paddlevit_dist.engine.prediction_journal import Entry, Identity, Journal, JournalWriter

NAMES = ["=cmd|'/c calc'!A1.png", "+1.png", "-2.png", "@sum.png", "red\x1b[31m.png", "two\nlines.png", "plain ä.png"]


class Named(InputSamples):
    names = NAMES
    unreadable = [("=gone.png", "no such file")]

    def fingerprint(self):
        return ""


def test_no_cell_is_a_formula_or_moves_a_cursor_and_the_lines_of_json_are_exact(tmp_path):
    journal = Journal(tmp_path)
    with journal.begun(restart=False):
        journal.open(Identity("", "", "", len(NAMES), ""))
        with JournalWriter(tmp_path, 0) as writer:
            writer.add([Entry(place, [{"class": "=1+1", "score": -0.5}]) for place in range(len(NAMES))])
        journal.write_tables(Named())
    with open(tmp_path / "predictions.csv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["input", "class", "score"]
    shown = ["'=cmd|'/c calc'!A1.png", "'+1.png", "'-2.png", "'@sum.png", "red\\x1b[31m.png", "two\\nlines.png"]
    assert [row[0] for row in rows] == [*shown, "plain ä.png"]
    assert {tuple(row[1:]) for row in rows} == {("'=1+1", "-0.5")}
    assert (tmp_path / "unreadable.tsv").read_text().splitlines()[1] == "'=gone.png\tno such file"
    exact = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [row["input"] for row in exact] == NAMES and exact[0]["class"] == "=1+1"
