"""Make the first section of a page: what runs reached, of what, compared with what, and what to look at next."""

import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from ...core.logging.record import COMPARED, ENDS
from ...core.runtime.metrics_file import get_interval, get_values, is_number
from ...core.runtime.printing import one_line
from .advice import advise
from .parts import Part, format_numbers, format_time, make_lines, make_table, name_run
from .runs import ReportedRun, find_measured, is_count

_MOST_BESIDE = 3  # scores next to the best one
_NAMES = ("MODEL.NAME", "DATA.DATASET")


class ShownScore(NamedTuple):
    """A score of a run."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    percent: float = 0.0  # the interval's level
    is_share: bool = False  # in percent

    @property
    def texts(self) -> list[str]:
        """The value and the ends of its interval, if it has one."""
        return format_numbers([self.value, *(self.interval or ())])

    def __str__(self) -> str:
        """Format name, value and interval."""
        value, *ends = self.texts
        interval = f" [{', '.join(ends)}] ({self.percent:g} %)" if ends else ""
        return f"{self.name} {value}{' %' if self.is_share else ''}{interval}"


def make_summary(runs: Sequence[ReportedRun], folder: Path) -> list[Part]:
    """Make the scores, large for a single run, with notices; ``folder`` is that of the page, for links."""
    notices = [name_run(line, run, runs) for run in runs for line in run.notices]
    if len(runs) == 1:
        return [_make_score(runs[0], folder), make_lines(advise(runs[0]), "What to look at next"), make_lines(notices)]
    commands = [(run, run.continuation) for run in runs]
    notices += [name_run(f"to continue, run: {command}", run, runs) for run, command in commands if command]
    rows = [
        [
            run.name,
            format_best(run),
            format_state(run),
            format_duration(run),
            *map(run.settings.get, _NAMES),
            _format_device(run),
        ]
        for run in runs
    ]
    columns = ["run", "score", "state", "time", "model", "data", "device"]  # phones show only the first columns
    links = {"kind": "comparisons", "links": [link for run in runs for link in _link_comparisons(run, folder)]}
    return [*make_groups(runs), make_table("Runs", columns, rows), links, make_lines(notices)]


def find_scores(run: ReportedRun) -> tuple[list[ShownScore], str]:
    """Return the scores of the best evaluation, the deciding one first, or the last ones, and where they are from."""
    metrics = run.metrics
    event = metrics.best_event if metrics.training else None
    if event is not None:
        name, text = event["best"], f"epoch {event['epoch']}"
        values = {one_line(name): get_values(event)[name], **dict(find_measured(event))}
    else:
        text = "the last" if metrics.training else ""
        values = {name: points[-1][1] for name, points in metrics.evaluation.items()}
        if not values and metrics.evaluations:
            event = metrics.evaluations[-1]
            values = dict(find_measured(event))
    scores = []
    for name, value in values.items():
        if not is_count(name, values, run.scores):
            about = get_interval(event, name) if event is not None else {}
            is_share = f"{name} count" in values
            scores.append(ShownScore(name, value, about.get("interval"), about.get("percent", 0.0), is_share))
    return scores, text


def format_best(run: ReportedRun) -> str | None:
    """Format the best evaluation, or the last one, marked as such, if the best is not known."""
    scores, where = find_scores(run)
    if not scores:
        return None
    if where.startswith("epoch"):
        return one_line(f"{scores[0]}, {where}")
    return ", ".join(map(str, scores[:3])) + (f" ({where})" if where else "")


def _make_score(run: ReportedRun, folder: Path) -> Part:
    """Make the score of a single run, with what it was measured, trained and compared on."""
    scores, where = find_scores(run)
    model, data = (run.settings.get(name) for name in _NAMES)
    splits = {n: str(about.get("samples") or about.get("holds") or "").split(": ")[0] for n, about in run.data.items()}
    trained, state, duration = splits.pop("train", None), format_state(run), format_duration(run)
    updates = run.num_updates
    chosen = (
        " on these samples: expect worse on others"
        if max(map(len, run.metrics.evaluation.values()), default=0) > 1
        else ""
    )
    facts = {
        "weights": f"of {where}, the best{chosen}" if where.startswith("epoch") else where if scores else "",
        "measured on": _join(*_describe_measured(data, splits, run)),
        "trained on": _join(trained, f"{updates:,} updates of {run.facts.get('effective_batch', '?')} samples"),
        "model": _join(model, *_describe_start(run)),
        "compared with": _join(*_describe_comparisons(run, scores)),
        "state": _join(state, f"{duration} on {_format_device(run)}" if duration else _format_device(run)),
    }
    return {
        "kind": "score",
        "main": scores[0] if scores else None,
        "beside": [str(score) for score in scores[1 : 1 + _MOST_BESIDE]],
        "facts": {name: fact for name, fact in facts.items() if fact and (updates or name != "trained on")},
        "command": run.continuation,
        "links": _link_comparisons(run, folder),
    }


def _describe_measured(data: str | None, splits: Mapping[str, str], run: ReportedRun) -> list[str]:
    """Describe the samples of an evaluation by their published names, if these are known, else by the run's own.

    ``data`` is DATA.DATASET, ``splits`` the number of samples of each split.
    """
    sources, contents = list[str](), list[str]()
    for split, number in splits.items():
        stored = run.data[split].get("published_as")
        facts = stored if isinstance(stored, dict) else {}
        names = facts.get("repository", data), facts.get("configuration") if "repository" in facts else None
        sources.append(" ".join(str(name) for name in names if name))
        share = f"{facts['share']:.2g} of " if is_number(facts.get("share")) else ""
        contents.append(f"{share}{facts.get('split', split)}: {number}")
    return [*dict.fromkeys(sources or [data or ""]), *contents]


def _join(*texts: object) -> str:
    return "; ".join(one_line(text) for text in texts if text)


def _format_device(run: ReportedRun) -> str:
    machine = run.facts.get("machine")
    processor = machine.get("processor") if isinstance(machine, dict) else None
    device = f"{run.facts.get('processes', '?')} x {run.facts.get('device', '?')}"
    return device + (f", {one_line(processor)}" if processor else "")


def _describe_start(run: ReportedRun) -> list[str]:
    if run.load_report is None:
        return ["from random weights"] if run.metrics.training else []
    fraction = run.load_report.get("loaded_fraction")
    share = f" ({100 * fraction:.1f} % of its parameters)" if isinstance(fraction, (int, float)) else ""
    return [f"{'from' if run.metrics.training else 'weights'} {run.load_report.get('source')}{share}"]


def _describe_comparisons(run: ReportedRun, scores: Sequence[ShownScore]) -> list[str]:
    """Describe the first and the last evaluation, and a model that always predicts the most frequent class."""
    texts = []
    points = run.metrics.evaluation.get(scores[0].name, ()) if scores else ()
    if len(points) > 1:
        texts.append(f"{points[0][1]:.4g} at the first evaluation and {points[-1][1]:.4g} at the last")
    counts = next((about.get("counts") for name, about in run.data.items() if name != "train"), None)
    if scores and scores[0].name == "top-1" and counts:
        name, most = max(counts.items(), key=lambda row: row[1])
        texts.append(f"{100 * most / sum(counts.values()):.4g} if {name} were always predicted")
    return texts


def _link_comparisons(run: ReportedRun, folder: Path) -> list[tuple[str, str]]:
    """Return link and name of the comparison of a run with others."""
    if not (run.folder / COMPARED).is_file():
        return []
    link = quote(os.fsencode(os.path.relpath(run.folder / COMPARED, folder)))
    return [(link, f"{run.name}/{COMPARED}")]


def make_groups(runs: Sequence[ReportedRun]) -> list[Part]:
    """Summarize the best scores of each group of seeds."""
    best: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.group and run.metrics.best is not None:
            best.setdefault((run.group, run.metrics.best["name"]), []).append(run.metrics.best["value"])
    rows = []
    for (group, name), scores in best.items():
        spread = statistics.stdev(scores) if len(scores) > 1 else None
        numbers = (statistics.fmean(scores), spread, min(scores), max(scores))
        rows.append([group, len(scores), name, *numbers])
    columns = ["group", "seeds", "best", "mean", "standard deviation", "minimum", "maximum"]
    unfinished = [
        each.name for each in runs if each.group and not format_state(each).startswith(("complete", "ended early"))
    ]
    note = f"Not complete, counted with their best score so far: {', '.join(unfinished)}." if unfinished else ""
    return [make_table("Groups of seeds", columns, rows, note)] if rows else []


def format_state(run: ReportedRun) -> str:
    """Format how far a run is."""
    last = run.metrics.last or {}
    if not run.metrics.training and last.get("kind") not in ENDS:
        return "evaluated" if run.metrics.evaluations else "nothing recorded yet"
    epochs, epoch = run.settings.get("TRAIN.NUM_EPOCHS", "?"), last.get("epoch", "?")
    if last.get("kind") in ENDS:
        return one_line(f"interrupted after epoch {epoch} of {epochs}: {last.get('reason', '')}")
    if last.get("kind") == "ended_early":
        return one_line(f"ended early after epoch {epoch} of {epochs}")
    if last.get("kind") == "evaluation" and str(epoch) in (epochs, run.settings.get("TRAIN.STOP_AFTER_EPOCH")):
        if str(epoch) == epochs:
            return f"complete, {epochs} epoch{'s' * (epochs != '1')}"
        return f"stopped after epoch {epoch} of {epochs}"
    if run.is_running is False:  # None: unknown
        return one_line(f"killed in epoch {epoch} of {epochs}, without a message")
    return one_line(f"in epoch {epoch} of {epochs}; last entry {format_time(last.get('time'))}")


def format_duration(run: ReportedRun) -> str | None:
    """Format how long a run took, and in how many sessions; None if that is unknown."""
    if run.seconds is None:
        return None
    minutes, seconds = divmod(round(run.seconds), 60)
    duration = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {seconds} s"
    number = len(run.metrics.sessions)
    return f"{duration} in {number} sessions" if number > 1 else duration
