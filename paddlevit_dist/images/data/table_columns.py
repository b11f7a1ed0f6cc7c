"""Tables of a user's labels as columns: text with any separator, lists of images, or Parquet through pyarrow.

A table is read in batches of rows, so that one of a million rows and 80 columns is never in memory as text. The size
of a batch follows from that of its cells: a table may have features of each image besides its labels, and a file of
some kilobytes may contain a cell of a gigabyte.
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

from ...core.runtime.column_roles import NAME
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
_HEAD_BATCHES = 4  # at most, for the same
_BATCH_ROWS = 256  # fewer lists than start Python's garbage collector, which takes longer than reading
_BATCH_CELLS = 1 << 20
_PARQUET_ROWS = 1 << 15
_PARQUET_BYTES = 1 << 26
_CELL_BYTES = 64  # of a short text or a number in a list
_LARGEST_COLUMN = 1 << 28  # of a group of rows, whose cells are longer than this on average:
_LONG_CELL = 1 << 10
_LONGEST_CELL = csv.field_size_limit()  # bytes; Python refuses longer ones in text
_OTHER_SEPARATORS = "|:^~# "  # where the first line has no comma, semicolon or tab; the most likely first
_BEGINNING = 1 << 16  # characters that show the separator
SPLIT_OF_CUB = "train_test_split.txt"
_NUMBERS = re.compile(r"-?[\d.]+(\s+-?[\d.]+)+")
_LISTED = re.compile(r"(.+?\.(?:jpe?g|png|bmp|ppm|gif|tiff?)|\S+)(?:\s+(.+))?", re.IGNORECASE)  # image, label

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
        for batch in itertools.islice(self.batches(range(len(self.headings))), _HEAD_BATCHES):
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
    if path.lower().endswith(_PARQUET):
        table: LabelColumns = ParquetColumns(path)
    else:
        table = ListColumns(path) if is_list(path) else TextColumns(path)
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
        most = max(1, min(_BATCH_ROWS, _BATCH_CELLS // width))
        with open_table(self.path) as stream:
            reader = filter(any, self._read_cells(stream))
            rows = itertools.islice(reader, self._skipped + int(self._has_headings), None)
            for first in itertools.count(0, most):
                batch = list(itertools.islice(rows, most))
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


def is_list(path: str) -> bool:
    """Return whether a file is a list of images without headings and separators, as ``ListColumns`` reads it."""
    if not path.lower().endswith(".txt") or find_separator(path) != " ":
        return False
    with open_table(path) as stream:
        first = next((line for line in stream if line.strip()), "")
    return not any(map(NAME.has, first.split()[:1]))


class ListColumns(LabelColumns):
    """A list with an image on each line, perhaps without its ending, and maybe its label.

    Without a label, the folder of the image is its label, such as apple_pie/1005649, unless all are in one. CUB's list
    is in two files: images.txt numbers them, and train_test_split.txt has 1 for each number of a training image.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with open_table(path) as stream:
            lines = [compose(line.strip()) for line in stream if line.strip()]
        splits: dict[str, str] = {}
        if os.path.isfile(other := os.path.join(os.path.dirname(path), SPLIT_OF_CUB)):
            with open_table(other) as stream:
                marks = [line.split() for line in stream if line.strip()]
            if wrong := next((words for words in marks if len(words) != 2), None):
                raise UserError(f"{other}: {shorten(' '.join(wrong), 60)}: expected a number of an image, and 1 or 0")
            splits = {number: "train" if mark == "1" else "test" for number, mark in marks}
            numbered = [line.partition(" ") for line in lines]
            splits = {name.strip(): splits.get(number, "") for number, _, name in numbered}
            lines = list(splits)
        matches = [_LISTED.fullmatch(line) for line in lines]
        names = [match[1] if match else line for match, line in zip(matches, lines)]
        labels = [match[2] or "" if match else "" for match in matches]
        folders = list(map(os.path.dirname, names))
        self.headings, self._columns = ["image"], [names]
        if len(set(folders)) > 1:
            common = len(os.path.commonprefix([f"{folder}/" for folder in set(folders)]).rpartition("/")[0])
            labels = [folder[common:].strip("/") for folder in folders]
        others = (_is_image_path(label) or _NUMBERS.fullmatch(label) for label in labels[:HEAD_ROWS])
        if all(labels) and not any(others):  # some lists have a label map or a box next to the image
            self.headings, self._columns = [*self.headings, "label"], [*self._columns, labels]
        if splits:
            self.headings, self._columns = [*self.headings, "split"], [*self._columns, list(splits.values())]

    def batches(self, columns: Sequence[int]) -> Iterator[list[Column]]:
        """Yield the texts of some columns for the next rows."""
        for first in range(0, len(self._columns[0]), _PARQUET_ROWS):
            yield [self._columns[column][first : first + _PARQUET_ROWS] for column in columns]


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
            schema = pyarrow.parquet.read_schema(path, memory_map=True)
            # A text that repeats is decoded once.
            repeated = [str(field.name) for field in schema if _is_text(field.type)]
            self._file = pyarrow.parquet.ParquetFile(path, memory_map=True, read_dictionary=repeated)
            self._names = schema.names
            self.headings = [compose(str(name).strip()) for name in self._names]
            self._leaves = [0, *itertools.accumulate(_count_leaves(field.type) for field in schema)]

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
        names = [self._names[column] for column in columns]
        with self._readable():
            for groups, rows in self._find_batches(columns):
                for batch in self._file.iter_batches(rows, row_groups=groups, columns=names):
                    found = dict(zip(batch.schema.names, batch.columns))
                    yield [self._read_values(column, found[name]) for column, name in zip(columns, names)]

    def _find_batches(self, columns: Sequence[int]) -> Iterator[tuple[list[int], int]]:
        """Yield groups of rows that are read together, and the rows of a batch of them."""
        metadata, groups, rows, row_bytes = self._file.metadata, list[int](), 0, 1
        for number in range(metadata.num_row_groups):
            group, size = metadata.row_group(number), _CELL_BYTES * len(columns)
            for column in columns:
                for leaf in map(group.column, range(self._leaves[column], self._leaves[column + 1])):
                    self._require_short(column, leaf.total_uncompressed_size // max(leaf.num_values, 1), leaf)
                    size += leaf.total_uncompressed_size // max(group.num_rows, 1)
            groups, rows, row_bytes = [*groups, number], rows + group.num_rows, max(row_bytes, size)
            if rows >= _PARQUET_ROWS or number == metadata.num_row_groups - 1:
                yield groups, max(1, min(_PARQUET_ROWS, _PARQUET_BYTES // row_bytes))
                groups, rows, row_bytes = [], 0, 1

    def _require_short(self, column: int, size: int, leaf: Any = None) -> None:
        """Raise a UserError if a cell, or the mean one of a stored ``leaf``, is so long that it fills the memory."""
        whole = leaf.total_uncompressed_size if leaf is not None else 0
        if size > _LONGEST_CELL or (whole > _LARGEST_COLUMN and size > _LONG_CELL):
            found = f"{size:,} bytes" if leaf is None else f"about {size:,} bytes in a column of {whole:,}"
            raise UserError(
                f"{self.path}, column {shorten(self.headings[column], 60)}: a cell of {found}; expected at most "
                f"{_LONGEST_CELL:,} in each: remove the column, or name the image's file in it"
            )

    def _read_values(self, column: int, cells: Any) -> Column:
        """Return the cells of a pyarrow array: lists as tuples, times as texts, as Python has none after year 9999."""
        import pyarrow
        from pyarrow import compute

        if pyarrow.types.is_temporal(cells.type):
            cells = cells.cast(pyarrow.string())
        if pyarrow.types.is_dictionary(cells.type):
            cells.validate(full=True)  # numbers of a damaged file may be of no text
        if pyarrow.types.is_dictionary(cells.type) and _is_text(cells.type.value_type):
            self._require_short(column, compute.max(compute.binary_length(cells.dictionary)).as_py() or 0)
            texts = cells.dictionary.to_pylist()
            return [None if index is None else texts[index] for index in cells.indices.to_pylist()]
        values = cells.to_pylist()
        if not any(isinstance(value, list) for value in values):
            return values
        return [tuple(value) if isinstance(value, list) else value for value in values]


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary))


def _count_leaves(kind: Any) -> int:
    """Return the number of columns that Parquet stores for one of a table."""
    from pyarrow import types

    kind = getattr(kind, "storage_type", kind)  # of an extension
    if types.is_dictionary(kind):
        return 1
    return sum(_count_leaves(kind.field(number).type) for number in range(kind.num_fields)) or 1


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
