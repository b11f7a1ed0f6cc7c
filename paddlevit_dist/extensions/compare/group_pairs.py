"""Compare groups of seeds with each other, and single runs with a group."""

import contextlib
import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.intervals import ConfidenceInterval, ProportionRecompute
from ...core.intervals.proportions import find_upper_share
from ...core.intervals.quantiles import compute_p, student_quantile
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line, shorten
from ...core.tasks.paired_scores import PairedDifference, PairedScores
from . import groups
from .formatting import align_columns, build_rows, count_decimals, format_level, format_number, format_settings
from .groups import SampleNoise, SeedGroup
from .pairs import TablePair, find_warnings
from .run_settings import find_differing_settings, load_run_settings
from .significance import PERCENT, add_finding, find_level
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
    comparisons = [_compare(first, other, len(others)) for other in others]
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


def _compare(first: SeedGroup, second: SeedGroup, comparisons: int) -> dict[str, Any]:
    score, both = first.about["score"], (first.scores, second.scores)
    bounds, level = groups.find_range(first), find_level(comparisons)
    intervals = [groups.clip_to_range(bounds, *groups.compute_interval(scores, 1 / len(scores))) for scores in both]
    of_first, of_second = (
        ConfidenceInterval(statistics.fmean(scores), *ends).plain() for scores, ends in zip(both, intervals)
    )
    noise = None
    try:
        noise = measure_samples(first, second)
        over = f"the seeds, of differences also of the same {noise.units}"
    except UserError as error:
        reason = shorten(str(error).removeprefix("compare: ").partition(";")[0], 160)
        over = f"the seeds alone: other samples are not in them ({reason})"
    value, deviation, freedom = groups.measure_difference(*both, noise)
    reach = student_quantile(find_upper_share(level), freedom) * deviation
    low, high = groups.clip_to_range(bounds, value - reach, value + reach, is_difference=True)
    comparison = {
        "first": first.run,
        "second": second.run,
        "score": score,
        "more_is_better": first.about["more_is_better"],
        "seeds": list(map(len, both)),
        "percent": PERCENT,
        "difference_percent": level,
        "of_first": of_first,
        "of_second": of_second,
        "difference": ConfidenceInterval(value, low, high).plain(),
        "noise": groups.clip_to_range(bounds, 0.0, reach, is_difference=True)[1],
        "p": float(f"{compute_p(value, deviation, freedom):.6g}"),
        "test": "Welch's t",
        "over": over,
        "settings": find_differing_settings(first.about["settings"], second.about["settings"]),
        "warnings": _find_warnings(list_finished(first)[0], list_finished(second)[0]),
    }
    return add_finding(comparison, comparisons)


def measure_samples(first: SeedGroup, second: SeedGroup) -> SampleNoise:
    """Measure how the difference of two groups' mean scores varies over other samples, from the tables of their seeds.

    The interaction of seeds and samples is measured by one half of a group's seeds against the other.

    Raises UserError: the seeds do not all have a table of the same samples with this score.
    """
    score = first.about["score"]
    tables = [[read_table(folder) for folder in list_finished(group)] for group in (first, second)]
    whole = tables[0][0]
    pairs = [[TablePair.match(whole, table).scores for table in own] for own in tables]
    of_all = pairs[0][0]

    def measure(before: Sequence[PairedScores], after: Sequence[PairedScores]) -> PairedDifference:
        first_mean, second_mean = (_average([each.second for each in side]) for side in (before, after))
        numbers, sizes = of_all.numbers, of_all.sizes
        found = PairedScores.of_values(first_mean, second_mean, of_all.num_samples, numbers, sizes).measure_swaps()
        if score not in found:
            raise UserError(f"the samples of {whole.run} have no {score}")
        return found[score]

    _, deviation, freedom, _ = measure(*pairs)
    interaction = 0.0
    for own in pairs:
        parts = own[::2], own[1::2]
        interaction += measure(*parts).deviation ** 2 / sum(len(own) / len(part) for part in parts)
    number = f"{of_all.num_samples:,} samples"
    units = number if whole.groups is None else f"{number} {whole.groups}"
    return SampleNoise(deviation**2, interaction, freedom, units)


def _average(values: Sequence[ProportionRecompute]) -> ProportionRecompute:
    """Return a function to the mean of the values of several models."""

    def recompute(weights: np.ndarray) -> dict[str, np.ndarray]:
        rows = [each(weights) for each in values]
        return {name: np.mean([row[name] for row in rows], axis=0) for name in rows[0]}

    return dataclasses.replace(values[0], values=recompute)


def list_finished(group: SeedGroup) -> list[str]:
    """Return the folders of the finished seeds that have a score."""
    rows = [row for row in group.seeds if row["state"] == groups.FINISHED and "value" in row]
    return [str(Path(group.run, row["folder"])) for row in rows]


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
    about["warnings"] = _find_warnings(list_finished(group)[0], run)
    return {"run": run, "group": group.run, **best, **about}


def _format_comparisons(comparisons: list[dict[str, Any]], decimals: int) -> list[str]:
    rows = build_rows(comparisons, decimals)
    rows[0][:2] = ["group", f"mean of best {comparisons[0]['score']}"]
    lines = ["", *align_columns(rows)]
    for over in dict.fromkeys(other["over"] for other in comparisons):
        lines.append(
            f"{format_level(comparisons[0], len(comparisons))} (Student's, Welch's) and p (Welch's t) of {over}"
        )
    for other in comparisons:
        both = f"{other['first']} and {other['second']}"
        if other["noise"]:
            noise = format_number(other["noise"], decimals)
            whose = " of the seeds" if other["over"].startswith("the seeds alone") else ""
            lines.append(f"between {both} a difference of up to {noise} is noise{whose}")
        else:
            lines.append(
                f"no interval: all seeds of {other['first']} have the same score, as do those in {other['second']}"
            )
        lines += format_settings(other)
    return lines


def _format_single(row: dict[str, Any], decimals: int) -> str:
    low, high, value = (format_number(row[name], decimals) for name in ("seeds_low", "seeds_high", "value"))
    best = f"{row['run']}: one run, best {value} in epoch {row['epoch']}: {row['where']}"
    if row["seeds_low"] == row["seeds_high"]:
        return f"{best} {low}, the score of all seeds of {row['group']}, so there is no interval"
    meaning = "may be due to its seed" if row["where"] == "within" else "unlikely to be due to its seed alone"
    return f"{best} [{low}, {high}], the interval of {PERCENT} % of single seeds of {row['group']}: {meaning}"
