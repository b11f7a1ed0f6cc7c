"""How often intervals of 95 % hold the expected score, of each kind of score, and what p values and plans hold.

    python benchmarks/interval_coverage.py [--sets N] [--cells PATTERN] [--jobs N] [--resamples N] [--seed N]
    python benchmarks/interval_coverage.py --comparisons [--sets N] [--cells PATTERN] [--jobs N] [--seed N]
    python benchmarks/interval_coverage.py --plans [--sets N] [--cells PATTERN] [--jobs N] [--seed N]

What an interval has to hold is the expected score at this number of samples: AP and mAP are higher for fewer samples.
Data sets are drawn from models (``drawn_tables.py``) in 60 cells: a model with a number of samples, of classes and of
groups (``interval_cells.py``). The expected score is the mean of other data sets of the cell. Each data set goes
through the package's public functions, as in an evaluation. Coverage is of the intervals that there are: some data sets
have none, such as one of whose samples all are right.

"Times" is the mean width over that of 95 % of normal scores with the deviation of these other data sets.

With 2,000 data sets (of COCO's scores half as many) a coverage of 95 % is known to within 1; 200 are enough to see that
a method has broken. Draws are 200 instead of an evaluation's 1,000: the ends of an interval vary more, around the same
places. Rows are printed as cells end. A cell's figures depend neither on the other cells nor on ``--jobs``.

``--comparisons``: two equally good models (``interval_comparisons.py``). ``--plans``: the power of plans
(``interval_plans.py``), and what ``search`` stops (``simulated_search.py``).
"""

import argparse
import functools
import os
import re
import time
from collections.abc import Sequence
from typing import NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
from cell_rows import print_header, print_row, run_cells, seeded, show_percent, show_share  # noqa: E402
from drawn_tables import Arrays  # noqa: E402
from interval_cells import CELLS, MODELS, Cell  # noqa: E402
from interval_comparisons import COMPARISONS, SEEDS, measure_comparisons, measure_seeds  # noqa: E402
from interval_plans import PLANS, measure_plans  # noqa: E402
from rounds import print_machine, print_result, print_table  # noqa: E402
from simulated_search import SEARCHES, measure_searches  # noqa: E402
from smallest import IS_SMALLEST, sized  # noqa: E402

from paddlevit_dist.core.intervals import ConfidenceInterval, bootstrap  # noqa: E402

EXPECTED_OF = sized((1000, 400), (3, 3))  # data sets whose mean is the expected score; of slow cells
_ROUNDING = 1e-9  # relative
_OF_EXPECTED, _OF_SETS = 0, 1  # streams of random numbers
HEADER = ("cell", "score", "expected", "coverage, %", "below, %", "above, %", "width", "times", "no interval, %")
_NORMAL_WIDTH = 2 * 1.959964  # of 95 % of normal scores, in deviations


class Row(NamedTuple):
    """What the intervals of a score hold."""

    score: str
    expected: float  # mean score of other data sets
    sets: int
    none: int  # sets without an interval: not defined, or without a width
    below: int  # sets whose interval lies above the expected score
    above: int
    width: float  # mean
    spread: float = np.nan  # width that 95 % of the scores of other data sets have, by their deviation

    @property
    def number(self) -> int:
        return self.sets - self.none

    @property
    def held(self) -> int:
        return self.number - self.below - self.above

    def texts(self, name: str) -> list[str]:
        """The columns of ``HEADER``."""
        sides = [show_percent(side, self.number) for side in (self.below, self.above)]
        times = f"{self.width / self.spread:.2f}" if self.number and self.spread > 0 else ""
        shares = [show_share(self.held, self.number), *sides, f"{self.width:.3g}" if self.number else "", times]
        return [name, self.score, f"{self.expected:.4g}", *shares, show_percent(self.none, self.sets)]


def find_intervals(cell: Cell, arrays: Arrays, resamples: int) -> dict[str, ConfidenceInterval]:
    """The intervals of an evaluation's values that have a width: others are not shown."""
    kind = cell.kind
    recompute = kind.recompute([arrays], kind.classes)
    found = bootstrap(recompute, cell.samples, resamples=resamples, groups=cell.group_numbers)
    return {name: interval for name, interval in found.items() if interval.has_width()}


def compute_scores(cell: Cell, arrays: Arrays) -> list[float]:
    kind = cell.kind
    values = kind.recompute([arrays], kind.classes)(np.ones((1, cell.samples)))
    return [float(values[score][0]) if score in values else np.nan for score in MODELS[cell.model].scores]


