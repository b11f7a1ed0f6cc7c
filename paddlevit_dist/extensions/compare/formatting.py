"""Format comparisons as lines for a terminal and as rows for a page."""

from collections.abc import Sequence
from typing import Any

from ...core.runtime.printing import one_line, shorten
from .pairs import MOST_CLASSES
from .tables import RESULTS, EvaluationTable

_MOST_SAMPLES = 5
_LONGEST_NAME = 60
CHANGES = ("fixed", "broken", "better", "worse")  # kinds of changed samples; a comparison has some of them
RIGHT = {"fixed": "wrong before, right now", "broken": "right before, wrong now"}


def format_evaluation(table: EvaluationTable) -> str:
    """Format a table's run, split and weights."""
    of, split = table.about["of"], table.about["split"]
    source = of if of.startswith(("epoch ", RESULTS)) else f"weights {of}"
    return one_line(f"{table.run}: {f'{split}, ' if split else ''}{source}")


def count_decimals(values: Sequence[float]) -> int:
    """Return the number of decimals for scores: two for percent and millimeters, four for shares."""
    return 2 if any(abs(value) >= 2 for value in values) else 4


def format_number(value: float, decimals: int, signed: bool = False) -> str:
    """Format a number with fixed decimals, optionally with its sign."""
    return f"{value:{'+' if signed else ''}.{decimals}f}"


def format_interval(row: dict[str, float], decimals: int, signed: bool = False) -> str:
    """Format "value", "low" and "high" as "88.06 [84.4, 91.1]", or without the interval if there is none."""
    value, *ends = (format_number(row[name], decimals, signed) for name in ("value", "low", "high") if name in row)
    return f"{value} [{', '.join(ends)}]" if ends else value


