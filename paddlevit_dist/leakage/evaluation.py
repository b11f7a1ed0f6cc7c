"""``evaluate -exclude_leaked``: the score without the samples that stand in the training set, beside the other."""

from pathlib import Path
from typing import Any

from ..distributed import is_main
from ..engine.trainer import Trainer
from ..logging.progress import write_line
from ..logging.record import cache_folder
from ..runtime.errors import UserError
from ..tasks.callback import Callback
from ..tasks.task import make_task
from .search import FILE, find, read, write
from .settings import LeakageSettings

_NAMING = "name it with TRAIN_DATA PATH, as -data_path names data"


def find_in_training(config: LeakageSettings, datasets: dict[str, Any], folder: Path) -> None:
    """In the main process, before workers start: look for the evaluated samples in the training set, and list those
    that are there in ``leaks.json``.

    Raises:
        UserError: the training set is not known, or the data cannot be compared.
    """
    if not config.EXCLUDE_LEAKED:
        return
    ((split, evaluated),) = datasets.items()
    try:
        train = _training_set(config)
    except UserError as error:
        raise UserError(f"-exclude_leaked: the training set is not known ({error}); {_NAMING}") from error
    dataset = getattr(evaluated, "dataset", None)
    write_line(f"looking for {len(evaluated):,} samples of {split} in {len(train):,} of train")
    try:
        search = find(dataset, train, cache_folder(config))
    except UserError as error:
        raise UserError(f"-exclude_leaked: {error}; leave it out") from error
    write(folder / FILE, search, dataset, train)
    write_line(f"{search.summary(split, 'samples')}, listed in {folder / FILE}")


def _training_set(config: LeakageSettings) -> Any:
    values = config.clone()
    values.defrost()
    if "ON_INVALID_SAMPLE" in values.DATA:
        values.DATA.ON_INVALID_SAMPLE = "skip"  # a copy of what cannot be read is not looked for
    if values.TRAIN_DATA is not None:
        values.DATA.DATA_PATH = values.TRAIN_DATA
    values.freeze()
    return getattr(make_task(values).build_dataset("train", cache_folder(config)), "dataset", None)


class WithoutLeaks(Callback):
    """Tells, before the score of all samples, that of those that are not in ``leaks.json``. Every rank has one."""

    on_every_rank = True

    def __init__(self, run: Trainer) -> None:
        self._run = run
        run.evaluation.keeps_table = True

    def evaluation_done(self, facts: dict[str, Any]) -> None:
        evaluation, record = self._run.evaluation, self._run.record
        if not is_main() or not evaluation.samples.labeled:
            return
        total, listed, table = len(evaluation.samples), read(record.folder / FILE), evaluation.table
        if not 0 < len(listed) < total:
            which = "all of them stand in training" if listed else "none of them stands in training: the same score"
            record.log_and_print(f"without leaks: {which}")
            return
        without = {"without": f"without {len(listed):,} of {total:,} that stand in training"}
        try:
            if table is None:
                raise KeyError("score")
            values, line = evaluation.scored(table.without(listed), without)
        except KeyError as missing:  # of a task of somebody's own
            record.log_and_print(
                f"without leaks: not known: the task's metrics give no {missing} of the other samples alone"
            )
            return
        counts = {"left_out": len(listed), "samples": total - len(listed)}
        record.event("evaluation_without_leaks", {**facts, **counts, **values})
        record.log_and_print(f"without leaks: {line}")
