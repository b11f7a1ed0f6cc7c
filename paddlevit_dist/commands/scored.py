"""Common parts of the commands ``evaluate classes``, ``detections``, ``masks``, ``scenes``, ``landmarks``: the truth
from a data set, and how scores are told and written."""

import contextlib
import json
import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import extension
from ..intervals import ConfidenceInterval, ProportionRecompute, bootstrap, small_sample_warning
from ..runtime.errors import UserError
from ..runtime.files import atomic_file, os_errors_as_user_errors
from ..runtime.printing import one_line, shorten
from ..tasks.sample_groups import SampleGroups, draw, get_group_names, read_groups
from ..tasks.score_report import ResultSource, ScoreReport
from ..tasks.truth import count_class_samples
from .parser import CommandParser, path

MOST_SHOWN = 100  # classes; -json has all
_LONGEST_NAME = 60
TABLE = "eval_scored_samples.npz"


def add_options(parser: CommandParser, truth: str, results: str, sample: str, data: bool = True) -> None:
    """``[TRUTH] RESULTS``, what the truth of a data set is found by, and what is told.

    Args:
        truth, results: what the two are.
        sample: what the bootstrap draws, in the plural.
        data: the truth may be that of a data set.
    """
    if data:
        truth = f"{truth}; or a folder, as -data_path"
        parser.add_argument("truth", metavar="TRUTH", nargs="?", type=path, help=truth)
    else:
        parser.add_argument("truth", metavar="TRUTH", type=path, help=truth)
    parser.add_argument("results", metavar="RESULTS", type=path, help=results)
    if data:
        add_data(parser)
    percents, meaning = ("off", "95", "99"), f"percent of the intervals by bootstrap over {sample}; off: none"
    parser.option("interval", "95", meaning, choices=percents)
    add_group(parser)
    parser.add_argument("--json", "-json", action="store_true", help="print one line of JSON, with all values")
    add_output(parser)


def add_data(parser: CommandParser) -> None:
    """Add the options that name a data set whose truth is taken."""
    meaning = "in place of TRUTH: the data of a recipe, or of a YAML file such as a run's config.yaml"
    parser.option("cfg", None, meaning, path, metavar="FILE")
    parser.option("dataset", None, "name of the data set (default: that of -cfg, else found out)", metavar="NAME")
    parser.option("data_path", None, "its folder", path)
    parser.option("split", "val", "which of its splits the results are of", metavar="SPLIT")


def add_group(parser: CommandParser) -> None:
    """Add the options that say which samples belong together."""
    meaning = "those of one are drawn together: a file sample,group, FILE:COLUMN, a column of TRUTH, or a word"
    parser.option("group", None, meaning, path, metavar="COLUMN")


def add_output(parser: CommandParser) -> None:
    """Where scores are written."""
    meaning = f"folder for scores.json, and {TABLE}, with which 'compare' compares these results with others"
    parser.option("output", None, meaning, path, metavar="FOLDER")


@contextlib.contextmanager
def data_set(options: Namespace, task: str) -> Iterator[tuple[Any, Path, ResultSource]]:
    """The configuration of the data that options name, a folder for what opening them writes, and what they are called.

    Args:
        task: that reads such data, where -cfg does not say it.
    Raises:
        UserError: nothing is named, or what is named is not there.
    """
    from .. import registry
    from .. import settings as configuration
    from ..logging.record import cache_folder

    words = [(name, getattr(options, name)) for name in ("cfg", "dataset", "data_path")]
    given = [f"-{name}={value}" for name, value in words if value is not None]
    if options.cfg is None and options.dataset is None:
        if options.data_path is None:
            raise UserError("no truth: give TRUTH before RESULTS, or the data with -cfg, -dataset or -data_path")
        guess = registry.guess_dataset(options.data_path, task)
        if guess is None:
            raise UserError(f"{options.data_path}: no data that are known by their files; name them with -dataset=NAME")
        given.append(f"-dataset={guess.dataset}")
    if options.cfg is None:
        given += ["TASK", task]
    with tempfile.TemporaryDirectory() as folder:
        values = configuration.load([*given, f"-output={folder}"]).values
        yield values, cache_folder(values), ResultSource(str(values.DATA.DATASET), options.split)


def takes_data(options: Namespace, is_truth: Any = os.path.isfile) -> bool:
    """Whether the truth is that of a data set; a folder in the place of TRUTH, of which ``is_truth`` is false, then
    is its path.

    Raises:
        UserError: TRUTH does not exist, or stands beside what names a data set.
    """
    named = [f"-{name}" for name in ("cfg", "dataset", "data_path") if getattr(options, name) is not None]
    if options.truth is None:
        return True
    if not os.path.exists(options.truth):
        raise UserError(f"{options.truth} cannot be read: No such file or directory")
    if not is_truth(options.truth):
        if options.data_path is not None:
            raise UserError(f"two folders of data: {options.truth} and -data_path={options.data_path}; give one")
        options.data_path = options.truth
        return True
    if named:
        raise UserError(f"{options.truth} and {named[0]} both say what is true: leave one out")
    return False


