"""``search``: train with other values of some keys, and rank the runs by paired intervals of their samples.

Optuna chooses the values and keeps them in ``search.sqlite3``. Each trial is an ordinary training run in its own
folder, so the same command continues a search that was interrupted: a trial that the study calls running is one that
was stopped, since one search at a time holds the folder.
"""

import functools
import importlib
import itertools
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.commands.parser import CommandParser, at_least, path
from ...core.intervals import ConfidenceInterval
from ...core.launch import devices, training_commands, tuning
from ...core.launch.lock import is_running, lock_output_dir
from ...core.logging.progress import write_line
from ...core.logging.record import output_folder
from ...core.logging.restarts import RestartCount, format_reason
from ...core.runtime import signals
from ...core.runtime.errors import Stopped, UserError
from ...core.runtime.printing import one_line
from ...core.settings.table import COMMAND_LINE, public_leaves
from .formatting import align_columns, count_decimals, format_interval, format_number, format_p_value
from .groups import UNDEFINED, find_best, read_curve
from .pairs import compare_tables
from .search_space import SearchRange, take_ranges
from .search_storage import storage_errors_as_user_errors
from .significance import is_behind
from .trial_schedules import TrialSchedule
from .trial_tables import REPEAT, compare_at, keep_table, read_best_table, read_score, require_table

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

DATABASE = "search.sqlite3"
_POLL_SECONDS = 0.2
_COMPARED_FROM, _PRUNED_FROM = 0.5, 0.6  # shares of the epochs: of those that are compared, and before a stop
_DRAWS = 20  # of the values of one trial, until no other trial has them
_MAX_LISTED = 3  # changed settings in a message
_STATES = {"RUNNING": "failed", "FAIL": UNDEFINED}  # of trials that have no score; Optuna's and ours


class SearchPlan(NamedTuple):
    """What a search trains."""

    folder: str
    ranges: list[SearchRange]  # keys and values that differ
    words: list[str]  # command line of each training run, without them
    seed: int  # of the choice of values
    score: str
    more_is_better: bool  # whether a larger score is better


def run(arguments: list[str]) -> None:
    """Run the command ``search``.

    Raises:
        UserError: a word is wrong, Optuna is not installed, or the folder contains another search.
        Stopped: the user has requested a stop; the running trial has saved a checkpoint.
    """
    parser = CommandParser(
        "search",
        "Train with other values of some keys: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B, also written KEY RANGE or "
        "-flag=RANGE. Optuna chooses them (pip install '.[search]' in a clone). From 60 % of the epochs on, and after "
        "the last step of the learning rate, a run is stopped if it is worse than the best run with the same schedule "
        "by more than the noise of samples and of epochs, and its curve does not lead to that run's. Other words are "
        "passed to train. The same command continues.",
        ("-cfg=vit_digits TRAIN.BASE_LR=1e-4..1e-2:log -trials=20",),
    )
    parser.option("trials", 20, "number of training runs, with the runs of earlier commands", at_least(1))
    parser.option("output", None, "folder of the search; default: output/RECIPE_search", path)
    own, words = split_words(arguments)
    options = parser.parse_args(own)
    ranges, words = take_ranges(words)
    if not ranges:
        parser.error("name a key with its range, such as TRAIN.BASE_LR=1e-4..1e-2:log")
    optuna = import_optuna()
    devices.check_launcher_variables(1)
    tuning.import_paddle()
    plan = make_plan(words, ranges, options.output)
    with (
        output_folder(plan.folder, records=(DATABASE,)) as folder,
        lock_output_dir(folder, write_line, False),
        storage_errors_as_user_errors(optuna, Path(folder, DATABASE), REPEAT),
    ):
        study = open_study(optuna, plan)
        failed = run_trials(optuna, study, plan, options.trials)
        for line in format_search(optuna, study, plan):
            write_line(line)
    if failed:
        numbers = ", ".join(map(str, failed))
        reason = format_reason(get_folder(plan, number) for number in failed)
        raise UserError(f"failed: trial {numbers}: {reason}see log.txt in the folder of each; {REPEAT}")


