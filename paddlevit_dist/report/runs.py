"""Contents of a run's folder, read as far as they can be: a run may go on, have been killed, or have damaged files."""

import math
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..launch.lock import is_running
from ..logging.record import FOUND_LATER
from ..runtime.errors import UserError
from ..runtime.metrics_file import METRICS, recorded_events
from ..runtime.printing import one_line
from ..runtime.text_files import read_json, read_yaml
from ..settings.table import leaves
from . import store

_SIGNS_OF_A_RUN = (METRICS, "config.yaml", "run.json", "eval_run.json", "eval_config.yaml")
_LONGEST_TEXT = 200  # of a line that is no event
_NOT_MEASURED = ("kind", "time", "epoch", "update", "superseded")
_MOST_EVENTS = 2_000
_FEWEST_FOR_TOP_5 = 20  # classes: of fewer, five guesses are right too often to say anything
_QUARANTINE = "quarantine.tsv"
_HOMES = r"(?:/home|/Users)/[^/\s'\"]+|/root"

Points = list[tuple[float, float]]  # x, y


class ReportedRun(NamedTuple):
    """Attributes:
    name: what it is called in the report, unlike any other in it.
    settings: values of ``config.yaml`` by full key, as text; those of an evaluation where nothing was trained.
    facts: ``run.json``, without what it says of the data.
    data: of each split "holds" (how many samples), "classes" (their number) and "notes".
    unreadable: path and reason of each sample that could not be read and was replaced.
    load_report: of the weights that its training started from, or of those that it evaluated where nothing was
        trained; None: there is none.
    metrics: what its events say.
    seconds: that it has trained, all its sessions together, or evaluated where nothing was trained; None: unknown.
    is_running: whether a process holds its folder; None: that cannot be seen from here.
    figures: by what they are called.
    notices: what is missing or damaged, and what to do about it.
    group: what the group of seeds is called that it is one of; empty: of none.
    """

    name: str
    folder: Path
    settings: dict[str, str]
    facts: dict[str, Any]
    data: dict[str, dict[str, Any]]
    unreadable: list[str]
    load_report: dict[str, Any] | None
    metrics: "RunMetrics"
    seconds: float | None
    is_running: bool | None
    figures: dict[str, store.StoredFigures]
    notices: list[str]
    group: str = ""


def read_runs(folders: Sequence[Path]) -> list[ReportedRun]:
    """The runs in these folders; of a group of seeds all.

    Raises:
        UserError: one of them is no run's folder.
    """
    found = [
        (run, name if run != folder else "") for folder, name in zip(folders, _names(folders)) for run in _in(folder)
    ]
    names = _names([run for run, _ in found])
    return [read_run(run, name)._replace(group=group) for (run, group), name in zip(found, names)]


def _in(folder: Path) -> list[Path]:
    """The folder, or the folders of its seeds in their order."""
    seeds = [run for run in folder.glob("seed_*") if run.name[len("seed_") :].isdecimal() and _is_run(run)]
    if seeds and not _is_run(folder):
        return sorted(seeds, key=lambda run: int(run.name[len("seed_") :]))
    _require_run(folder)
    return [folder]


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in _SIGNS_OF_A_RUN)


def _require_run(folder: Path) -> None:
    try:
        names = set(os.listdir(folder))
    except OSError as error:
        raise UserError(f"report: {folder}: {error.strerror}; give the -output folder of a run") from error
    if not names.intersection(_SIGNS_OF_A_RUN):
        raise UserError(
            f"report: {folder} is no run's folder, it has no {METRICS}; give the -output folder of a training or an "
            "evaluation"
        )


def _names(folders: Sequence[Path]) -> list[str]:
    """As few last parts of the paths as tell them apart."""
    parts = [Path(os.path.abspath(folder)).parts for folder in folders]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    else:  # a folder given twice
        names = [f"{name} ({number})" for number, name in enumerate(names, start=1)]
    return [one_line(name) for name in names]