def format_p_value(p: float) -> str:
    """Format a p-value with two significant digits."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def build_rows(comparisons: Sequence[dict[str, Any]], decimals: int) -> list[list[str]]:
    """Build a table of all runs: a heading, the first run, and the comparison of each other run with it."""
    several, first = len(comparisons) > 1, comparisons[0]
    heading = ["run", first["score"], "difference", "p", *(["p (corrected)"] if several else []), ""]
    value = format_interval(first["of_first"], decimals)
    rows = [heading, [first["first"], value, "", "", *([""] if several else []), ""]]
    for other in comparisons:
        ps = [format_p_value(other["p"]), *([format_p_value(other["p_corrected"])] if several else [])]
        difference = format_interval(other["difference"], decimals, signed=True)
        rows.append([other["second"], format_interval(other["of_second"], decimals), difference, *ps, other["finding"]])
    return [[one_line(cell) for cell in row] for row in rows]


def format_method(comparisons: Sequence[dict[str, Any]]) -> str:
    """Format the methods for intervals and p-values, and the number of samples."""
    first, tests = comparisons[0], ", ".join(dict.fromkeys(other["test"] for other in comparisons))
    groups = [other["groups"] for other in comparisons if "groups" in other]
    units = "".join(dict.fromkeys(f", by {each['number']:,} groups ({each['by']})" for each in groups))
    others = [f"{other['other_samples']:,}" for other in comparisons if "other_samples" in other]
    of = f"of the same {first['samples']:,} samples{units}"
    of = f"of {first['samples']:,} and {', '.join(others)} other samples" if others else of
    return one_line(f"{format_level(first, len(comparisons))} and p ({tests}) {of}")


def format_margin(comparison: dict[str, Any], decimals: int) -> list[str]:
    """Format whether the second run is not worse by a margin, and whether it is equivalent; no line without one."""
    if "margin" not in comparison:
        return []
    found, margin = comparison["margin"], f"{comparison['margin']['margin']:g}"
    said = "is worse" if found["worse"] else "not worse" if found["not_worse"] else "may be worse"
    not_worse = f"{said} by {margin} or more"
    equivalent = "equivalence is not shown"
    if found["equivalent"] or found["different"]:
        equivalent = "equivalent" if found["equivalent"] else "not equivalent"
    ends = format_interval(found["interval"], decimals, signed=True).partition(" ")[2]
    return [f"margin {margin}: {not_worse}; {equivalent} ({found['percent']:.4g} % interval {ends})"]


def format_level(comparison: dict[str, Any], comparisons: int) -> str:
    """Format the level of the intervals of one or several comparisons."""
    if comparisons == 1:
        return f"{comparison['percent']} % intervals"
    level = f"{comparison['difference_percent']:.4g} %"
    return f"{comparison['percent']} % intervals ({level} of differences and p times {comparisons}: Bonferroni)"


def format_settings(comparison: dict[str, Any]) -> list[str]:
    """Format the settings that differ as a line; return no line if none differ."""
    values = comparison["settings"].items()
    changes = ", ".join(f"{name} {shorten(a, 40)} -> {shorten(b, 40)}" for name, (a, b) in values)
    return [one_line(f"settings that differ: {changes}")] if changes else []


def build_class_rows(classes: Sequence[dict[str, Any]], decimals: int) -> list[list[str]]:
    """Build a heading and a row for each of the "classes" of a comparison."""
    rows = [["class", "first", "second", "difference"]]
    for row in classes:
        values = [format_number(row[which]["value"], decimals) for which in ("of_first", "of_second")]
        difference = format_interval(row["difference"], decimals, signed=True)
        rows.append([shorten(row["class"], _LONGEST_NAME), *values, difference])
    return rows


def format_lines(tables: Sequence[EvaluationTable], comparisons: Sequence[dict[str, Any]], decimals: int) -> list[str]:
    """Format the lines for the terminal."""
    summary = align_columns(build_rows(comparisons, decimals))
    lines = [*map(format_evaluation, tables), "", *summary, format_method(comparisons)]
    for other in comparisons:
        heading = [""] if len(comparisons) == 1 else ["", one_line(f"{other['second']} against {other['first']}")]
        details = [
            *format_margin(other, decimals),
            *format_settings(other),
            *_format_classes(other, decimals),
            *_format_samples(other),
        ]
        lines += [*heading, *(f"note: {one_line(note)}" for note in other["notes"]), *details]
        lines += [f"warning: {one_line(warning)}" for warning in other["warnings"]]
    return lines


def _format_classes(comparison: dict[str, Any], decimals: int) -> list[str]:
    classes = comparison["classes"]
    if not classes:
        return []
    first, listed = classes[0], classes[:MOST_CLASSES]
    which = ""
    if len(classes) > MOST_CLASSES:
        level = f"{first['listed']['percent']:.4g} % intervals, corrected for the choice"
        which = f", the {MOST_CLASSES} of {len(classes):,} that differ most ({level})"
        listed = [{**row, "difference": row["listed"]} for row in listed]
    score = first["score"].removesuffix(f" {first['class']}").removeprefix(f"{first['class']} ")
    rows = align_columns(build_class_rows(listed, decimals))
    return [f"{score} of each class{which}:", *(f"  {line}" for line in rows)]


def _format_samples(comparison: dict[str, Any]) -> list[str]:
    lines = []
    for kind in CHANGES:
        samples = comparison.get(kind)
        if samples is not None:
            shown = ", ".join(format_sample(row) for row in samples[:_MOST_SAMPLES])
            more = f" and {len(samples) - _MOST_SAMPLES:,} more" if len(samples) > _MOST_SAMPLES else ""
            meaning = f" ({RIGHT[kind]})" if kind in RIGHT else ""
            lines.append(f"{kind} {len(samples):,}{meaning}{': ' if samples else ''}{shown}{more}")
    return lines


def format_sample(row: dict[str, Any]) -> str:
    """Format a changed sample with its class or its two scores, if it has them."""
    name, detail = shorten(row["sample"], _LONGEST_NAME), row.get("class", "")
    if "of_first" in row:
        detail = f"{row['of_first']:.4g} to {row['of_second']:.4g}"
    return f"{name} ({shorten(detail, 40)})" if detail else name


def format_caption(row: dict[str, Any], kind: str) -> str:
    """Format the caption of a sample's image, with the class that the wrong model predicts."""
    if not row.keys() >= {"class", "taken_for"}:
        return format_sample(row)
    name, true, other = (shorten(row[what], _LONGEST_NAME) for what in ("sample", "class", "taken_for"))
    return f"{name}: {true}, predicted {other} {'before' if kind == 'fixed' else 'now'}"


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format the rows of a table as lines with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
