"""Saving checkpoints of a training run, in step on all ranks."""

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import paddle

from ..checkpoint import low_rank
from ..checkpoint import store as checkpoint_store
from ..checkpoint.model_record import TRAINED_SIZE, as_plane
from ..checkpoint.store import HostCopies, HostTensor, Tensors, host_values
from ..distributed import SyncPoint, all_gather, broadcast_object, is_main, world_size
from ..logging.progress import printing
from ..logging.record import RunLog
from ..runtime.errors import UserError
from ..settings.every_run import RunSettings
from ..tasks.model import as_model, find_built_size
from ..tasks.model_factory import build_model
from ..tasks.task import Task
from .background_worker import BackgroundWorker
from .compatibility import describe, list_samples
from .nan_guard import not_finite, weights_digest
from .resume import ResumeState
from .saved_weights import digest_state, require_saved
from .training_state import TrainingState

_SOON = 10.0  # seconds; after less time since the last checkpoint, "saved" is logged after the epoch's other lines


class EpochMeans(Protocol):
    """The means of the epoch in progress, which a checkpoint stores; see ``TrainingLogger``."""

    def window(self) -> list[list[float]]:
        """Return this rank's sums since the last report."""

    def state_dict(self, windows: list[list[list[float]]]) -> dict[str, Any] | None:
        """Return the state as plain numbers, given ``window`` of each rank; None if one is not finite."""


class _StateCopy(NamedTuple):
    """A copy of a run's state, to be written while training continues.

    ``state`` and ``about`` (of ``about.yaml``) lack the digest of the weights. ``prune`` deletes checkpoints that are
    no longer needed, once this one exists.
    """

    name: str
    where: str
    weights: Tensors
    averages: Tensors | None
    state: checkpoint_store.RunState
    about: dict[str, Any]
    prune: Callable[[], None]