def split_words(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of this command, and the words of its training runs."""
    own: list[str] = []
    others: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        is_own = word.startswith("-") and word.lstrip("-").partition("=")[0] in ("trials", "output", "h", "help")
        (own if is_own else others).append(word)
        if is_own and "=" not in word and words and word.lstrip("-") in ("trials", "output"):
            own.append(words.pop(0))
    return own, others


def import_optuna() -> ModuleType:
    """Import Optuna, which logs warnings only. Raises UserError if it is not installed."""
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise UserError("search needs Optuna, which is not installed: pip install '.[search]' in a clone") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def make_plan(words: list[str], ranges: list[SearchRange], output: str | None) -> SearchPlan:
    """Check the command line of the training runs with the ends of the ranges."""
    from ...core import settings
    from ...core.tasks.task_factory import make_task

    examples = [row.format(row.choices[0] if row.choices else row.low) for row in ranges]
    configuration = settings.load([*words, *examples], settings.DEFAULT_RECIPE)
    for name in ("SAVE", "MODEL.RESUME"):
        found = configuration.settings.get(name)
        if found is not None and found.source == COMMAND_LINE:
            raise UserError(f"search: {name}: each trial has its own folder and resumes in it: use -output=FOLDER")
    values: Any = configuration.values
    if values.EVAL or values.get("SEEDS") or any(row.name == "SEED" for row in ranges):
        raise UserError("search trains, all trials with one seed: drop -eval, -seeds and the range of SEED")
    if not values.EVALUATION.INTERVAL:
        raise UserError("search compares runs by their samples: drop EVALUATION.INTERVAL off")
    task = make_task(values)
    if task.traits.takes_last:
        raise UserError(f"search compares scores, but none shows which run is better: {task.traits.takes_last}")
    score, more_is_better = task.best_metric
    folder = output or str(Path(values.SAVE, f"{configuration.recipe}_search"))
    return SearchPlan(folder, ranges, words, values.SEED, score, more_is_better)


def open_study(optuna: ModuleType, plan: SearchPlan) -> "Study":
    """Open or create the study in the folder; raise a UserError if it is of another search."""
    file = Path(plan.folder, DATABASE).absolute()
    direction = "maximize" if plan.more_is_better else "minimize"
    # A connection instead of a URL, which gives a meaning to some characters of a path.
    connect = functools.partial(sqlite3.connect, str(file))
    storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect})
    study = optuna.create_study(storage=storage, study_name="search", direction=direction, load_if_exists=True)
    ranges = " ".join(found.word for found in plan.ranges)
    before = study.user_attrs.get("ranges", ranges)
    if before != ranges:
        raise UserError(f"{plan.folder} contains a search of {before}: choose another -output, or repeat these words")
    study.set_user_attr("ranges", ranges)
    for trial in study.get_trials(deepcopy=False):
        before, now = trial.user_attrs["configuration"], resolve(plan, trial.params)
        names = [name for name in before if name in now and now[name] != before[name]]
        changed = [f"{name} {before[name]}, now {now[name]}" for name in names]
        if "error" in now:
            changed = [f"settings that do not fit together any more ({now['error']})"]
        if changed:
            raise UserError(
                f"{plan.folder} contains a search with {'; '.join(changed[:_MAX_LISTED])}: choose another -output for "
                "these settings, or undo the change"
            )
    return study


def resolve(plan: SearchPlan, params: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a trial, all but its folder, by name; "error" if they do not fit together."""
    from ...core import settings

    try:
        configuration = settings.load([*plan.words, *format_words(plan, params)], settings.DEFAULT_RECIPE)
    except UserError as error:
        return {"error": str(error)}
    return {name: value for name, value in public_leaves(configuration.values).items() if name != "SAVE"}


def format_words(plan: SearchPlan, params: dict[str, Any]) -> list[str]:
    """Return the words of the command line for a trial's values of the ranges."""
    return [found.format(params[found.name]) for found in plan.ranges]


def run_trials(optuna: ModuleType, study: "Study", plan: SearchPlan, trials: int) -> list[int]:
    """Train until the study has this many trials, first those that were interrupted; return which have failed."""
    signals.record_only_as_parent()
    failed: list[int] = []  # they stay running in the study, so that the same command continues them
    while trial := find_interrupted(optuna, study, failed) or add_trial(optuna, study, plan, trials):
        if not run_trial(optuna, study, plan, trial):
            failed.append(trial.number)
    return failed


def find_interrupted(optuna: ModuleType, study: "Study", failed: Sequence[int] = ()) -> "FrozenTrial | None":
    """Return the first trial that was running when its command ended, unless it has failed since; else None."""
    trials = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,))
    return next((trial for trial in trials if trial.number not in failed), None)


def add_trial(optuna: ModuleType, study: "Study", plan: SearchPlan, trials: int) -> "FrozenTrial | None":
    """Store a new trial with settings that no other has; None if there are enough trials, or no other settings."""
    known = study.get_trials(deepcopy=False)
    number, tried = len(known), [earlier.user_attrs["configuration"] for earlier in known]
    if number >= trials:
        return None
    if os.path.lexists(get_folder(plan, number)):
        raise UserError(f"{get_folder(plan, number)} is not of this search: remove it, or choose another -output")
    distributions = {found.name: found.get_distribution(optuna.distributions) for found in plan.ranges}
    for params in _propose(optuna, study, plan, distributions):
        configuration = resolve(plan, params)
        if configuration in tried:
            continue
        tried.append(configuration)
        if "error" in configuration:
            write_line(one_line(f"not trained: {' '.join(format_words(plan, params))}: {configuration['error']}"))
        else:
            trial = optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=params,
                distributions=distributions,
                user_attrs={"configuration": configuration},
            )
            study.add_trial(trial)
            return study.get_trials(deepcopy=False)[number]
    write_line(f"no other settings are left to train: {number} trials of {trials}")
    return None


