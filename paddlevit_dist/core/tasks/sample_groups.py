"""Groups of samples that belong together, such as samples of one patient, video or place; intervals resample groups."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..runtime.column_roles import NAME
from ..runtime.errors import UserError
from ..runtime.files import open_regular
from ..runtime.printing import parse_cell, shorten
from ..runtime.tables import TableRow, find_separator, iterate_rows
from ..runtime.text_files import to_utf8
from .sample_names import SampleNames

GROUP = "group"  # heading of a column
#: for ``Dataset.groups_by``: the folder of a sample's file; the subject in file names of BIDS
FOLDER, SUBJECT = {"folder": r"^(.+)/[^/]+"}, {"subject": r"(?:^|/)(sub-[A-Za-z0-9]+)"}


class SampleGroups(NamedTuple):
    """The group of each sample."""

    by: str  # what a group is, such as "video"
    names: np.ndarray  # name of each sample's group, texts (samples,)
    source: str  # file or dataset that defines the groups

    def select(self, rows: np.ndarray) -> "SampleGroups":
        """Return the groups of the samples ``rows`` (indices or a mask)."""
        return self._replace(names=self.names[rows])

    def number(self) -> int:
        """Return the number of groups."""
        return len(set(self.names.tolist()))

    def units(self) -> tuple[int, str]:
        """Return the number of units that half samples choose, and the singular noun for one."""
        return self.number(), GROUP

    def to_dict(self) -> dict[str, Any]:
        """Return a description as plain values, for a file."""
        return {"by": self.by, "number": self.number(), "source": self.source}

    def __str__(self) -> str:
        return f"by {self.number():,} groups ({self.by})"


def read_groups(
    grouping: str,
    names: Sequence[str],
    source: str,
    offered: Mapping[str, str] | None = None,
    tables: Sequence[str] = (),
) -> SampleGroups:
    """Return the groups that ``-group`` asks for.

    Args:
        grouping: a word of ``offered``; a column of one of ``tables``; a file with a column of sample names and one of
            groups, which is the second of two columns or called "group"; or FILE:COLUMN. In COCO's annotations, a JSON
            file, columns are the fields of images.
        names: names of the samples; names in files are matched as in ``SampleNames``.
        source: dataset of the samples, for messages.
        offered: see ``Dataset.groups_by``.
        tables: files that may have such a column.

    Raises:
        UserError: there is no such column, a sample has no group or two, or all samples are in one group.
    """
    file, _, column = grouping.rpartition(":")
    if offered is not None and grouping in offered:
        by, origin = grouping, source
        group_by_row = {row: _find_group(offered[grouping], name) for row, name in enumerate(names)}
    elif os.path.isfile(grouping):
        by, origin, group_by_row = _read(grouping, None, names, source)
    elif os.path.isfile(file):
        by, origin, group_by_row = _read(file, column, names, source)
    else:
        columns = {table: _read_headings(table) for table in tables if os.path.isfile(table)}
        origin = next((table for table, headings in columns.items() if grouping in headings), "")
        if not origin:
            available = [f"{table} has {', '.join(headings)}" for table, headings in columns.items()]
            available += [f"{source} has {', '.join(offered)}"] if offered else []
            choices = f"; {shorten('; '.join(available), 160)}" if available else ""
            raise UserError(
                f"-group={grouping}: there is no such file or column{choices}; expected a file with the columns "
                "sample,group"
            )
        by, origin, group_by_row = _read(origin, grouping, names, source)
    labels = [group_by_row.get(row, "") for row in range(len(names))]
    ungrouped = labels.count("")
    if ungrouped:
        problem = (
            f"{ungrouped:,} of {len(names):,} samples have no group in {origin}, such as {names[labels.index('')]}"
        )
        raise UserError(f"-group={grouping}: {problem}; each needs one")
    if len(set(labels)) < 2:
        raise UserError(f"-group={grouping}: all samples are in one group, {labels[0]}; intervals need at least two")
    return SampleGroups(by, np.array(labels), origin)


def find_groups(offered: Mapping[str, str], names: Sequence[str]) -> tuple[str, list[str]] | None:
    """Find samples that must stay together when a dataset is split.

    Returns:
        The word of ``offered`` (``Dataset.groups_by``) and each sample's group, which is its own name if it has none.
        None: by every word, no two samples share a group, or all samples do.
    """
    for word, pattern in offered.items():
        group_of = {name: group for name in names if (group := _find_group(pattern, name))}
        groups = [group_of.get(name, name) for name in names]
        if len(set(group_of.values())) < len(group_of) and len(set(groups)) > 1:
            return word, groups
    return None


def _find_group(pattern: str, name: str) -> str:
    match = re.search(pattern, name)
    return match[1] if match else ""


def _read(file: str, column: str | None, names: Sequence[str], source: str) -> tuple[str, str, dict[int, str]]:
    """Read the column of groups; return its name, the file, and the groups by index of the samples in the file."""
    rows = iterate_records(file)
    first = next(rows, TableRow(0, []))
    heading = [cell.strip() for cell in first.cells]
    finder = SampleNames(names, source, "sample")
    name_column, group_column = _find_columns(file, heading, column)
    table_rows = list(rows)
    short = next((entry for entry in table_rows if len(entry.cells) <= max(name_column, group_column)), None)
    if short is not None:
        raise UserError(f"{file}, line {short.line}: {len(short.cells)} columns, but {len(heading)} in the first")
    by, group_by_row = heading[group_column], dict[int, str]()
    if not finder.choose_depth(parse_cell(entry.cells[name_column].strip()) for entry in [first, *table_rows]):
        return by, file, group_by_row
    if finder.find_row(heading[name_column]) is not None:  # there are no headings
        by, table_rows = GROUP, [first, *table_rows]
    for line, cells in table_rows:
        name, group = (parse_cell(cells[place].strip()) for place in (name_column, group_column))
        row = finder.find_row(name)
        if row is not None and group_by_row.setdefault(row, group) != group:
            raise UserError(
                f"{file}, line {line}: {name} is in {group} here and in {group_by_row[row]} before; keep one"
            )
    return os.path.basename(file) if by == GROUP else by, file, group_by_row


def _find_columns(file: str, heading: Sequence[str], column: str | None) -> tuple[int, int]:
    """Return the columns of names and groups; ``column`` names the latter."""
    name_column = 0 if _is_coco(file) else NAME.find(heading) or 0
    wanted = GROUP if column is None else column
    group_column = heading.index(wanted) if wanted in heading else None
    if group_column is None and column is None and len(heading) == 2:
        group_column = 1 - name_column
    if group_column is None or group_column == name_column:
        existing = shorten(", ".join(heading) or "nothing", 120)
        expected = f"a column {column}" if column else f"sample,group; or name the column: -group={file}:COLUMN"
        raise UserError(f"{file} has the columns {existing}; expected {expected}")
    return name_column, group_column


def _read_headings(file: str) -> list[str]:
    return [cell.strip() for cell in next(iterate_records(file), TableRow(0, [])).cells]


def iterate_records(file: str) -> Iterator[TableRow]:
    """Yield the rows of a table, or of the images in COCO's annotations, starting with the headings."""
    if not _is_coco(file):
        yield from iterate_rows(file, find_separator(file))
        return
    try:
        with open_regular(file, "rb") as stream:
            images = msgspec.json.decode(to_utf8(stream.read()), type=_CocoFile).images
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read as COCO's annotations: {error}") from error
    fields = list(dict.fromkeys(field for record in images for field in record if field != "file_name"))
    yield TableRow(0, ["file_name", *fields])
    for number, image in enumerate(images):
        name = image.get("file_name") or image.get("coco_url") or f"image {image.get('id')}"
        values = map(image.get, fields)
        yield TableRow(number, [str(name), *("" if value is None else str(value) for value in values)])


def _is_coco(file: str) -> bool:
    return file.lower().endswith(".json")


class _CocoFile(msgspec.Struct):
    images: list[dict[str, Any]]
