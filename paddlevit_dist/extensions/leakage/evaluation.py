"""``evaluate -exclude_leaked``: score all samples, and score them again without those in the training set."""

from pathlib import Path
from typing import Any, cast

from ...core.distributed import is_main
from ...core.engine.evaluation import EvaluationObserver
from ...core.engine.trainer import Trainer
from ...core.logging.progress import write_line
from ...core.logging.record import cache_folder
from ...core.runtime.errors import UserError
from ...core.settings.every_run import RunSettings
from ...core.tasks.dataset import Dataset
from ...core.tasks.listed_samples import open_samples
from ...core.tasks.task_factory import make_task
from .search import FILE, find_copies, read_leaks, write_leaks
from .settings import LeakageSettings

_NAMING = "add TRAIN_DATA PATH, where PATH is as in -data_path"


def find_in_training(config: RunSettings, datasets: dict[str, Any], folder: Path) -> None:
    """Search the training set for the evaluated samples, and list the matches in ``leaks.json``.

    Runs in the main process, before workers start. Raises UserError: the training set is not known or the data cannot
    be compared.
    """
    ((split, evaluated),) = datasets.items()
    try:
        train = _build_training_set(config)
    except UserError as error:
        raise UserError(f"-exclude_leaked: the training set is not known ({error}); {_NAMING}") from error
    dataset = cast(Dataset, getattr(evaluated, "dataset", None))
    write_line(f"searching for {len(evaluated):,} samples of {split} in {len(train):,} of train")
    try:
        search = find_copies(dataset, train, cache_folder(config))
    except UserError as error:
        raise UserError(f"-exclude_leaked: {error}; drop -exclude_leaked") from error
    write_leaks(folder / FILE, search, dataset, train)
    write_line(f"{search.summary(split, 'samples')}, listed in {folder / FILE}")
    if search.alike:
        write_line(search.suspicion(split, "samples"))


def _build_training_set(config: RunSettings) -> Any:
    values = cast(LeakageSettings, config).clone()
    values.defrost()
    if "ON_INVALID_SAMPLE" in values.DATA:
        values.DATA.ON_INVALID_SAMPLE = "skip"  # unreadable samples have no copies to search for
    if values.TRAIN_DATA is not None:
        values.DATA.DATA_PATH = values.TRAIN_DATA
    return getattr(open_samples(make_task(values), "train", cache_folder(config)), "dataset", None)


class WithoutLeaks(EvaluationObserver):
    """Log the score of the samples that are not in ``leaks.json``, before the score of all samples."""

    def __init__(self, run: Trainer) -> None:
        self._run = run
        run.evaluator.keeps_table = True

    def after_evaluate(self, facts: dict[str, Any]) -> None:
        """Compute the score without leaked samples, and record it."""
        evaluator, run_log = self._run.evaluator, self._run.run_log
        if not is_main() or not evaluator.samples.labeled:
            return
        total, listed, table = len(evaluator.samples), read_leaks(run_log.folder / FILE), evaluator.table
        if not 0 < len(listed) < total:
            reason = "all samples are in the training set" if listed else "no sample is in the training set: same score"
            run_log.log_and_print(f"without leaks: {reason}")
            return
        without = {"without": f"without {len(listed):,} of {total:,} that are in the training set"}
        try:
            if table is None:
                raise KeyError("score")
            values, line = evaluator.scored(table.without(listed), without)
        except KeyError as missing:  # metrics of a user's task
            run_log.log_and_print(
                f"without leaks: not known: the task's metrics have no {missing} for a part of the samples"
            )
            return
        counts = {"left_out": len(listed), "samples": total - len(listed)}
        run_log.event("evaluation_without_leaks", {**facts, **counts, **values})
        run_log.log_and_print(f"without leaks: {line}")
