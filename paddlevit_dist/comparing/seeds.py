"""``-seeds=N``: the same training with several seeds, each a process as a user would start it, in its own folder."""

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..config import Configuration
from ..config.command_line import without
from ..observe.lock import own
from ..observe.progress import write_line
from ..observe.record import SEEDS, output_folder, recorded_events
from ..parallel import devices, plan_processes, tuning
from ..runtime import signals
from ..runtime.environment import ROOT
from ..runtime.errors import Stopped, UserError
from ..runtime.printing import one_line
from ..runtime.text_files import read_yaml
from . import groups
from .groups import FAILED, FINISHED, UNFINISHED, Group
from .telling import columns, decimals_of, ends, number

_POLL_SECONDS = 0.1
_LAST_LINES_SECONDS = 5.0  # for what a training has said last; what it has left running may hold the pipe for longer
_OWN = ("SEEDS", "SEEDS_AT_ONCE", "SEED", "SAVE", "MODEL.RESUME")  # of the group; each seed gets its own
_RESUMES = "the same command continues"


class Place(NamedTuple):
    """What one of the trainings side by side has for itself: CUDA_VISIBLE_DEVICES (None: as it is) and cores."""

    visible: str | None
    cores: set[int]


def run(given: Configuration) -> None:
    """Train with each seed, and print and write what they have reached.

    Raises:
        UserError: this cannot be done here or in this folder, or a seed has failed; the others are trained.
        Stopped: the user asked to stop; each training at work has saved.
    """
    config = given.values
    path = config.SAVE if given.sources["SAVE"] != "default" else str(Path(config.SAVE, f"{given.recipe}_seeds"))
    if devices.is_launched():
        raise UserError(
            f"-seeds={config.SEEDS}: a launcher has started this process; -seeds starts its own: leave the launcher out"
        )
    plan = plan_processes(config.NGPUS)
    places = places_of(config, plan.processes, devices.count_gpus() if plan.uses_gpu else 0)
    with output_folder(path, records=(SEEDS,)) as folder, own(folder, write_line, is_evaluation=False):
        group = _begun(given.values, str(folder))
        waiting = [row for row in group.seeds if row["state"] != FINISHED]
        done = len(group.seeds) - len(waiting)
        said = f"{done} of {len(group.seeds)} seeds are finished in {folder}" if done else f"seeds in {folder}"
        write_line(f"{said}: training {len(waiting)}, {min(len(places), max(len(waiting), 1))} at a time")
        _Runs(group, given.argv, places).train(waiting)
        for line in lines_of(group):
            write_line(line)
    failed = [f"{row['seed']} (exit code {row['code']})" for row in group.seeds if row["state"] == FAILED]
    if failed:
        raise UserError(f"failed: seed {', '.join(failed)}: see log.txt in the folder of each; {_RESUMES} them")


