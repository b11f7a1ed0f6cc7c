"""``search``: train with other values of some keys, and rank the runs by paired intervals of their samples.

Optuna chooses the values and keeps them in ``search.journal``. Each trial is an ordinary training run in its own
folder, so the same command continues a search that was interrupted.
"""

import importlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..commands.parser import CommandParser, at_least, path
from ..intervals import ConfidenceInterval
from ..launch import training_commands, tuning
from ..launch.lock import lock_output_dir
from ..logging.progress import write_line
from ..logging.record import output_folder
from ..runtime import signals
from ..runtime.errors import Stopped, UserError
from ..runtime.metrics_file import recorded_events
from ..runtime.printing import one_line
from .formatting import add_findings, align_columns, count_decimals, format_interval, format_number, format_p_value
from .pairs import TablePair, compare_tables
from .search_space import SearchRange, parse_range
from .tables import read_table

JOURNAL = "search.journal"
_POLL_SECONDS = 0.2
_PRUNED_FROM = 0.5  # share of the epochs before which no trial is stopped: curves may cross
_TABLE = "scored_samples.npz"
_REPEAT = "repeat the command to continue"


class SearchPlan(NamedTuple):
    """What a search trains.

    Attributes:
        folder: of the search.
        ranges: keys and values that differ.
        words: command line of each training run, without them.
        seed: of the choice of values.
        epochs: of each run.
        score: name of the score.
        more_is_better: whether a larger score is better.
    """

    folder: str
    ranges: list[SearchRange]
    words: list[str]
    seed: int
    epochs: int
    score: str
    more_is_better: bool


def run(arguments: list[str]) -> None:
    """Run the command ``search``.

    Raises:
        UserError: a word is wrong, Optuna is not installed, or the folder contains another search.
        Stopped: the user has requested a stop; the running trial has saved a checkpoint.
    """
    parser = CommandParser(
        "search",
        "Train with other values of some keys: KEY=LOW..HIGH, KEY=LOW..HIGH:log or KEY=A|B. Optuna chooses them (pip "
        "install '.[search]' in a clone). From half of the epochs on, a run is stopped if the 95 % interval of its "
        "difference from the best run at that epoch is on the worse side. All other words are passed to train. The "
        "same command continues a search.",
        ("-cfg=vit_digits TRAIN.BASE_LR=1e-4..1e-2:log -trials=20",),
    )
    parser.option("trials", 20, "number of training runs, with the runs of earlier commands", at_least(1))
    parser.option("output", None, "folder of the search; default: output/RECIPE_search", path)
    own, words = split_words(arguments)
    options = parser.parse_args(own)
    ranges = [found for word in words if (found := parse_range(word)) is not None]
    taken = {found.word for found in ranges}
    if not ranges:
        parser.error("name a key with its range, such as TRAIN.BASE_LR=1e-4..1e-2:log")
    optuna = _import_optuna()
    tuning.import_paddle()
    plan = _make_plan([word for word in words if word not in taken], ranges, options.output)
    with output_folder(plan.folder, records=(JOURNAL,)) as folder, lock_output_dir(folder, write_line, False):
        study = _open_study(optuna, plan)
        _run_trials(optuna, study, plan, options.trials)
        for line in format_search(optuna, study, plan):
            write_line(line)
    if failed := _numbers(study, optuna.trial.TrialState.FAIL):
        raise UserError(f"failed: trial {', '.join(failed)}: see log.txt in the folder of each")


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


def _import_optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise UserError("search needs Optuna, which is not installed: pip install '.[search]' in a clone") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _make_plan(words: list[str], ranges: list[SearchRange], output: str | None) -> SearchPlan:
    """Check the command line of the training runs with the ends of the ranges."""
    from .. import settings
    from ..tasks.task import make_task

    examples = [f"{found.name}={found.choices[0] if found.choices else f'{found.low:.6g}'}" for found in ranges]
    configuration = settings.load([*words, *examples], settings.DEFAULT_RECIPE)
    values: Any = configuration.values
    if values.EVAL or values.get("SEEDS"):
        raise UserError("search trains, one seed for each trial: drop -eval and -seeds")
    if not values.EVALUATION.INTERVAL:
        raise UserError("search compares runs by their samples: drop EVALUATION.INTERVAL off")
    score, more_is_better = make_task(values).best_metric
    folder = output or str(Path(values.SAVE, f"{configuration.recipe}_search"))
    return SearchPlan(folder, ranges, words, values.SEED, values.TRAIN.NUM_EPOCHS, score, more_is_better)


