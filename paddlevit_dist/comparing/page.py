"""A comparison as one HTML file, without pictures of the samples: these are where the data are."""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..runtime.files import atomic_file
from . import telling
from .tables import Table

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:62em;padding:0 1em;color-scheme:light dark}"
    "table{border-collapse:collapse}td,th{padding:.2em .9em .2em 0;text-align:left;border-bottom:1px solid #8884}"
    ".note{opacity:.75}"
)


def write_page(target: Path, tables: Sequence[Table], comparisons: Sequence[dict[str, Any]], decimals: int) -> None:
    """Write the page.

    Raises:
        UserError, OSError: it cannot be written.
    """
    one = comparisons[0]
    title = html.escape("Comparison: " + ", ".join(telling.one_line(table.run) for table in tables))
    parts = [f"<h1>{title}</h1>", *(f'<p class="note">{html.escape(telling.about(table))}</p>' for table in tables)]
    parts.append(_table(telling.rows_of(comparisons, decimals)))
    tests = html.escape(", ".join(dict.fromkeys(other["test"] for other in comparisons)))
    parts.append(f'<p class="note">{one["percent"]} % intervals and p ({tests}) of {one["samples"]:,} samples</p>')
    for other in comparisons:
        parts += _details(other, decimals)
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    foot = f'<p class="note">written by paddlevit_dist {html.escape(__version__)}</p>'
    content = f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{"".join(parts)}{foot}</body></html>\n'
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(target) as file:
        file.write(content.encode("utf-8", "backslashreplace"))


def _details(comparison: dict[str, Any], decimals: int) -> list[str]:
    parts = [f"<h2>{html.escape(telling.one_line(comparison['second']))}</h2>"]
    parts += [f"<p>Warning: {html.escape(telling.one_line(line))}</p>" for line in comparison["warnings"]]
    if comparison["classes"]:
        parts.append(f"<h3>Classes</h3>{_table(telling.class_rows(comparison, decimals))}")
    for kind in ("fixed", "broken", "better", "worse"):
        found = comparison.get(kind)
        if found:
            entries = "".join(f"<li>{html.escape(telling.sample_of(row))}</li>" for row in found)
            parts.append(f"<details><summary>{len(found):,} samples are {kind}</summary><ol>{entries}</ol></details>")
    return parts


def _table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the heading."""
    cells = [[html.escape(cell) for cell in row] for row in rows]
    heading = "".join(f"<th>{cell}</th>" for cell in cells[0])
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells[1:])
    return f"<table><thead><tr>{heading}</tr></thead><tbody>{body}</tbody></table>"