class Checkpointer:
    """Saves the state of a training run. Every rank has one and calls the same methods.

    The main process writes in the background, one checkpoint at a time; the other ranks do not wait. If writing fails,
    the next call of ``save_update``, ``save_epoch``, ``note_evaluation``, ``discard_epoch`` or ``finish`` raises the
    error on every rank.

    Args:
        on_saved: called with the folder of each checkpoint that is on disk, in the writing thread.

    Attributes:
        best: name, value, epoch and line of the best evaluation so far (the latest of equal ones); None before it. Its
            value is None as long as no evaluation has defined one: then it is the last.
        evaluations: epoch and value of each evaluation so far that counts, also for early stopping.
        sync_point: the step after which all ranks save or stop, if one is announced.
    """

    def __init__(
        self,
        config: RunSettings,
        task: Task,
        datasets: dict[str, Any],
        state: TrainingState,
        run_log: RunLog,
        resume_state: ResumeState,
        on_saved: Callable[[Path], None],
    ) -> None:
        self._config, self._task, self._datasets = config, task, datasets
        self._state, self._run_log, self._on_saved = state, run_log, on_saved
        self._earlier_samples, self._base = resume_state.samples, resume_state.base
        self._source = resume_state.directory
        self.folder = Path(config.SAVE) / "checkpoints"
        self.best, self.evaluations = resume_state.best, resume_state.evaluations
        self.sync_point = SyncPoint()
        self._background = BackgroundWorker(config.SAVE_IN_BACKGROUND)
        self._copies = HostCopies()
        self._saved_at = time.monotonic()
        self._scored: tuple[int, dict[str, str]] | None = None  # epoch and digests, on the main process
        self._held: list[str] | None = None  # "saved" lines of short epochs, until the evaluation is logged

    @functools.cached_property
    def _samples(self) -> dict[str, np.ndarray]:
        """List the samples as ``checkpoint_store.read_samples`` returns them; computed in the writing thread."""
        return list_samples(self._datasets, self._earlier_samples)

    def should_save(self, epoch: int) -> bool:
        """Return whether the checkpoint of that epoch is kept."""
        return epoch % self._config.SAVE_FREQ == 0 or epoch == self._config.TRAIN.NUM_EPOCHS

    def should_save_update(self) -> bool:
        """Return whether all ranks save now, within an epoch. Every rank must call this after each step.

        It also reads the announced step, which ``sync_point.should_stop`` needs.
        """
        update, minutes = self._state.schedule.update, self._config.SAVE_EVERY_MINUTES
        is_agreed = self.sync_point.reached(update)
        if is_main() and minutes and time.monotonic() - self._saved_at > 60.0 * minutes:
            self.sync_point.announce(update)
        every = self._config.SAVE_EVERY_UPDATES
        return is_agreed or bool(every and update % every == 0)

    def save_update(self, evaluation_due: bool, means: EpochMeans) -> None:
        """Save a checkpoint named after the current step; see ``save_epoch``."""
        update = self._state.schedule.update
        self._save(checkpoint_store.update_name(update), f"update {update}", evaluation_due, means)

    def save_epoch(self, epoch: int, evaluation_due: bool, means: EpochMeans) -> None:
        """Save a checkpoint at the end of ``epoch``.

        If ``evaluation_due``, it notes until ``note_evaluation`` is called that a resumed run has to evaluate first.
        """
        self._save(checkpoint_store.epoch_name(epoch), f"epoch {epoch}", evaluation_due, means)

    def note_evaluation(
        self, epoch: int, name: str, value: float | None, more_is_better: bool | None, line: str, counts: bool = True
    ) -> bool:
        """Count the evaluation of ``epoch``, and return whether it is the best so far.

        One that does not count is the best only if there is no other, and not for a resumed run. One whose ``value`` is
        not defined, None, is better than others like it alone. If ``more_is_better`` is None, each is better than those
        before.
        """
        best = self.best
        if best is not None and best["name"] != name:  # the earlier run compared another metric
            best, self.evaluations = None, []
        if counts:
            self.evaluations = [*self.evaluations, (epoch, value)]
        before = value if best is None or more_is_better is None else best["value"]
        if before is None or value is None:
            is_better = value is not None or before is None
        else:
            is_better = value >= before if more_is_better else value <= before  # of equal ones, the later is best
        if best is None or (counts and is_better):
            best = {"name": name, "value": value, "epoch": epoch, "line": line}
        is_best, self.best = best is not self.best, best
        return is_best

    def record_evaluation(self, epoch: int, is_best: bool, values: dict[str, float]) -> None:
        """Record the evaluation of ``epoch`` in its checkpoint, after ``metrics.jsonl`` has it; link it if best."""
        best, evaluations = self.best, self.evaluations
        assert best is not None, "call note_evaluation first"
        directory = self.folder / checkpoint_store.epoch_name(epoch)
        prune = self._pruning(directory)

        def write() -> None:
            checkpoint_store.write_evaluation(directory, best, evaluations, values)
            if is_best:
                checkpoint_store.link(self.folder, "best", directory)
            prune()

        self._on_main(write)

    def describe_undefined(self, epoch: int) -> str:
        """Say which checkpoint is the best after the evaluation of ``epoch``, whose value is not defined."""
        assert self.best is not None, "call note_evaluation first"
        best = self.best["epoch"]
        which = "the last one, until it is" if self.best["value"] is None else f"that of epoch {best}, as before"
        return f"note: {self.best['name']} is not defined in epoch {epoch}: the best checkpoint is {which}"

    def format_results(self, line: str, last_epoch: int) -> list[str]:
        """Format the last evaluation, then the best one, whose line ``evaluate`` prints again.

        Of several evaluations the best is high by chance, too, for which its interval does not allow.
        """
        is_chosen = len(self.evaluations) > 1 and not self._task.traits.takes_last
        chosen = "; chosen on these samples: expect worse on others" if is_chosen else ""
        if self.best is None or self.best["epoch"] == last_epoch:
            why = ""
            if self.best is not None and self.best["value"] is None:
                why, chosen = f", as {self.best['name']} is not defined in any evaluation", ""
            return [f"{line} (last and best, epoch {last_epoch}{why}{chosen})"]
        epoch = self.best["epoch"]
        is_here = (self.folder / checkpoint_store.epoch_name(epoch)).exists()
        where = "" if is_here else ", in the folder of the run that this one continues"
        return [f"{line} (last, epoch {last_epoch})", f"{self.best['line']} (best, epoch {epoch}{where}{chosen})"]

    def note_scored(self, epoch: int) -> None:
        """Note the weights that the model has now, in an evaluation after ``epoch``, for ``require_scored``."""
        if is_main():
            self._scored = epoch, digest_state(self._state.model)

    def require_scored(self, epoch: int) -> None:
        """Raise RuntimeError if the checkpoint of ``epoch`` lacks the scored weights; call after ``finish``.

        The main process reads it, and no other rank waits.
        """
        if self._scored is not None and self._scored[0] == epoch:
            directory = self.folder / checkpoint_store.epoch_name(epoch)
            build_plain = functools.partial(build_model, self._config, self._task)
            log = self._run_log.log_and_print
            require_saved(self._state.model, directory, self._scored[1], build_plain, log)

    def link_last(self) -> None:
        """Link ``last`` to the checkpoint that this run began from, if a kill came before its first link."""
        source = None if self._source is None else self._source.resolve()
        if (
            is_main()
            and source
            and source.parent == self.folder.resolve()
            and not os.path.lexists(self.folder / "last")
        ):
            checkpoint_store.link(self.folder, "last", source)

    def describe_last(self, start: int) -> str:
        """Format where a run that stops now continues; ``start``: the step that it began after."""
        last = self.folder / "last"
        if not last.exists():
            return "nothing was saved yet; the same command starts again"
        what = "saved" if self._state.schedule.update > start else "nothing new since"
        last = self.folder / last.resolve().name
        return f"{what} {last}; the same command with -resume=auto continues from there"

    def discard_epoch(self, epoch: int) -> None:
        """Delete the checkpoint of ``epoch``."""
        self.finish()
        self._on_main(lambda: checkpoint_store.discard(self.folder / checkpoint_store.epoch_name(epoch)))
        self.finish()

    def finish(self) -> None:
        """Wait until all requested files are on disk. Every rank must call this. Raises UserError if one is not."""
        self.settle()
        self._raise_failure()

    def settle(self) -> None:
        """Complete the last checkpoint before an error ends the run; an error in writing it is kept for ``finish``."""
        self._background.wait()
        self.log_held_back()

    def log_held_back(self) -> None:
        """Log the held-back "saved" lines, which would otherwise separate an epoch's training and evaluation lines."""
        with printing:
            held, self._held = self._held or [], None
            for line in held:
                self._run_log.log_and_print(line)

    def _save(self, name: str, where: str, evaluation_due: bool, means: EpochMeans) -> None:
        self.finish()
        self._held = [] if evaluation_due and time.monotonic() - self._saved_at < _SOON else None
        windows = [means.window()]
        if world_size() > 1:
            own = {} if self._state.own is None else self._state.own.tensors()
            local = weights_digest(host_values({**self._state.model.state_dict(), **own})), windows[0]
            digests, windows = map(list, zip(*all_gather(local)))
            if len(set(digests)) > 1:
                raise RuntimeError(
                    f"weights differ between ranks after {where}: {digests}; nothing was saved. If ranks skip "
                    "different branches of the model, set TRAIN.FIND_UNUSED_PARAMETERS true"
                )
        shards, ema = self._state.shards, self._state.ema
        moments = averages = None
        if shards is not None:
            moments = shards.collect(self._state.optimizer_state.tensors())
            averages = None if ema is None else shards.collect(ema.state_dict())
        if is_main():
            copy = self._copy_state(name, where, evaluation_due, means.state_dict(windows), moments, averages)
            self._background.do(functools.partial(self._write, copy))
            if self._run_log.held is not None:  # no evaluation before its checkpoint replaces the later ones
                self._background.wait()
        if not self._config.SAVE_IN_BACKGROUND:
            self._raise_failure()
        self._saved_at = time.monotonic()

    def _copy_state(
        self,
        name: str,
        where: str,
        evaluation_due: bool,
        means: dict[str, Any] | None,
        moments: dict[str, np.ndarray] | None,
        averaged: dict[str, np.ndarray] | None,
    ) -> _StateCopy:
        """Copy the current state, so that training may continue while ``_write`` writes it.

        ``moments`` and ``averaged`` are the state of all ranks; None: this rank has all of it.
        """
        state = self._state
        weights, averages = self._copy_weights(averaged)
        extra = {
            "scaler": state.precision.state_dict(),
            "best": self.best,
            "evaluations": self.evaluations,
            "skipped_updates": state.nan_guard.state_dict(),
            "evaluation_due": evaluation_due,
            "global_batch_size": state.sampler.global_batch_size,
            "seed": state.sampler.seed,
            "paddle": paddle.__version__,
            "undecayed": state.undecayed,
            "training_means": means,
            "choices": dict(state.choices),
        }
        optimizer = self._copy_optimizer() if moments is None else moments
        own = {} if state.own is None else {name: each.numpy().copy() for name, each in state.own.tensors().items()}
        run_state = checkpoint_store.RunState(state.position(), optimizer, extra, own)
        about = describe(self._config, self._task, self._datasets)
        network = as_model(state.model)
        if network.works_on == "images":
            size = as_plane(find_built_size(network))
            about[TRAINED_SIZE] = None if size is None else list(size)
        return _StateCopy(name, where, weights, averages, run_state, about, self._pruning(self.folder / name))

    def _copy_weights(self, averaged: dict[str, np.ndarray] | None) -> tuple[Tensors, Tensors | None]:
        """Return weights and averages, copied if they are written in the background; see ``_copy_state``."""
        weights: Tensors = self._state.model.state_dict()
        own = None if self._state.ema is None else self._state.ema.state_dict()
        averages: Tensors | None = own
        if own is not None and averaged is not None:
            names = {key: tensor.name for key, tensor in weights.items()}
            whole = {key: HostTensor(averaged[key], names[key]) for key in names if key in averaged}
            averages = {key: HostTensor(tensor.numpy(), names[key]) for key, tensor in own.items()} | whole
        if self._config.SAVE_IN_BACKGROUND:
            weights = self._copies.copy("weights", weights)
            if averages is not None and averaged is None:
                averages = self._copies.copy("averages", averages)
        return weights, averages

    def _copy_optimizer(self) -> dict[str, np.ndarray]:
        if not self._config.SAVE_IN_BACKGROUND:
            return self._state.optimizer_state.state_dict()
        copies = self._copies.copy("optimizer", self._state.optimizer_state.tensors())
        return {key: copy.array for key, copy in copies.items()}

    def _write(self, copy: _StateCopy) -> None:
        """Write a checkpoint. Raises UserError if a weight is not finite; nothing is written."""
        values = _values(copy.weights)
        broken = not_finite(values)
        if broken:
            raise UserError(
                f"weight '{broken}' is not finite after {copy.where}: training has diverged and nothing was saved; "
                "lower TRAIN.BASE_LR or set TRAIN.GRAD_CLIP, and -resume=auto from the last checkpoint"
            )
        digest = weights_digest(values)
        saved = copy.state._replace(extra={**copy.state.extra, "weights_digest": digest})
        about = {**copy.about, "weights": digest}
        held, held_averages = copy.weights, copy.averages
        if self._base is not None:
            held, held_averages, about[low_rank.KEY] = self._leave_out(self._base, copy.weights, copy.averages)
        before = functools.partial(self._replace_later, copy.state.extra["best"])
        directory = checkpoint_store.save(
            self.folder, copy.name, held, saved, held_averages, about, self._samples, before
        )
        checkpoint_store.link(self.folder, "last", directory)
        copy.prune()
        with printing:
            (self._run_log.log_and_print if self._held is None else self._held.append)(f"saved {directory}")
        self._on_saved(directory)

    def _replace_later(self, best: dict[str, Any] | None) -> None:
        """Let links and record mean the checkpoint that this run began from, in place of later ones.

        In this order, the folder tells the score of the weights that it gives wherever a kill interrupts it.
        """
        if self._run_log.held is None:
            return
        if self._source is not None and self._source.resolve().parent == self.folder.resolve():
            checkpoint_store.link(self.folder, "last", self._source.resolve())
        checkpoint_store.link_best(self.folder, best)
        self._run_log.replace_events()

    def _leave_out(
        self, base: low_rank.LowRankBase, weights: Tensors, averages: Tensors | None
    ) -> tuple[Tensors, Tensors | None, dict[str, Any]]:
        """Return weights and averages without what equals the base in both, and the record for ``about.yaml``."""
        changed = base.find_changed(_values(weights), _values(averages or {}))
        lora = self._config.TRAIN.LORA
        record = base.describe(changed, lora.ALPHA / lora.RANK)
        return _choose(weights, changed), averages and _choose(averages, changed), record

    def _pruning(self, good: Path) -> Callable[[], None]:
        config, position = self._config, self._state.position()
        return lambda: checkpoint_store.prune(
            self.folder,
            self.should_save,
            position["update"],
            config.KEEP_UPDATES,
            epoch=position["epoch"],
            keep_epochs=config.KEEP_EPOCHS,
            good=good,
        )

    def _on_main(self, act: Callable[[], None]) -> None:
        self._raise_failure()
        if is_main():
            self._background.do(act)
        if not self._config.SAVE_IN_BACKGROUND:
            self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise on all ranks a failure that the user can fix; raise any other error only where it happened."""
        failure = self._background.take_failure()
        if failure is not None and not isinstance(failure, UserError):
            raise failure
        problem = broadcast_object(None if failure is None else str(failure))
        if problem is not None:
            raise UserError(problem)


def _choose(tensors: Tensors, names: set[str]) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name in names}


def _values(tensors: Tensors) -> dict[str, np.ndarray]:
    copied = {name: tensor.array for name, tensor in tensors.items() if isinstance(tensor, HostTensor)}
    return copied or host_values(tensors)
