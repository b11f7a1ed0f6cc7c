"""Lines for a terminal and rows for a page of what a comparison says."""

from collections.abc import Sequence
from typing import Any

from ..runtime.printing import one_line, shorten
from .significance import holm
from .tables import RESULTS, EvaluationTable

_MOST_CLASSES, _MOST_SAMPLES = 10, 5
_SURE = 0.05  # p below it: a difference that is called one
_LONGEST_NAME = 60
CHANGES = ("fixed", "broken", "better", "worse")  # kinds of samples that changed, those of which a comparison has
TOO_FEW = "too few seeds"  # whatever they had scored, p would not have been below ``_SURE``
RIGHT = {"fixed": "wrong before, right now", "broken": "right before, wrong now"}


def correct(comparisons: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same comparisons with "p_holm", the p corrected for their number, and what follows from it in words."""
    ps = holm([comparison["p"] for comparison in comparisons])
    return [{**one, "p_holm": p, "finding": _finding(one, p, len(ps))} for one, p in zip(comparisons, ps)]


def _finding(comparison: dict[str, Any], p: float, comparisons: int) -> str:
    if not comparison["difference"]["value"]:
        return "no difference"
    if p >= _SURE:
        return TOO_FEW if comparisons * comparison.get("smallest_p", 0.0) >= _SURE else "may be chance"
    return "better" if (comparison["difference"]["value"] > 0) == comparison["more_is_better"] else "worse"


def about(table: EvaluationTable) -> str:
    """Which evaluation a table is of."""
    of, split = table.about["of"], table.about["split"]
    whose = of if of.startswith(("epoch ", RESULTS)) else f"weights {of}"
    return one_line(f"{table.run}: {f'{split}, ' if split else ''}{whose}")


def count_decimals(values: Sequence[float]) -> int:
    """Of scores of any task: two for percent and millimeters, four for shares."""
    return 2 if any(abs(value) >= 2 for value in values) else 4


def number(value: float, decimals: int, signed: bool = False) -> str:
    return f"{value:{'+' if signed else ''}.{decimals}f}"


def ends(row: dict[str, float], decimals: int, signed: bool = False) -> str:
    """Such as "88.06 [84.4, 91.1]": with the sign of each number where it is a difference; without an interval where
    there is none."""
    value, *own = (number(row[name], decimals, signed) for name in ("value", "low", "high") if name in row)
    return f"{value} [{', '.join(own)}]" if own else value


def format_p_value(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def build_rows(comparisons: Sequence[dict[str, Any]], decimals: int) -> list[list[str]]:
    """A table of all runs: a heading, the first run, and each other against it."""
    several, one = len(comparisons) > 1, comparisons[0]
    heading = ["run", one["score"], "difference", "p", *(["p (Holm)"] if several else []), ""]
    rows = [heading, [one["first"], ends(one["of_first"], decimals), "", "", *([""] if several else []), ""]]
    for other in comparisons:
        ps = [format_p_value(other["p"]), *([format_p_value(other["p_holm"])] if several else [])]
        difference = ends(other["difference"], decimals, signed=True)
        rows.append([other["second"], ends(other["of_second"], decimals), difference, *ps, other["finding"]])
    return [[one_line(cell) for cell in row] for row in rows]


def method(comparisons: Sequence[dict[str, Any]]) -> str:
    """How intervals and p were made, and of what."""
    one, tests = comparisons[0], ", ".join(dict.fromkeys(other["test"] for other in comparisons))
    groups = [other["groups"] for other in comparisons if "groups" in other]
    drawn = "".join(dict.fromkeys(f", by {each['number']:,} groups ({each['by']})" for each in groups))
    return one_line(f"{one['percent']} % intervals and p ({tests}) of the same {one['samples']:,} samples{drawn}")


def format_settings(comparison: dict[str, Any]) -> list[str]:
    """The line of what the trainings were told differently; none where they were not."""
    told = ", ".join(f"{name} {shorten(a, 40)} -> {shorten(b, 40)}" for name, (a, b) in comparison["settings"].items())
    return [one_line(f"settings that differ: {told}")] if told else []


def class_rows(comparison: dict[str, Any], decimals: int) -> list[list[str]]:
    """A heading and a row for each class, what differs most first; a class that one table knows nothing of has none."""
    rows = [["class", "first", "second", "difference"]]
    for row in comparison["classes"]:
        values = [number(row[which]["value"], decimals) for which in ("of_first", "of_second")]
        rows.append([shorten(row["class"], _LONGEST_NAME), *values, ends(row["difference"], decimals, signed=True)])
    return rows


def format_lines(tables: Sequence[EvaluationTable], comparisons: Sequence[dict[str, Any]], decimals: int) -> list[str]:
    """Write the lines for the terminal."""
    lines = [*map(about, tables), "", *columns(build_rows(comparisons, decimals)), method(comparisons)]
    for other in comparisons:
        heading = [""] if len(comparisons) == 1 else ["", one_line(f"{other['second']} against {other['first']}")]
        details = [*format_settings(other), *_class_lines(other, decimals), *_sample_lines(other)]
        lines += [*heading, *(f"note: {one_line(note)}" for note in other["notes"]), *details]
        lines += [f"warning: {one_line(warning)}" for warning in other["warnings"]]
    return lines


def _class_lines(comparison: dict[str, Any], decimals: int) -> list[str]:
    rows, number_of = class_rows(comparison, decimals), len(comparison["classes"])
    if not number_of:
        return []
    which = "" if number_of <= _MOST_CLASSES else f", the {_MOST_CLASSES} of {number_of} that differ most"
    first = comparison["classes"][0]
    score = first["score"].removesuffix(f" {first['class']}").removeprefix(f"{first['class']} ")
    return [f"{score} of each class{which}:", *(f"  {line}" for line in columns(rows[: _MOST_CLASSES + 1]))]


def _sample_lines(comparison: dict[str, Any]) -> list[str]:
    lines = []
    for kind in CHANGES:
        found = comparison.get(kind)
        if found is not None:
            shown = ", ".join(format_sample(row) for row in found[:_MOST_SAMPLES])
            more = f" and {len(found) - _MOST_SAMPLES:,} more" if len(found) > _MOST_SAMPLES else ""
            told = f" ({RIGHT[kind]})" if kind in RIGHT else ""
            lines.append(f"{kind} {len(found):,}{told}{': ' if found else ''}{shown}{more}")
    return lines


def format_sample(row: dict[str, Any]) -> str:
    """A sample that changed, with its class or its two scores."""
    told = row["class"] if "class" in row else f"{row['of_first']:.4g} to {row['of_second']:.4g}"
    return f"{shorten(row['sample'], _LONGEST_NAME)} ({shorten(told, 40)})"


def format_caption(row: dict[str, Any], kind: str) -> str:
    """The same below its image, with what the other of the two models takes it for."""
    if "taken_for" not in row:
        return format_sample(row)
    name, true, other = (shorten(row[what], _LONGEST_NAME) for what in ("sample", "class", "taken_for"))
    return f"{name}: {true}, taken for {other} {'before' if kind == 'fixed' else 'now'}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of one table as lines."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
