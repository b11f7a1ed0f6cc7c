"""``-seeds=N``: train with several seeds, one after another or one on each visible GPU, each by a ``train`` command."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from ...core.launch import devices, plan_processes, training_commands
from ...core.launch.lock import lock_output_dir
from ...core.logging.progress import write_line
from ...core.logging.record import SEEDS, output_folder
from ...core.logging.restarts import RestartCount, format_reason
from ...core.runtime import signals
from ...core.runtime.errors import Stopped, UserError
from ...core.runtime.metrics_file import recorded_events
from ...core.runtime.printing import one_line
from ...core.runtime.text_files import read_yaml
from ...core.settings import Configuration
from ...core.settings.command_line import remove_keys
from . import groups
from .formatting import align_columns, count_decimals, format_interval, format_number
from .groups import FAILED, FINISHED, UNDEFINED, UNFINISHED, SeedGroup
from .settings import CompareSettings
from .significance import PERCENT

_POLL_SECONDS = 0.1
_PER_SEED = ("SEEDS", "SEED", "SAVE", "MODEL.RESUME")  # keys that differ for each seed
REPEAT = "repeat the command to continue"


def run(configuration: Configuration) -> None:
    """Train with each seed, and print and write the scores.

    Raises:
        UserError: if the seeds cannot be trained in this folder, or a seed has failed; the others are trained.
        Stopped: if the user has requested a stop; each running seed has saved a checkpoint.
    """
    config = cast(CompareSettings, configuration.values)
    path = (
        config.SAVE
        if configuration.sources["SAVE"] != "default"
        else str(Path(config.SAVE, f"{configuration.recipe}_seeds"))
    )
    if devices.is_launched():
        raise UserError(f"-seeds={config.SEEDS} starts its own processes: run the command without the launcher")
    gpus = assign_gpus(plan_processes(config.NGPUS, device=config.DEVICE))
    with output_folder(path, records=(SEEDS,)) as folder, lock_output_dir(folder, write_line, is_evaluation=False):
        group = begin_group(config, str(folder))
        waiting = [row for row in group.seeds if row["state"] != FINISHED]
        done = len(group.seeds) - len(waiting)
        status = f"{done} of {len(group.seeds)} seeds are finished in {folder}" if done else f"seeds in {folder}"
        write_line(f"{status}: training {len(waiting)}, {max(min(len(gpus), len(waiting)), 1)} at a time")
        train_seeds(group, waiting, remove_keys(configuration.argv, _PER_SEED), gpus)
        group.write()
        for line in format_group(group):
            write_line(line)
    failed = [f"{row['seed']} (exit code {row['code']})" for row in group.seeds if row["state"] == FAILED]
    if failed:
        reason = format_reason(Path(path, row["folder"]) for row in group.seeds if row["state"] == FAILED)
        raise UserError(f"failed: seed {', '.join(failed)}: {reason}see log.txt in the folder of each; {REPEAT}")


def assign_gpus(plan: devices.ProcessPlan) -> list[str | None]:
    """Return CUDA_VISIBLE_DEVICES for each concurrent training run: a visible GPU for each run of one process.

    Otherwise there is one run at a time, with an unchanged environment (None).
    """
    visible = devices.count_gpus() if plan.uses_gpu else 0
    if plan.processes > 1 or visible < 2:
        return [None]
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = names.split(",")[:visible] if names else map(str, range(visible))
    return [gpu.strip() for gpu in gpus]


def train_seeds(group: SeedGroup, waiting: list[dict[str, Any]], words: Sequence[str], gpus: list[str | None]) -> None:
    """Train these seeds; raise a UserError if the first does not start, and ``Stopped`` on request."""
    waiting, gpus = list(waiting), gpus[: max(len(waiting), 1)]
    running: dict[str | None, tuple[subprocess.Popen, dict[str, Any]]] = {}
    restarts = {row["seed"]: RestartCount(Path(group.run, row["folder"])) for row in waiting}
    stop_reason: str | None = None
    signals.record_only_as_parent()
    try:
        while running or (waiting and not stop_reason):
            for place, gpu in enumerate(gpus):
                if waiting and gpu not in running and not stop_reason:
                    row = waiting.pop(0)
                    running[gpu] = start_seed(group, row, words, gpu, place / len(gpus), (place + 1) / len(gpus)), row
            time.sleep(_POLL_SECONDS)
            training_commands.forward_requests(child for child, _ in running.values())
            ended = {device: (child, entry) for device, (child, entry) in running.items() if child.poll() is not None}
            if not stop_reason:
                stopped = [entry["seed"] for child, entry in ended.values() if child.returncode == signals.STOPPED]
                stop_reason = signals.stop_reason() or (f"seed {stopped[0]} was" if stopped else None)
                for process, _ in running.values() if stop_reason else ():
                    process.terminate()  # it saves a checkpoint
            for gpu, (process, row) in ended.items():
                del running[gpu]
                if not stop_reason and restarts[row["seed"]].is_due(process.returncode, f"seed {row['seed']}"):
                    waiting.insert(0, row)
                    continue
                record_end(group, row, process.returncode, bool(stop_reason), bool(running))
    finally:
        training_commands.kill(child for child, _ in running.values())
    left = sum(entry["state"] != FINISHED for entry in group.seeds)
    if stop_reason and left:
        message = f"{left} of {len(group.seeds)} seeds of {group.run} are unfinished, and their checkpoints are saved"
        raise Stopped(stop_reason, f"{message}; {REPEAT}")


def start_seed(
    group: SeedGroup, row: dict[str, Any], words: Sequence[str], gpu: str | None, low: float, high: float
) -> subprocess.Popen:
    """Start the training run of a seed.

    Args:
        group: all seeds.
        row: of this seed.
        words: command line without the keys of the seed.
        gpu: CUDA_VISIBLE_DEVICES; the output goes to ``log.txt`` only. None: unchanged, with output on the terminal.
        low: start of its share of the CPU cores, 0 to 1.
        high: end of its share.
    """
    folder = os.path.join(group.run, row["folder"])
    seed_words = [f"-output={folder}", f"-seed={row['seed']}", "-resume=auto", "SEEDS=None"]
    variables = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu, "TERM": "dumb"}  # without bars
    write_line(f"seed {row['seed']}: {folder}" + ("" if gpu is None else f", GPU {gpu}: see log.txt there"))
    output = None if gpu is None else subprocess.DEVNULL
    process = training_commands.start([*words, *seed_words], variables, output)
    if gpu is not None and hasattr(os, "sched_setaffinity"):  # before it starts threads
        cores = sorted(os.sched_getaffinity(0))
        share = cores[int(low * len(cores)) : int(high * len(cores))]
        os.sched_setaffinity(process.pid, share or cores)
    return process


def record_end(group: SeedGroup, row: dict[str, Any], code: int, is_stopped: bool, are_others: bool) -> None:
    """Record the end of a training run in the group's file, and log it."""
    row.update(read_row(group.run, row["seed"], group.about["score"]))
    row["state"] = FINISHED if code == 0 else UNFINISHED if is_stopped else FAILED
    if row["state"] == FAILED:
        row["code"] = code
        if not are_others and not any(Path(group.run, other["folder"]).exists() for other in group.seeds):
            raise UserError(f"seed {row['seed']} did not start (see the error above); no other seed was started")
    group.write()
    value = format_interval(row, count_decimals([row["value"]])) if "value" in row else ""
    shown = value or (UNDEFINED if row["state"] == FINISHED else "")
    score = [f"{group.about['score']} {shown}"] if shown else []
    write_line(f"seed {row['seed']}: {', '.join([row['state'], *score])}")


