"""Read the folder of a run as far as possible: the run may be active or killed, and its files may be damaged."""

import os
import re
import shlex
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ...core.checkpoint.directory_names import find_best_epoch, find_last_saved
from ...core.launch.lock import is_running
from ...core.logging.record import ENDS, FOUND_LATER, SCORES
from ...core.runtime.errors import UserError
from ...core.runtime.metrics_file import (
    METRICS,
    find_best_evaluation,
    get_interval,
    get_values,
    is_number,
    recorded_events,
)
from ...core.runtime.printing import agree, count, one_line
from ...core.runtime.text_files import read_json, read_yaml
from ...core.settings.table import leaves
from ...core.tasks.class_names import ALL_NAMES
from ...core.tasks.score import Score, parse_scores
from . import store

_RUN_FILES = (METRICS, "config.yaml", "run.json", "eval_run.json", "eval_config.yaml")
_LONGEST_TEXT = 200  # of an unreadable line
_COUNTS = re.compile(r"samples|points|images|landmarks|known labels|top-\d+ count")  # quantities that are not scores
_MOST_EVENTS = 2_000
_FEWEST_FOR_TOP_5 = 20  # classes; with fewer, five guesses are right too often
_QUARANTINE = "quarantine.tsv"
_HOMES = r"(?:/home|/Users)/[^/\s'\"]+|/root"

Points = list[tuple[float, float]]  # x, y


class ReportedRun(NamedTuple):
    """Content of a run's folder."""

    name: str  # unique name in the report
    folder: Path  # of the run
    #: values of ``config.yaml`` by full key, as text, or of the evaluation if nothing was trained
    settings: dict[str, str]
    facts: dict[str, Any]  # ``run.json``, without its data
    data: dict[str, dict[str, Any]]  # "holds" (number of samples), "classes" (their number) and "notes" of each split
    unreadable: list[str]  # path and reason of each unreadable sample that was replaced
    #: of the initial weights, or of the evaluated ones if nothing was trained; None if there is none
    load_report: dict[str, Any] | None
    metrics: "RunMetrics"  # from the run's events
    seconds: float | None  # time of all training sessions, or of the evaluation if nothing was trained; None if unknown
    is_running: bool | None  # whether a process has locked the folder; None if this machine cannot tell
    figures: dict[str, store.StoredFigures]  # by "Training" and "Evaluation"
    notices: list[str]  # missing and damaged files, and how to fix them
    group: str = ""  # name of its group of seeds; empty for single runs
    scores: dict[str, Score] = {}  # what the values of its evaluations are, by name; empty of former versions
    of_classes: Sequence[Score] = ()  # the quantities that classes have, the main one first
    saved: tuple[str, int] | None = None  # "epoch" or "update", and the number, of its last checkpoint

    def list_figures(self, kind: str) -> list[dict[str, Any]]:
        """List the figures of a kind; in damaged files, their content may be anything."""
        figures = [figure for stored in self.figures.values() for figure in stored.figures]
        return [figure for figure in figures if isinstance(figure, dict) and figure.get("kind") == kind]

    def find_table(self, *columns: str) -> dict[str, list[Any]] | None:
        """Return the first table that has all of these columns, as cells by column; None if there is none."""
        for table in self.list_figures("table"):
            names, rows = table.get("columns"), table.get("rows")
            if not isinstance(names, list) or not isinstance(rows, list) or not {*columns} <= {*map(str, names)}:
                continue
            if all(isinstance(row, list) and len(row) == len(names) for row in rows):
                return {str(name): [row[at] for row in rows] for at, name in enumerate(names)}
        return None

    @property
    def num_updates(self) -> float:
        """Number of updates that are reported or saved: a run that was stopped may not have reported the last ones."""
        reported = [points[-1][0] for points in self.metrics.training.values()]
        kind, number = self.saved or ("", 0)
        saved = {"update": number, "epoch": self.metrics.estimate_update(number) if reported else 0}
        return max([*reported, saved.get(kind, 0)])

    @property
    def continuation(self) -> str | None:
        """The command that continues this run; None if it is complete, continues or has no checkpoint."""
        last = self.metrics.last or {}
        epochs, stop = (self.settings.get(f"TRAIN.{key}") for key in ("NUM_EPOCHS", "STOP_AFTER_EPOCH"))
        is_left = last.get("kind") in ENDS or (last.get("kind") != "ended_early" and self.is_running is False)
        is_at_end = last.get("kind") == "evaluation" and str(last.get("epoch")) == epochs
        is_stopped = last.get("kind") == "evaluation" and str(last.get("epoch")) == stop
        if self.saved is None or is_at_end or not (is_left or is_stopped):
            return None
        imports = self.settings.get("IMPORTS", "[]").replace("'", "")  # as YAML
        words = [f"-resume={self.folder}", *([f"IMPORTS={imports}"] if imports != "[]" else [])]
        return shlex.join(["python", "-m", "paddlevit_dist", "train", *words])

    @property
    def classes(self) -> list[str]:
        """Names of the classes that its data and figures tell, in the order of their numbers."""
        tables = [self.find_table(column) or {} for column in ("class", "category", "point", "landmark")]
        in_figures = [str(name) for table in tables if table for name in next(iter(table.values()))]
        lists = [about.get(key) or () for key in ("class_names", "counts") for about in self.data.values()]
        overall = next((name for name in ALL_NAMES[::-1] if name in in_figures), "")
        in_figures = [name for name in in_figures if name != overall]
        return [*dict.fromkeys([str(name) for listed in lists for name in listed] + in_figures)]


