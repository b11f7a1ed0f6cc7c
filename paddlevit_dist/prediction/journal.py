"""What is kept of a prediction while it goes on, so that nothing is predicted twice, and the tables made of it.

``about.json`` in the output folder says of which weights and inputs the predictions are. Each process appends an
``Entry`` per input to a file of its own in ``unfinished/``; the next start makes one file of all. At the end of a
start, also of an interrupted one, the tables are written in the order of the inputs; once everything is predicted,
``unfinished/`` is removed.
"""

import codecs
import contextlib
import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..contracts.prediction import Entry, InputSamples
from ..runtime.errors import UserError
from ..runtime.files import atomic_file, told_if_not_written
from ..runtime.ordered_lines import LineWriter, line_of, merged
from ..runtime.printing import cell, one_line
from ..runtime.text_files import read_json

ABOUT, UNFINISHED = "about.json", "unfinished"
ROWS_CSV, ROWS_JSON, UNREADABLE = "predictions.csv", "predictions.jsonl", "unreadable.tsv"
_TABLES = (ROWS_CSV, ROWS_JSON, UNREADABLE)
_FORMAT = 2
_OTHERWISE = "add -restart to replace them, or choose another -output"
_KEPT = "; what is predicted is kept, and the same command continues"


class Counts(NamedTuple):
    """How many inputs were predicted, and how many could not be read."""

    predicted: int
    unreadable: int


def entries_of_rank(folder: Path, rank: int) -> LineWriter:
    """Takes what one process predicts; ``folder`` is the output folder.

    Raises:
        UserError: the file system refuses.
    """
    return LineWriter(folder / UNFINISHED / f"rows-{rank:04d}.jsonl", _KEPT)


