"""Trainings that differ by their seed alone: what a group's folder says of them, and how far two groups differ."""

import itertools
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..logging.record import SEEDS
from ..runtime.errors import UserError
from ..runtime.files import atomic_file
from ..runtime.metrics_file import recorded_events
from ..runtime.text_files import read_json

FINISHED, FAILED, UNFINISHED = "finished", "failed", "unfinished"
PERCENT = 95
_UPPER = 0.5 + PERCENT / 200
_FORMAT = 1
_MOST_SHARINGS = 200_000  # ways to share seeds among two groups that are all looked at; 10 and 10 have 184,756
_SEED = 0  # a constant: a p is not a matter of luck
_ROUNDING = 1e-9  # relative; less is no difference


class SeedGroup(NamedTuple):
    """Contents of ``seeds.json``.

    Attributes:
        run: the folder, as the user named it.
        about: "task", "dataset", "score", whether "more_is_better", "settings" (the configuration, nested).
        seeds: of each "seed", "folder" (in the group's) and "state"; of the best evaluation, where there was one,
            "value" and "epoch", and "low" and "high", the ends of its interval, where it has one.
    """

    run: str
    about: dict[str, Any]
    seeds: list[dict[str, Any]]

    @property
    def scores(self) -> list[float]:
        """Of the seeds that have finished."""
        return [row["value"] for row in self.seeds if row["state"] == FINISHED and "value" in row]

    def write(self) -> None:
        """Write the file, whole or not at all.

        Raises:
            UserError: the file system refuses.
        """
        summary = summarize(self.scores) if self.scores else {}
        content = {"format": _FORMAT, **self.about, "seeds": self.seeds, **summary}
        with atomic_file(Path(self.run, SEEDS)) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())


def is_group(folder: str) -> bool:
    """Whether a folder holds trainings that ``-seeds`` has made."""
    return Path(folder, SEEDS).is_file()


def read_group(folder: str) -> SeedGroup:
    """Read what the last ``-seeds`` has written.

    Raises:
        UserError: it is damaged.
    """
    file = Path(folder, SEEDS)
    try:
        about = read_json(file)
        seeds = about.pop("seeds")
        fits = about.pop("format") == _FORMAT and isinstance(about["settings"], dict)
        fits = fits and all(isinstance(about[name], str) for name in ("task", "dataset", "score"))
        about["more_is_better"] = bool(about["more_is_better"])
        rows = [{**row, "seed": int(row["seed"]), "folder": str(row["folder"])} for row in seeds]
        if not fits or not all(math.isfinite(row.get("value", 0.0)) and isinstance(row["state"], str) for row in rows):
            raise ValueError
    except (AttributeError, LookupError, TypeError, ValueError):
        raise UserError(
            f"{file} is no file of this version about several seeds: remove it, and let the -seeds command that made "
            "it write it again"
        ) from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return SeedGroup(folder, about, rows)


def find_best(folder: Path, score: str) -> dict[str, Any]:
    """ "value", "epoch" and the interval's ends of a training's best evaluation; empty where it has none.

    Raises:
        UserError: the record cannot be read.
    """
    best: dict[str, Any] = {}
    try:
        for event in recorded_events(folder):
            is_best = event["kind"] == "evaluation" and event.get("best") == score and "superseded" not in event
            if is_best and isinstance(event.get(score), int | float) and isinstance(event.get("epoch"), int):
                about = event.get("interval")
                ends = about.get(score) if isinstance(about, dict) else None
                ends = ends if isinstance(ends, list) and all(isinstance(end, int | float) for end in ends) else ()
                best = {"value": event[score], "epoch": event["epoch"], **dict(zip(("low", "high"), ends))}
    except OSError as error:
        raise UserError(f"{folder}: its record cannot be read: {error.strerror}") from error
    return best


# ---- numbers ---------------------------------------------------------------------------------------------------------


def summarize(scores: Sequence[float]) -> dict[str, float | None]:
    """Mean, standard deviation (of one seed: None), minimum and maximum."""
    spread = statistics.stdev(scores) if len(scores) > 1 else None
    return {
        "mean": statistics.fmean(scores),
        "standard_deviation": spread,
        "minimum": min(scores),
        "maximum": max(scores),
    }


def format_summary(scores: Sequence[float], decimals: int) -> str:
    """The same as "mean 94.2, standard deviation 0.3" and so on."""
    known = {name.replace("_", " "): value for name, value in summarize(scores).items() if value is not None}
    return ", ".join(f"{name} {value:.{decimals}f}" for name, value in known.items())


