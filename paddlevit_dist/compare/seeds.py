"""``-seeds=N``: the same training with several seeds, each a process as a user would start it, in its own folder: one
after another, or one on each visible GPU."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ..launch import devices, plan_processes, tuning
from ..launch.lock import lock_output_dir
from ..logging.progress import write_line
from ..logging.record import SEEDS, output_folder
from ..runtime import signals
from ..runtime.environment import ROOT
from ..runtime.errors import Stopped, UserError
from ..runtime.metrics_file import recorded_events
from ..runtime.printing import one_line
from ..runtime.text_files import read_yaml
from ..settings import Configuration
from ..settings.command_line import remove_keys
from . import groups
from .formatting import columns, count_decimals, ends, number
from .groups import FAILED, FINISHED, UNFINISHED, SeedGroup
from .settings import CompareSettings

_POLL_SECONDS = 0.1
_OWN = ("SEEDS", "SEED", "SAVE", "MODEL.RESUME")  # of the group; each seed gets its own
_RESUMES = "the same command continues"


def run(given: Configuration) -> None:
    """Train with each seed, and print and write what they have reached.

    Raises:
        UserError: this cannot be done here or in this folder, or a seed has failed; the others are trained.
        Stopped: the user asked to stop; each training at work has saved.
    """
    config = cast(CompareSettings, given.values)
    path = config.SAVE if given.sources["SAVE"] != "default" else str(Path(config.SAVE, f"{given.recipe}_seeds"))
    if devices.is_launched():
        raise UserError(
            f"-seeds={config.SEEDS}: a launcher has started this process; -seeds starts its own: leave the launcher out"
        )
    gpus = assign_gpus(plan_processes(config.NGPUS, device=config.DEVICE))
    with output_folder(path, records=(SEEDS,)) as folder, lock_output_dir(folder, write_line, is_evaluation=False):
        group = _begin_group(config, str(folder))
        waiting = [row for row in group.seeds if row["state"] != FINISHED]
        done = len(group.seeds) - len(waiting)
        said = f"{done} of {len(group.seeds)} seeds are finished in {folder}" if done else f"seeds in {folder}"
        write_line(f"{said}: training {len(waiting)}, {max(min(len(gpus), len(waiting)), 1)} at a time")
        _train(group, waiting, remove_keys(given.argv, _OWN), gpus)
        group.write()
        for line in format_group(group):
            write_line(line)
    failed = [f"{row['seed']} (exit code {row['code']})" for row in group.seeds if row["state"] == FAILED]
    if failed:
        raise UserError(f"failed: seed {', '.join(failed)}: see log.txt in the folder of each; {_RESUMES} them")


def assign_gpus(plan: devices.ProcessPlan) -> list[str | None]:
    """Say what CUDA_VISIBLE_DEVICES is in each of the trainings that run side by side: each visible GPU, where a
    training is one process; else one training has them as they are (None)."""
    visible = devices.count_gpus() if plan.uses_gpu else 0
    if plan.processes > 1 or visible < 2:
        return [None]
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [name.strip() for name in named.split(",")][:visible] if named else [str(gpu) for gpu in range(visible)]


def _train(group: SeedGroup, waiting: list[dict[str, Any]], words: Sequence[str], gpus: list[str | None]) -> None:
    """Train these seeds.

    Raises:
        UserError: the first one could not even begin.
        Stopped: the user asked to stop.
    """
    waiting, gpus = list(waiting), gpus[: max(len(waiting), 1)]
    running: dict[str | None, tuple[subprocess.Popen, dict[str, Any]]] = {}
    reason: str | None = None  # to stop
    signals.supervise()
    try:
        while running or (waiting and not reason):
            for place, gpu in enumerate(gpus):
                if waiting and gpu not in running and not reason:
                    row = waiting.pop(0)
                    running[gpu] = _start(group, row, words, gpu, place / len(gpus), (place + 1) / len(gpus)), row
            time.sleep(_POLL_SECONDS)
            if signals.interrupts() > 1:
                raise signals.ProcessInterrupted(signal.SIGINT, again=True)
            ended = {gpu: one for gpu, one in running.items() if one[0].poll() is not None}
            stopped = next(
                (row["seed"] for process, row in ended.values() if process.returncode == signals.STOPPED), None
            )
            if not reason:
                reason = signals.stop_reason() or (None if stopped is None else f"seed {stopped} was")
                for process, _ in running.values() if reason else ():
                    process.terminate()  # it saves; a terminal has asked it, too
            for gpu, (process, row) in ended.items():
                del running[gpu]
                _note(group, row, process.returncode, bool(reason), bool(running))
    finally:
        for process, _ in running.values():
            process.kill()
    left = sum(row["state"] != FINISHED for row in group.seeds)
    if reason and left:
        said = f"{left} of {len(group.seeds)} seeds of {group.run} are unfinished, what they have trained is saved"
        raise Stopped(reason, f"{said}; {_RESUMES} them")


def _start(
    group: SeedGroup, row: dict[str, Any], words: Sequence[str], gpu: str | None, low: float, high: float
) -> subprocess.Popen:
    """The training of a seed, on this GPU with its share of the cores, from ``low`` to ``high``; alone in its terminal
    (None), else with what it says in its ``log.txt``."""
    folder = os.path.join(group.run, row["folder"])
    own_words = [f"-output={folder}", f"-seed={row['seed']}", "-resume=auto", "SEEDS=None"]
    variables = tuning.without_tuning(os.environ)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), str(ROOT)]))
    variables.update({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu, "TERM": "dumb"})  # without bars
    write_line(f"seed {row['seed']}: {folder}" + ("" if gpu is None else f", GPU {gpu}: see log.txt there"))
    command = [sys.executable, "-m", "paddlevit_dist", "train", *words, *own_words]
    output = None if gpu is None else subprocess.DEVNULL
    with signals.blocked():  # until it handles them itself
        process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=output)
    if gpu is not None and hasattr(os, "sched_setaffinity"):  # before it has started any thread
        cores = sorted(os.sched_getaffinity(0))
        share = cores[int(low * len(cores)) : int(high * len(cores))]
        os.sched_setaffinity(process.pid, share or cores)
    return process


def _note(group: SeedGroup, row: dict[str, Any], code: int, is_stopped: bool, are_others: bool) -> None:
    """Note how a training has ended."""
    row.update(_row(group.run, row["seed"], group.about["score"]))
    row["state"] = FINISHED if code == 0 else UNFINISHED if is_stopped else FAILED
    if row["state"] == FAILED:
        row["code"] = code
        if not are_others and not any(Path(group.run, other["folder"]).exists() for other in group.seeds):
            raise UserError(f"seed {row['seed']} did not begin, as the line above says; no other was started")
    group.write()
    score = [f"{group.about['score']} {ends(row, count_decimals([row['value']]))}"] if "value" in row else []
    write_line(f"seed {row['seed']}: {', '.join([row['state'], *score])}")


def _begin_group(config: CompareSettings, folder: str) -> SeedGroup:
    """The group as its folder has it, with the seeds that are asked for now; nothing is written yet.

    Raises:
        UserError: the folder holds something else, or a group with other settings.
    """
    from ..checkpoint.finding import existing_run_error, holds_any
    from ..engine.compatibility import altering, compare, facts_from_settings, to_plain_settings
    from ..tasks.task import make_task

    if holds_any(Path(folder, "checkpoints")) or Path(folder, "run.json").exists():
        raise existing_run_error(folder)
    score, more_is_better = make_task(config).best_metric
    settings = to_plain_settings(config)
    if groups.is_group(folder):
        begun = facts_from_settings(groups.read_group(folder).about["settings"])
        changed = altering(compare("resume", begun, facts_from_settings(settings)))
        if changed and not config.ALLOW_CHANGES:
            raise UserError(
                f"-output={folder} holds seeds of another configuration: {changed}: choose another "
                "-output, or set these back"
            )
    described = {"task": config.TASK, "dataset": str(config.DATA.DATASET), "score": score}
    rows = [_row(folder, seed, score) for seed in range(config.SEED, config.SEED + (config.SEEDS or 0))]
    return SeedGroup(folder, {**described, "more_is_better": more_is_better, "settings": settings}, rows)


def _row(folder: str, seed: int, score: str) -> dict[str, Any]:
    """Read what the folder of a seed says; see ``SeedGroup.seeds``."""
    own_folder = Path(folder, f"seed_{seed}")
    state = FINISHED if _is_done(own_folder) else UNFINISHED
    return {"seed": seed, "folder": own_folder.name, "state": state, **groups.find_best(own_folder, score)}


def _is_done(folder: Path) -> bool:
    """Whether a training has evaluated its last epoch. One that has ended early is asked, as it may go on by now."""
    try:
        epochs = read_yaml(folder / "config.yaml")["TRAIN"]["NUM_EPOCHS"]
        events = list(recorded_events(folder))
    except (OSError, ValueError, LookupError, TypeError):
        return False
    evaluated = [one.get("epoch") for one in events if one["kind"] == "evaluation" and "superseded" not in one]
    return epochs in evaluated


def format_group(group: SeedGroup) -> list[str]:
    """The table of a group, and what follows from it."""
    values = [row["value"] for row in group.seeds if "value" in row]
    decimals = count_decimals(values)
    rows = [["seed", f"best {group.about['score']}", "epoch", ""]]
    for row in group.seeds:
        found = [ends(row, decimals), str(row["epoch"])] if "value" in row else ["", ""]
        rows.append([str(row["seed"]), *found, "" if row["state"] == FINISHED else row["state"]])
    lines = ["", *map(one_line, columns(rows))]
    scores = group.scores
    if not scores:
        return lines
    lines.append(f"best {group.about['score']} of {len(scores)} seed(s): {groups.format_summary(scores, decimals)}")
    if len(scores) > 1:
        reach = number(groups.inside(group.about["score"], 0.0, groups.noise(scores))[1], decimals)
        lines.append(
            f"by chance alone the means of two such groups differ by up to {reach} ({groups.PERCENT} % of pairs)"
        )
    return [*lines, f"written to {Path(group.run, SEEDS)}; 'compare' sets two groups side by side, 'report' draws one"]