def read_runs(folders: Sequence[Path]) -> list[ReportedRun]:
    """Read the runs in these folders, and all seeds of groups; raises a UserError if a folder contains no run."""
    runs = [
        (run, name if run != folder else "")
        for folder, name in zip(folders, shorten_names(folders))
        for run in _list_runs(folder)
    ]
    names = shorten_names([run for run, _ in runs])
    return [read_run(run, name)._replace(group=group) for (run, group), name in zip(runs, names)]


def _list_runs(folder: Path) -> list[Path]:
    """Return the folder, or the folders of its seeds in their order."""
    seeds = [run for run in folder.glob("seed_*") if run.name[len("seed_") :].isdecimal() and _is_run(run)]
    if seeds and not _is_run(folder):
        return sorted(seeds, key=lambda run: int(run.name[len("seed_") :]))
    _require_run(folder)
    return [folder]


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in _RUN_FILES)


def _require_run(folder: Path) -> None:
    try:
        names = set(os.listdir(folder))
    except OSError as error:
        raise UserError(f"report: {folder}: {error.strerror}; give the -output folder of a run") from error
    if not names.intersection(_RUN_FILES):
        raise UserError(
            f"report: {folder} does not contain a run ({METRICS} is missing); give the -output folder of a training "
            "run or an evaluation"
        )


def shorten_names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that are unique."""
    parts = [Path(os.path.abspath(folder)).parts for folder in folders]
    for number in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-number:]) for part in parts]
        if len(set(names)) == len(names):
            break
    else:  # the same folder twice
        names = [f"{part[-1]} ({number})" for number, part in enumerate(parts, start=1)]
    return [one_line(name) for name in names]


def read_run(folder: Path, name: str) -> ReportedRun:
    """Read a run's folder; the notices list the files that cannot be read."""
    notices: list[str] = []
    facts = _read_optional(folder, ("run.json", "eval_run.json"), read_json, notices)
    facts = facts if isinstance(facts, dict) else {}
    data = _read_data(facts)
    classes = [about["classes"] for about in data.values() if is_number(about.get("classes"))]
    metrics = RunMetrics(find_best_epoch(folder))
    for event in _read_events(folder, notices):
        if classes and max(classes) < _FEWEST_FOR_TOP_5:
            event = {key: value for key, value in event.items() if key not in ("top-5", "top-5 count")}
        metrics.add(event)
    settings = _read_optional(folder, ("config.yaml", "eval_config.yaml"), read_yaml, notices)
    settings = flatten(settings if isinstance(settings, dict) else {})
    trained = metrics.last is not None or (folder / "config.yaml").exists()
    report_files = ("load_report.json",) if trained else ("eval_load_report.json",)
    load_report = _read_optional(folder, report_files, read_json, notices)
    score_files = (SCORES, f"eval_{SCORES}") if trained else (f"eval_{SCORES}",)
    described = _read_optional(folder, score_files, lambda file: parse_scores(read_json(file)), notices)
    scores, of_classes = described or ({}, [])
    unreadable = _read_optional(folder, (_QUARANTINE,), lambda file: _read_quarantine(file.read_bytes()), notices)
    if metrics.omitted:
        notices.append(f"{count(metrics.omitted, 'more event')} {agree(metrics.omitted)} not listed")
    figures = _read_figures(folder, notices)
    if not figures:
        notices.append(_format_figures_hint(folder))
    relative = _make_relative(facts.get("folder"), settings.get("DATA.DATA_PATH"))
    metrics.evaluations, metrics.events = relative(metrics.evaluations), relative(metrics.events)
    return ReportedRun(
        name,
        folder,
        relative(settings),
        relative({key: value for key, value in facts.items() if key != "data"}),
        relative(data),
        relative(unreadable or []),
        relative(load_report) if isinstance(load_report, dict) else None,
        metrics,
        metrics.compute_seconds(_find_start(facts)),
        is_running(folder),
        relative(figures),
        relative(notices),
        scores={one_line(name): score for name, score in scores.items()},
        of_classes=of_classes,
        saved=find_last_saved(folder),
    )