class Journal:
    """The state of a prediction in its output folder. Used by the process that holds the folder.

    Args:
        folder: exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.unfinished = folder, folder / UNFINISHED
        self._identity: dict[str, Any] = {}

    @contextlib.contextmanager
    def begun(self, restart: bool) -> Iterator[Path]:
        """Context with a folder for what is needed until the prediction ends; nothing of it is left if the prediction
        is refused before it begins.

        Args:
            restart: remove what earlier predictions have left.
        """
        if restart:
            self.withdraw()
        with told_if_not_written(self.folder, _KEPT):
            if restart and self.unfinished.is_dir():
                shutil.rmtree(self.unfinished)
            self.unfinished.mkdir(exist_ok=True)
        try:
            yield self.unfinished
        finally:
            if self.is_empty():
                shutil.rmtree(self.unfinished, ignore_errors=True)

    def is_empty(self) -> bool:
        """Whether nothing is known yet of any input, in this start or an earlier one."""
        return next(self.entries(), None) is None

    def withdraw(self) -> None:
        """Let the folder be free for other inputs and weights: nothing was predicted.

        Raises:
            UserError: the file system refuses.
        """
        with told_if_not_written(self.folder, _KEPT):
            for name in (*_TABLES, ABOUT):
                (self.folder / name).unlink(missing_ok=True)

    def open(self, identity: dict[str, Any]) -> Counts | None:
        """See that what is in the folder belongs to this prediction, and begin or continue it.

        Args:
            identity: what predictions depend on; those in a folder are continued only if all of it is the same:
                "weights_sha256", "settings_sha256" and "inputs_sha256", the number of "inputs", and for messages the
                "source" of the weights.
        Returns:
            The counts if everything is predicted already, else None.
        Raises:
            UserError: the folder holds predictions of something else.
        """
        self._identity = identity
        about = self._read_about()
        if about and (about.get("predicted") == 0 if about.get("complete") is True else self.is_empty()):
            self.withdraw()  # an earlier start has predicted nothing, whatever of
            about = {}
        if about:
            self._require_same(about)
            if about.get("complete") is True and all((self.folder / name).is_file() for name in _TABLES):
                return Counts(int(about["predicted"]), int(about["unreadable"]))
        else:
            there = next((name for name in _TABLES if (self.folder / name).exists()), None)
            if there is not None:
                raise UserError(f"{self.folder / there} exists, and no {ABOUT} says what it is: {_OTHERWISE}")
        if about.get("complete") is not False:
            for file in self._files():  # of a prediction that nothing is known of
                file.unlink()
            self._write_about(None)
        self._compact()
        return None

    def left(self) -> np.ndarray:
        """Inputs that are still to be predicted, int64, ascending."""
        is_left = np.ones(self._identity["inputs"], bool)
        for entry in self.entries():
            is_left[entry.index] = False
        return np.flatnonzero(is_left)

    def complete(self, counts: Counts) -> None:
        """Note that everything is predicted and written, and keep nothing else."""
        if sum(counts) < self._identity["inputs"]:
            raise RuntimeError(f"{sum(counts)} of {self._identity['inputs']} inputs have become something")
        self._write_about(counts)
        shutil.rmtree(self.unfinished, ignore_errors=True)

    # ---- about.json ----------------------------------------------------------------------------------------------

    def _read_about(self) -> dict[str, Any]:
        """Empty where there is none."""
        file = self.folder / ABOUT
        if not file.exists():
            return {}
        try:
            about = read_json(file)
            if not isinstance(about, dict) or about["format"] != _FORMAT:
                raise ValueError("it is of another version")
            return about
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{file} cannot be read ({one_line(error)}): {_OTHERWISE}") from error

    def _require_same(self, before: dict[str, Any]) -> None:
        now = self._identity
        different = next((name for name in now if name.endswith("_sha256") and before.get(name) != now[name]), None)
        if different is None:
            return
        inputs = f"other inputs ({before.get('inputs')} there, {now['inputs']} now)"
        if before.get("inputs") == now["inputs"]:
            inputs = "other inputs, or some of them have changed"
        of = {
            "weights_sha256": f"other weights ({one_line(before.get('source'))})",
            "settings_sha256": "these weights with other settings",
            "inputs_sha256": inputs,
        }
        raise UserError(f"{self.folder} holds predictions of {of[different]}: {_OTHERWISE}")

    def _write_about(self, counts: Counts | None) -> None:
        from .. import __version__

        about = {"format": _FORMAT, **self._identity, "paddlevit_dist": __version__, "complete": counts is not None}
        with told_if_not_written(self.folder, _KEPT), atomic_file(self.folder / ABOUT) as file:
            file.write(json.dumps({**about, **(counts._asdict() if counts else {})}, indent=1).encode() + b"\n")

    # ---- what was predicted --------------------------------------------------------------------------------------

    def _files(self) -> list[Path]:
        return sorted(self.unfinished.glob("rows-*.jsonl"))

    def entries(self) -> Iterator[Entry]:
        """What is known of each input, once, in their order."""
        for entry in merged(self._files()):
            yield Entry(*entry)

    def _compact(self) -> None:
        """Make one file of those that earlier starts have left."""
        files, whole = self._files(), self.unfinished / "rows-before.jsonl"
        if files in ([], [whole]):
            return
        with atomic_file(whole) as out:
            out.writelines(map(line_of, self.entries()))
        for file in files:
            if file != whole:
                file.unlink()

    def write_tables(self, samples: InputSamples) -> Counts:
        """Write what is known so far, in the order of the inputs.

        Raises:
            UserError: the file system refuses; older tables are unchanged.
        """
        predicted, missing = 0, len(samples.unreadable)
        with contextlib.ExitStack() as stack:
            as_text = codecs.getwriter("utf-8")
            files = (stack.enter_context(atomic_file(self.folder / name)) for name in _TABLES)
            table, lines, listed = (as_text(file, "backslashreplace") for file in files)
            rows, bad = csv.writer(table, lineterminator="\n"), csv.writer(listed, "excel-tab", lineterminator="\n")
            bad.writerow(["path", "reason"])
            bad.writerows((cell(path), one_line(reason)) for path, reason in samples.unreadable)
            columns: list[str] | None = None
            for entry in self.entries():
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
        return Counts(predicted, missing)


def unreadable(folder: Path) -> Iterator[tuple[str, str]]:
    """Path and reason of each line of the list of what could not be read."""
    with open(folder / UNREADABLE, encoding="utf-8", newline="") as file:
        lines = csv.reader(file, "excel-tab")
        next(lines)
        yield from ((path, reason) for path, reason in lines)
