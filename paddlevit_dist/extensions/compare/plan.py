"""``compare -plan=DIFFERENCE``: how many samples, or seeds, an evaluation needs to tell a difference from noise."""

import math
import statistics
from collections.abc import Callable
from typing import Any

from ...core.intervals import ScoreRange, number_groups
from ...core.intervals.quantiles import student_quantile
from ...core.intervals.resampling import FEWEST_UNITS, RESAMPLES, measure_halves
from ...core.intervals.units import UnitCounts
from ...core.runtime.errors import UserError
from ...core.runtime.printing import one_line
from .formatting import count_decimals, format_number
from .groups import SeedGroup, find_range
from .pairs import TablePair, explain_undefined
from .significance import PERCENT
from .tables import EvaluationTable

_POWER = 80  # percent of evaluations that find a true difference of the planned size
_UPPER = 0.5 + PERCENT / 200
#: upper limit of the deviation, in percent. In simulations of 3 to 20 seeds and differences of 0.5 to 2 deviations, the
#: power is then 0.75 to 0.83; the deviation itself leads to 0.70 for 3 seeds, a limit of 80 % to 0.90.
_LIMIT = 60
_LARGEST_RATIO = 1e6  # of the measured noise to the difference: 1e12 times the samples or seeds
_RARE = 10  # samples of a class: with fewer, the deviation of a mean over classes is measured too large


def plan_samples(
    samples: int, half_width: float, difference: float, power: float = 0.5, freedom: float | None = None
) -> int:
    """Compute the number of samples that find a true difference with this probability.

    The half-width is ``t(97.5 %, n - 1) s / sqrt(n)`` for n samples with standard deviation s of the paired
    differences, and the result is the smallest n with ``(t(97.5 %, n - 1) + t(power, n - 1)) s / sqrt(n) <=
    difference``. With a power of one half, the interval of the difference has this half-width. Source: Student's
    interval for pairs, as in G. W. Snedecor and W. G. Cochran, "Statistical Methods", 8th edition, 1989, chapter 6.
    For scores that are not means, such as mIoU and AP, it holds for large numbers of samples.

    Args:
        samples: number of evaluated samples, n; of groups, if samples depend on one another.
        half_width: of the interval of their difference.
        difference: to be told from 0, above 0, in the unit of the score.
        power: the probability.
        freedom: degrees of freedom of the deviation, see ``UnitCounts.find_freedom``, instead of n - 1: fewer if groups
            have unequal sizes, or if a class in few samples decides. They grow with the number of samples.

    Raises:
        UserError: the difference is far below the noise.
    """
    _require_plausible(half_width, difference)
    freedom = max(samples - 1, 1) if freedom is None else freedom
    deviation = half_width / student_quantile(_UPPER, freedom) * math.sqrt(samples)
    share = (freedom + 1) / samples
    return _find_fewest(deviation / difference, power, lambda number: (max(share * number - 1, 1.0), 1 / number))


def limit_deviation(deviation: float, freedom: float) -> float:
    """Compute the upper limit of a deviation that was measured with these degrees of freedom, at ``_LIMIT`` percent.

    Source: R. H. Browne, "On the use of a pilot sample for sample size determination", Statistics in Medicine 14, 1995;
    the quantile of chi-square, to 4 % with one degree and 2 % with two: E. B. Wilson and M. M. Hilferty, "The
    distribution of chi-square", PNAS 17, 1931.
    """
    part = 2 / (9 * max(freedom, 1))
    quantile = (1 - part + statistics.NormalDist().inv_cdf(1 - _LIMIT / 100) * math.sqrt(part)) ** 3
    return deviation / math.sqrt(quantile)


def _require_plausible(noise: float, difference: float) -> None:
    if not noise:
        raise UserError("-plan: the score does not vary over these samples or seeds: name runs with more of them")
    if noise > _LARGEST_RATIO * difference:
        raise UserError(
            f"-plan={difference:g} is less than a millionth of the noise of these runs, +-{noise:.3g}: name a larger "
            "difference"
        )


def _require_possible(difference: float, bounds: ScoreRange) -> None:
    """Raise a UserError if two scores of this range cannot differ by so much."""
    most = bounds[1] - bounds[0]
    if difference > most:
        raise UserError(
            f"-plan={difference:g} is more than this score can differ, {most:g}: name a smaller difference, in the "
            "unit of the score"
        )


def plan_seeds(deviation: float, difference: float, power: float = 0.5) -> int:
    """Compute the number of seeds of each method that find a true difference with this probability.

    It is the smallest n with ``(t(97.5 %, 2 n - 2) + t(power, 2 n - 2)) s sqrt(2 / n) <= difference``; ``deviation`` is
    the standard deviation s of the scores of the seeds. With a power of one half, the interval of the difference has
    this half-width. Source: Student's interval for two groups of equal size and variance, as in G. W. Snedecor and
    W. G. Cochran, "Statistical Methods", 8th edition, 1989, section 6.9. Raises UserError: the difference is far below
    the noise, or there is no noise.
    """
    _require_plausible(deviation, difference)
    return _find_fewest(deviation / difference, power, lambda number: (2 * number - 2, 2 / number))


