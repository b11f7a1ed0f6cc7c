"""``paddlevit-dist compare RUN RUN [RUN …]``: without the data, and without Paddle but for landmarks, instances and
images on the page."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from ..commands.parser import CommandParser, path
from ..logging.record import COMPARED, SEEDS
from ..runtime import printing
from ..runtime.errors import UserError
from ..runtime.files import explain_write_error
from ..tasks.sample_groups import read_groups
from . import images
from .formatting import CHANGES, correct, format_lines
from .group_pairs import compare_groups
from .groups import is_group
from .page import write_page
from .pairs import compare
from .scores import SORTS
from .tables import EvaluationTable, read


def run(arguments: list[str]) -> None:
    """Compare each run with the first, sample by sample.

    Raises:
        UserError: a run has no table, the tables cannot be compared, or the page cannot be written.
    """
    about = (
        "Compare the last evaluations of runs sample by sample: the difference of their scores with its 95 % interval, "
        "whether it may be chance (p), classes, and the samples that changed. Several runs are each compared with the "
        "first, and their p corrected after Holm. Groups of seeds (-seeds) are compared by the scores of their seeds. "
        "Exit code: 0, or 2 where they cannot be compared."
    )
    parser = CommandParser(
        "compare", about, ("output/mine output/mine-2", "output/a output/b output/c -output=all.html")
    )
    meaning = "output folder of a training or evaluation, or a file of samples in it; all are compared with the first"
    parser.add_argument("runs", metavar="RUN", nargs="+", type=path, help=meaning)
    parser.add_argument("--json", "-json", action="store_true", help="print one JSON document instead of lines")
    parser.option(
        "output",
        None,
        f"HTML file to write as well, or a folder for {COMPARED}, such as the run's: reports lead to it",
        path,
    )
    parser.option("data_path", None, "data that the page takes images from; default: DATA_PATH of the first run", path)
    meaning = "samples of one group are drawn together: a file sample,group, or FILE:COLUMN; else as evaluations had it"
    parser.option("group", None, meaning, path, metavar="FILE")
    given = parser.parse_args(arguments)
    if len(given.runs) < 2:
        parser.error("give two runs or more")
    if given.data_path and not given.output:
        parser.error("--data_path is where the page takes images from: add --output=FILE, or leave it out")
    if given.output and not (os.path.isdir(given.output) or given.output.lower().endswith((".html", ".htm"))):
        parser.error(f"-output={given.output}: expected a file that ends in .html, or a folder that is there")
    printing.ignore_broken_pipe()
    given.runs = [str(Path(run).parent) if Path(run).name == SEEDS else run for run in given.runs]
    if any(map(is_group, given.runs)):
        _compare_groups(parser, given)
        return
    first, *others = tables = [_with_groups(read(folder), given.group) for folder in given.runs]
    comparisons = correct([compare(first, other) for other in others])
    decimals = SORTS[first.about["kind"]].decimals
    if given.json:
        sys.stdout.write(json.dumps({"comparisons": comparisons}, indent=1) + "\n")
    else:
        print("\n".join(format_lines(tables, comparisons, decimals)), flush=True)
    if given.output:
        said = _write(Path(given.output), tables, comparisons, decimals, given.data_path)
        print(printing.one_line(said), file=sys.stderr if given.json else sys.stdout)


def _with_groups(table: EvaluationTable, given: str | None) -> EvaluationTable:
    return table if given is None else table._replace(groups=read_groups(given, table.names, table.run))


def _write(
    target: Path, tables: list[EvaluationTable], comparisons: list[dict[str, Any]], decimals: int, data_path: str | None
) -> str:
    """Write the page, with images where it can; what to say of it."""
    target = target / COMPARED if target.is_dir() else target
    changed = [images.choose_samples(one[kind]) for one in comparisons for kind in CHANGES if one.get(kind)]
    found = images.draw(tables[0], [row["sample"] for rows in changed for row in rows], data_path)
    try:
        write_page(target, tables, comparisons, decimals, found)
    except OSError as error:
        raise UserError(f"compare: {target}: {explain_write_error(error)}") from error
    number = f"{len(found.drawn)} image{'s' * (len(found.drawn) != 1)}"
    return f"{target}: {f'no images: {found.problem}' if found.problem else number}"


def _compare_groups(parser: CommandParser, given: Any) -> None:
    if given.output:
        parser.error("-output is for runs: 'report GROUP' draws groups of seeds, -json has all numbers")
    if given.group:
        parser.error("-group is for samples of runs: groups of seeds are compared by their scores")
    found, lines = compare_groups(given.runs)
    print(json.dumps(found, indent=1) if given.json else "\n".join(lines))