def _open_study(optuna: Any, plan: SearchPlan) -> Any:
    """Open or create the study in the folder.

    Raises:
        UserError: it is of another command.
    """
    journal = importlib.import_module("optuna.storages.journal")
    storage = optuna.storages.JournalStorage(journal.JournalFileBackend(str(Path(plan.folder, JOURNAL))))
    direction = "maximize" if plan.more_is_better else "minimize"
    study = optuna.create_study(storage=storage, study_name="search", direction=direction, load_if_exists=True)
    command = " ".join([*plan.words, *(found.word for found in plan.ranges)])
    before = study.user_attrs.get("command", command)
    if before != command:
        raise UserError(f"{plan.folder} contains the search '{before}': choose another -output, or repeat that command")
    study.set_user_attr("command", command)
    return study


def _run_trials(optuna: Any, study: Any, plan: SearchPlan, trials: int) -> None:
    """Train until the study has this many trials; a trial that was interrupted continues first."""
    state = optuna.trial.TrialState
    signals.record_only_as_parent()
    while True:
        interrupted = [trial for trial in study.get_trials(deepcopy=False) if trial.state == state.RUNNING]
        number = len(study.get_trials(deepcopy=False))
        if not interrupted and number >= trials:
            return
        # The sampler's generator is not stored: a new one for each trial makes a continued search repeatable.
        study.sampler = optuna.samplers.TPESampler(seed=plan.seed + number)
        trial = optuna.trial.Trial(study, interrupted[0]._trial_id) if interrupted else study.ask()
        _run_trial(optuna, study, plan, trial)


def _run_trial(optuna: Any, study: Any, plan: SearchPlan, trial: Any) -> None:
    """Train one trial to its end, or until it is worse than the best; record its score.

    Raises:
        UserError: the first trial has failed.
        Stopped: the user has requested a stop.
    """
    state, folder = optuna.trial.TrialState, get_folder(plan, trial.number)
    values = [f"{found.name}={found.suggest(trial)}" for found in plan.ranges]
    best = _best_number(optuna, study)
    write_line(f"trial {trial.number}: {' '.join(values)}: {folder}")
    if signals.stop_reason():
        raise Stopped(signals.stop_reason() or "", f"trial {trial.number} of {plan.folder} has not started; {_REPEAT}")
    process, reason = training_commands.start([*plan.words, *values, f"-output={folder}", "-resume=auto"]), ""
    try:
        while process.poll() is None:
            time.sleep(_POLL_SECONDS)
            training_commands.forward_requests([process])
            epoch = keep_table(folder)
            if epoch is not None and best is not None and not reason and is_due(epoch, plan.epochs):
                difference = compare_at(get_folder(plan, best), folder, epoch)
                if difference is not None and is_worse(difference, plan.more_is_better):
                    reason = f"epoch {epoch}: {_format_difference(difference)} from trial {best}"
                    process.terminate()
    finally:
        training_commands.kill([process])
    if reason:
        study.tell(trial, state=state.PRUNED)
        write_line(one_line(f"trial {trial.number}: stopped as worse, {reason}"))
    elif process.returncode == signals.STOPPED or (process.returncode and signals.stop_reason()):
        message = f"trial {trial.number} of {plan.folder} is unfinished, and its checkpoint is saved; {_REPEAT}"
        raise Stopped(signals.stop_reason() or f"trial {trial.number} was", message)
    elif process.returncode:
        study.tell(trial, state=state.FAIL)
        if trial.number == 0:
            raise UserError(f"trial 0 has failed (see the error above): remove {plan.folder}, and start again")
    else:
        keep_table(folder)
        value = read_score(folder, plan.score)
        study.tell(trial, value)
        write_line(f"trial {trial.number}: {plan.score} {format_number(value, count_decimals([value]))}")


def get_folder(plan: SearchPlan, number: int) -> str:
    """Return the folder of a trial."""
    return os.path.join(plan.folder, f"trial_{number:04d}")


