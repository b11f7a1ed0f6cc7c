"""``paddlevit-dist compare RUN RUN [RUN …]``: without the data, and without Paddle but for landmarks and instances."""

import json
import sys
from pathlib import Path
from typing import Any

from ..commands.parser import CommandParser, path
from ..runtime import printing
from ..runtime.errors import UserError
from ..runtime.files import why_not_written
from .group_pairs import compare_groups
from .groups import is_group
from .page import write_page
from .pairs import compare
from .scores import SORTS
from .tables import read
from .telling import corrected, lines_of


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
    parser.option("output", None, "HTML file to write as well", path)
    given = parser.parse_args(arguments)
    if len(given.runs) < 2:
        parser.error("give two runs or more")
    printing.never_fail()
    if any(map(is_group, given.runs)):
        _compare_groups(parser, given)
        return
    first, *others = tables = [read(folder) for folder in given.runs]
    comparisons = corrected([compare(first, other) for other in others])
    decimals = SORTS[first.about["kind"]].decimals
    if given.output:
        try:
            write_page(Path(given.output), tables, comparisons, decimals)
        except OSError as error:
            raise UserError(f"compare: {given.output}: {why_not_written(error)}") from error
    if given.json:
        sys.stdout.write(json.dumps({"comparisons": comparisons}, indent=1) + "\n")
    else:
        print("\n".join(lines_of(tables, comparisons, decimals)))


def _compare_groups(parser: CommandParser, given: Any) -> None:
    if given.output:
        parser.error("-output is for runs: 'report GROUP' draws groups of seeds, -json has all numbers")
    found, lines = compare_groups(given.runs)
    print(json.dumps(found, indent=1) if given.json else "\n".join(lines))