def places_of(config: Any, processes: int, gpus: int) -> list[Place]:
    """A place for each of the trainings that run side by side.

    Args:
        processes: of each training.
        gpus: that are visible; 0 on a CPU.
    Raises:
        UserError: SEEDS_AT_ONCE asks for more than there is.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    most = (gpus or devices.cpu_cores()) // processes
    asked = config.SEEDS_AT_ONCE or (most if gpus else 1)
    if asked > max(most, 1):
        what = f"{gpus} visible GPU(s)" if gpus else f"{devices.cpu_cores()} core(s)"
        raise UserError(
            f"SEEDS_AT_ONCE {asked}: {asked} trainings of {processes} process(es) each do not fit on {what}: lower it "
            "or -ngpus"
        )
    number = min(asked, config.SEEDS)
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = [name.strip() for name in named.split(",")] if named else [str(index) for index in range(gpus)]
    shares = [set(cores[place * len(cores) // number : (place + 1) * len(cores) // number]) for place in range(number)]
    if not gpus or number == 1:
        return [Place(None, share) for share in shares]
    return [
        Place(",".join(visible[place * processes : (place + 1) * processes]), share)
        for place, share in enumerate(shares)
    ]


def _begun(config: Any, folder: str) -> Group:
    """The group as its folder has it, with the seeds that are asked for now.

    Raises:
        UserError: the folder holds something else, or a group with other settings.
    """
    from ..checkpoint.finding import another_run, holds_any
    from ..contracts.task import make_task
    from ..engine import about

    if holds_any(Path(folder, "checkpoints")) or Path(folder, "run.json").exists():
        raise another_run(folder)
    score, more_is_better = make_task(config).best_metric
    settings = about.settings_of(config)
    if groups.is_group(folder):
        changes = about.changed_settings(groups.read_group(folder).about["settings"], settings)
        altering = [f"{c.name} {about.shown(c.before)} -> {about.shown(c.now)}" for c in changes if c.alters]
        if altering and not config.ALLOW_CHANGES:
            raise UserError(
                f"-output={folder} holds seeds of another configuration: {'; '.join(altering)}: choose another "
                "-output, or set these back"
            )
    described = {"task": config.TASK, "dataset": str(config.DATA.DATASET), "score": score}
    rows = [_row(folder, seed, score) for seed in range(config.SEED, config.SEED + config.SEEDS)]
    group = Group(folder, {**described, "more_is_better": more_is_better, "settings": settings}, rows)
    group.write()
    return group


def _row(folder: str, seed: int, score: str) -> dict[str, Any]:
    """What the folder of a seed says; see ``Group.seeds``."""
    own_folder = Path(folder, f"seed_{seed}")
    state = FINISHED if _is_done(own_folder) else UNFINISHED
    return {"seed": seed, "folder": own_folder.name, "state": state, **groups.best_of(own_folder, score)}


def _is_done(folder: Path) -> bool:
    """Whether a training has evaluated its last epoch. One that has ended early is asked, as it may go on by now."""
    try:
        epochs = read_yaml(folder / "config.yaml")["TRAIN"]["NUM_EPOCHS"]
        events = list(recorded_events(folder))
    except (OSError, ValueError, LookupError, TypeError):
        return False
    evaluated = [one.get("epoch") for one in events if one["kind"] == "evaluation" and "superseded" not in one]
    return epochs in evaluated


class _Running(NamedTuple):
    """A training at work: its process, its row of the group, what repeats its lines, and when it was started."""

    process: subprocess.Popen
    row: dict[str, Any]
    reader: threading.Thread | None
    began: float


class _Runs:
    """The processes of a group.

    Args:
        argv: the command line of the group.
        places: as many as trainings run side by side.
    """

    def __init__(self, group: Group, argv: Sequence[str], places: list[Place]) -> None:
        self._group, self._places = group, places
        self._words = without(argv, _OWN)
        self._running: dict[int, _Running] = {}  # by the number of its place
        self._seconds: list[float] = []  # that each seed has taken
        self._stop_reason = ""  # empty as long as nobody asks

    def train(self, waiting: list[dict[str, Any]]) -> None:
        """Train these seeds.

        Raises:
            UserError: the first one could not even begin.
            Stopped: the user asked to stop.
        """
        waiting = list(waiting)
        signals.supervise()
        try:
            while self._running or (waiting and not self._stop_reason):
                for place in range(len(self._places)):
                    if waiting and place not in self._running and not self._stop_reason:
                        self._start(place, waiting.pop(0))
                time.sleep(_POLL_SECONDS)
                self._pass_on()
                for place, running in list(self._running.items()):
                    if running.process.poll() is not None:
                        self._end(place, waiting)
        finally:
            for running in self._running.values():
                running.process.kill()
        left, group = sum(row["state"] != FINISHED for row in self._group.seeds), self._group
        if self._stop_reason and left:
            said = f"{left} of {len(group.seeds)} seeds of {group.run} are unfinished, what they have trained is saved"
            raise Stopped(self._stop_reason, f"{said}; {_RESUMES} them")

    def _start(self, place: int, row: dict[str, Any]) -> None:
        seed, (visible, cores) = row["seed"], self._places[place]
        folder = os.path.join(self._group.run, row["folder"])
        own_words = [f"-output={folder}", f"-seed={seed}", "-resume=auto", "SEEDS=None", "SEEDS_AT_ONCE=None"]
        command = [sys.executable, "-m", "paddlevit_dist", "train", *self._words, *own_words]
        variables = tuning.before(os.environ)
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), str(ROOT)]))
        variables.update({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
        write_line(f"seed {seed}: {folder}" + (f", GPU {visible}" if visible else ""))
        is_alone = len(self._places) == 1  # then the terminal is its own, with its bars
        streams: dict[str, Any] = {} if is_alone else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with _on_cores(cores), signals.held():  # until it handles them itself
            process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, **streams)
        reader = None if is_alone else threading.Thread(target=_repeat, args=(process, seed), daemon=True)
        if reader is not None:
            reader.start()
        self._running[place] = _Running(process, row, reader, time.monotonic())

    def _pass_on(self) -> None:
        """Ask all trainings to save and end, once, if this process is asked to. A terminal has asked them, too."""
        if signals.interrupts() > 1:
            raise signals.Interrupted(signal.SIGINT, again=True)
        if not self._stop_reason and signals.number() is not None:
            self._stop(str(signals.asked()))

    def _stop(self, reason: str) -> None:
        self._stop_reason = reason
        for running in self._running.values():
            running.process.terminate()

    def _end(self, place: int, waiting: list[dict[str, Any]]) -> None:
        """Note how a training has ended."""
        process, row, reader, began = self._running.pop(place)
        if reader is not None:
            reader.join(_LAST_LINES_SECONDS)
        seed, code, group = row["seed"], process.returncode, self._group
        is_stopped = self._stop_reason or code == signals.STOPPED  # one that has saved may end by a second SIGTERM
        state = FINISHED if code == 0 else UNFINISHED if is_stopped else FAILED
        row.update({**_row(group.run, seed, group.about["score"]), "state": state})
        if state == FAILED:
            row["code"] = code
        folders = [Path(group.run, other["folder"]) for other in group.seeds]
        if state == FAILED and not self._running and not any(folder.exists() for folder in folders):
            Path(group.run, SEEDS).unlink()
            raise UserError(f"seed {seed} did not begin, as the line above says; no other was started")
        group.write()
        if code == signals.STOPPED and not self._stop_reason:
            self._stop(f"seed {seed} was")
        if state == FINISHED:
            self._seconds.append(time.monotonic() - began)
        write_line(f"seed {seed}: {_told(row, group)}{self._remaining(waiting)}")

    def _remaining(self, waiting: list[dict[str, Any]]) -> str:
        from ..engine.reports import duration

        if not waiting or not self._seconds or self._stop_reason:
            return ""
        rounds = -(-len(waiting) // len(self._places))
        left = duration(rounds * statistics.fmean(self._seconds))
        return f"; {len(waiting)} to begin, about {left} for them"


def _repeat(process: subprocess.Popen, seed: int) -> None:
    """Print what a training says, with its seed before each line."""
    for line in process.stdout or ():
        write_line(f"seed {seed}: {line.decode(errors='backslashreplace').rstrip()}")


@contextlib.contextmanager
def _on_cores(cores: set[int]) -> Any:
    """What is started inside has these cores alone, from whose number its threads and loader processes follow."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# ---- what is told ----------------------------------------------------------------------------------------------------