def find_sample_groups(
    options: Namespace, names: Sequence[str], offered: Mapping[str, str] | None
) -> SampleGroups | None:
    """Those that -group asks for; None: each sample is alone.

    Args:
        offered: see ``Dataset.groups_by``.
    """
    if options.group is None:
        return None
    tables = [options.truth] if options.truth is not None else []
    tables += [options.results] if options.results.lower().endswith((".csv", ".tsv", ".txt")) else []
    return read_groups(options.group, names, "the truth", offered, tables)


def compute_intervals(
    recompute: Any, number: int, percent: str, groups: SampleGroups | None
) -> dict[str, ConfidenceInterval]:
    """By name; none where they are off."""
    if percent == "off":
        return {}
    return bootstrap(recompute, number, float(percent), groups=get_group_names(groups))


def find_rough_note(
    scored: ScoreReport, found: Mapping[str, ConfidenceInterval], groups: SampleGroups | None, shown: Iterable[str]
) -> str | None:
    """See ``intervals.small_sample_warning``."""
    rates = scored.recompute.rates if isinstance(scored.recompute, ProportionRecompute) else {}
    of_class = count_class_samples(scored.kind, scored.arrays, scored.classes, get_group_names(groups))
    return small_sample_warning(*draw(groups, len(scored.names), scored.sample), found, rates, of_class, shown)


def print_scores(scored: ScoreReport, options: Namespace, offered: Mapping[str, str] | None = None) -> None:
    """Print scores with their intervals, what they depend on, and what is odd; write them where -output says.

    Args:
        offered: see ``Dataset.groups_by``.
    """
    number = len(scored.names)
    whole = {name: float(column[0]) for name, column in scored.recompute(np.ones((1, number))).items()}
    values = {name: value for name, value in whole.items() if not np.isnan(value)}
    groups = find_sample_groups(options, scored.names, offered)
    found = compute_intervals(scored.recompute, number, options.interval, groups)
    rough = find_rough_note(scored, found, groups, scored.shown)
    notes = [*scored.notices, *([rough] if rough else [])]
    said = to_json(values, found, options.interval, number, scored.protocol, notes, groups)
    for notice in said["notes"]:
        print(one_line(f"note: {notice}"), file=sys.stderr)
    if options.output:
        write(scored, said, Path(options.output), options.results, groups)
    if options.json:
        print(json.dumps(said))
        return
    print(one_line(scored.counted))
    for line in [*_main_lines(scored, values, found, options.interval, groups), *map(one_line, scored.protocol)]:
        print(line)
    for line in _class_lines(scored, values):
        print(line)


def to_json(
    scores: Mapping[str, float],
    found: Mapping[str, ConfidenceInterval],
    percent: str,
    samples: int,
    protocol: Sequence[str],
    notes: Sequence[str],
    groups: SampleGroups | None = None,
) -> dict[str, Any]:
    """Collect what -json prints and ``scores.json`` holds, the same of all these commands.

    Args:
        scores: those that are defined, by their names.
        percent: of the intervals, or off.
        samples: how many there are.
    """
    return {
        "scores": dict(scores),
        **({} if percent == "off" else {"percent": float(percent)}),
        "intervals": {name: interval.plain() for name, interval in found.items()},
        "samples": samples,
        **({} if groups is None else {"groups": groups.to_dict()}),
        "protocol": list(protocol),
        "notes": list(notes),
    }


def _main_lines(
    scored: ScoreReport,
    values: Mapping[str, float],
    found: Mapping[str, ConfidenceInterval],
    percent: str,
    groups: SampleGroups | None,
) -> Iterator[str]:
    for name, decimals in scored.shown.items():
        wide = name in found and found[name].has_width()
        ends = f" {found[name].ends(decimals)}" if wide else ""
        yield f"{name} {values[name]:.{decimals}f}{ends}" if name in values else f"{name} is not defined"
    if found:
        rated = ", Wilson's of rates" if isinstance(scored.recompute, ProportionRecompute) else ""
        yield f"{percent} % intervals: bootstrap over {scored.sample}s{f' {groups}' if groups else ''}{rated}"


def _class_lines(scored: ScoreReport, values: Mapping[str, float]) -> list[str]:
    if scored.of_class is None:
        return []
    pattern, decimals = scored.of_class
    if len(scored.classes) > MOST_SHOWN:
        return [f"{len(scored.classes):,} classes: -json prints the value of each"]
    names = [shorten(name, _LONGEST_NAME) for name in scored.classes]
    width = max(map(len, names), default=0)
    own = [values.get(pattern.format(name)) for name in scored.classes]
    shown = ["-" if value is None else f"{value:.{decimals}f}" for value in own]
    right = max(map(len, shown), default=0)
    rows = [f"  {name:{width}}  {value:>{right}}" for name, value in zip(names, shown)]
    return [f"{pattern.format('').strip()} of each:", *rows]


def write(
    scored: ScoreReport | None, said: Mapping[str, Any], folder: Path, results: str, groups: SampleGroups | None = None
) -> None:
    """Write ``scores.json`` and, where the extension ``compare`` is there, the table of the samples, if there is one.

    Raises:
        UserError: the file system refuses.
    """
    with os_errors_as_user_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / "scores.json") as file:
        file.write((json.dumps(said, indent=1) + "\n").encode())
    if scored is not None and extension.has("compare"):
        extension.write_scored(folder / TABLE, scored, results, groups)
