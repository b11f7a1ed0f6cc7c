"""What plans of samples and seeds hold, which promise to find a true difference in 80 % of evaluations.

``interval_coverage.py --plans`` runs it. Each pilot is planned by ``compare -plan``'s functions; then an evaluation, or
groups of seeds, of the planned size is drawn and compared. Of a single run's mAP the power follows from the deviation
of the score at the planned number of images, for two models with independent errors.
"""

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from cell_rows import print_header, print_row, run_cells, seeded, show_percent, show_share
from drawn_pairs import draw_class_pair, wrap_table
from drawn_tables import draw_labels, name_classes
from smallest import sized

from paddlevit_dist.core.intervals.quantiles import compute_p
from paddlevit_dist.core.runtime.errors import UserError
from paddlevit_dist.core.tasks.score_kind import require_score_kind
from paddlevit_dist.extensions.compare import groups as seed_groups
from paddlevit_dist.extensions.compare.pairs import compare_tables
from paddlevit_dist.extensions.compare.plan import plan_group, plan_pair, plan_single

_LEVEL = 0.05
_CLASSES = 5
_MOST_SAMPLES, _MOST_SEEDS = sized((40_000, 300), (200, 10))  # that are drawn of a larger plan
_TIMES = sized((1, 4, 16), (1, 2))  # sizes at which the deviation of mAP is measured, over the pilot's
_OF_DEVIATION = sized(300, 3)  # data sets
_NORMAL = NormalDist()
HEADER = ("cell", "pilots", "planned, median", "10 %", "90 %", "power, %", "no plan, %", "s")


class PairPlan(NamedTuple):
    """A pilot of two runs: samples, probabilities of being right, and the correlation of both models."""

    samples: int
    recalls: tuple[float, float]
    likeness: float

    @property
    def name(self) -> str:
        return f"top-1 {self.recalls[0]:g} and {self.recalls[1]:g}, likeness {self.likeness:g}, {self.samples} samples"


class LabelPlan(NamedTuple):
    """A pilot of one run with mAP, of which two points are to be found."""

    samples: int
    classes: int
    options: Mapping[str, float]
    difference: float = 0.02

    @property
    def name(self) -> str:
        options = ", ".join(f"{name} {value:g}" for name, value in self.options.items())
        return f"mAP + {self.difference:g}, {self.classes} labels, {options}, {self.samples} images"


class SeedPlan(NamedTuple):
    """A pilot of seeds, of which a difference of so many standard deviations is to be found."""

    seeds: int
    difference: float

    @property
    def name(self) -> str:
        return f"seeds, {self.difference:g} deviations, {self.seeds} seeds"


PLANS: tuple[PairPlan | LabelPlan | SeedPlan, ...] = (
    PairPlan(100, (0.85, 0.88), 0.7),
    PairPlan(500, (0.85, 0.88), 0.7),
    PairPlan(500, (0.9, 0.91), 0.9),
    LabelPlan(60, 40, {"rate": 0.05, "distance": 1.0}),
    LabelPlan(200, 40, {"rate": 0.02}),
    LabelPlan(200, 3, {"rate": 0.3, "distance": 1.0}),
    SeedPlan(3, 1.0),
    SeedPlan(5, 1.0),
    SeedPlan(10, 1.0),
    SeedPlan(3, 2.0),
)


class PlanRow(NamedTuple):
    """What the plans of pilots hold."""

    name: str
    planned: list[int]  # by pilots with a plan
    power: float  # percent of the plans
    shown: str  # the power with its interval, if it was counted
    pilots: int
    seconds: float

    def texts(self) -> list[str]:
        """The columns of ``HEADER``."""
        parts = [f"{np.quantile(self.planned, share):,.0f}" if self.planned else "" for share in (0.5, 0.1, 0.9)]
        none = show_percent(self.pilots - len(self.planned), self.pilots)
        return [self.name, f"{self.pilots:,}", *parts, self.shown, none, f"{self.seconds:.1f}"]


def try_plan(plan: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any] | None:
    """A plan; None if the command refuses to plan."""
    try:
        return plan(*arguments)
    except UserError:
        return None