def _told(row: dict[str, Any], group: Group) -> str:
    if "value" not in row:
        return row["state"]
    best = f"{group.about['score']} {ends(row, decimals_of([row['value']]))}, epoch {row['epoch']}"
    return best if row["state"] == FINISHED else f"{row['state']}: {best}"


def lines_of(group: Group) -> list[str]:
    """The table of a group, and what follows from it."""
    values = [row["value"] for row in group.seeds if "value" in row]
    decimals = decimals_of(values)
    rows = [["seed", f"best {group.about['score']}", "epoch", ""]]
    for row in group.seeds:
        found = [ends(row, decimals), str(row["epoch"])] if "value" in row else ["", ""]
        rows.append([str(row["seed"]), *found, "" if row["state"] == FINISHED else row["state"]])
    lines = ["", *map(one_line, columns(rows))]
    scores = group.scores
    if not scores:
        return lines
    lines.append(f"best {group.about['score']} of {len(scores)} seed(s): {groups.in_words(scores, decimals)}")
    if len(scores) > 1:
        reach = number(groups.inside(group.about["score"], 0.0, groups.noise(scores))[1], decimals)
        lines.append(
            f"by chance alone the means of two such groups differ by up to {reach} ({groups.PERCENT} % of pairs)"
        )
    return [*lines, f"written to {Path(group.run, SEEDS)}; 'compare' sets two groups side by side, 'report' draws one"]
