"""Read ``metrics.jsonl``, the events of a run."""

import contextlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeGuard

from .errors import UserError
from .files import open_regular
from .text_files import parse_json

METRICS = "metrics.jsonl"
SCORES = "scores"
#: what an event is, and when
POSITION_FIELDS = ("kind", "time", "epoch", "update", "superseded")
#: names that reports use for themselves, which no term of the loss may have
REPORT_FIELDS = frozenset(
    (
        *POSITION_FIELDS,
        *("learning_rate", "gradient_norm", "skipped_updates", "samples_per_second", "data_wait_fraction"),
        *("memory_mib", "seconds", SCORES),
    )
)
#: names that events use for themselves: a score with one of them is in the event's ``SCORES``
EVENT_FIELDS = REPORT_FIELDS | {
    *("best", "interval", "groups", "precision", "without", "protocol", "weights", "split", "notes"),
}
_LONGEST_EVENT = 1 << 22  # bytes of a line


def recorded_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of ``metrics.jsonl``; nothing if the file does not exist, an OSError if it cannot be read.

    A line that is not an event, such as the last line of a run that was killed, has the kind "unreadable".
    """
    with contextlib.suppress(FileNotFoundError), open_regular(folder / METRICS, "rb") as file:
        while line := file.readline(_LONGEST_EVENT):
            if line.strip():
                yield _parse(line)


def find_best_evaluation(events: Iterable[dict[str, Any]], linked: int | None) -> dict[str, Any] | None:
    """Return the event of a run's best evaluation in training, whose "best" names its score; None if there is none.

    It is that of the epoch ``linked``, the best checkpoint's, as a later best may not be linked yet; else the last.
    """
    found = None
    for event in events:
        is_current = event["kind"] == "evaluation" and is_number(event.get("epoch")) and not event.get("superseded")
        if is_current and isinstance(event.get("best"), str) and is_number(get_values(event).get(event["best"])):
            found = event
            if event["epoch"] == linked:
                break
    return found


def pack_scores(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation's values as its event stores them: ``SCORES`` has those with the name of a field."""
    packed = {name: value for name, value in values.items() if name not in EVENT_FIELDS}
    taken = {name: value for name, value in values.items() if name in EVENT_FIELDS}
    return {**packed, **({SCORES: taken} if taken else {})}


def get_values(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an event says by name, without its kind and position; a score in place of a field of this name."""
    scores = event.get(SCORES)
    values = {name: value for name, value in event.items() if name not in (*POSITION_FIELDS, SCORES)}
    return {**values, **(scores if isinstance(scores, dict) else {})}


def get_interval(event: dict[str, Any], name: str) -> dict[str, Any]:
    """Return "interval", the two ends, and "percent" of an evaluation's value; empty if it has no interval."""
    about = event.get("interval")
    about = about if isinstance(about, dict) else {}
    ends = about.get(name)
    if not (isinstance(ends, list) and len(ends) == 2 and all(map(is_number, [*ends, about.get("percent")]))):
        return {}
    return {"interval": tuple(ends), "percent": about["percent"]}


def find_problem_of_names(names: Iterable[object]) -> str:
    """Say which of a user's names of scores or terms is not a text; empty if all are."""
    for name in names:
        if not isinstance(name, str) or not name.strip():
            return f"{name!r} is not a name: expected a text, such as 'error'"
    return ""


def require_free_names(names: Iterable[str], of: str, fields: Collection[str]) -> None:
    """Raise UserError if a name of scores or terms, ``of`` something, is not a text, or is one of these fields."""
    names = list(names)
    problem = find_problem_of_names(names)
    if problem:
        raise UserError(f"{of}: {problem}")
    taken = [name for name in names if name in fields]
    if taken:
        raise UserError(
            f"{of}: {taken[0]!r} is a field of the lines of {METRICS}, which it would replace: choose another name, "
            f"such as 'mean {taken[0]}'"
        )


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite number that can be drawn."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e300
    )


def _parse(line: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        event = parse_json(line)
        if isinstance(event, dict) and isinstance(event.get("kind"), str):
            return event
    return {"kind": "unreadable", "text": line.rstrip(b"\r\n").decode(errors="backslashreplace")}
