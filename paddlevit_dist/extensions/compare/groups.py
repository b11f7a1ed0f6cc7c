"""Groups of training runs that differ only by their seed: their file ``seeds.json``, and statistics of their scores."""

import contextlib
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...core.checkpoint.directory_names import find_best_epoch
from ...core.intervals.quantiles import student_quantile
from ...core.intervals.score_ranges import UNBOUNDED, ScoreRange
from ...core.logging.record import SCORES, SEEDS
from ...core.runtime.errors import UserError
from ...core.runtime.files import atomic_file
from ...core.runtime.json_format import format_json
from ...core.runtime.metrics_file import find_best_evaluation, get_interval, get_values, is_number, recorded_events
from ...core.runtime.text_files import read_json
from ...core.tasks.score import parse_scores
from .significance import PERCENT

FINISHED, FAILED, UNFINISHED = "finished", "failed", "unfinished"
UNDEFINED = "not defined"  # a score in all evaluations of a finished run
_UPPER = 0.5 + PERCENT / 200
# Largest value of scores from 0 up that choose a checkpoint, for runs of former versions, which have no ``SCORES``.
_MOST = {
    **dict.fromkeys(("top-1", "top-5", "balanced accuracy", "PCK"), 100.0),
    **dict.fromkeys(("mIoU", "mean Dice", "Dice", "mAP", "AP", "AP50", "AP75", "mask AP", "PQ"), 1.0),
    **dict.fromkeys(("mre_mm", "mre_px", "assd_mm", "hd95_mm"), math.inf),
}
_FORMAT = 1


class SeedGroup(NamedTuple):
    """Contents of ``seeds.json``."""

    run: str  # the folder, as the user named it
    about: dict[str, Any]  # "task", "dataset", "score", "more_is_better", and "settings" (the configuration, nested)
    #: for each seed "seed", "folder" (relative to the group's) and "state"; "value" and "epoch" of its best evaluation,
    #: if any; and "low" and "high", the ends of the interval, if any
    seeds: list[dict[str, Any]]

    @property
    def scores(self) -> list[float]:
        """Scores of the finished seeds."""
        return [row["value"] for row in self.seeds if row["state"] == FINISHED and "value" in row]

    @property
    def undefined(self) -> int:
        """Number of finished seeds whose evaluations do not define the score."""
        return sum(row["state"] == FINISHED and "value" not in row for row in self.seeds)

    def write(self) -> None:
        """Write the file atomically; raises a UserError if it cannot be written."""
        summary = summarize(self.scores) if self.scores else {}
        content = {"format": _FORMAT, **self.about, "seeds": self.seeds, **summary}
        with atomic_file(Path(self.run, SEEDS)) as file:
            file.write((format_json(content, indent=1) + "\n").encode())


class SampleNoise(NamedTuple):
    """How much the difference of two groups' mean scores varies over other samples."""

    variance: float  # with these seeds
    interaction: float  # the part of it that other seeds on these samples have, too
    freedom: float
    units: str  # such as "360 samples"


def is_group(folder: str) -> bool:
    """Return whether a folder contains training runs of ``-seeds``."""
    return Path(folder, SEEDS).is_file()


def read_group(folder: str) -> SeedGroup:
    """Read the ``seeds.json`` of a folder; raises a UserError if it is damaged or cannot be read."""
    file = Path(folder, SEEDS)
    try:
        about = read_json(file)
        seeds = about.pop("seeds")
        is_valid = about.pop("format") == _FORMAT and isinstance(about["settings"], dict)
        is_valid = is_valid and all(isinstance(about[name], str) for name in ("task", "dataset", "score"))
        about["more_is_better"] = bool(about["more_is_better"])
        rows = [{**row, "seed": int(row["seed"]), "folder": str(row["folder"])} for row in seeds]
        if not is_valid or not all(
            math.isfinite(row.get("value", 0.0)) and isinstance(row["state"], str) for row in rows
        ):
            raise ValueError
    except (AttributeError, LookupError, TypeError, ValueError):
        raise UserError(
            f"{file} is damaged or from another version: remove it, and repeat the -seeds command to write it again"
        ) from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return SeedGroup(folder, about, rows)


def find_best(folder: Path, score: str) -> dict[str, Any]:
    """Return "value", "epoch" and the interval's ends of a training run's best evaluation; empty if it has none.

    Raises:
        UserError: if the record cannot be read.
    """
    linked = find_best_epoch(folder)
    try:
        best = find_best_evaluation((row for row in recorded_events(folder) if row.get("best") == score), linked)
    except OSError as error:
        raise UserError(f"{folder}: its record cannot be read: {error.strerror}") from error
    if best is None:
        return {}
    ends = get_interval(best, score).get("interval", ())
    return {"value": get_values(best)[score], "epoch": best["epoch"], **dict(zip(("low", "high"), ends))}