def read_run(folder: Path, name: str) -> ReportedRun:
    """Everything that a folder holds; what cannot be read is told in its notices."""
    notices: list[str] = []
    facts = _optional(folder, ("run.json", "eval_run.json"), read_json, notices)
    facts = facts if isinstance(facts, dict) else {}
    data = _read_data(facts)
    classes = [about["classes"] for about in data.values() if is_number(about.get("classes"))]
    metrics = RunMetrics()
    for event in _events(folder, notices):
        if classes and max(classes) < _FEWEST_FOR_TOP_5:
            event = {key: value for key, value in event.items() if key not in ("top-5", "top-5 count")}
        metrics.add(event)
    settings = _optional(folder, ("config.yaml", "eval_config.yaml"), read_yaml, notices)
    settings = flat(settings if isinstance(settings, dict) else {})
    trained = metrics.last is not None or (folder / "config.yaml").exists()
    report_of = ("load_report.json",) if trained else ("eval_load_report.json",)
    load_report = _optional(folder, report_of, read_json, notices)
    unreadable = _optional(folder, (_QUARANTINE,), lambda file: _read_quarantine(file.read_bytes()), notices)
    if metrics.left_out:
        notices.append(f"{metrics.left_out:,} more events are not listed")
    figures = _figures(folder, notices)
    if not figures:
        notices.append(_advice(folder))
    relative = _relative_to(facts.get("folder"), settings.get("DATA.DATA_PATH"))
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
        metrics.seconds(_find_start(facts)),
        is_running(folder),
        relative(figures),
        relative(notices),
    )


def _figures(folder: Path, notices: list[str]) -> dict[str, store.StoredFigures]:
    """Those of the training and those of an evaluation; of both, if these are the same, only the training's."""
    figures = {}
    for title, file in (("Training", store.TRAINING), ("Evaluation", store.EVALUATION)):
        if (folder / file).exists():
            try:
                figures[title] = store.load(folder / file)
            except (OSError, ValueError) as error:
                notices.append(one_line(f"{file} cannot be shown: {error}; evaluate again"))
    if len(figures) == 2 and figures["Training"].figures == figures["Evaluation"].figures:
        del figures["Evaluation"]
        notices.append("an evaluation after the training has the same figures; they are shown once")
    return figures


def _advice(folder: Path) -> str:
    """How to make the figures that a run lacks."""
    said = "this run holds no figures of what its model predicts"
    if not (folder / "checkpoints").is_dir():
        return said
    flags = [f"-cfg={folder / 'config.yaml'}", f"-pretrained={folder}", f"-output={folder}", "REPORT", "True"]
    return one_line(f"{said}; make them with: {shlex.join(['python', '-m', 'paddlevit_dist', 'evaluate', *flags])}")


