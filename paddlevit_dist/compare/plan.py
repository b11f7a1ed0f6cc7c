"""``compare -plan=DIFFERENCE``: how many samples, or seeds, an evaluation needs to tell a difference from noise."""

import math
import statistics
from typing import Any

from ..intervals import ConfidenceInterval, bootstrap
from ..runtime.errors import UserError
from ..runtime.printing import one_line
from .formatting import count_decimals, format_number
from .groups import PERCENT, SeedGroup, student_quantile
from .pairs import TablePair, explain_undefined
from .tables import EvaluationTable

_POWER = 80  # percent of evaluations that find a true difference of the planned size
_SAFER = (1.959964 + 0.841621) ** 2 / 1.959964**2  # (z of 97.5 % + z of 80 %)^2 / (z of 97.5 %)^2
_LARGEST_RATIO = 1e6  # of the measured noise to the difference: 1e12 times the samples or seeds
_NEARLY_NORMAL = 2_000  # seeds from which Student's distribution is replaced by the normal one


def plan_samples(samples: int, half_width: float, difference: float) -> int:
    """Compute the number of samples at which an interval of the difference has this half-width.

    The half-width is ``z s / sqrt(n)`` for n samples with standard deviation s of the paired differences, so ``n' = n
    (half_width / difference)^2``. Source: W. G. Cochran, "Sampling Techniques", 3rd edition, 1977, section 4.4. For
    scores that are not means, such as mIoU and AP, it holds for large numbers of samples.

    Args:
        samples: number of evaluated samples, n.
        half_width: of the interval of their difference.
        difference: to be told from 0, above 0, in the unit of the score.

    Raises:
        UserError: the difference is far below the noise.
    """
    _require_plausible(half_width, difference)
    return max(2, math.ceil(samples * (half_width / difference) ** 2))


def _require_plausible(noise: float, difference: float) -> None:
    if noise > _LARGEST_RATIO * difference:
        raise UserError(
            f"-plan={difference:g} is less than a millionth of the noise of these runs, +-{noise:.3g}: name a larger "
            "difference"
        )


def plan_seeds(deviation: float, difference: float) -> int:
    """Compute the number of seeds of each method at which an interval of their difference has this half-width.

    It is the smallest n with ``t(97.5 %, 2 n - 2) s sqrt(2 / n) <= difference``; ``deviation`` is the standard
    deviation s of the scores of the seeds. Source: Student's interval for two groups of equal size and variance, as in
    G. W. Snedecor and W. G. Cochran, "Statistical Methods", 8th edition, 1989, section 6.9. Raises UserError: the
    difference is far below the noise.
    """
    _require_plausible(deviation, difference)

    def is_enough(number: int) -> bool:
        share = 0.5 + PERCENT / 200
        is_normal = number > _NEARLY_NORMAL
        quantile = statistics.NormalDist().inv_cdf(share) if is_normal else student_quantile(share, 2 * number - 2)
        return quantile * deviation * math.sqrt(2 / number) <= difference

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
    interval = pair.get_difference(pair.compute_intervals())
    return {"runs": [first.run, second.run], **_build_plan(first, len(pair.order), interval, 1.0, difference)}


def plan_single(table: EvaluationTable, difference: float) -> dict[str, Any]:
    """Plan a comparison of an evaluated model with another whose errors are independent, which is the worst case.

    The variance of a difference of independent scores is the sum of their variances. UserError: the score is not
    defined.
    """
    number, score = len(table.names), table.about["score"]
    recompute = table.kind.recompute([table.arrays], table.about["classes"])
    groups = None if table.groups is None else table.groups.names
    intervals = bootstrap(recompute, number, PERCENT, groups=groups)
    if score not in intervals:
        raise UserError(f"-plan: {table.run}: {explain_undefined(table)}")
    return {"runs": [table.run], **_build_plan(table, number, intervals[score], math.sqrt(2), difference)}


def _build_plan(
    table: EvaluationTable, number: int, interval: ConfidenceInterval, factor: float, difference: float
) -> dict[str, Any]:
    half_width = factor * (interval.high - interval.low) / 2
    needed = plan_samples(number, half_width, difference)
    return {
        "score": table.about["score"],
        "difference": difference,
        "samples": number,
        "half_width": float(f"{half_width:.6g}"),
        "samples_needed": needed,
        "samples_for_power": math.ceil(_SAFER * needed),
    }


def plan_group(group: SeedGroup, difference: float) -> dict[str, Any]:
    """Plan a comparison of two methods by seeds that vary as much as these."""
    deviation = statistics.stdev(group.scores)
    needed = plan_seeds(deviation, difference)
    return {
        "runs": [group.run],
        "score": f"best {group.about['score']}",
        "difference": difference,
        "seeds": len(group.scores),
        "deviation": float(f"{deviation:.6g}"),
        "seeds_needed": needed,
        "seeds_for_power": math.ceil(_SAFER * needed),
    }


def format_plan(plan: dict[str, Any]) -> list[str]:
    """Format a plan as lines."""
    goal = f"{plan['score']} to +-{plan['difference']:g}"
    power = f"to find a true difference of {plan['difference']:g} in {_POWER} % of"
    if "seeds" in plan:
        deviation = format_number(plan["deviation"], count_decimals([plan["deviation"]]))
        lines = [
            f"{plan['runs'][0]}: {plan['seeds']} seeds, standard deviation {deviation}",
            f"{goal} ({PERCENT} % interval between two methods): {plan['seeds_needed']:,} seeds of each",
            f"{power} comparisons: {plan['seeds_for_power']:,} seeds of each",
        ]
    else:
        whose = "of both" if len(plan["runs"]) == 2 else "of a model and another with independent errors"
        lines = [
            f"{', '.join(plan['runs'])}: {plan['samples']:,} samples give +-{plan['half_width']:.3g} ({whose})",
            f"{goal} ({PERCENT} % interval of the paired difference): {plan['samples_needed']:,} samples",
            f"{power} evaluations: {plan['samples_for_power']:,} samples",
        ]
        if len(plan["runs"]) == 1:
            lines.append("models that err on the same samples need fewer: name both runs")
    return [one_line(line) for line in lines]
