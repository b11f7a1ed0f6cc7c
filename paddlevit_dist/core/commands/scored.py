"""Common functions of the commands ``evaluate classes``, ``detections``, ``keypoints``, ``masks`` and others.

They take ground truth from a dataset, and print and write scores.
"""

import contextlib
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..inference.rows import ROWS_CSV, ROWS_JSON
from ..intervals import ConfidenceInterval, ProportionRecompute, bootstrap, small_sample_warning
from ..launch.stale_resources import working_folder
from ..registry.extension_points import WRITE_SCORED
from ..runtime.errors import UserError
from ..runtime.files import atomic_file, os_errors_as_user_errors
from ..runtime.json_format import format_json
from ..runtime.printing import one_line, shorten
from ..tasks.sample_groups import SampleGroups, read_groups
from ..tasks.score_report import ResultSource, ScoreReport
from .parser import CommandParser, path

MOST_SHOWN = 100  # classes; -json prints all
_LONGEST_NAME = 60
TABLE = "eval_scored_samples.npz"


def add_options(parser: CommandParser, truth: str, results: str, sample: str, data: bool = True) -> None:
    """Add ``[TRUTH] RESULTS`` and the options for the dataset and the output.

    ``truth`` and ``results`` are their help texts, ``sample`` is what half samples choose, in the plural, and ``data``:
    ground truth may come from a dataset.
    """
    add_inputs(parser, truth, results, data)
    add_interval(parser, sample)
    add_group(parser)
    parser.add_argument("--json", "-json", action="store_true", help="print all values as one line of JSON")
    add_output(parser)


def add_inputs(parser: CommandParser, truth: str, results: str, data: bool = True) -> None:
    """Add ``[TRUTH] RESULTS`` with these help texts and, if ``data``, the options for a dataset as ground truth."""
    if data:
        truth = f"{truth}; or a dataset folder, as -data_path"
        parser.add_argument("truth", metavar="TRUTH", nargs="?", type=path, help=truth)
    else:
        parser.add_argument("truth", metavar="TRUTH", type=path, help=truth)
    parser.add_argument("results", metavar="RESULTS", type=path, help=results)
    if data:
        add_data(parser)


def add_interval(parser: CommandParser, sample: str) -> None:
    """Add the option for the level of intervals over ``sample``, in the plural."""
    meaning = f"level of the confidence intervals over {sample}, in percent; off: no intervals"
    parser.option("interval", "95", meaning, choices=("off", "95", "99"))


def add_data(parser: CommandParser) -> None:
    """Add the options that name the dataset of the ground truth, and the keys that say how to read it."""
    parser.keys = ()  # messages about the data name keys
    meaning = "instead of TRUTH: use the data of a recipe, or of a YAML file such as a run's config.yaml"
    parser.option("cfg", None, meaning, path, metavar="FILE")
    parser.option("dataset", None, "name of the dataset (default: from -cfg, else detected)", metavar="NAME")
    parser.option("data_path", None, "folder of the dataset", path)
    parser.option("split", "val", "split of the dataset, or in a column of the table TRUTH, that the results are for")


def add_group(parser: CommandParser) -> None:
    """Add the option that groups samples for the intervals."""
    meaning = "draw samples of a group together: FILE with sample,group, FILE:COLUMN, a column of TRUTH, or a word"
    parser.option("group", None, meaning, path, metavar="COLUMN")


def add_output(parser: CommandParser) -> None:
    """Add the option for the folder of the scores."""
    meaning = f"folder for scores.json and {TABLE}, which 'compare' reads to compare these results with others"
    parser.option("output", None, meaning, path, metavar="FOLDER")


@contextlib.contextmanager
def data_set(options: Namespace, task: str) -> Iterator[tuple[Any, Path, ResultSource]]:
    """Yield the configuration of the dataset that the options name, a cache folder, and the dataset's name and split.

    Args:
        options: parsed options of ``add_data``.
        task: task that reads the data, unless -cfg names one.

    Raises:
        UserError: no dataset is named, or it does not exist.
    """
    from ..logging.record import cache_folder
    from ..registry import lookup

    named = [(name, getattr(options, name)) for name in ("cfg", "dataset", "data_path")]
    arguments = [f"-{name}={value}" for name, value in named if value is not None]
    if options.cfg is None and options.dataset is None:
        if options.data_path is None:
            raise UserError("no ground truth: give TRUTH before RESULTS, or add -cfg, -dataset or -data_path")
        guess = lookup.guess_dataset(options.data_path, task)
        if guess is None:
            raise UserError(
                f"{options.data_path}: the dataset type cannot be detected from the files; add -dataset=NAME"
            )
        arguments.append(f"-dataset={guess.dataset}")
        arguments += [f"-data_path={guess.path}"] if guess.path else []
    if options.cfg is None:
        arguments += ["TASK", task]
    with working_folder("scored") as folder:
        values = load_data_keys(options, *arguments, f"-output={folder}")
        yield values, cache_folder(values), ResultSource(str(values.DATA.DATASET), options.split)


