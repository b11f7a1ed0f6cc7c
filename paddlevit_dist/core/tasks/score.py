"""What a value of an evaluation measures: its quantity, class, unit, range and direction. Needs no Paddle."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..intervals.score_ranges import UNBOUNDED, ScoreRange
from ..runtime.metrics_file import is_number

PERCENT = "%"
HIGHER, LOWER = "higher", "lower"
SAMPLES, DECISIONS, POOLED, CLASSES = "samples", "decisions", "pooled decisions", "classes"


@dataclasses.dataclass(frozen=True)
class Score:
    """What a value of an evaluation measures.

    Attributes:
        quantity: such as "AP": the name of the value without its class.
        of_class: the class whose score it is; None: of all.
        unit: "%", "mm" and so on; empty: a fraction, or a plain number.
        range: lowest and highest possible value, see ``ScoreKind.find_ranges``; None: it gets no interval.
        better: "higher" or "lower"; empty: neither, or not known.
        counted_over: what it averages: "samples"; "decisions" of a rate of ``ScoreKind.hits`` if each sample has one,
            "pooled decisions" if a sample has several; "classes" of a mean over classes.
    """

    quantity: str
    of_class: str | None = None
    unit: str = ""
    range: ScoreRange | None = UNBOUNDED
    better: str = ""
    counted_over: str = SAMPLES


def find_direction(bounds: ScoreRange | None) -> str:
    """Return which values are usually better: higher of shares, lower of errors; empty if the range does not say it."""
    low, high = bounds or UNBOUNDED
    if math.isfinite(high):
        return HIGHER
    return LOWER if math.isfinite(low) else ""


def to_plain(scores: Mapping[str, Score], of_classes: Sequence[Score]) -> dict[str, Any]:
    """Return scores by name as plain values for a file, which ``parse_scores`` reads; a quantity has one row.

    ``of_classes`` are the quantities that classes have, the main one first, also if no class has a value.
    """
    names: dict[Score, dict[str, str | None]] = {}
    for name, score in scores.items():
        names.setdefault(dataclasses.replace(score, of_class=None), {})[name] = score.of_class
    for score in of_classes:
        names.setdefault(score, {})
    rows = []
    for score, values in names.items():
        about = {key: value for key, value in dataclasses.asdict(score).items() if key != "of_class"}
        ends = None if score.range is None else [end if math.isfinite(end) else None for end in score.range]
        rows.append({**about, "range": ends, "values": values})
    return {"of_classes": [score.quantity for score in of_classes], "scores": rows}


def parse_scores(content: Any) -> tuple[dict[str, Score], list[Score]]:
    """Return the arguments of ``to_plain``, scores by name and the quantities of classes; ValueError if damaged."""
    scores: dict[str, Score] = {}
    quantities: dict[str, Score] = {}
    try:
        for row in content["scores"]:
            texts = {key: row[key] for key in ("quantity", "unit", "better", "counted_over")}
            if not all(isinstance(text, str) for text in texts.values()):
                raise ValueError
            score = Score(**texts, range=None if row["range"] is None else _parse_range(*row["range"]))
            quantities[score.quantity] = score
            for name, of_class in row["values"].items():
                scores[name] = dataclasses.replace(score, of_class=None if of_class is None else str(of_class))
        return scores, [quantities[name] for name in content["of_classes"]]
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError("it does not describe scores") from None


def _parse_range(low: Any, high: Any) -> ScoreRange:
    if not all(end is None or is_number(end) for end in (low, high)):
        raise ValueError
    return -math.inf if low is None else float(low), math.inf if high is None else float(high)


def split_names(patterns: Iterable[str], classes: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return quantity and class by the name of the value; patterns have "{}" for the class."""
    return {of.format(name): (of.format("").strip(), name) for of in patterns for name in classes}
