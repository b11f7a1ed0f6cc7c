"""Tables of a user's labels as columns: text with any separator, or Parquet through pyarrow.

A table is read in batches of rows, so that one of a million rows and 80 columns is never in memory as text.
"""

import contextlib
import csv
import functools
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line, shorten
from ...core.runtime.spelling import compose
from ...core.runtime.tables import find_separator, open_table
from .formats import get_suffix, readable_suffixes

SUFFIXES = (".csv", ".tsv", ".parquet", ".pq")
HEAD_ROWS = 1000  # from which the meaning of columns is found
_PARQUET = (".parquet", ".pq")
_OTHER_FORMATS = {
    "it is compressed: unpack it": (".gz", ".zip", ".bz2", ".xz", ".zst", ".7z"),
    "it is a spreadsheet: save it as CSV": (".xlsx", ".xls", ".ods", ".numbers"),
    "save its labels as CSV": (".json", ".jsonl", ".xml", ".yaml", ".yml", ".pkl", ".mat"),
}
_BATCH_ROWS = 256  # fewer lists than start Python's garbage collector, which takes longer than reading
_PARQUET_ROWS = 1 << 15
_OTHER_SEPARATORS = "|:^~# "  # where the first line has no comma, semicolon or tab; the most likely first
_BEGINNING = 1 << 16  # characters that show the separator

Column = Sequence[Any]  # values of consecutive rows: texts; of Parquet also numbers, None, and tuples


class LabelColumns:
    """The columns of a table: ``headings`` in their order, and batches of the rows.

    Attributes:
        path: of the file.
        headings: composed, without spaces around them; ["image", "label"] if the file has two columns and none.
    """

    path: str
    headings: list[str]

    def batches(self, columns: Sequence[int]) -> Iterator[list[Column]]:
        """Yield the values of some columns for the next rows; a ``UserError`` if the table is damaged."""
        raise NotImplementedError

    def locate(self, row: int) -> str:
        """Return the place of a row, from 0, for messages."""
        return f"{self.path}, row {row + 1}"

    @functools.cached_property
    def head(self) -> list[Column]:
        """All columns of the first rows; empty columns if there are none."""
        columns: list[list[Any]] = [[] for _ in self.headings]
        for batch in self.batches(range(len(self.headings))):
            for column, cells in zip(columns, batch):
                column += cells
            if len(columns[0]) >= HEAD_ROWS:
                break
        return [column[:HEAD_ROWS] for column in columns]


def open_columns(path: str) -> LabelColumns:
    """Open a table by its suffix.

    Raises:
        UserError: it cannot be read, has another format, no columns, or two with one heading, or needs pyarrow, which
            is missing.
    """
    for remedy, suffixes in _OTHER_FORMATS.items():
        if path.lower().endswith(suffixes):
            raise UserError(f"{path} is not read as a table of labels (CSV, TSV or Parquet): {remedy}")
    table = ParquetColumns(path) if path.lower().endswith(_PARQUET) else TextColumns(path)
    twice = next((heading for heading, number in Counter(table.headings).items() if heading and number > 1), None)
    if twice is not None:
        raise UserError(f"{path}: two columns are named {shorten(twice, 60)}; rename or remove one")
    return table