def begin_group(config: CompareSettings, folder: str) -> SeedGroup:
    """Build the group of the requested seeds from its folder, unless that contains something else."""
    from ...core.checkpoint.finding import existing_run_error, holds_any
    from ...core.engine.compatibility import altering, compare, facts_from_settings, to_plain_settings
    from ...core.tasks.task_factory import make_task

    if holds_any(Path(folder, "checkpoints")) or Path(folder, "run.json").exists():
        raise existing_run_error(folder)
    score, more_is_better = make_task(config).best_metric
    settings = to_plain_settings(config)
    if groups.is_group(folder):
        begun = facts_from_settings(groups.read_group(folder).about["settings"])
        changed = altering(compare("resume", begun, facts_from_settings(settings)))
        if changed and not config.ALLOW_CHANGES:
            raise UserError(
                f"-output={folder} contains seeds of another configuration: {changed}: choose another -output, or "
                "restore these settings"
            )
    about = {"task": config.TASK, "dataset": str(config.DATA.DATASET), "score": score}
    rows = [read_row(folder, seed, score) for seed in range(config.SEED, config.SEED + (config.SEEDS or 0))]
    return SeedGroup(folder, {**about, "more_is_better": more_is_better, "settings": settings}, rows)


def read_row(folder: str, seed: int, score: str) -> dict[str, Any]:
    """Read state and best score from the folder of a seed; see ``SeedGroup.seeds``."""
    seed_folder = Path(folder, f"seed_{seed}")
    state = FINISHED if is_finished(seed_folder) else UNFINISHED
    return {"seed": seed, "folder": seed_folder.name, "state": state, **groups.find_best(seed_folder, score)}


def is_finished(folder: Path) -> bool:
    """Return whether a run has evaluated its last epoch. Runs that stopped early may continue, and are unfinished."""
    try:
        epochs = read_yaml(folder / "config.yaml")["TRAIN"]["NUM_EPOCHS"]
        events = list(recorded_events(folder))
    except (OSError, ValueError, LookupError, TypeError):
        return False
    evaluated = [event.get("epoch") for event in events if event["kind"] == "evaluation" and "superseded" not in event]
    return epochs in evaluated


def format_group(group: SeedGroup) -> list[str]:
    """Format the scores of a group as a table, with their summary."""
    values = [entry["value"] for entry in group.seeds if "value" in entry]
    decimals = count_decimals(values)
    rows = [["seed", f"best {group.about['score']}", "epoch", ""]]
    for row in group.seeds:
        is_finished = row["state"] == FINISHED
        best = [UNDEFINED if is_finished else "", ""]
        if "value" in row:
            best = [format_interval(row, decimals), str(row["epoch"])]
        rows.append([str(row["seed"]), *best, "" if is_finished else row["state"]])
    lines = ["", *map(one_line, align_columns(rows))]
    scores, undefined = group.scores, group.undefined
    if not scores:
        return (
            [*lines, f"best {group.about['score']}: {UNDEFINED} in any of {undefined} seed(s)"] if undefined else lines
        )
    left_out = f", without {undefined} where it is {UNDEFINED}" if undefined else ""
    summary = groups.format_summary(scores, decimals)
    lines.append(f"best {group.about['score']} of {len(scores)} seed(s){left_out}: {summary}")
    if len(scores) > 1:
        noise = groups.clip_to_range(groups.find_range(group), 0.0, groups.compute_noise(scores), True)[1]
        lines.append(
            f"by chance alone the means of two such groups differ by up to {format_number(noise, decimals)} "
            f"({PERCENT} % of pairs) on these samples; other samples are not in it"
            if noise
            else "all seeds have the same score, so it is not known how far two such groups differ by chance"
        )
    return [*lines, f"written to {Path(group.run, SEEDS)}; 'compare' sets two groups side by side, 'report' draws one"]