def _read_data(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Read what the run has noted of each split: what it holds, number of classes, notes."""
    data = facts.get("data")
    return {one_line(k): v for k, v in data.items() if isinstance(v, dict)} if isinstance(data, dict) else {}


def _read_quarantine(content: bytes) -> list[str]:
    """The lines of ``quarantine.tsv``: path and reason of each sample that could not be read."""
    return [one_line(line.replace("\t", ": ")) for line in content.decode(errors="backslashreplace").splitlines()[1:]]


def _relative_to(folder: Any, data_path: Any) -> Callable[[Any], Any]:
    """A function that makes the paths in plain values relative to the folder that a run was started in, to that of its
    data and to the package's; what is elsewhere in somebody's home begins with "~"."""
    here = str(folder) if isinstance(folder, str) else os.getcwd()
    places = {os.path.join(here, data_path or ""), here, str(Path(__file__).parents[2])}
    longest_first = sorted((place.rstrip("/") for place in places), key=len, reverse=True)
    inside = re.compile(rf"(?<![\w./~-])(?:{'|'.join(map(re.escape, filter(None, longest_first)))})/")
    home = os.path.expanduser("~").rstrip("/") or "/root"  # it is / for users that a container does not know
    homes = re.compile(rf"(?<![\w./~-])(?:{re.escape(home)}|{_HOMES})(?![\w.-])")

    def relative(value: Any) -> Any:
        if isinstance(value, str):
            return homes.sub("~", inside.sub("", value))
        if isinstance(value, dict):
            return {relative(key): relative(part) for key, part in value.items()}
        if isinstance(value, store.StoredFigures):
            return store.StoredFigures(*map(relative, value))
        return list(map(relative, value)) if isinstance(value, list) else value

    return relative


def _find_start(facts: Any) -> float | None:
    """When the last session of a run began, in seconds since 1970."""
    try:
        return datetime.strptime(facts["started"], "%Y-%m-%d %H:%M:%S %z").timestamp()
    except (LookupError, TypeError, ValueError):
        return None


def _optional(folder: Path, names: Sequence[str], read: Any, notices: list[str]) -> Any:
    for name in names:
        if (folder / name).exists():
            try:
                return read(folder / name)
            except (OSError, ValueError) as error:
                notices.append(one_line(f"{name} cannot be read: {error}"))
    return None


def flat(tree: Mapping[str, Any]) -> dict[str, str]:
    """Values as text by full key, such as ``TRAIN.BASE_LR``."""
    return {one_line(name): one_line(value) for name, value in leaves(tree)}


# ---- metrics.jsonl -------------------------------------------------------------------------------------------


def _events(folder: Path, notices: list[str]) -> Iterator[dict[str, Any]]:
    if not (folder / METRICS).exists():
        notices.append(f"there is no {METRICS}, hence no curves")
    try:
        for event in recorded_events(folder):
            yield {**event, "text": event["text"][:_LONGEST_TEXT]} if event["kind"] == "unreadable" else event
    except OSError as error:
        notices.append(one_line(f"{METRICS} cannot be read: {error.strerror}"))


class RunMetrics:
    """Events sorted into curves and a list of what happened.

    Attributes:
        training: points (update, value) by name.
        evaluations: of given weights, without an epoch: their events.
        events: what happened, in order: interruptions, resumptions, superseded evaluations, unreadable lines.
        last: the last event of the training; None: there is none.
        best: "name", "value" and "epoch" of the best evaluation of the training, and "interval", its ends, with
            "percent", where it has one; None: unknown.
    """

    def __init__(self) -> None:
        self.training: dict[str, Points] = {}
        self.evaluations: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.left_out = 0
        self.last: dict[str, Any] | None = None
        self.best: dict[str, Any] | None = None
        self._of_epochs: list[dict[str, Any]] = []
        self._sessions: list[list[float]] = []  # first and last time of each, from one start to the next
        self._last_updates: dict[int, int] = {}  # of each epoch

    def add(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind != "unreadable" and "epoch" in event:  # what evaluations of its weights add later has none
            self.last = event
            self._count_time(event)
        if event.get("superseded"):
            if kind == "evaluation":
                self._note_event(event)
        elif kind == "training":
            update = event.get("update")
            if is_number(update):
                epoch = event.get("epoch")
                if isinstance(epoch, int):
                    self._last_updates[epoch] = update
                for name, value in find_measured(event):
                    self.training.setdefault(name, []).append((update, value))
        elif kind == "evaluation" and is_number(event.get("epoch")):
            self._of_epochs.append(event)
            name = event.get("best")
            if isinstance(name, str) and is_number(event.get(name)):
                self.best = {"name": name, "value": event[name], "epoch": event["epoch"], **get_interval(event, name)}
        elif kind == "evaluation":
            self.evaluations.append(event)
        elif kind not in ("epoch", "evaluation_without_average"):
            self._note_event(event)

    def _note_event(self, event: dict[str, Any]) -> None:
        if len(self.events) < _MOST_EVENTS:
            self.events.append(event)
        else:
            self.left_out += 1

    def _count_time(self, event: dict[str, Any]) -> None:
        now = event.get("time")
        if not is_number(now) or event.get("reason") == FOUND_LATER:
            return
        if event["kind"] == "resume" or not self._sessions:
            self._sessions.append([now, now])
        self._sessions[-1][1] = max(now, self._sessions[-1][1])

    def seconds(self, started: float | None) -> float | None:
        """That the run has trained, or evaluated where nothing was trained.

        Args:
            started: when its last session began, somewhat before its first event.
        """
        sessions = [list(session) for session in self._sessions]
        if not sessions and self.evaluations and is_number(self.evaluations[-1].get("time")):
            sessions = [[self.evaluations[-1]["time"]] * 2]
        if not sessions or (started is None and len(sessions) == 1 and not self._sessions):
            return None
        before = sessions[-2][1] if len(sessions) > 1 else 0.0
        if started is not None and before <= started <= sessions[-1][0]:
            sessions[-1][0] = started
        return sum(last - first for first, last in sessions)

    @property
    def evaluation(self) -> dict[str, Points]:
        """Evaluations at the last update of their epochs, as far as these are known."""
        found: dict[str, Points] = {}
        for event in self._of_epochs:
            place = self._place(event["epoch"])
            for name, value in find_measured(event):
                found.setdefault(name, []).append((place, value))
        return found

    def _place(self, epoch: float) -> float:
        if epoch in self._last_updates:
            return self._last_updates[int(epoch)]
        if not self._last_updates:
            return epoch
        known = max(self._last_updates)
        return epoch * self._last_updates[known] / max(known, 1)


def find_measured(event: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Finite numbers of an event that are results."""
    for name, value in event.items():
        if name not in _NOT_MEASURED and is_number(value):
            yield one_line(name), float(value)


def get_interval(event: Mapping[str, Any], name: str) -> dict[str, Any]:
    """ "interval", the two ends of a value of an evaluation, and its "percent"; empty where it has none."""
    about = event.get("interval")
    about = about if isinstance(about, dict) else {}
    ends = about.get(name)
    if not (isinstance(ends, list) and len(ends) == 2 and all(map(is_number, [*ends, about.get("percent")]))):
        return {}
    return {"interval": tuple(ends), "percent": about["percent"]}


def is_number(value: Any) -> bool:
    """Whether it is a finite number, of a size that can be drawn."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and abs(value) < 1e300
    )
