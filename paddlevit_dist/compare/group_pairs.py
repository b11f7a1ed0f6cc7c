"""Groups of seeds side by side, and single runs beside a group: what of a difference may be the seeds' chance."""

import contextlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..intervals import ConfidenceInterval
from ..runtime.errors import UserError
from ..runtime.printing import one_line, shorten
from . import groups
from .formatting import TOO_FEW, build_rows, columns, correct, count_decimals, format_settings, number
from .groups import SeedGroup
from .pairs import warnings
from .tables import read, settings_in, that_differ


def compare_groups(runs: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Compare where one of the folders is a group's: plain values, and lines for a terminal.

    Args:
        runs: folders; each group is compared with the first, and each single training, too.
    Raises:
        UserError: they cannot be compared.
    """
    read_in = [groups.read_group(run) for run in runs if groups.is_group(run)]
    first, *others = read_in
    for group in read_in:
        _require_alike(first, group)
    single = [_single(run, first) for run in runs if not groups.is_group(run)]
    comparisons = correct([_compare(first, other) for other in others])
    decimals = count_decimals(first.scores)
    lines = [line for group in read_in for line in _about(group, decimals)]
    lines += _lines(comparisons, decimals) if comparisons else []
    lines += [line for row in single for line in ("", _print_comparison(row, decimals), *format_settings(row))]
    lines += [f"warning: {one_line(line)}" for other in [*comparisons, *single] for line in other["warnings"]]
    return {"comparisons": comparisons, "single_runs": single}, [one_line(line) for line in lines]


def _require_alike(first: SeedGroup, other: SeedGroup) -> None:
    for what in ("task", "score"):
        if first.about[what] != other.about[what]:
            said = f"{what} {first.about[what]} there, {other.about[what]} here"
            raise UserError(f"compare: {other.run} cannot be compared with {first.run}: {shorten(said)}")
    if len(other.scores) < 2:
        raise UserError(
            f"compare: {other.run} has {len(other.scores)} finished seed(s): expected two or more; continue it with "
            "the -seeds command that made it"
        )


def _compare(first: SeedGroup, second: SeedGroup) -> dict[str, Any]:
    score, both = first.about["score"], (first.scores, second.scores)
    p, test = groups.permutation_of_seeds(*both)
    ends = [groups.inside(score, *groups.around(one, 1 / len(one))) for one in both]
    of_first, of_second = (ConfidenceInterval(statistics.fmean(one), *own).plain() for one, own in zip(both, ends))
    value, *reached = groups.difference(*both)
    return {
        "first": first.run,
        "second": second.run,
        "score": score,
        "more_is_better": first.about["more_is_better"],
        "seeds": list(map(len, both)),
        "percent": groups.PERCENT,
        "of_first": of_first,
        "of_second": of_second,
        "difference": ConfidenceInterval(value, *groups.inside(score, *reached, is_difference=True)).plain(),
        "noise": groups.inside(score, 0.0, reached[1] - value)[1],
        "p": float(f"{p:.6g}"),
        "smallest_p": groups.smallest_p(*map(len, both)),
        "test": test,
        "settings": that_differ(first.about["settings"], second.about["settings"]),
        "warnings": _warnings(_find_finished(first), _find_finished(second)),
    }


def _find_finished(group: SeedGroup) -> str:
    """The folder of a seed that has finished."""
    return str(Path(group.run, next(row["folder"] for row in group.seeds if row["state"] == groups.FINISHED)))


def _warnings(first: str, second: str) -> list[str]:
    """List what else differs that two runs' scores depend on, as far as evaluations have left tables of samples."""
    with contextlib.suppress(UserError):
        ours, theirs = read(first), read(second)
        found = warnings(ours, theirs)
        if sorted(ours.names) != sorted(theirs.names):
            found.insert(0, f"samples: {ours.run} and {theirs.run} were evaluated on others")
        return found
    return []


def _single(run: str, group: SeedGroup) -> dict[str, Any]:
    """The best score of a training beside those of a group."""
    if not Path(run).is_dir():
        raise UserError(f"compare: {run} is no folder; give folders of -seeds or of a training")
    best = groups.find_best(Path(run), group.about["score"])
    if not best:
        raise UserError(
            f"compare: {run} has no best {group.about['score']} of a training in metrics.jsonl, which a group of seeds "
            "could be compared with; give folders of -seeds or of a training"
        )
    low, high = groups.inside(group.about["score"], *groups.around(group.scores, 1 + 1 / len(group.scores)))
    where = "within" if low <= best["value"] <= high else "below" if best["value"] < low else "above"
    about: dict[str, Any] = {"seeds_low": low, "seeds_high": high, "where": where}
    about["settings"] = that_differ(group.about["settings"], settings_in(Path(run)))
    about["warnings"] = _warnings(_find_finished(group), run)
    return {"run": run, "group": group.run, **best, **about}


# ---- lines -----------------------------------------------------------------------------------------------------------


def _about(group: SeedGroup, decimals: int) -> list[str]:
    told = groups.format_summary(group.scores, decimals)
    left = len(group.seeds) - len(group.scores)
    return [f"{group.run}: {len(group.scores)} seeds{f' ({left} unfinished)' if left else ''}, {told}"]


def _lines(comparisons: list[dict[str, Any]], decimals: int) -> list[str]:
    rows = build_rows(comparisons, decimals)
    rows[0][:2] = ["group", f"mean of best {comparisons[0]['score']}"]
    tests = ", ".join(dict.fromkeys(other["test"] for other in comparisons))
    lines = ["", *columns(rows), f"{groups.PERCENT} % intervals (Student's, Welch's) and p ({tests}) of the seeds"]
    for other in comparisons:
        both = f"{other['first']} and {other['second']}"
        if other["noise"]:
            lines.append(f"between {both} a difference of up to {number(other['noise'], decimals)} is noise")
        else:
            lines.append(f"no interval: all seeds of {both} score as the others of their group")
        if other["finding"] == TOO_FEW:
            few, least = " and ".join(map(str, other["seeds"])), f"{other['smallest_p']:.2g}"
            lines.append(f"{few} seeds are too few to say more: their smallest possible p is {least}, of 4 and 4 0.029")
        lines += format_settings(other)
    return lines


def _print_comparison(row: dict[str, Any], decimals: int) -> str:
    low, high = (number(row[name], decimals) for name in ("seeds_low", "seeds_high"))
    best = f"{row['run']}: one run, best {number(row['value'], decimals)} in epoch {row['epoch']}: {row['where']}"
    if row["seeds_low"] == row["seeds_high"]:
        return f"{best} {low}, the score of all seeds of {row['group']}, which tell no interval"
    meant = "may be the chance of its seed" if row["where"] == "within" else "hardly the chance of its seed alone"
    return f"{best} [{low}, {high}], where {groups.PERCENT} % of single seeds of {row['group']} lie: {meant}"