def student_quantile(share: float, freedom: float) -> float:
    """The value below which a share of Student's t distribution lies, to five digits.

    Args:
        freedom: degrees of freedom, at least 1, also a fraction.
    Source: Student, "The probable error of a mean", Biometrika 6, 1908; t = sqrt(freedom) tan(angle) has the density
        cos(angle)^(freedom - 1) of angles.
    """
    angles = np.linspace(-np.pi / 2, np.pi / 2, 20_001)
    density = np.cos(angles).clip(0.0) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return math.sqrt(freedom) * math.tan(float(np.interp(share * below[-1], below, angles)))


def around(scores: Sequence[float], share_of_variance: float) -> tuple[float, float]:
    """The ends of an interval of ``PERCENT`` around the mean of two scores or more.

    Args:
        share_of_variance: 1/n for the mean of many such seeds, 1 + 1/n for the score of one more.
    """
    mean = statistics.fmean(scores)
    reach = student_quantile(_UPPER, len(scores) - 1) * statistics.stdev(scores) * math.sqrt(share_of_variance)
    return mean - reach, mean + reach


def inside(score: str, low: float, high: float, is_difference: bool = False) -> tuple[float, float]:
    """These ends without what a score of this name, or the difference of two, cannot be; of names that are not known
    as they are."""
    most = math.inf
    if score in ("top-1", "balanced accuracy"):
        most = 100.0
    elif score.startswith(("mIoU", "AP", "mask AP", "mean Dice", "Dice")):
        most = 1.0
    elif not score.endswith("mm"):
        return low, high
    return max(low, -most if is_difference else 0.0), min(high, most)


def noise(scores: Sequence[float]) -> float:
    """How far the means of two groups like this one are apart by chance, in ``PERCENT`` of such pairs at most."""
    number = len(scores)
    return student_quantile(_UPPER, 2 * number - 2) * statistics.stdev(scores) * math.sqrt(2 / number)


def difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """The mean of the second less that of the first, with the ends of its interval. Both have two scores or more.

    Source: B. L. Welch, "The generalization of 'Student's' problem when several different population variances are
    involved", Biometrika 34, 1947: the groups may spread differently.
    """
    value = statistics.fmean(second) - statistics.fmean(first)
    parts = [statistics.variance(scores) / len(scores) for scores in (first, second)]
    if not sum(parts):
        return value, value, value
    squares = (part**2 / (len(scores) - 1) for part, scores in zip(parts, (first, second)))
    reach = student_quantile(_UPPER, sum(parts) ** 2 / sum(squares)) * math.sqrt(sum(parts))
    return value, value - reach, value + reach


def smallest_p(first: int, second: int) -> float:
    """The smallest p that ``permutation_of_seeds`` can give for so many seeds; ``first`` and ``second`` of them."""
    return (2 if first == second else 1) / math.comb(first + second, first)


def permutation_of_seeds(first: Sequence[float], second: Sequence[float]) -> tuple[float, str]:
    """The p of a permutation test, and its name. If the groups were alike, any way to share all scores among them would
    have been as likely: p is the share of ways with means at least as far apart. All ways are looked at where they are
    not more than 200,000; else as many are drawn, and the one that was found counts as one more.

    Source: R. A. Fisher, "The Design of Experiments", 1935; B. Phipson and G. Smyth, "Permutation P-values should never
    be zero", Statistical Applications in Genetics and Molecular Biology 9, 2010.
    """
    scores = np.array([*first, *second], np.float64) - statistics.fmean([*first, *second])
    number, ways = len(first), math.comb(len(scores), len(first))
    # With the sum of all at 0 the means are as far apart as the sum of one group is from 0.
    least = abs(scores[:number].sum()) - _ROUNDING * np.abs(scores).max()
    if ways <= _MOST_SHARINGS:
        shared = np.array(list(itertools.combinations(range(len(scores)), number)))
        return float((np.abs(scores[shared].sum(axis=1)) >= least).mean()), f"exact permutation test, {ways:,} ways"
    generator = np.random.Generator(np.random.PCG64(_SEED))
    drawn = np.argsort(generator.random((_MOST_SHARINGS, len(scores))), axis=1)[:, :number]
    larger = int((np.abs(scores[drawn].sum(axis=1)) >= least).sum())
    return (1 + larger) / (1 + _MOST_SHARINGS), f"permutation test, {_MOST_SHARINGS:,} ways drawn"