class TextColumns(LabelColumns):
    """A text table."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._separator = _find_separator(path)
        self._skipped = 0
        _, first = next(self._rows(), (1, []))
        if first and first[0].strip().lower() in ("sep=", f"sep={self._separator}"):  # a line for Excel
            self._skipped = 1
            _, first = next(self._rows(), (1, []))
        cells = [compose(cell.strip()) for cell in first]
        if len(cells) < 2:
            number = "one column" if cells else "it is empty"
            raise UserError(f"{path}: {number}; expected headings such as image,label in its first line")
        self._has_headings = not any(map(_is_image_path, cells))
        if not self._has_headings and len(cells) > 2:
            raise UserError(f"{path}: line 1 has no headings; add a first line that names its {len(cells)} columns")
        self.headings = cells if self._has_headings else ["image", "label"]

    def _read_cells(self, stream: Any) -> Any:
        return csv.reader(stream, delimiter=self._separator, skipinitialspace=True)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the line and the cells of each row that is not empty and not for Excel."""
        with open_table(self.path) as stream:
            reader = self._read_cells(stream)
            for cells in itertools.islice(filter(any, reader), self._skipped, None):
                yield reader.line_num, cells

    def batches(self, columns: Sequence[int]) -> Iterator[list[Column]]:
        """Yield the texts of some columns for the next rows; a ``UserError`` if a row has other columns."""
        width = len(self.headings)
        with open_table(self.path) as stream:
            reader = filter(any, self._read_cells(stream))
            rows = itertools.islice(reader, self._skipped + int(self._has_headings), None)
            for first in itertools.count(0, _BATCH_ROWS):
                batch = list(itertools.islice(rows, _BATCH_ROWS))
                if not batch:
                    return
                if set(map(len, batch)) != {width}:
                    wrong = next(at for at, cells in enumerate(batch) if len(cells) != width)
                    place = self.locate(first + wrong)
                    raise UserError(
                        f"{place}: {len(batch[wrong]):,} columns, but {width:,} in the first line; quote cells that "
                        "contain the separator"
                    )
                whole = list(zip(*batch))
                yield [whole[column] for column in columns]

    def locate(self, row: int) -> str:
        """Return the line of a row, from 0, for messages."""
        line, _ = next(itertools.islice(self._rows(), row + int(self._has_headings), None), (0, []))
        return f"{self.path}, line {line}"


class ParquetColumns(LabelColumns):
    """A Parquet file."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            import pyarrow.parquet
        except ImportError as error:  # also if pyarrow does not support the installed NumPy
            raise UserError(
                f"{path}: Parquet needs pyarrow (pip install pyarrow), but {one_line(error)}; or save the table as CSV"
            ) from error
        with self._readable():
            self._file = pyarrow.parquet.ParquetFile(path, memory_map=True)
            self.headings = [compose(str(name).strip()) for name in self._file.schema_arrow.names]

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:  # may have several lines
            reason = getattr(error, "strerror", None) or str(error).strip().partition("\n")[0]
            raise UserError(f"{self.path} cannot be read: {shorten(reason)}") from error

    def batches(self, columns: Sequence[int]) -> Iterator[list[Column]]:
        """Yield the values of some columns for the next rows."""
        names = [self._file.schema_arrow.names[column] for column in columns]
        with self._readable():
            for batch in self._file.iter_batches(_PARQUET_ROWS, columns=names):
                yield [_as_values(batch.column(name)) for name in names]


def _as_values(column: Any) -> Column:
    """Return the cells of a pyarrow column: lists as tuples, times as texts, as Python has none after the year 9999."""
    import pyarrow

    if pyarrow.types.is_temporal(column.type):
        column = column.cast(pyarrow.string())
    cells = column.to_pylist()
    if not any(isinstance(cell, list) for cell in cells):
        return cells
    return [tuple(cell) if isinstance(cell, list) else cell for cell in cells]


def _find_separator(path: str) -> str:
    """Return what follows an image in the first line, such as the tab before 0,1,0, or else is most in all lines."""
    separator = find_separator(path)
    with open_table(path) as stream:
        text = stream.read(_BEGINNING)
    lines = ["".join(line.split('"')[::2]) for line in text.splitlines() if line.strip()]
    if separator != " ":
        parts = ((sign, lines[0].partition(sign)) for sign in "\t,;" if lines)
        return next((sign for sign, (image, found, _) in parts if found and _is_image_path(image.strip())), separator)
    whole = lines[:-1] if len(text) == _BEGINNING and len(lines) > 1 else lines
    counts = {sign: {line.count(sign) for line in whole} for sign in _OTHER_SEPARATORS}
    everywhere = [sign for sign, numbers in counts.items() if numbers and 0 not in numbers]
    return min(everywhere, key=lambda sign: len(counts[sign]) > 1, default=separator)


def _is_image_path(cell: str) -> bool:
    """Return whether a cell of the first line is a path of an image, and so not a heading."""
    return get_suffix(os.fsencode(re.split(r"[/\\]", cell)[-1])) in readable_suffixes()