def has_evaluation(folder: Path) -> bool:
    """Return whether a training run has evaluated an epoch."""
    return any(row["kind"] == "evaluation" and is_number(row.get("epoch")) for row in recorded_events(folder))


def read_curve(folder: Path, score: str, first: float, sign: int) -> dict[int, float]:
    """Read the score of each evaluated epoch of a training run from ``first`` on, times ``sign``."""
    rows = (row for row in recorded_events(folder) if row["kind"] == "evaluation" and not row.get("superseded"))
    values = {row["epoch"]: get_values(row).get(score) for row in rows if is_number(row.get("epoch"))}
    return {epoch: sign * value for epoch, value in values.items() if is_number(value) and epoch >= first}


def summarize(scores: Sequence[float]) -> dict[str, float | None]:
    """Compute mean, standard deviation (None for one seed), minimum and maximum."""
    spread = statistics.stdev(scores) if len(scores) > 1 else None
    return {
        "mean": statistics.fmean(scores),
        "standard_deviation": spread,
        "minimum": min(scores),
        "maximum": max(scores),
    }


def format_summary(scores: Sequence[float], decimals: int) -> str:
    """Format the summary as "mean 94.2, standard deviation 0.3" and so on."""
    values = {name.replace("_", " "): value for name, value in summarize(scores).items() if value is not None}
    return ", ".join(f"{name} {value:.{decimals}f}" for name, value in values.items())


def compute_interval(scores: Sequence[float], share_of_variance: float) -> tuple[float, float]:
    """Compute the ends of the ``PERCENT`` interval around the mean of two or more scores.

    ``share_of_variance``: 1/n for a confidence interval of the mean, 1 + 1/n for a prediction interval of one score.
    """
    mean = statistics.fmean(scores)
    reach = student_quantile(_UPPER, len(scores) - 1) * statistics.stdev(scores) * math.sqrt(share_of_variance)
    return mean - reach, mean + reach


def find_range(group: SeedGroup) -> ScoreRange:
    """Return the lowest and highest possible value of a group's score, as its runs describe it."""
    score = group.about["score"]
    for row in group.seeds:
        with contextlib.suppress(OSError, ValueError, KeyError):  # a run may not have begun
            described = parse_scores(read_json(Path(group.run, row["folder"], SCORES)))[0][score]
            return described.range or UNBOUNDED
    return (0.0, _MOST[score]) if score in _MOST else UNBOUNDED


def clip_to_range(bounds: ScoreRange, low: float, high: float, is_difference: bool = False) -> tuple[float, float]:
    """Clip an interval to the possible values of a score, or of the difference of two."""
    least, most = (bounds[0] - bounds[1], bounds[1] - bounds[0]) if is_difference else bounds
    return max(low, least), min(high, most)


def compute_noise(scores: Sequence[float]) -> float:
    """Compute the largest difference by chance between the means of two such groups, in ``PERCENT`` of all pairs.

    The deviation is that of one group, so there are n - 1 degrees of freedom, although two groups are compared.
    """
    number = len(scores)
    return student_quantile(_UPPER, number - 1) * statistics.stdev(scores) * math.sqrt(2 / number)


def measure_difference(
    first: Sequence[float], second: Sequence[float], noise: SampleNoise | None = None
) -> tuple[float, float, float]:
    """Return the mean of the second group minus that of the first, its standard deviation, and degrees of freedom.

    Each has two scores or more; their variances may differ. Source: B. L. Welch, "The generalization of 'Student's'
    problem when several different population variances are involved", Biometrika 34, 1947. With ``noise`` samples vary,
    too: of scores of seeds and samples, the variance of the mean is that over seeds and that over samples, less
    that of their interaction, which both contain (R. L. Brennan, "Generalizability Theory", 2001).
    """
    value = statistics.fmean(second) - statistics.fmean(first)
    parts = [(statistics.variance(scores) / len(scores), len(scores) - 1.0) for scores in (first, second)]
    variance = sum(part for part, _ in parts)
    if noise is not None:
        parts.append((noise.variance, noise.freedom))
        variance = noise.variance + max(variance - noise.interaction, 0.0)
    squares = sum(part**2 / freedom for part, freedom in parts)
    return value, math.sqrt(variance), max(variance**2 / squares, 1.0) if squares else 1.0
