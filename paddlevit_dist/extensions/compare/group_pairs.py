"""Compare groups of seeds with each other, and single runs with a group."""

import contextlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.intervals import ConfidenceInterval
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line, shorten
from . import groups
from .formatting import (
    TOO_FEW,
    add_findings,
    align_columns,
    build_rows,
    count_decimals,
    format_number,
    format_settings,
)
from .groups import SeedGroup
from .pairs import find_warnings
from .run_settings import find_differing_settings, load_run_settings
from .tables import read_table


def compare_groups(runs: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Compare groups and single runs (folders) with the first group, as plain values and as lines for a terminal.

    Raises:
        UserError: if they cannot be compared.
    """
    seed_groups = [groups.read_group(run) for run in runs if groups.is_group(run)]
    first, *others = seed_groups
    for group in seed_groups:
        _require_comparable(first, group)
    single = [_compare_single(run, first) for run in runs if not groups.is_group(run)]
    comparisons = add_findings([_compare(first, other) for other in others])
    decimals = count_decimals(first.scores)
    lines = []
    for group in seed_groups:
        number = len(group.scores)
        counts = {"unfinished": len(group.seeds) - number - group.undefined, groups.UNDEFINED: group.undefined}
        left = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        summary = groups.format_summary(group.scores, decimals)
        lines.append(f"{group.run}: {number} seeds{f' ({left})' if left else ''}, {summary}")
    lines += _format_comparisons(comparisons, decimals) if comparisons else []
    lines += [line for row in single for line in ("", _format_single(row, decimals), *format_settings(row))]
    lines += [f"warning: {one_line(line)}" for other in [*comparisons, *single] for line in other["warnings"]]
    return {"comparisons": comparisons, "single_runs": single}, [one_line(line) for line in lines]


def _require_comparable(first: SeedGroup, other: SeedGroup) -> None:
    for what in ("task", "score"):
        if first.about[what] != other.about[what]:
            reason = f"{what} {other.about[what]} instead of {first.about[what]}"
            raise UserError(f"compare: {other.run} cannot be compared with {first.run}: {shorten(reason)}")
    if len(other.scores) < 2 and other.undefined:
        raise UserError(
            f"compare: {other.about['score']} is {groups.UNDEFINED} in {other.undefined} of {len(other.seeds)} seeds "
            f"of {other.run}: expected a score of two or more; compare groups on data that define it"
        )
    if len(other.scores) < 2:
        raise UserError(
            f"compare: {other.run} has {len(other.scores)} finished seed(s): expected two or more; repeat its -seeds "
            "command to continue it"
        )


def _compare(first: SeedGroup, second: SeedGroup) -> dict[str, Any]:
    score, both = first.about["score"], (first.scores, second.scores)
    p, test = groups.permutation_test(*both)
    bounds = groups.find_range(first)
    intervals = [groups.clip_to_range(bounds, *groups.compute_interval(scores, 1 / len(scores))) for scores in both]
    of_first, of_second = (
        ConfidenceInterval(statistics.fmean(scores), *ends).plain() for scores, ends in zip(both, intervals)
    )
    value, low, high = groups.compute_difference(*both)
    low_in_range, high_in_range = groups.clip_to_range(bounds, low, high, is_difference=True)
    return {
        "first": first.run,
        "second": second.run,
        "score": score,
        "more_is_better": first.about["more_is_better"],
        "seeds": list(map(len, both)),
        "percent": groups.PERCENT,
        "of_first": of_first,
        "of_second": of_second,
        "difference": ConfidenceInterval(value, low_in_range, high_in_range).plain(),
        "noise": groups.clip_to_range(bounds, 0.0, high - value, is_difference=True)[1],
        "p": float(f"{p:.6g}"),
        "smallest_p": groups.compute_smallest_p(*map(len, both)),
        "test": test,
        "settings": find_differing_settings(first.about["settings"], second.about["settings"]),
        "warnings": _find_warnings(find_finished(first), find_finished(second)),
    }


def find_finished(group: SeedGroup) -> str:
    """Return the folder of the first finished seed."""
    return str(Path(group.run, next(row["folder"] for row in group.seeds if row["state"] == groups.FINISHED)))


def _find_warnings(first_run: str, second_run: str) -> list[str]:
    """List differences of two evaluations that affect scores, if both have left tables of samples."""
    with contextlib.suppress(UserError):
        first, second = read_table(first_run), read_table(second_run)
        lines = find_warnings(first, second)
        if sorted(first.names) != sorted(second.names):
            lines.insert(0, f"samples: {first.run} and {second.run} were evaluated on different samples")
        return lines
    return []


def _compare_single(run: str, group: SeedGroup) -> dict[str, Any]:
    """Compare the best score of a training run with the scores of a group."""
    if not Path(run).is_dir():
        raise UserError(f"compare: {run} is not a folder; give folders of -seeds or of training runs")
    best = groups.find_best(Path(run), group.about["score"])
    if not best:
        raise UserError(
            f"compare: metrics.jsonl in {run} has no best {group.about['score']} of a training run to compare with a "
            "group of seeds; give folders of -seeds or of training runs"
        )
    interval = groups.compute_interval(group.scores, 1 + 1 / len(group.scores))
    low, high = groups.clip_to_range(groups.find_range(group), *interval)
    where = "within" if low <= best["value"] <= high else "below" if best["value"] < low else "above"
    about: dict[str, Any] = {"seeds_low": low, "seeds_high": high, "where": where}
    about["settings"] = find_differing_settings(group.about["settings"], load_run_settings(Path(run)))
    about["warnings"] = _find_warnings(find_finished(group), run)
    return {"run": run, "group": group.run, **best, **about}


def _format_comparisons(comparisons: list[dict[str, Any]], decimals: int) -> list[str]:
    rows = build_rows(comparisons, decimals)
    rows[0][:2] = ["group", f"mean of best {comparisons[0]['score']}"]
    tests = ", ".join(dict.fromkeys(comparison["test"] for comparison in comparisons))
    method = f"{groups.PERCENT} % intervals (Student's, Welch's) and p ({tests}) of the seeds"
    lines = ["", *align_columns(rows), method]
    for other in comparisons:
        both = f"{other['first']} and {other['second']}"
        if other["noise"]:
            noise = format_number(other["noise"], decimals)
            lines.append(f"between {both} a difference of up to {noise} is noise")
        else:
            lines.append(
                f"no interval: all seeds of {other['first']} have the same score, as do those in {other['second']}"
            )
        if other["finding"] == TOO_FEW:
            number, smallest = " and ".join(map(str, other["seeds"])), f"{other['smallest_p']:.2g}"
            lines.append(
                f"{number} seeds are too few: their smallest possible p is {smallest}; 4 and 4 can reach 0.029"
            )
        lines += format_settings(other)
    return lines


def _format_single(row: dict[str, Any], decimals: int) -> str:
    low, high, value = (format_number(row[name], decimals) for name in ("seeds_low", "seeds_high", "value"))
    best = f"{row['run']}: one run, best {value} in epoch {row['epoch']}: {row['where']}"
    if row["seeds_low"] == row["seeds_high"]:
        return f"{best} {low}, the score of all seeds of {row['group']}, so there is no interval"
    meaning = "may be due to its seed" if row["where"] == "within" else "unlikely to be due to its seed alone"
    return f"{best} [{low}, {high}], the interval of {groups.PERCENT} % of single seeds of {row['group']}: {meaning}"
