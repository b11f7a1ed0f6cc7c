"""Which samples belong together, such as those of one patient, video or place: intervals draw them together."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..runtime.errors import UserError
from ..runtime.files import open_regular
from ..runtime.printing import parse_cell, shorten
from ..runtime.tables import NAME_HEADINGS, TableRow, find_separator, iterate_rows
from .sample_names import SampleNames

GROUP = "group"  # heading of a column
#: for ``Dataset.groups_by``: the folder that the file of a sample is in; whose it is, as BIDS names files
FOLDER, SUBJECT = {"folder": r"(.+)/[^/]+"}, {"subject": r"(?:^|/)(sub-[A-Za-z0-9]+)"}


class SampleGroups(NamedTuple):
    """Samples, each of one group.

    Attributes:
        by: what a group is, such as "video".
        names: of the group of each sample, texts (samples,).
        source: file or data set that says so.
    """

    by: str
    names: np.ndarray
    source: str

    def chosen(self, rows: Any) -> "SampleGroups":
        """The same of these samples."""
        return self._replace(names=self.names[rows])

    def number(self) -> int:
        """How many there are."""
        return len(set(self.names.tolist()))

    def plain(self) -> dict[str, Any]:
        """For a file."""
        return {"by": self.by, "number": self.number(), "source": self.source}

    def __str__(self) -> str:
        return f"by {self.number():,} groups ({self.by})"


def get_group_names(groups: SampleGroups | None) -> np.ndarray | None:
    """For ``bootstrap``."""
    return None if groups is None else groups.names


def draw(groups: SampleGroups | None, num_samples: int, sample: str) -> tuple[int, str]:
    """How many things are drawn, and what one is called."""
    return (num_samples, sample) if groups is None else (groups.number(), GROUP)


def read_groups(
    given: str,
    names: Sequence[str],
    source: str,
    offered: Mapping[str, str] | None = None,
    tables: Sequence[str] = (),
) -> SampleGroups:
    """The groups that ``-group`` asks for.

    Args:
        given: a word of ``offered``; a heading of one of ``tables``; a file with a column of names of samples and one
            of groups, which is the second of two, or called "group"; or FILE:COLUMN. In COCO's annotations, a JSON
            file, columns are what is said of images.
        names: of the samples; those of files are found as ``SampleNames`` does.
        source: of the samples, for messages.
        offered: see ``Dataset.groups_by``.
        tables: files that may have such a column.
    Raises:
        UserError: there is no such column, a sample has no group or two, or all are of one.
    """
    file, _, column = given.rpartition(":")
    if offered is not None and given in offered:
        by, where, found = given, source, {row: _of_name(offered[given], name) for row, name in enumerate(names)}
    elif os.path.isfile(given):
        by, where, found = _read(given, None, names, source)
    elif os.path.isfile(file):
        by, where, found = _read(file, column, names, source)
    else:
        there = {table: _headings(table) for table in tables if os.path.isfile(table)}
        where = next((table for table, headings in there.items() if given in headings), "")
        if not where:
            known = [f"{table} has {', '.join(headings)}" for table, headings in there.items()]
            known += [f"{source} knows {', '.join(offered)}"] if offered else []
            said = f"; {shorten('; '.join(known), 160)}" if known else ""
            raise UserError(f"-group={given}: there is no such file or column{said}: expected a file sample,group")
        by, where, found = _read(where, given, names, source)
    labels = [found.get(row, "") for row in range(len(names))]
    without = labels.count("")
    if without:
        said = f"{without:,} of {len(names):,} samples have no group in {where}, such as {names[labels.index('')]}"
        raise UserError(f"-group={given}: {said}; each needs one")
    if len(set(labels)) < 2:
        raise UserError(f"-group={given}: all samples are of one group, {labels[0]}: others cannot be drawn from it")
    return SampleGroups(by, np.array(labels), where)


def find_groups(offered: Mapping[str, str], names: Sequence[str]) -> tuple[str, list[str]] | None:
    """Find samples that a division of a data set has to keep together.

    Args:
        offered: see ``Dataset.groups_by``.
        names: of the samples.
    Returns:
        The word of ``offered`` and the group of each sample, its own name if it is in none; None: no two samples are of
        one group by any word, or all are of one.
    """
    for word, pattern in offered.items():
        group_of = {name: group for name in names if (group := _of_name(pattern, name))}
        groups = [group_of.get(name, name) for name in names]
        if len(set(group_of.values())) < len(group_of) and len(set(groups)) > 1:
            return word, groups
    return None


def _of_name(pattern: str, name: str) -> str:
    found = re.search(pattern, name)
    return found[1] if found else ""


def _read(file: str, column: str | None, names: Sequence[str], source: str) -> tuple[str, str, dict[int, str]]:
    """Read what a group is, the file, and the group of each of the samples that are in it, by its position."""
    rows = _rows(file)
    first = next(rows, TableRow(0, []))
    heading = [cell.strip() for cell in first.cells]
    lowered, finder = [cell.lower() for cell in heading], SampleNames(names, source, "sample")
    own = 0 if _is_coco(file) else next((lowered.index(word) for word in NAME_HEADINGS if word in lowered), 0)
    wanted = [place for place, cell in enumerate(heading) if cell == column or (column is None and cell == GROUP)]
    if not wanted and column is None and len(heading) == 2:
        wanted = [1 - own]
    if not wanted or wanted[0] == own:
        there = shorten(", ".join(heading) or "nothing", 120)
        expected = f"a column {column}" if column else f"sample,group; or name the column: -group={file}:COLUMN"
        raise UserError(f"{file} has the columns {there}; expected {expected}")
    listed = list(rows)
    short = next((row for row in listed if len(row.cells) <= max(own, wanted[0])), None)
    if short is not None:
        raise UserError(f"{file}, line {short.line}: {len(short.cells)} columns, but {len(heading)} in the first")
    by, found = heading[wanted[0]], dict[int, str]()
    if not finder.settle(parse_cell(row.cells[own].strip()) for row in [first, *listed]):
        return by, file, found
    if finder.row(heading[own]) is not None:  # there are no headings
        by, listed = GROUP, [first, *listed]
    for line, cells in listed:
        name, group = (parse_cell(cells[place].strip()) for place in (own, wanted[0]))
        row = finder.row(name)
        if row is not None and found.setdefault(row, group) != group:
            raise UserError(f"{file}, line {line}: {name} is of {group} here and of {found[row]} before; keep one")
    return os.path.basename(file) if by == GROUP else by, file, found


def _headings(file: str) -> list[str]:
    return [cell.strip() for cell in next(_rows(file), TableRow(0, [])).cells]


def _rows(file: str) -> Iterator[TableRow]:
    """The rows of a table; of COCO's annotations those of images, with the headings first."""
    if not _is_coco(file):
        yield from iterate_rows(file, find_separator(file))
        return
    try:
        with open_regular(file, "rb") as stream:
            images = msgspec.json.decode(stream.read().removeprefix(b"\xef\xbb\xbf"), type=_CocoFile).images
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} cannot be read as COCO's annotations: {error}") from error
    fields = list(dict.fromkeys(field for image in images for field in image if field != "file_name"))
    yield TableRow(0, ["file_name", *fields])
    for number, image in enumerate(images):
        called = image.get("file_name") or image.get("coco_url") or f"image {image.get('id')}"
        values = map(image.get, fields)
        yield TableRow(number, [str(called), *("" if value is None else str(value) for value in values)])


def _is_coco(file: str) -> bool:
    return file.lower().endswith(".json")


class _CocoFile(msgspec.Struct):
    images: list[dict[str, Any]]