def load_data_keys(options: Namespace, *arguments: str) -> Any:
    """Load the configuration of these arguments and the command line's keys, which have to say how to read data."""
    from .. import settings as configuration

    for word in options.settings:
        if not word.startswith(("DATA.", "POINTS.", "VOLUMES.")):
            raise UserError(f"{word} does not change the ground truth: remove it")
    return configuration.load([*arguments, *options.settings]).values


def takes_data(
    options: Namespace, is_truth: Callable[[str], object] = os.path.isfile, has_splits: bool = False
) -> bool:
    """Return whether the ground truth comes from a dataset.

    A TRUTH for which ``is_truth`` is false is a dataset's folder: it is stored as ``options.data_path``. Raises
    UserError: TRUTH does not exist, or the options also name a dataset, or a split of a file without ``has_splits``.
    """
    named = [f"-{name}" for name in ("cfg", "dataset", "data_path") if getattr(options, name) is not None]
    named += ["-split"] if options.split != "val" and not has_splits else []
    named += options.settings
    if options.truth is None:
        return True
    if not os.path.exists(options.truth):
        raise UserError(f"{options.truth} cannot be read: No such file or directory")
    if not is_truth(options.truth):
        if options.data_path is not None:
            raise UserError(f"two dataset folders: {options.truth} and -data_path={options.data_path}; remove one")
        options.data_path = options.truth
        return True
    if named:
        raise UserError(f"{options.truth} and {named[0]} both name the ground truth: remove one")
    return False


def find_predicted(results: str, name: str) -> str:
    """Return the file or folder ``name`` of a prediction if ``results`` is its folder or one of its tables.

    All other ``results`` are returned unchanged.
    """
    is_table = os.path.basename(results) in (ROWS_CSV, ROWS_JSON)
    folder = os.path.dirname(results) if is_table else results
    path = os.path.normpath(os.path.join(folder, name))
    return path if (is_table or os.path.isdir(folder)) and os.path.exists(path) else results


def find_sample_groups(
    options: Namespace, names: Sequence[str], offered: Mapping[str, str] | None
) -> SampleGroups | None:
    """Read the groups of -group, from the options of ``add_group``; None: each sample is independent.

    ``offered``: groupings of the dataset, from ``Dataset.groups_by``.
    """
    if options.group is None:
        return None
    tables = [options.truth] if options.truth is not None else []
    tables += [options.results] if options.results.lower().endswith((".csv", ".tsv", ".txt")) else []
    return read_groups(options.group, names, "the truth", offered, tables)


def compute_intervals(scored: ScoreReport, percent: str, groups: SampleGroups | None) -> dict[str, ConfidenceInterval]:
    """Compute confidence intervals by score name; empty if ``percent`` is "off"."""
    if percent == "off":
        return {}
    group_names = None if groups is None else groups.names
    return bootstrap(scored.recompute, len(scored.names), float(percent), groups=group_names)


def find_small_sample_warning(
    scored: ScoreReport, intervals: Mapping[str, ConfidenceInterval], groups: SampleGroups | None, shown: Iterable[str]
) -> str | None:
    """Return the warning of ``intervals.small_sample_warning`` for these scores, if any."""
    if not intervals:
        return None
    units = (len(scored.names), scored.sample) if groups is None else groups.units()
    declared = _declare(scored)
    with_range = [name for name in shown if declared.find_range(name) is not None]
    return small_sample_warning(*units, intervals, declared.rates, with_range, scored.scores.few)


def _declare(scored: ScoreReport) -> ProportionRecompute:
    own = scored.recompute
    return own if isinstance(own, ProportionRecompute) else ProportionRecompute(own, {})