def _read_figures(folder: Path, notices: list[str]) -> dict[str, store.StoredFigures]:
    """Read the figures of training and of an evaluation; identical ones only once."""
    figures = {}
    for title, file in (("Training", store.TRAINING), ("Evaluation", store.EVALUATION)):
        if (folder / file).exists():
            try:
                figures[title] = store.load(folder / file)
            except (OSError, ValueError) as error:
                notices.append(one_line(f"{file} cannot be shown: {error}; evaluate again"))
    if len(figures) == 2 and figures["Training"].figures == figures["Evaluation"].figures:
        del figures["Evaluation"]
        notices.append("the evaluation after training has the same figures, so they are shown once")
    return figures


def _format_figures_hint(folder: Path) -> str:
    """Format the command that creates the missing figures of a run."""
    text = "this run has no figures of its model's predictions"
    if not (folder / "checkpoints").is_dir():
        return text
    words = ["python", "-m", "paddlevit_dist", "evaluate", str(folder), "REPORT", "True"]
    return one_line(f"{text}; to create them, run: {shlex.join(words)}")


def _read_data(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Read content, number, names and counts of classes, and notes of each split; damaged ones are dropped."""
    data = facts.get("data")
    splits = {one_line(k): dict(v) for k, v in data.items() if isinstance(v, dict)} if isinstance(data, dict) else {}
    for about in splits.values():
        if not isinstance(about.get("class_names"), list):
            about.pop("class_names", None)
        counts = about.get("counts")
        if not (isinstance(counts, dict) and all(is_number(count) and count >= 0 for count in counts.values())):
            about.pop("counts", None)
    return splits


def _read_quarantine(content: bytes) -> list[str]:
    """Read ``quarantine.tsv``: path and reason of each unreadable sample."""
    return [one_line(line.replace("\t", ": ")) for line in content.decode(errors="backslashreplace").splitlines()[1:]]


def _make_relative(folder: Any, data_path: Any) -> Callable[[Any], Any]:
    """Return a function that makes paths in plain values relative to working folder, data, package, or home."""
    here = str(folder) if isinstance(folder, str) else os.getcwd()
    places = {os.path.join(here, data_path or ""), here, str(Path(__file__).parents[3])}
    inner_first = sorted((place.rstrip("/") for place in places), reverse=True)
    inside = re.compile(rf"(?<![\w./~-])(?:{'|'.join(map(re.escape, filter(None, inner_first)))})/")
    home = os.path.expanduser("~").rstrip("/") or "/root"  # it is / for unknown users in a container
    homes = re.compile(rf"(?<![\w./~-])(?:{re.escape(home)}|{_HOMES})(?![\w.-])")

    def relative(value: object) -> Any:
        if isinstance(value, str):
            return homes.sub("~", inside.sub("", value))
        if isinstance(value, dict):
            return {relative(key): relative(part) for key, part in value.items()}
        if isinstance(value, store.StoredFigures):
            return store.StoredFigures(*map(relative, value))
        return list(map(relative, value)) if isinstance(value, list) else value

    return relative


def _find_start(facts: Any) -> float | None:
    """Return the start of the run's last session, in seconds since 1970."""
    try:
        return datetime.strptime(facts["started"], "%Y-%m-%d %H:%M:%S %z").timestamp()
    except (LookupError, TypeError, ValueError):
        return None


def _read_optional(folder: Path, names: Sequence[str], read: Callable[[Path], Any], notices: list[str]) -> Any:
    for name in names:
        if (folder / name).exists():
            try:
                return read(folder / name)
            except (OSError, ValueError) as error:
                notices.append(one_line(f"{name} cannot be read: {error}"))
    return None


def flatten(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return values as text by full key, such as ``TRAIN.BASE_LR``."""
    return {one_line(name): one_line(value) for name, value in leaves(tree).items()}


def _read_events(folder: Path, notices: list[str]) -> Iterator[dict[str, Any]]:
    if not (folder / METRICS).exists():
        notices.append(f"there is no {METRICS}, so there are no curves")
    try:
        for event in recorded_events(folder):
            yield {**event, "text": event["text"][:_LONGEST_TEXT]} if event["kind"] == "unreadable" else event
    except OSError as error:
        notices.append(one_line(f"{METRICS} cannot be read: {error.strerror}"))


class RunMetrics:
    """Curves and events of a run.

    Attributes:
        training: points (update, value) by name.
        evaluations: events of evaluations outside of training, which have no epoch.
        events: interruptions, resumptions, superseded evaluations and unreadable lines, in order.
        omitted: number of events that are not in the list.
        last: the last event of training; None if there is none.
        sessions: first and last time of each session of training.
    """

    def __init__(self, best_epoch: int | None = None) -> None:
        self._best_epoch = best_epoch  # of the linked checkpoint
        self.training: dict[str, Points] = {}
        self.evaluations: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.omitted = 0
        self.last: dict[str, Any] | None = None
        self._epoch_evaluations: list[dict[str, Any]] = []
        self.sessions: list[list[float]] = []
        self._last_updates: dict[int, float] = {}  # of each epoch

    def add(self, event: dict[str, Any]) -> None:
        """Add an event to its curve or list."""
        kind = event["kind"]
        if kind != "unreadable" and "epoch" in event:  # later evaluations of the weights have no epoch
            self.last = event
            self._count_time(event)
        if event.get("superseded"):
            if kind == "evaluation":
                self._list_event(event)
        elif kind == "training":
            update = event.get("update")
            if is_number(update):
                epoch = event.get("epoch")
                if isinstance(epoch, int):
                    self._last_updates[epoch] = update
                for name, value in find_measured(event):
                    self.training.setdefault(name, []).append((update, value))
        elif kind == "evaluation" and is_number(event.get("epoch")):
            self._epoch_evaluations.append(event)
        elif kind == "evaluation":
            self.evaluations.append(event)
        elif kind not in ("epoch", "evaluation_without_average"):
            self._list_event(event)

    def _list_event(self, event: dict[str, Any]) -> None:
        if len(self.events) < _MOST_EVENTS:
            self.events.append(event)
        else:
            self.omitted += 1

    def _count_time(self, event: dict[str, Any]) -> None:
        now = event.get("time")
        if not is_number(now) or event.get("reason") == FOUND_LATER:
            return
        if event["kind"] == "resume" or not self.sessions:
            self.sessions.append([now, now])
        self.sessions[-1][1] = max(now, self.sessions[-1][1])
        if len(self.sessions) == 1 and event["kind"] == "epoch" and is_number(event.get("seconds")):
            # No event marks the start of the first session, and ``started`` is that of the last one.
            self.sessions[0][0] = min(self.sessions[0][0], now - event["seconds"])

    def compute_seconds(self, started: float | None) -> float | None:
        """Compute the time of all training sessions, or of the evaluation if nothing was trained.

        ``started``: start of the last session, shortly before its first event.
        """
        sessions = [list(session) for session in self.sessions]
        if not sessions and self.evaluations and is_number(self.evaluations[-1].get("time")):
            sessions = [[self.evaluations[-1]["time"]] * 2]
        if not sessions or (started is None and len(sessions) == 1 and not self.sessions):
            return None
        before = sessions[-2][1] if len(sessions) > 1 else 0.0
        if started is not None and before <= started <= sessions[-1][0]:
            sessions[-1][0] = started
        return sum(last - first for first, last in sessions)

    @property
    def best_event(self) -> dict[str, Any] | None:
        """The event of the best evaluation in training; None: unknown."""
        return find_best_evaluation(self._epoch_evaluations, self._best_epoch)

    @property
    def best(self) -> dict[str, Any] | None:
        """Name, value and epoch of the best evaluation in training, and what ``get_interval`` says; None: unknown."""
        event = self.best_event
        if event is None:
            return None
        name = event["best"]
        value = get_values(event)[name]
        return {"name": name, "value": value, "epoch": event["epoch"], **get_interval(event, name)}

    @property
    def evaluation(self) -> dict[str, Points]:
        """Points of evaluations by name, at the last update of their epochs if it is known."""
        points: dict[str, Points] = {}
        for event in self._epoch_evaluations:
            update = self.estimate_update(event["epoch"])
            for name, value in find_measured(event):
                points.setdefault(name, []).append((update, value))
        return points

    def estimate_update(self, epoch: float) -> float:
        """Return the last update of an epoch, a whole number; the epoch itself if no update is known."""
        if epoch in self._last_updates:
            return self._last_updates[int(epoch)]
        if not self._last_updates:
            return epoch
        last = max(self._last_updates)
        return round(epoch * self._last_updates[last] / max(last, 1))


def is_count(name: str, names: Container[str], scores: Container[str] = ()) -> bool:
    """Return whether a quantity is a count, not a score.

    ``names`` are the names of all quantities, ``scores`` those that are known to be scores.
    """
    if name in scores:
        return False
    landmark = name.removesuffix(" landmarks")
    return _COUNTS.fullmatch(name) is not None or (landmark != name and f"{landmark} mre_mm" in names)


def find_measured(event: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield names and values of an event's results that are finite numbers."""
    for name, value in get_values(event).items():
        if is_number(value):
            yield one_line(name), float(value)