def _propose(
    optuna: ModuleType, study: "Study", plan: SearchPlan, distributions: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield values for a new trial: drawn by Optuna, and after some draws all values of a finite space."""
    known = study.get_trials(deepcopy=False)
    # The sampler's generator is not stored: a new one for each trial makes a continued search repeatable.
    sampler = optuna.samplers.TPESampler(seed=plan.seed + len(known))
    drawn = optuna.create_study(direction=study.direction, sampler=sampler)
    drawn.add_trials(known)
    for _ in range(_DRAWS):
        yield drawn.ask(distributions).params
    grid = itertools.product(*(found.list_values() or () for found in plan.ranges))
    yield from (dict(zip(distributions, point, strict=True)) for point in grid)


def run_trial(optuna: ModuleType, study: "Study", plan: SearchPlan, trial: "FrozenTrial") -> bool:
    """Train one trial to its end, or until it is worse than the best; record its score. False: it has failed."""
    state, folder = optuna.trial.TrialState, get_folder(plan, trial.number)
    values = format_words(plan, trial.params)
    ranked = [other.number for other, _ in rank_trials(optuna, study, plan)]
    write_line(f"trial {trial.number}: {' '.join(values)}: {folder}")
    _wait_for_other_run(folder)
    if signals.stop_reason():
        raise Stopped(signals.stop_reason() or "", f"trial {trial.number} of {plan.folder} has not started; {REPEAT}")
    restarts = RestartCount(folder)
    while True:
        code, reason = _train_once(plan, ranked, folder, values)
        is_stopped = bool(reason or signals.stop_reason() or code == signals.STOPPED)
        if is_stopped or not restarts.is_due(code, f"trial {trial.number}"):
            break
    if reason:
        study.tell(trial.number, state=state.PRUNED)
        write_line(one_line(f"trial {trial.number}: stopped as worse, {reason}"))
    elif code == signals.STOPPED or (code and signals.stop_reason()):
        message = f"trial {trial.number} of {plan.folder} is unfinished, and its checkpoint is saved; {REPEAT}"
        raise Stopped(signals.stop_reason() or f"trial {trial.number} was", message)
    elif code:
        if trial.number == 0 and code > 0 and not (ranked or Path(folder, "checkpoints").exists()):
            raise UserError(f"trial 0 has failed (see the error above): remove {plan.folder}, and start again")
        write_line(f"trial {trial.number}: failed (exit code {code})")
        return False
    else:
        keep_table(folder)
        require_table(folder)
        best = read_score(folder, plan.score)
        if best is None:
            study.tell(trial.number, state=state.FAIL)
            write_line(f"trial {trial.number}: {plan.score} is {UNDEFINED}")
            return True
        value, epoch = best
        study.tell(trial.number, value)
        shown = format_number(value, count_decimals([value]))
        write_line(f"trial {trial.number}: {plan.score} {shown} (best, epoch {epoch})")
    return True


def _train_once(plan: SearchPlan, ranked: Sequence[int], folder: str, values: Sequence[str]) -> tuple[int, str]:
    """Train until the run ends, or is worse than the best; return its exit code, and why it was stopped as worse."""
    process, reason = training_commands.start([*plan.words, *values, f"-output={folder}", "-resume=auto"]), ""
    try:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            training_commands.forward_requests([process])
            epoch = keep_table(folder)
            if epoch is not None and not reason:
                reason = explain_stop(plan, ranked, folder, epoch)
                if reason:
                    process.terminate()
    finally:
        training_commands.kill([process])
    return process.returncode, reason


def _wait_for_other_run(folder: str) -> None:
    """Wait for the end of a training run that a killed search has left there; a requested stop raises ``Stopped``."""
    is_waiting = False
    while is_running(Path(folder)):
        if not is_waiting:
            write_line(f"waiting for the end of another training run in {folder}")
        is_waiting = True
        time.sleep(_POLL_SECONDS)
        if reason := signals.stop_reason():
            raise Stopped(reason, f"nothing was trained; {REPEAT}")


def get_folder(plan: SearchPlan, number: int) -> str:
    """Return the folder of a trial."""
    return os.path.join(plan.folder, f"trial_{number:04d}")


def explain_stop(plan: SearchPlan, ranked: Sequence[int], folder: str, epoch: int) -> str:
    """Return why a trial is stopped after ``epoch``; empty: it is not worse than the best trial of its schedule.

    Its difference from that trial has to exceed the noise of samples and of epochs, also at the end (``is_behind``). It
    counts after the last drop of the learning rate only. ``ranked`` are numbers of the finished trials, the best first;
    ``folder`` is the trial's, which has evaluated ``epoch``.
    """
    schedule = TrialSchedule.read(folder)
    epochs, settled = schedule.epochs, schedule.find_settled()
    folders = {number: get_folder(plan, number) for number in ranked}
    alike = [n for n, other in folders.items() if os.path.exists(other) and TrialSchedule.read(other) == schedule]
    # after the last epoch there is nothing to stop
    if not alike or not max(_PRUNED_FROM * epochs, settled) <= epoch < epochs:
        return ""
    best_folder = folders[alike[0]]
    best, own = (find_best(Path(name), plan.score) for name in (best_folder, folder))
    if own and (own["value"] > best["value"] if plan.more_is_better else own["value"] < best["value"]):
        return ""  # an earlier epoch of it is better
    difference = compare_at(best_folder, folder, epoch, plan.score)
    if difference is None or not is_worse(difference, plan.more_is_better):
        return ""
    first, sign = max(_COMPARED_FROM * epochs, settled), 1 if plan.more_is_better else -1
    own_curve, best_curve = (read_curve(Path(name), plan.score, first, sign) for name in (folder, best_folder))
    if not is_behind(own_curve, best_curve, epochs, (difference.high - difference.low) / 2):
        return ""
    row = difference.plain()
    shown = format_interval(row, count_decimals([row["low"], row["high"]]), signed=True)
    return f"epoch {epoch}: {shown} from trial {alike[0]}"


def is_worse(difference: ConfidenceInterval, more_is_better: bool) -> bool:
    """Return whether the whole interval of a difference from the best run is on the worse side."""
    return difference.high < 0 if more_is_better else difference.low > 0


def rank_trials(optuna: ModuleType, study: "Study", plan: SearchPlan) -> list[tuple["FrozenTrial", dict[str, Any]]]:
    """Return the finished trials, the best first, with value and epoch of their best checkpoints.

    They are of the trials' folders; a trial without its folder has the value that the study has stored.
    """
    trials: list[Any] = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    found = [(trial, find_best(Path(get_folder(plan, trial.number)), plan.score)) for trial in trials]
    rows = [(trial, best or {"value": trial.value, "epoch": ""}) for trial, best in found]
    sign = -1 if plan.more_is_better else 1
    return sorted(rows, key=lambda row: (sign * row[1]["value"], row[0].number))


def format_search(optuna: ModuleType, study: "Study", plan: SearchPlan) -> list[str]:
    """Format all trials as a table, and what the best is worth against the second."""
    scores = rank_trials(optuna, study, plan)
    ranked, decimals = [trial for trial, _ in scores], count_decimals([best["value"] for _, best in scores])
    names = [row.name for row in plan.ranges]
    others = [(candidate, None) for candidate in study.get_trials(deepcopy=False) if candidate not in ranked]
    rows = [["trial", *names, plan.score, "best epoch"]]
    for trial, best in [*scores, *others]:
        state, epoch = _STATES.get(trial.state.name, trial.state.name.lower()), ""
        if best is not None:
            state, epoch = format_number(best["value"], decimals), str(best["epoch"])
        shown = (trial.params.get(name, "") for name in names)
        rows.append([str(trial.number), *(f"{v:.4g}" if isinstance(v, float) else str(v) for v in shown), state, epoch])
    lines = ["", *map(one_line, align_columns(rows))]
    if not ranked and any(candidate.state is optuna.trial.TrialState.FAIL for candidate, _ in others):
        lines.append(one_line(f"{plan.score} is {UNDEFINED} in any trial: which is better is not known"))
    if len(ranked) < 2:
        return lines
    folders = [get_folder(plan, trial.number) for trial in ranked[:2]]
    if removed := [folder for folder in folders if not os.path.isdir(folder)]:
        numbers = f"best: trial {ranked[0].number}; not compared with the second, trial {ranked[1].number}"
        return [*lines, one_line(f"{numbers}: there is no {' and no '.join(removed)}")]
    first, second = (read_best_table(folder, plan.score) for folder in folders)
    found = compare_tables(second, first)
    difference = format_interval(found["difference"], decimals, signed=True)
    p = format_p_value(found["p"])
    of = first.about["of"], second.about["of"]
    numbers = f"trial {ranked[0].number}, {of[0]}; against the second, trial {ranked[1].number}, {of[1]}"
    lines.append(one_line(f"best: {numbers}: {first.about['score']} {difference}, p {p}, {found['finding']}"))
    lines.append(
        f"it is the best of {len(ranked)} on these samples: expect less on others; evaluate it on a test split"
    )
    return lines