def measure(cell: Cell, sets: int, resamples: int, seed: int) -> tuple[list[Row], float]:
    """Measure a cell: a row for each score, and seconds of processor time."""
    began, model = time.process_time(), MODELS[cell.model]
    sets = max(sets // 2, 1) if model.is_slow else sets
    start = functools.partial(seeded, seed, cell.name)
    drawn = [compute_scores(cell, cell.draw(start(_OF_EXPECTED, n))) for n in range(EXPECTED_OF[model.is_slow])]
    expected = dict(zip(model.scores, np.nanmean(drawn, axis=0).tolist()))
    spreads = dict(zip(model.scores, (_NORMAL_WIDTH * np.nanstd(drawn, axis=0)).tolist()))
    found = [find_intervals(cell, cell.draw(start(_OF_SETS, number)), resamples) for number in range(sets)]
    rows = []
    for score, truth in expected.items():
        intervals, slack = [one[score] for one in found if score in one], _ROUNDING * abs(truth)
        below = sum(truth < one.low - slack for one in intervals)
        above = sum(truth > one.high + slack for one in intervals)
        width = float(np.mean([one.high - one.low for one in intervals])) if intervals else np.nan
        rows.append(Row(score, truth, sets, sets - len(intervals), below, above, width, spreads[score]))
    return rows, time.process_time() - began


def _measure_number(number: int, sets: int, resamples: int, seed: int) -> tuple[str, list[Row], float]:
    return CELLS[number].name, *measure(CELLS[number], sets, resamples, seed)


def measure_coverage(numbers: Sequence[int], sets: int, resamples: int, seed: int, jobs: int) -> dict[str, float]:
    """Measure some of ``CELLS`` in so many processes, and print their rows in their order."""
    print_header(f"Intervals of 95 %, {sets:,} data sets (COCO's scores {max(sets // 2, 1):,})", HEADER)
    result: dict[str, float] = {}
    seconds: dict[str, float] = {}
    lowest: dict[str, list[tuple[float, str]]] = {}
    task = functools.partial(_measure_number, sets=sets, resamples=resamples, seed=seed)
    for name, rows, spent in run_cells(task, numbers, jobs):
        seconds[name] = spent
        for row in rows:
            print_row(row.texts(name))
            if row.number:
                result[f"{name}: {row.score}"] = share = 100 * row.held / row.number
                lowest.setdefault(row.score, []).append((share, name))
    worst = {score: min(shares) for score, shares in lowest.items()}
    texts = [[score, f"{share:.1f}", name] for score, (share, name) in worst.items()]
    print_table("Lowest coverage of each score", ["", "%", "cell"], texts)
    slowest = sorted(seconds.items(), key=lambda item: -item[1])
    print_table("Processor time", ["cell", "s"], [[name, f"{spent:.1f}"] for name, spent in slowest])
    return {**result, "seconds": sum(seconds.values())}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", action="store_true", help="two equally good models, in place of coverage")
    parser.add_argument("--plans", action="store_true", help="plans and stops of a search, in place of coverage")
    parser.add_argument("--sets", type=int, default=sized(2000, 2), help="data sets of a cell, of COCO's scores half")
    parser.add_argument("--cells", default="", help="a regular expression that the names of the cells contain")
    parser.add_argument("--resamples", type=int, default=sized(200, 3), help="draws of an interval, of coverage only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    common = {"sets": options.sets, "seed": options.seed, "jobs": options.jobs}
    parts = {
        "coverage": [(CELLS, functools.partial(measure_coverage, resamples=options.resamples))],
        "comparisons": [(COMPARISONS, measure_comparisons), (SEEDS, measure_seeds)],
        "plans": [(PLANS, measure_plans), (SEARCHES, measure_searches)],
    }
    chosen = [name for name in ("comparisons", "plans") if getattr(options, name)] or ["coverage"]
    rows = [row for name in (parts if IS_SMALLEST else chosen) for row in parts[name]]
    found = [
        (measure, [n for n, cell in enumerate(cells) if re.search(options.cells, cell.name)]) for cells, measure in rows
    ]
    if not any(numbers for _, numbers in found):
        parser.error(f"no cell has {options.cells!r} in its name, such as {rows[0][0][0].name!r}")
    print_machine()
    print_result({key: value for measure, n in found if n for key, value in measure(n, **common).items()})


if __name__ == "__main__":
    main()
