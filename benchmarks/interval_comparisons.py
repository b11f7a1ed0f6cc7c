"""What p values and intervals of differences hold: two equally good models on the same samples, and groups of seeds.

``interval_coverage.py --comparisons`` runs it. Of two equally good models p < 0.05 in 5 % of data sets, and in 95 % the
interval of their difference holds 0. Landmarks' errors with unequal tails have equal means, but other distributions.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import drawn_pairs
import numpy as np
from cell_rows import print_header, print_row, run_cells, seeded, show_percent, show_share
from drawn_pairs import Pair, wrap_table
from drawn_tables import assign_groups

from paddlevit_dist.core.intervals.quantiles import compute_p, student_quantile
from paddlevit_dist.extensions.compare import groups as seed_groups
from paddlevit_dist.extensions.compare.pairs import compare_tables

_LEVEL = 0.05
HEADER = ("cell", "score", "p < 0.05, %", "holds 0, %", "below, %", "above, %", "agree, %", "width", "s")
HEADER_OF_SEEDS = ("seeds", "mean, %", "one more run, %", "difference, %", "noise of two groups, %", "p < 0.05, %")


class Comparison(NamedTuple):
    """A model of pairs with sizes and parameters."""

    name: str
    kind: str
    score: str
    draw: Callable[..., Pair]  # of ``drawn_pairs``
    samples: int
    classes: int
    groups: int = 0
    has_even_groups: bool = True
    options: Mapping[str, Any] = {}
    is_slow: bool = False


_classes = functools.partial(Comparison, kind="classes", draw=drawn_pairs.draw_class_pair)
_labels = functools.partial(
    Comparison, kind="labels", score="mAP", draw=drawn_pairs.draw_label_pair, samples=60, classes=40
)
_landmarks = functools.partial(
    Comparison, kind="landmarks", score="mre_mm", draw=drawn_pairs.draw_landmark_pair, samples=15, classes=5
)
_boxes = functools.partial(
    Comparison, kind="boxes", score="AP", draw=drawn_pairs.draw_box_pair, samples=60, classes=5, is_slow=True
)
COMPARISONS = (
    _classes("classes 50 x 5", score="top-1", samples=50, classes=5),
    _classes("classes 300 x 5", score="top-1", samples=300, classes=5),
    _classes("classes 2000 x 5", score="top-1", samples=2000, classes=5),
    _classes("classes 200 x 5, 20 groups", score="top-1", samples=200, classes=5, groups=20),
    _classes("classes 600 x 5, 30 groups", score="top-1", samples=600, classes=5, groups=30),
    _classes(
        "classes 600 x 5, 30 groups of 1 to 39",
        score="top-1",
        samples=600,
        classes=5,
        groups=30,
        has_even_groups=False,
    ),
    _classes(
        "classes 200 x 20, prior zipf", score="balanced accuracy", samples=200, classes=20, options={"prior": "zipf"}
    ),
    _labels("labels 60 x 40, rate 0.05", options={"rate": 0.05}),
    _labels("labels 60 x 40, rate 0.05, logits of one + 4", options={"rate": 0.05, "shift": 4.0}),
    _landmarks("landmarks 15 x 5, equal tails", options={"deviations": (0.5, 0.5)}),
    _landmarks("landmarks 15 x 5, unequal tails", options={"deviations": (0.5, 1.3)}),
    Comparison(
        "maps 30 x 8, presence 0.3", "confusions", "mIoU", drawn_pairs.draw_map_pair, 30, 8, options={"presence": 0.3}
    ),
    Comparison(
        "maps 120 x 8, presence 0.3, 20 groups",
        "confusions",
        "mIoU",
        drawn_pairs.draw_map_pair,
        120,
        8,
        groups=20,
        options={"presence": 0.3},
    ),
    Comparison(
        "decisions 60 x 10, alike",
        "keypoint_errors",
        "PCK",
        drawn_pairs.draw_decision_pair,
        60,
        10,
        options={"right": 0.9, "likeness": 0.3},
    ),
    Comparison("volumes 20 x 3", "volume classes", "Dice", drawn_pairs.draw_volume_pair, 20, 3),
    _boxes("boxes 60 x 5, rate 0.3", options={"rate": 0.3}),
    _boxes("boxes 60 x 5, rate 0.3, crowded images", options={"rate": 0.3, "crowding": 1.5}),
)


class SeedGroups(NamedTuple):
    """Two groups of seeds of these sizes; the scores of the second have this deviation, those of the first 1."""

    name: str
    sizes: tuple[int, int]
    deviation: float = 1.0


SEEDS = (
    *(SeedGroups(f"seeds {a} and {b}", (a, b)) for a, b in ((3, 3), (5, 5), (10, 10), (3, 10))),
    *(SeedGroups(f"seeds {a} and {b} that vary 3 times as much", (a, b), 3.0) for a, b in ((5, 5), (10, 5), (10, 3))),
)


class ComparisonRow(NamedTuple):
    """Counts of data sets."""

    cell: Comparison
    sets: int
    significant: int  # p < 0.05
    none: int  # the difference has no interval
    below: int  # 0 lies below the interval
    above: int
    agreeing: int  # p < 0.05 where the interval does not hold 0, and only there
    width: float
    seconds: float

    def texts(self) -> list[str]:
        """The columns of ``HEADER``."""
        number = self.sets - self.none
        shares = show_share(self.significant, self.sets), show_share(number - self.below - self.above, number)
        sides = [show_percent(side, number) for side in (self.below, self.above, self.agreeing)]
        return [self.cell.name, self.cell.score, *shares, *sides, f"{self.width:.3g}", f"{self.seconds:.1f}"]


def compare_pair(cell: Comparison, rng: np.random.Generator) -> dict[str, Any]:
    """Draw a data set and compare both models as ``compare`` does."""
    groups = assign_groups(cell.samples, cell.groups, cell.has_even_groups)
    drawn = cell.draw(rng, cell.samples, cell.classes, groups, **cell.options)
    first, second = (
        wrap_table(run, cell.kind, cell.score, cell.samples, cell.classes, arrays, groups)
        for run, arrays in zip("ab", drawn)
    )
    return compare_tables(first, second)


def measure_comparison(number: int, sets: int, seed: int) -> ComparisonRow:
    began, cell = time.process_time(), COMPARISONS[number]
    sets = max(sets // 2, 1) if cell.is_slow else sets
    data = f"{cell.kind} {cell.samples} x {cell.classes}"  # cells that differ by an option have the same data sets
    found = [compare_pair(cell, seeded(seed, data, place)) for place in range(sets)]
    is_significant = np.array([one["p"] < _LEVEL for one in found])
    ends = np.array([[one["difference"].get(end, np.nan) for end in ("low", "high")] for one in found])
    below, above = ends[:, 0] > 0, ends[:, 1] < 0
    is_there = np.isfinite(ends[:, 0])
    counts = [int(is_.sum()) for is_ in (is_significant, ~is_there, below, above)]
    agreeing = int(((is_significant == (below | above)) & is_there).sum())
    width = float(np.diff(ends[is_there]).mean()) if is_there.any() else np.nan
    return ComparisonRow(cell, sets, *counts, agreeing, width, time.process_time() - began)


def measure_groups(number: int, sets: int, seed: int) -> tuple[str, list[int]]:
    """Count what holds for two groups of seeds with normal scores: what is in ``HEADER_OF_SEEDS``."""
    name, sizes, deviation = SEEDS[number]
    counts = np.zeros(len(HEADER_OF_SEEDS) - 1, int)
    for place in range(sets):
        rng = seeded(seed, name, place)
        first, second = (list(rng.normal(50.0, of, size)) for of, size in zip((1.0, deviation), sizes))
        share = 1 / len(first)
        (low, high), (least, most) = (seed_groups.compute_interval(first, each) for each in (share, 1 + share))
        value, of_difference, freedom = seed_groups.measure_difference(first, second)
        p = compute_p(value, of_difference, freedom)
        counts += np.array(
            [
                low <= 50.0 <= high,
                least <= rng.normal(50.0, 1.0) <= most,
                abs(value) <= student_quantile(1 - _LEVEL / 2, freedom) * of_difference,
                abs(value) <= seed_groups.compute_noise(first),
                p < _LEVEL,
            ]
        )
    return name, counts.tolist()


def measure_comparisons(numbers: Sequence[int], sets: int, seed: int, jobs: int) -> dict[str, float]:
    """Measure some of ``COMPARISONS`` and print their rows in their order."""
    result = {}
    title = f"Two equally good models, {sets:,} data sets (COCO's scores {max(sets // 2, 1):,})"
    print_header(title, HEADER)
    for row in run_cells(functools.partial(measure_comparison, sets=sets, seed=seed), numbers, jobs):
        print_row(row.texts())
        name, number = f"{row.cell.name}: {row.cell.score}", row.sets - row.none
        result[f"{name}: p < 0.05"] = 100 * row.significant / row.sets
        if number:
            result[f"{name}: difference"] = 100 * (number - row.below - row.above) / number
    return result


def measure_seeds(numbers: Sequence[int], sets: int, seed: int, jobs: int) -> dict[str, float]:
    """Measure some of ``SEEDS`` and print their rows in their order."""
    result = {}
    print_header(f"Two groups of seeds with normal scores, {sets:,} pairs", HEADER_OF_SEEDS)
    for name, counts in run_cells(functools.partial(measure_groups, sets=sets, seed=seed), numbers, jobs):
        print_row([name, *(show_share(count, sets) for count in counts)])
        named = zip(HEADER_OF_SEEDS[1:], counts)
        result.update({f"{name}: {column.removesuffix(', %')}": 100 * count / sets for column, count in named})
    return result
