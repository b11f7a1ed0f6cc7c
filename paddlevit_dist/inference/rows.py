"""The rows of a prediction in its output folder, and the tables made of them.

Each process appends an ``PredictionRecord`` per input to a file of its own in ``unfinished/``; a later start skips the
inputs that are named there, if ``about.json`` says that it is the same prediction. In the end only the tables remain.
"""

import codecs
import contextlib
import csv
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..runtime.errors import UserError
from ..runtime.files import atomic_file, os_errors_as_user_errors
from ..runtime.ordered_lines import LineWriter, merge
from ..runtime.printing import cell, one_line
from ..runtime.text_files import read_json
from ..tasks.prediction import InputSamples, PredictionRecord

ABOUT, UNFINISHED = "about.json", "unfinished"
ROWS_CSV, ROWS_JSON, UNREADABLE = "predictions.csv", "predictions.jsonl", "unreadable.tsv"
_TABLES = (ROWS_CSV, ROWS_JSON, UNREADABLE)
_OTHERWISE = "add -restart to replace them, or choose another -output"
_KEPT = "; what is predicted is kept, and the same command continues"


class PredictionCounts(NamedTuple):
    """How many inputs were predicted, and how many could not be read."""

    predicted: int
    unreadable: int


def begin(folder: Path, identity: dict[str, Any], restart: bool) -> np.ndarray | None:
    """See that what is in the output folder belongs to this prediction, and begin or continue it.

    Args:
        folder: exists, and is held by this process.
        identity: what predictions depend on: "weights_sha256", "settings_sha256", "inputs_sha256", the number of
            "inputs", and for readers the "source" of the weights.
        restart: remove what earlier predictions have left.
    Returns:
        The inputs that are still to be predicted, int64, ascending; None: everything is predicted already.
    Raises:
        UserError: the folder holds predictions of something else, or cannot be written.
    """
    if restart:
        discard_output(folder)
    before = _about(folder)
    if before is None:
        there = next((name for name in (ROWS_CSV, ROWS_JSON) if (folder / name).exists()), None)
        if there is not None:
            raise UserError(f"{folder / there} exists, and no {ABOUT} says what it is: {_OTHERWISE}")
        with os_errors_as_user_errors(folder):
            (folder / UNFINISHED).mkdir(exist_ok=True)
        with os_errors_as_user_errors(folder), atomic_file(folder / ABOUT) as file:
            file.write(json.dumps(identity, indent=1).encode() + b"\n")
    else:
        other = [name[:-7] for name in identity if name.endswith("_sha256") and before.get(name) != identity[name]]
        if other:
            of = f"{one_line(before.get('source'))} and {before.get('inputs')} inputs"
            raise UserError(f"{folder} holds predictions of {of}, with other {' and '.join(other)}: {_OTHERWISE}")
        if not (folder / UNFINISHED).is_dir():
            return None
    return np.setdiff1d(np.arange(identity["inputs"]), [entry.index for entry in read_entries(folder)])


def _about(folder: Path) -> dict[str, Any] | None:
    """Read what ``begin`` has written; None: there is none."""
    try:
        about = read_json(folder / ABOUT)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / ABOUT} cannot be read ({one_line(error)}): {_OTHERWISE}") from error
    return about if isinstance(about, dict) else {}


def discard_output(folder: Path) -> None:
    """Remove all that ``begin`` and the functions below have written.

    Raises:
        UserError: the file system refuses.
    """
    with os_errors_as_user_errors(folder):
        for name in (*_TABLES, ABOUT):
            (folder / name).unlink(missing_ok=True)
        if (folder / UNFINISHED).is_dir():
            shutil.rmtree(folder / UNFINISHED)


def writer_of_rank(folder: Path, rank: int) -> LineWriter:
    """Takes the entries of one process, in ascending order of the inputs.

    Raises:
        UserError: the file system refuses.
    """
    return LineWriter(folder / UNFINISHED / f"rows-{time.time_ns()}-{rank:04d}.jsonl", _KEPT)


def read_entries(folder: Path) -> Iterator[PredictionRecord]:
    """Read what is known of each input of an unfinished prediction, once, in their order."""
    for entry in merge(sorted((folder / UNFINISHED).glob("rows-*.jsonl"))):
        yield PredictionRecord(*entry)


def finish(folder: Path, counts: PredictionCounts) -> None:
    """Keep only the tables, once everything is predicted; if nothing could be, only the list of what cannot be read."""
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
    for name in () if counts.predicted else (ABOUT, ROWS_CSV, ROWS_JSON):
        (folder / name).unlink(missing_ok=True)


def write_tables(folder: Path, samples: InputSamples) -> PredictionCounts:
    """Write what is known so far, in the order of the inputs.

    Raises:
        UserError: the file system refuses; older tables are unchanged.
    """
    predicted, missing = 0, len(samples.unreadable)
    with contextlib.ExitStack() as stack:
        as_text = codecs.getwriter("utf-8")
        files = (stack.enter_context(atomic_file(folder / name)) for name in _TABLES)
        table, lines, listed = (as_text(file, "backslashreplace") for file in files)
        rows, bad = csv.writer(table, lineterminator="\n"), csv.writer(listed, "excel-tab", lineterminator="\n")
        bad.writerow(["path", "reason"])
        bad.writerows((cell(path), one_line(reason)) for path, reason in samples.unreadable)
        columns: list[str] | None = None
        for entry in read_entries(folder):
            name = samples.names[entry.index]
            if entry.rows is None:
                bad.writerow([cell(name), one_line(entry.reason)])
                missing += 1
                continue
            predicted += 1
            for row in entry.rows:
                if columns is None:
                    columns = ["input", *row]
                    rows.writerow(map(cell, columns))
                rows.writerow(map(cell, [name, *(row.get(column, "") for column in columns[1:])]))
                lines.write(json.dumps({"input": name, **row}) + "\n")
        if columns is None:
            rows.writerow(["input"])
    return PredictionCounts(predicted, missing)


def unreadable(folder: Path) -> Iterator[tuple[str, str]]:
    """Path and reason of each line of the list of what could not be read."""
    with open(folder / UNREADABLE, encoding="utf-8", newline="") as file:
        lines = csv.reader(file, "excel-tab")
        next(lines)
        yield from ((path, reason) for path, reason in lines)
