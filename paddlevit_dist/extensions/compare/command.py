"""Command ``paddlevit-dist compare RUN RUN [RUN …]``, which does not need the data.

It needs Paddle only for instances, for kinds of scores of users whose modules import it, and for images on the page.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.commands.parser import CommandParser, above_zero, path
from ...core.logging.record import COMPARED, SEEDS
from ...core.runtime import printing
from ...core.runtime.errors import UserError
from ...core.runtime.files import explain_write_error
from ...core.runtime.json_format import format_json
from ...core.tasks.sample_groups import read_groups
from . import images
from .formatting import CHANGES, build_rows, format_lines, format_method
from .group_pairs import compare_groups
from .groups import is_group, read_group
from .page import write_page
from .pairs import compare_sets, compare_tables
from .plan import format_plan, plan_group, plan_pair, plan_single
from .tables import EvaluationTable, read_table


def run(arguments: list[str]) -> None:
    """Compare each run with the first, sample by sample.

    Raises:
        UserError: if a run has no table, the tables cannot be compared, or the page cannot be written.
    """
    about = (
        "Compare the last evaluations of runs sample by sample: the difference of their scores with its 95 % interval "
        "and p-value, the classes, and the samples that changed. Each run is compared with the first; intervals and "
        "p-values of several runs are corrected for their number. Groups of seeds (-seeds) are compared by the scores "
        "of their seeds. Exit code: 0, or 2 if the runs cannot be compared."
    )
    parser = CommandParser(
        "compare", about, ("output/mine output/mine-2", "output/a output/b output/c -output=all.html"), imports=True
    )
    meaning = "output folder of a run, or its table of samples (.npz); all are compared with the first"
    parser.add_argument("runs", metavar="RUN", nargs="+", type=path, help=meaning)
    parser.add_argument("--json", "-json", action="store_true", help="print one JSON document instead of lines")
    parser.option(
        "output",
        None,
        f"also write an HTML page to this file, or as {COMPARED} to this folder; reports link to it in a run's folder",
        path,
    )
    parser.option("data_path", None, "data for the images of the page; default: DATA_PATH of the first run", path)
    meaning = "resample groups of samples: a file sample,group, or FILE:COLUMN; default: the groups of the evaluations"
    parser.option("group", None, meaning, path, metavar="FILE")
    meaning = (
        "instead of comparing, print how many samples tell this difference of the score from noise, from one run or "
        "two; for a group of seeds, how many seeds"
    )
    parser.option("plan", None, meaning, above_zero, metavar="DIFFERENCE")
    meaning = "also say whether each run is not worse by this difference of the score, and whether both are equivalent"
    parser.option("margin", None, meaning, above_zero, metavar="DIFFERENCE")
    meaning = "the runs have other samples, such as the patients of another hospital: compare scores, not samples"
    parser.add_argument("--unpaired", "-unpaired", action="store_true", help=meaning)
    options = parser.parse_args(arguments)
    if options.plan is not None:
        _plan(parser, options)
        return
    if len(options.runs) < 2:
        parser.error("give two runs or more")
    if options.data_path and not options.output:
        parser.error("--data_path sets the images of the page: add --output=FILE, or drop --data_path")
    if options.output and not (os.path.isdir(options.output) or options.output.lower().endswith((".html", ".htm"))):
        parser.error(f"-output={options.output}: expected a file that ends in .html, or an existing folder")
    printing.ignore_broken_pipe()
    options.runs = [str(Path(run).parent) if Path(run).name == SEEDS else run for run in options.runs]
    if any(map(is_group, options.runs)):
        _compare_groups(parser, options)
        return
    first, *others = tables = [with_groups(read_table(folder), options.group) for folder in options.runs]
    compare = compare_sets if options.unpaired else compare_tables
    comparisons = [compare(first, other, len(others), options.margin) for other in others]
    decimals = first.kind.decimals
    if options.json:
        sys.stdout.write(format_json({"comparisons": comparisons}, indent=1) + "\n")
    else:
        print("\n".join(format_lines(tables, comparisons, decimals)), flush=True)
    if options.output:
        message = write_images(Path(options.output), tables, comparisons, decimals, options.data_path)
        print(printing.one_line(message), file=sys.stderr if options.json else sys.stdout)


def compare_runs(names: Mapping[str, str]) -> tuple[list[list[str]], list[str]]:
    """Return a heading and rows with the difference of each run from the first, for a report, and lines about them.

    ``names``: name of each run and group of seeds by its folder; with groups there are only lines. May raise UserError.
    """
    if any(map(is_group, names)):
        return [], [line for line in compare_groups(list(names))[1] if line]
    first, *others = (read_table(folder)._replace(run=name) for folder, name in names.items())
    comparisons = [compare_tables(first, other, len(others)) for other in others]
    lines = [format_method(comparisons)]
    for other in comparisons:
        lines += [f"{other['second']}: {line}" for line in (*other["notes"], *other["warnings"])]
    return build_rows(comparisons, first.kind.decimals), list(map(printing.one_line, lines))


def _plan(parser: CommandParser, options: argparse.Namespace) -> None:
    """Print how many samples or seeds tell the difference ``options.plan`` from noise."""
    if options.output or len(options.runs) > 2:
        parser.error("-plan takes one run, two runs or a group of seeds, and no -output")
    printing.ignore_broken_pipe()
    names = [str(Path(run).parent) if Path(run).name == SEEDS else run for run in options.runs]
    if any(map(is_group, names)):
        if len(names) > 1:
            parser.error("-plan takes one group of seeds, whose spread it uses for both methods")
        group = read_group(names[0])
        if len(group.scores) < 2:
            raise UserError(f"{names[0]} has {len(group.scores)} finished seeds: train two or more to see their spread")
        plan = plan_group(group, options.plan)
    else:
        first, *others = (with_groups(read_table(folder), options.group) for folder in names)
        plan = plan_pair(first, others[0], options.plan) if others else plan_single(first, options.plan)
    print(format_json(plan, indent=1) if options.json else "\n".join(format_plan(plan)))


def with_groups(table: EvaluationTable, file: str | None) -> EvaluationTable:
    """Return the table with the groups of a file, if one is named."""
    return table if file is None else table._replace(groups=read_groups(file, table.names, table.run))


def write_images(
    target: Path, tables: list[EvaluationTable], comparisons: list[dict[str, Any]], decimals: int, data_path: str | None
) -> str:
    """Write the page, with images if the data can be read, and return a line about it."""
    target = target / COMPARED if os.path.isdir(target) else target
    changed = [images.choose_samples(row[kind]) for row in comparisons for kind in CHANGES if row.get(kind)]
    changed_images = images.draw_images(tables[0], [row["sample"] for rows in changed for row in rows], data_path)
    try:
        write_page(target, tables, comparisons, decimals, changed_images)
    except OSError as error:
        raise UserError(f"compare: {target}: {explain_write_error(error)}") from error
    number = f"{len(changed_images.drawn)} image{'s' * (len(changed_images.drawn) != 1)}"
    return f"{target}: {f'no images: {changed_images.problem}' if changed_images.problem else number}"


def _compare_groups(parser: CommandParser, options: argparse.Namespace) -> None:
    if options.output:
        parser.error("-output does not apply to groups of seeds: use 'report GROUP' for charts, or -json for numbers")
    named = [f"-{name}" for name in ("group", "margin", "unpaired") if getattr(options, name)]
    if named:
        parser.error(
            f"{named[0]} does not apply to groups of seeds, which are compared by their scores: drop {named[0]}"
        )
    result, lines = compare_groups(options.runs)
    print(format_json(result, indent=1) if options.json else "\n".join(lines))