def print_scores(scored: ScoreReport, options: Namespace, offered: Mapping[str, str] | None = None) -> None:
    """Print scores with intervals, evaluation protocol and warnings; write them to the folder of -output.

    ``options`` are those that ``add_options`` adds; ``offered``: groupings of the dataset, from ``Dataset.groups_by``.
    """
    number = len(scored.names)
    whole = {name: float(column[0]) for name, column in scored.recompute(np.ones((1, number))).items()}
    values = {name: value for name, value in whole.items() if not np.isnan(value)}
    groups = find_sample_groups(options, scored.names, offered)
    intervals = compute_intervals(scored, options.interval, groups)
    warning = find_small_sample_warning(scored, intervals, groups, scored.shown)
    notes = [*scored.notices, *([warning] if warning else [])]
    scores = to_json(values, intervals, options.interval, number, scored.protocol, notes, groups)
    if publish_scores(scored, scores, options, groups):
        return
    print(one_line(scored.counted))
    for line in [*_main_lines(scored, values, intervals, options.interval, groups), *map(one_line, scored.protocol)]:
        print(line)
    for line in _class_lines(scored, values):
        print(line)


def publish_scores(
    scored: ScoreReport, scores: Mapping[str, Any], options: Namespace, groups: SampleGroups | None
) -> bool:
    """Print the notes, write ``scores`` to the folder of -output and, with -json, print them; return whether it did."""
    for note in scores["notes"]:
        print(one_line(f"note: {note}"), file=sys.stderr)
    if options.output:
        write_scores(scored, scores, Path(options.output), options.results, groups)
    if options.json:
        print(format_json(scores))
    return bool(options.json)


def to_json(
    scores: Mapping[str, float],
    intervals: Mapping[str, ConfidenceInterval],
    percent: str,
    samples: int,
    protocol: Sequence[str],
    notes: Sequence[str],
    groups: SampleGroups | None = None,
) -> dict[str, Any]:
    """Build the content of ``scores.json``, which -json prints; all these commands share its format.

    Args:
        scores: defined scores by name.
        intervals: confidence intervals by score name.
        percent: level of the intervals, or "off".
        samples: number of samples.
        protocol: lines on how the scores were computed.
        notes: warnings.
        groups: samples that are chosen together.
    """
    return {
        "scores": dict(scores),
        **({} if percent == "off" else {"percent": float(percent)}),
        "intervals": {name: interval.plain() for name, interval in intervals.items()},
        "samples": samples,
        **({} if groups is None else {"groups": groups.to_dict()}),
        "protocol": list(protocol),
        "notes": list(notes),
    }


def _main_lines(
    scored: ScoreReport,
    values: Mapping[str, float],
    intervals: Mapping[str, ConfidenceInterval],
    percent: str,
    groups: SampleGroups | None,
) -> Iterator[str]:
    for name, decimals in scored.shown.items():
        wide = name in intervals and intervals[name].has_width()
        ends = f" {intervals[name].ends(decimals)}" if wide else ""
        yield f"{name} {values[name]:.{decimals}f}{ends}" if name in values else f"{name} is not defined"
    if intervals:
        method = ", Wilson's of rates" if _declare(scored).rates else ""
        yield f"{percent} % intervals: half samples of {scored.sample}s{f' {groups}' if groups else ''}{method}"


def _class_lines(scored: ScoreReport, values: Mapping[str, float]) -> list[str]:
    pattern, decimals = scored.scores.class_score, scored.scores.decimals
    if not pattern:
        return []
    if len(scored.classes) > MOST_SHOWN:
        return [f"{len(scored.classes):,} classes: add -json to print the value of each"]
    names = [shorten(name, _LONGEST_NAME) for name in scored.classes]
    width = max(map(len, names), default=0)
    class_values = [values.get(pattern.format(name)) for name in scored.classes]
    shown = ["-" if value is None else f"{value:.{decimals}f}" for value in class_values]
    right = max(map(len, shown), default=0)
    rows = [f"  {name:{width}}  {value:>{right}}" for name, value in zip(names, shown)]
    return [f"{pattern.format('').strip()} of each:", *rows]


def write_scores(
    scored: ScoreReport | None,
    scores: Mapping[str, Any],
    folder: Path,
    results: str,
    groups: SampleGroups | None = None,
) -> None:
    """Write ``scores.json`` and call the extensions; ``compare`` writes the table of per-sample results.

    Raises:
        UserError: the folder or file cannot be written.
    """
    with os_errors_as_user_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / "scores.json") as file:
        file.write((format_json(scores, indent=1) + "\n").encode())
    write_table = WRITE_SCORED.find()
    if scored is not None and write_table is not None:
        write_table(folder / TABLE, scored, results, groups)
