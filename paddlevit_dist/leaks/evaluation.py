"""``evaluate -without_leaks``: the score without the samples that stand in the training set, beside the other."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..contracts.dataset import Chosen
from ..contracts.task import Task, make_task
from ..engine.evaluation import Evaluation
from ..engine.watchers import Watcher
from ..observe.progress import write_line
from ..observe.record import cache_folder
from ..parallel import LeftEarly, all_gather, is_main
from ..runtime import signals
from ..runtime.errors import UserError
from .search import FILE, find, read, write

_NAMING = "name it with TRAIN_DATA PATH, as -data_path names data"


def find_in_training(config: Any, datasets: dict[str, Any], folder: Path) -> None:
    """In the main process, before workers start: look for the evaluated samples in the training set, and list those
    that are there in ``leaks.json``.

    Raises:
        UserError: the training set is not known, or the data cannot be compared.
    """
    if not config.WITHOUT_LEAKS:
        return
    ((split, evaluated),) = datasets.items()
    try:
        train = _training_set(config)
    except UserError as error:
        raise UserError(f"-without_leaks: the training set is not known ({error}); {_NAMING}") from error
    dataset = getattr(evaluated, "dataset", None)
    write_line(f"looking for {len(evaluated):,} samples of {split} in {len(train):,} of train")
    try:
        search = find(dataset, train, cache_folder(config))
    except UserError as error:
        raise UserError(f"-without_leaks: {error}; leave it out") from error
    write(folder / FILE, search, dataset, train)
    write_line(f"{search.summary(split, 'samples')}, listed in {folder / FILE}")


def _training_set(config: Any) -> Any:
    values = config.clone()
    values.defrost()
    if "ON_BAD_SAMPLE" in values.DATA:
        values.DATA.ON_BAD_SAMPLE = "skip"  # a copy of what cannot be read is not looked for
    if values.TRAIN_DATA is not None:
        values.DATA.DATA_PATH = values.TRAIN_DATA
    values.freeze()
    return getattr(make_task(values).build_dataset("train", cache_folder(config)), "dataset", None)


class Remaining(Chosen):
    """Samples without some of them; everything else about them is theirs.

    Args:
        kept: indices of those that remain, ascending.
    """

    def __init__(self, samples: Any, kept: Sequence[int]) -> None:
        super().__init__(samples, kept)
        left_out = len(samples) - len(kept)
        self.labelled, self.class_names = samples.labelled, samples.class_names
        self.without = f"without {left_out:,} of {len(samples):,} that stand in training"

    def __getattr__(self, name: str) -> Any:
        if name in ("samples", "indices"):  # not there yet, in a copy
            raise AttributeError(name)
        return getattr(self.samples, name)


class _TaskOfRemaining:
    """A task whose metrics expect ``number`` samples, where they count them (``DetectionMetrics.pictures``)."""

    def __init__(self, task: Any, number: int) -> None:
        self._task, self._number = task, number

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not there yet, in a copy
            raise AttributeError(name)
        return getattr(self._task, name)

    def build_metrics(self) -> Any:
        metrics = self._task.build_metrics()
        if getattr(metrics, "pictures", None) is not None:
            metrics.pictures = self._number
        return metrics


class WithoutLeaks(Watcher):
    """Evaluates once more without the samples in ``leaks.json``, and tells it before the score of all. Every rank has
    one.

    Args:
        run: a ``Trainer``.
    """

    def __init__(self, run: Any) -> None:
        self._run = run

    def evaluation_done(self, facts: dict[str, Any]) -> None:
        run = self._run
        samples, record = run.evaluated, run.record
        if not samples.labelled:
            return
        listed = all_gather(read(record.folder / FILE) if is_main() else None)[0]
        kept = np.setdiff1d(np.arange(len(samples)), listed).tolist()
        if not kept or len(kept) == len(samples):
            which = "all of them stand in training" if listed else "none of them stands in training: the same score"
            record.say(f"without leaks: {which}")
            return
        before, task = run.evaluation, cast(Task, _TaskOfRemaining(run.task, len(kept)))
        again = Evaluation(run.config, task, run.model, Remaining(samples, kept), before.precision, run.heartbeat)
        try:
            values, line = again("evaluation without leaks")
        except LeftEarly as left:
            raise signals.Interrupted(signals.number() or signal.SIGTERM) from left
        record.event("evaluation_without_leaks", {**facts, "left_out": len(listed), "samples": len(kept), **values})
        record.say(f"without leaks: {line}")
