"""Parts of a page's sections: dictionaries with the "kind" of a macro in ``parts.html.j2`` and its content."""

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ...core.runtime.metrics_file import is_number
from ...core.runtime.printing import one_line
from .runs import ReportedRun

Part = dict[str, Any]


def make_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> Part:
    """Make a table that can be sorted by any column."""
    return {"kind": "table", "title": title, "columns": columns, "rows": rows, "note": note}


def lay_out_table(table: Part) -> Part:
    """Return the columns, (name, whether it has numbers), and the rows of a table: text, whether it is a number, share.

    A share from 0 to 1 is drawn as a bar; None: none is.
    """
    shares = set(table.get("shares", ()))
    laid_out = []
    for name, *values in zip(table["columns"], *filter(None, table["rows"])):
        texts = iter(format_numbers([value for value in values if isinstance(value, float)]))
        whole = 1.0 if name in shares else 100.0 if str(name).endswith("%") else 0.0
        cells = []
        for value in values:
            is_share = isinstance(value, float) and 0 <= value <= whole > 0
            text = next(texts) if isinstance(value, float) else format_cell(value)
            cells.append((text, is_number(value), value / whole if is_share else None))
        laid_out.append((name, cells))
    columns = [(name, any(is_number for _, is_number, _ in cells)) for name, cells in laid_out]
    return {"columns": columns, "rows": [*zip(*(cells for _, cells in laid_out))]}


def format_cell(value: object) -> str:
    """Format a cell that is not a float."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else "" if value is None else str(value)


def format_numbers(values: Sequence[float]) -> list[str]:
    """Format the numbers of a column: four digits of the largest, and the same number of decimals in all.

    Two decimals are left to large numbers if some have them. Very small and very large ones have exponents instead.
    """
    texts = [f"{value:.4g}" for value in values]
    largest = max(map(abs, values), default=0.0)
    if not 1e-4 <= largest < 1e6 or (largest < 1e-3 and any("e" in text for text in texts)):
        return texts
    most = max(2, 4 - max(0, math.ceil(math.log10(largest))))
    needed = max(most if "e" in text else len(text.partition(".")[2]) for text in texts)
    return [f"{value:.{min(needed, most)}f}" for value in values]


def make_note(text: str) -> Part:
    """Make a line of text."""
    return {"kind": "note", "text": text}


def make_lines(lines: Iterable[str], title: str = "") -> Part:
    """Make a list of lines, with a heading if it has a ``title``."""
    return {"kind": "lines", "lines": [*lines], "title": title}


def fold(summary: str, *parts: Part) -> Part:
    """Make parts that the reader can unfold."""
    return {"kind": "folded", "summary": summary, "parts": parts}


def name_run(line: object, run: ReportedRun, runs: Sequence[ReportedRun]) -> str:
    """Prefix a line with the name of its run if there are several runs."""
    return one_line(f"{run.name}: {line}" if len(runs) > 1 else line)


def format_time(value: Any) -> str:
    """Format a time in seconds since 1970; "?" if it is none."""
    is_time = is_number(value) and 0 < value < 1e11
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value)) if is_time else "?"


def format_facts(values: dict[str, Any], skipped: Sequence[str]) -> str:
    """Format names and values that are not empty, separated by commas."""
    return ", ".join(
        f"{name} {format_numbers([value])[0] if isinstance(value, float) else value}"
        for name, value in values.items()
        if name not in skipped and value not in (None, {}, [])
    )
