"""What an output folder already records about a training resumed in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

from ..errors import Stopped
from ..files import atomic_file
from ..text_files import parse_json
from .record import RunRecord

METRICS = "metrics.jsonl"
FOUND_LATER = "found when resuming"  # the reason of an interruption that its run has not told
_REPEATED = ("training", "epoch", "evaluation", "evaluation_without_average")


class History(NamedTuple):
    """Attributes:
    evaluations: epochs whose evaluations will be repeated.
    lost_updates: updates that were reported and will be repeated.
    last_epoch: the last one with anything on record; 0 for none.
    was_told: whether the stop before this start is on record.
    """

    evaluations: List[int]
    lost_updates: int
    last_epoch: int
    was_told: bool


def supersede(folder: Path, epoch: int, update: int, evaluates: bool = False) -> History:
    """Mark entries of ``metrics.jsonl`` from later in the training with ``"superseded": true``.

    A training that continues from here writes them again; unmarked, the same epoch would count twice. A line cut off
    when the run was killed becomes one of kind "unreadable".

    Args:
        folder: a run's output folder.
        epoch, update: the last ones, from which the training continues, perhaps in the middle of the next epoch.
        evaluates: the evaluation of ``epoch`` is repeated too.
    """
    file = folder / METRICS
    if not file.is_file():
        return History([], 0, 0, False)
    events = [_parsed(line) for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    evaluations, updates = set(), [update]
    for event in events:
        if event.get("kind") not in _REPEATED or not isinstance(event.get("epoch"), int):
            continue
        is_repeated = event["epoch"] > epoch or (evaluates and event["epoch"] == epoch and _is_evaluation(event))
        is_before = event["kind"] == "training" and event["epoch"] == epoch + 1 and event.get("update", 0) <= update
        if not is_repeated or is_before or event.get("superseded"):
            continue
        event["superseded"] = True
        if event["kind"] == "evaluation":
            evaluations.add(event["epoch"])
        updates.append(event.get("update", update))
    with atomic_file(file) as out:
        out.write("".join(json.dumps(event) + "\n" for event in events).encode())
    last_epoch = max((event["epoch"] for event in events if isinstance(event.get("epoch"), int)), default=0)
    was_told = bool(events) and events[-1].get("kind") == "interruption"
    return History(sorted(evaluations), max(updates) - update, last_epoch, was_told)


def _is_evaluation(event: Dict[str, Any]) -> bool:
    return event["kind"].startswith("evaluation")


def note_end(folder: Path, began: float, error: BaseException, is_training: bool) -> None:
    """Record in ``log.txt`` that a run was stopped, and by what; for a training, also in ``metrics.jsonl``.

    A training counts as begun once it has written its ``run.json``, which is then newer than ``began``, in seconds
    since 1970. Called by the process that reports for the run.
    """
    saved = {}
    if isinstance(error, KeyboardInterrupt):
        reason = f"asked to stop ({str(error) or 'SIGINT'})"
    elif isinstance(error, Stopped):
        reason, saved = f"asked to stop ({error.reason})", {"saved": error.saved}
    else:
        reason = str(error).partition("\n")[0] or type(error).__name__
    record = RunRecord(folder, writes=True)
    facts = folder / "run.json"
    if not is_training or not facts.is_file() or facts.stat().st_mtime < began:
        record.log(f"stopped: {reason}")
        return
    file = folder / METRICS
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else []
    epochs = [
        event["epoch"] for event in map(_parsed, lines) if event.get("kind") == "epoch" and "superseded" not in event
    ]
    record.event("interruption", {"epoch": max(epochs, default=0), "reason": reason, **saved})
    if saved:
        record.log(f"stopped: {error}")
    else:
        record.log(f"interrupted: {reason}; continue with -resume=auto")


def _parsed(line: str) -> Dict[str, Any]:
    try:
        event = parse_json(line)
    except ValueError:
        event = None
    return event if isinstance(event, dict) else {"kind": "unreadable", "text": line}
