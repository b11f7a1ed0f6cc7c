"""Saved predictions in an output folder, and their tables.

Each process appends a ``PredictionRecord`` per input to its own file in ``unfinished/``. A later start skips these
inputs if ``about.json`` shows that it is the same prediction. At the end, only the tables remain.
"""

import codecs
import contextlib
import csv
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..logging.record import find_numbered
from ..runtime.errors import UserError
from ..runtime.files import atomic_file, os_errors_as_user_errors
from ..runtime.json_format import format_json
from ..runtime.ordered_lines import LineWriter, merge
from ..runtime.printing import cell, one_line
from ..runtime.text_files import read_json
from ..tasks.prediction import UNFINISHED, InputSamples, PredictionRecord

ABOUT = "about.json"
ROWS_CSV, ROWS_JSON, UNREADABLE = "predictions.csv", "predictions.jsonl", "unreadable.tsv"
_TABLES = (ROWS_CSV, ROWS_JSON, UNREADABLE)
_ADVICE = "add -restart to replace them, or choose another -output"
_RESUME_ADVICE = "; finished predictions are kept: run the same command to continue"


class PredictionCounts(NamedTuple):
    """Numbers of predicted and of unreadable inputs."""

    predicted: int
    unreadable: int


def begin(folder: Path, identity: dict[str, Any], restart: bool) -> np.ndarray | None:
    """Begin a prediction in the locked output folder, or continue the same one; return remaining indices, int64.

    None if all inputs are predicted. Raises UserError if the folder contains another prediction, or cannot be written.
    ``identity``: "weights_sha256", "settings_sha256", "inputs_sha256", the number of "inputs", and for users the
    "source" of the weights; ``restart``: remove earlier predictions.
    """
    if restart:
        discard_output(folder)
    before = _read_about(folder)
    if before is None:
        existing = next((name for name in (ROWS_CSV, ROWS_JSON) if (folder / name).exists()), None)
        if existing is not None:
            raise UserError(f"{folder / existing} exists without {ABOUT}, so its origin is unknown: {_ADVICE}")
        with os_errors_as_user_errors(folder):
            (folder / UNFINISHED).mkdir(exist_ok=True)
        with os_errors_as_user_errors(folder), atomic_file(folder / ABOUT) as file:
            file.write(format_json(identity, indent=1).encode() + b"\n")
    else:
        if other := _find_differences(before, identity):
            source = f"{one_line(before.get('source'))} and {before.get('inputs')} inputs"
            raise UserError(f"{folder} contains predictions of {source}, with other {' and '.join(other)}: {_ADVICE}")
        if not (folder / UNFINISHED).is_dir():
            return None
    return np.setdiff1d(np.arange(identity["inputs"]), [entry.index for entry in read_entries(folder)])


def choose_folder(path: Path, identity: dict[str, Any]) -> tuple[Path, str]:
    """Return the folder of a prediction, and a line for the log if it is another one than ``path``; else an empty line.

    If ``path`` contains another prediction, it is the one of path-2, path-3 and so on that contains this one, else the
    next of them that does not exist. ``identity`` is as in ``begin``.
    """
    before, numbered = _read_about(path), find_numbered(path)
    if before is None or not (other := _find_differences(before, identity)):
        return path, ""
    same = [folder for folder in numbered if not _find_differences(_read_about(folder) or {}, identity)]
    number = 1 + (int(numbered[0].name.rpartition("-")[2]) if numbered else 1)
    folder = same[0] if same else path.with_name(f"{path.name}-{number}")
    return folder, (
        f"output folder: {folder}, as {path} contains predictions of {one_line(before.get('source'))} with other "
        f"{' and '.join(other)} (add -restart to replace them)"
    )


def _find_differences(before: dict[str, Any], identity: dict[str, Any]) -> list[str]:
    """Return in what an earlier prediction differs: weights, settings, inputs or annotations."""
    return [name[:-7] for name in identity if name.endswith("_sha256") and before.get(name) != identity[name]]


def _read_about(folder: Path) -> dict[str, Any] | None:
    """Read the file that ``begin`` writes; None if it does not exist."""
    try:
        about = read_json(folder / ABOUT)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / ABOUT} cannot be read ({one_line(error)}): {_ADVICE}") from error
    return about if isinstance(about, dict) else {}


def discard_output(folder: Path) -> None:
    """Remove all files of a prediction. Raises UserError if a file cannot be removed."""
    with os_errors_as_user_errors(folder):
        for name in (*_TABLES, ABOUT):
            (folder / name).unlink(missing_ok=True)
        if (folder / UNFINISHED).is_dir():
            shutil.rmtree(folder / UNFINISHED)


def open_rank_writer(folder: Path, rank: int) -> LineWriter:
    """Open the file for the records of one process, in ascending order of inputs, or raise UserError."""
    return LineWriter(folder / UNFINISHED / f"rows-{time.time_ns()}-{rank:04d}.jsonl", _RESUME_ADVICE)


def read_entries(folder: Path) -> Iterator[PredictionRecord]:
    """Yield the records of an unfinished prediction once, in the order of the inputs."""
    for entry in merge((folder / UNFINISHED).glob("rows-*.jsonl")):
        yield PredictionRecord(*entry)


def finish(folder: Path, counts: PredictionCounts) -> None:
    """Remove all files except the tables; without any prediction, keep only the list of unreadable inputs."""
    shutil.rmtree(folder / UNFINISHED, ignore_errors=True)
    for name in () if counts.predicted else (ABOUT, ROWS_CSV, ROWS_JSON):
        (folder / name).unlink(missing_ok=True)


def format_reason(error: object, name: str = "") -> str:
    """Return why an input cannot be read, on one line, without the input's name, which rows have in a column."""
    reason = one_line(getattr(error, "reason", None) or error)
    starts = [f"{one_line(name)}{sign}" for sign in (": ", " ")] if name else []
    return next((reason.removeprefix(start) for start in starts if reason.startswith(start)), reason)


def write_tables(folder: Path, samples: InputSamples) -> PredictionCounts:
    """Write the tables of the predictions in the inputs' order, or raise UserError and keep the older tables."""
    predicted, missing = 0, len(samples.unreadable)
    with contextlib.ExitStack() as stack:
        as_text = codecs.getwriter("utf-8")
        files = (stack.enter_context(atomic_file(folder / table_name)) for table_name in _TABLES)
        table, lines, unreadable = (as_text(file, "backslashreplace") for file in files)
        rows, bad = csv.writer(table, lineterminator="\n"), csv.writer(unreadable, "excel-tab", lineterminator="\n")
        bad.writerow(["path", "reason"])
        bad.writerows((cell(path), format_reason(reason, path)) for path, reason in samples.unreadable)
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
                lines.write(format_json({"input": name, **row}) + "\n")
        if columns is None:
            rows.writerow(["input"])
    return PredictionCounts(predicted, missing)


def read_unreadable(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield path and reason of each unreadable input."""
    with open(folder / UNREADABLE, encoding="utf-8", newline="") as file:
        lines = csv.reader(file, "excel-tab")
        next(lines)
        yield from ((path, reason) for path, reason in lines)