def follow_pair_plan(cell: PairPlan, rng: np.random.Generator) -> tuple[int, bool] | None:
    """Plan the samples by a pilot, and say whether p < 0.05 with them; None: no plan."""

    def draw(samples: int) -> list[Any]:
        drawn = draw_class_pair(rng, samples, _CLASSES, None, recalls=cell.recalls, likeness=cell.likeness)
        return [wrap_table(run, "classes", "top-1", samples, _CLASSES, arrays) for run, arrays in zip("ab", drawn)]

    plan = try_plan(plan_pair, *draw(cell.samples), 100 * (cell.recalls[1] - cell.recalls[0]))
    if plan is None:
        return None
    samples = plan["samples_for_power"]
    return samples, compare_tables(*draw(min(samples, _MOST_SAMPLES)))["p"] < _LEVEL


def follow_seed_plan(cell: SeedPlan, rng: np.random.Generator) -> tuple[int, bool] | None:
    """Plan the seeds by a pilot, and say whether p < 0.05 with them; None: no plan."""
    scores = rng.normal(50.0, 1.0, cell.seeds).tolist()
    rows = [{"seed": seed, "state": seed_groups.FINISHED, "value": score} for seed, score in enumerate(scores)]
    plan = try_plan(plan_group, seed_groups.SeedGroup("drawn", {"score": "top-1"}, rows), cell.difference)
    if plan is None:
        return None
    number = plan["seeds_for_power"]
    first, second = (rng.normal(50.0 + more, 1.0, min(number, _MOST_SEEDS)) for more in (0.0, cell.difference))
    return number, compute_p(*seed_groups.measure_difference(list(first), list(second))) < _LEVEL


def measure_label_plan(
    cell: LabelPlan, sets: int, start: Callable[..., np.random.Generator]
) -> tuple[list[int], float]:
    """Return the planned images of pilots, and their mean power in percent."""
    kind = require_score_kind("labels", name_classes(cell.classes))

    def draw(samples: int, rng: np.random.Generator) -> Any:
        return draw_labels(rng, samples, cell.classes, None, **cell.options)

    noises = []  # deviation of a score, times the root of the number of images
    for times in _TIMES:
        samples = times * cell.samples
        drawn = [draw(samples, start(times, number)) for number in range(_OF_DEVIATION)]
        values = [kind.recompute([one], kind.classes)(np.ones((1, samples)))["mAP"][0] for one in drawn]
        noises.append(np.std(values) * math.sqrt(samples))
    planned, powers = [], []
    for number in range(sets):
        arrays = draw(cell.samples, start(0, number))
        table = wrap_table("a", "labels", "mAP", cell.samples, cell.classes, arrays)
        plan = try_plan(plan_single, table, cell.difference)
        if plan is not None:
            samples = plan["samples_for_power"]
            noise = np.interp(math.log(samples), np.log(np.multiply(_TIMES, cell.samples)), noises)
            planned.append(samples)
            reached = cell.difference * math.sqrt(samples / 2) / noise
            powers.append(100 * _NORMAL.cdf(reached - _NORMAL.inv_cdf(1 - _LEVEL / 2)))
    return planned, float(np.mean(powers)) if powers else math.nan


def measure_plan(number: int, sets: int, seed: int) -> PlanRow:
    began, cell = time.process_time(), PLANS[number]
    start = functools.partial(seeded, seed, cell.name)
    if isinstance(cell, LabelPlan):
        planned, power = measure_label_plan(cell, sets, start)
        shown = f"{power:.1f}"
    else:
        follow: Callable[..., tuple[int, bool] | None] = (
            follow_pair_plan if isinstance(cell, PairPlan) else follow_seed_plan
        )
        tried = [follow(cell, start(place)) for place in range(sets)]
        found = [one for one in tried if one is not None]
        planned, hits = [samples for samples, _ in found], sum(is_found for _, is_found in found)
        power, shown = 100 * hits / len(found) if found else math.nan, show_share(hits, len(found))
    return PlanRow(cell.name, planned, power, shown, sets, time.process_time() - began)


def measure_plans(numbers: Sequence[int], sets: int, seed: int, jobs: int) -> dict[str, float]:
    """Measure some of ``PLANS`` and print their rows in their order."""
    result = {}
    print_header("Plans for a power of 80 %", HEADER)
    for row in run_cells(functools.partial(measure_plan, sets=sets, seed=seed), numbers, jobs):
        print_row(row.texts())
        if row.planned:
            result.update({f"{row.name}: power": row.power, f"{row.name}: planned": float(np.median(row.planned))})
    return result