def is_due(epoch: int, epochs: int) -> bool:
    """Return whether a trial may be stopped after ``epoch``."""
    return epoch >= _PRUNED_FROM * epochs


def is_worse(difference: ConfidenceInterval, more_is_better: bool) -> bool:
    """Return whether the whole interval of a difference from the best run is on the worse side."""
    return difference.high < 0 if more_is_better else difference.low > 0


def keep_table(folder: str) -> int | None:
    """Copy the table of a run's last evaluation to ``tables/``; return its epoch if the copy is new."""
    source, tables = Path(folder, _TABLE), Path(folder, "tables")
    if not source.exists():
        return None
    epoch = int(read_table(str(source)).about["of"].removeprefix("epoch "))
    target = _table_file(folder, epoch)
    if target.exists():
        return None
    tables.mkdir(exist_ok=True)
    shutil.copyfile(source, tables / "new.npz")  # the source is replaced, not rewritten, so the copy is whole
    os.replace(tables / "new.npz", target)
    return epoch


def _table_file(folder: str, epoch: int) -> Path:
    return Path(folder, "tables", f"epoch_{epoch:04d}.npz")


def compare_at(best: str, folder: str, epoch: int) -> ConfidenceInterval | None:
    """Return the difference of a run from the best one at the same epoch; None if that was not evaluated then."""
    files = [_table_file(name, epoch) for name in (best, folder)]
    if not all(file.exists() for file in files):
        return None
    first, second = (read_table(str(file)) for file in files)
    return TablePair.match(first, second).compute_intervals()[f"difference {first.about['score']}"]


def read_score(folder: str, score: str) -> float:
    """Return the score of a run's last evaluation.

    Raises:
        UserError: the run has none.
    """
    events = [event for event in recorded_events(Path(folder)) if event["kind"] == "evaluation" and score in event]
    if not events:
        raise UserError(
            f"{folder} has no evaluation with {score}: set VALIDATE_FREQ so that the last epoch is evaluated"
        )
    return float(events[-1][score])


def _complete(optuna: Any, study: Any) -> list[Any]:
    """Return the finished trials, the best first."""
    trials = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    sign = -1 if study.direction == optuna.study.StudyDirection.MAXIMIZE else 1
    return sorted(trials, key=lambda trial: (sign * trial.value, trial.number))


def _best_number(optuna: Any, study: Any) -> int | None:
    trials = _complete(optuna, study)
    return trials[0].number if trials else None


def _numbers(study: Any, state: Any) -> list[str]:
    return [str(trial.number) for trial in study.get_trials(deepcopy=False) if trial.state == state]


def _format_difference(difference: ConfidenceInterval) -> str:
    row = difference.plain()
    return format_interval(row, count_decimals([row["low"], row["high"]]), signed=True)


def format_search(optuna: Any, study: Any, plan: SearchPlan) -> list[str]:
    """Format all trials as a table, and what the best is worth against the second."""
    ranked = _complete(optuna, study)
    decimals = count_decimals([trial.value for trial in ranked])
    names = [found.name for found in plan.ranges]
    others = [trial for trial in study.get_trials(deepcopy=False) if trial not in ranked]
    rows = [["trial", *names, plan.score]]
    for trial in [*ranked, *others]:
        state = format_number(trial.value, decimals) if trial in ranked else trial.state.name.lower()
        shown = (trial.params.get(name, "") for name in names)
        rows.append([str(trial.number), *(f"{v:.4g}" if isinstance(v, float) else str(v) for v in shown), state])
    lines = ["", *map(one_line, align_columns(rows))]
    if len(ranked) < 2:
        return lines
    best, second = (get_folder(plan, trial.number) for trial in ranked[:2])
    [found] = add_findings([compare_tables(read_table(second), read_table(best))])
    difference = format_interval(found["difference"], decimals, signed=True)
    p = format_p_value(found["p"])
    numbers = f"trial {ranked[0].number}; against the second, trial {ranked[1].number}"
    lines.append(one_line(f"best: {numbers}: {plan.score} {difference}, p {p}, {found['finding']}"))
    lines.append(
        f"it is the best of {len(ranked)} on these samples: expect less on others; evaluate it on a test split"
    )
    return lines
