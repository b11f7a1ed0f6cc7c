"""Parts of a page's sections: dictionaries with the "kind" of a macro in ``parts.html.j2`` and its content."""

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
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
        if name not in skipped and value not in (None, {}, [])
    )