def _find_fewest(noise: float, power: float, describe: Callable[[int], tuple[float, float]]) -> int:
    """Find the smallest number, from 2 on, that finds a difference with the probability ``power``.

    Args:
        noise: the standard deviation of one value over the difference.
        power: the probability.
        describe: maps the number to the degrees of freedom, and the variance of the result over that of one value.
    """

    def is_enough(number: int) -> bool:
        freedom, variance = describe(number)
        quantiles = student_quantile(_UPPER, freedom) + student_quantile(power, freedom)
        return quantiles * noise * math.sqrt(variance) <= 1

    low, high = 1, 2  # low is never enough
    while not is_enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def plan_pair(first: EvaluationTable, second: EvaluationTable, difference: float) -> dict[str, Any]:
    """Plan a comparison like that of two evaluations; raises a UserError if the tables cannot be compared."""
    pair = TablePair.match(first, second)
    scores = pair.scores
    _require_possible(difference, scores.first.find_bounds(first.about["score"]))
    _, deviation, freedom, *_ = pair.get_difference(scores.measure_swaps())
    table = first._replace(groups=pair.groups)
    return {"runs": [first.run, second.run], **_build_plan(table, deviation, difference, freedom)}


def plan_single(table: EvaluationTable, difference: float) -> dict[str, Any]:
    """Plan a comparison of an evaluated model with another whose errors are independent, which is the worst case.

    The variance of a difference of independent scores is the sum of their variances. UserError: the score is not
    defined, or cannot differ by so much.
    """
    score, declared = table.about["score"], table.kind.declare_recomputed([table.arrays], table.about["classes"])
    _require_possible(difference, declared.find_bounds(score))
    numbers = number_groups(None if table.groups is None else table.groups.names)
    found = measure_halves(declared, len(table.names), RESAMPLES, numbers)
    if score not in found:
        raise UserError(f"-plan: {table.run}: {explain_undefined(table)}")
    freedom = UnitCounts(declared, len(table.names), numbers).find_freedom(score, found)
    return {"runs": [table.run], **_build_plan(table, math.sqrt(2) * found[score].deviation, difference, freedom)}


def _build_plan(table: EvaluationTable, deviation: float, difference: float, freedom: float) -> dict[str, Any]:
    about, groups, number = table.about, table.groups, len(table.names)
    units, names = (number, None) if groups is None else (groups.number(), groups.names)
    quantile = student_quantile(_UPPER, freedom)
    limit = quantile * limit_deviation(deviation, freedom)
    needed = plan_samples(units, limit, difference, freedom=freedom)
    for_power = max(plan_samples(units, limit, difference, _POWER / 100, freedom), FEWEST_UNITS)
    counts = table.kind.count_of_classes(table.arrays, len(about["classes"]), number_groups(names))
    is_mean_of_classes = about["score"] != table.kind.right_rate
    return {
        "score": about["score"],
        "difference": difference,
        "samples": number,
        **({} if groups is None else {"groups": groups.to_dict()}),
        "half_width": float(f"{quantile * deviation:.6g}"),
        "half_width_limit": float(f"{limit:.6g}"),
        "rare_classes": sum(0 < count < _RARE for count in counts) if is_mean_of_classes else 0,
        "samples_needed": -(-needed * number // units),  # rounded up
        "samples_for_power": -(-for_power * number // units),
        **({} if groups is None else {"groups_needed": needed, "groups_for_power": for_power}),
    }


def plan_group(group: SeedGroup, difference: float) -> dict[str, Any]:
    """Plan a comparison of two methods by seeds that vary as much as these."""
    _require_possible(difference, find_range(group))
    deviation = statistics.stdev(group.scores)
    limit = limit_deviation(deviation, len(group.scores) - 1)
    return {
        "runs": [group.run],
        "score": f"best {group.about['score']}",
        "difference": difference,
        "seeds": len(group.scores),
        "deviation": float(f"{deviation:.6g}"),
        "deviation_limit": float(f"{limit:.6g}"),
        "seeds_needed": plan_seeds(limit, difference),
        "seeds_for_power": plan_seeds(limit, difference, _POWER / 100),
    }


def format_plan(plan: dict[str, Any]) -> list[str]:
    """Format a plan as lines."""
    goal = f"{plan['score']} to +-{plan['difference']:g}"
    power = f"to find a true difference of {plan['difference']:g} in {_POWER} % of"
    planned = f"planned with the upper {_LIMIT} % limit of the measured"
    if "seeds" in plan:
        decimals = count_decimals([plan["deviation"]])
        deviation, limit = (format_number(plan[name], decimals) for name in ("deviation", "deviation_limit"))
        lines = [
            f"{plan['runs'][0]}: {plan['seeds']} seeds, standard deviation {deviation}",
            f"{goal} ({PERCENT} % interval between two methods): {plan['seeds_needed']:,} seeds of each",
            f"{power} comparisons: {plan['seeds_for_power']:,} seeds of each",
            f"{planned} deviation, {limit}; on these samples: more seeds do not reduce the noise of other samples",
        ]
    else:
        whose = "of both" if len(plan["runs"]) == 2 else "of a model and another with independent errors"
        sizes = [
            (plan["samples"], plan.get("groups", {}).get("number")),
            *((plan[f"samples_{which}"], plan.get(f"groups_{which}")) for which in ("needed", "for_power")),
        ]
        samples, needed, for_power = (
            f"{number:,} samples" + (f" in {groups:,} groups" if groups else "") for number, groups in sizes
        )
        lines = [
            f"{', '.join(plan['runs'])}: {samples} give +-{plan['half_width']:.3g} ({whose})",
            f"{goal} ({PERCENT} % interval of the paired difference): {needed}",
            f"{power} evaluations: {for_power}",
            f"{planned} noise, +-{plan['half_width_limit']:.3g}",
        ]
        if len(plan["runs"]) == 1:
            lines.append("models that err on the same samples need fewer: name both runs")
        if plan["rare_classes"]:
            rare = f"{plan['rare_classes']} classes are in fewer than {_RARE} samples or groups"
            lines.append(f"rough, and likely too many: {rare}; plan again with more samples")
    return [one_line(line) for line in lines]
