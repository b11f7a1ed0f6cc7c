"""Saving and restoring checkpoints of a training run, in step on all ranks."""

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle

from ..checkpoint import store as checkpoints
from ..checkpoint.content import AVERAGED
from ..checkpoint.load import load_weights
from ..checkpoint.store import HostCopies, HostTensor, Tensors, host_values
from ..checkpoint.weights import read_state
from ..distributed import SyncPoint, all_gather, broadcast_object, is_main, world_size
from ..logging.heartbeat import printing
from ..runtime.errors import UserError
from .compatibility import describe, list_samples
from .nan_guard import not_finite, weights_digest
from .optimizer import OptimizerState

if TYPE_CHECKING:
    from .trainer import Trainer

_SOON = 10.0  # seconds; after less time since the last checkpoint, "saved" is logged after the epoch's other lines
_LOWER_BY = 10  # steps of nice: a tenth of the time of a busy processor, all the time of an idle one


class Checkpointer:
    """Saves and restores the state of a training run. Every rank has one and calls the same methods.

    The saved parts have ``state_dict`` and ``load_state_dict``; sampler and schedule hold the position.

    The main process writes in the background, one checkpoint at a time; the other ranks do not wait. If writing fails,
    the next call of ``save_update``, ``save_epoch``, ``note_evaluation``, ``discard_epoch`` or ``finish`` raises the
    error on every rank.

    Args:
        run: the trainer, with all parts of the training except this one.

    Attributes:
        folder: the run's ``checkpoints`` folder.
        optimizer: gives and takes the optimizer's state.
        best: name, value, epoch and line of the best evaluation so far (the latest of equal ones); None before the
            first.
        agreement: the step after which all ranks save or stop, if one is announced.
    """

    def __init__(self, run: "Trainer") -> None:
        self._run, self._config = run, run.config
        self.folder = Path(run.config.SAVE) / "checkpoints"
        self.optimizer = OptimizerState(run.optimizer, run.model)
        self.best: dict[str, Any] | None = None
        self.agreement = SyncPoint()
        self._background = BackgroundWorker(run.config.SAVE_IN_BACKGROUND)
        self._copies = HostCopies()
        self._saved_at = time.monotonic()
        self._held: list[str] | None = None  # "saved" lines of short epochs, until the evaluation is logged

    @functools.cached_property
    def _samples(self) -> dict[str, np.ndarray]:
        """List the samples as ``checkpoints.read_samples`` returns them; computed in the writing thread."""
        return list_samples(self._run.datasets, self._run.start.samples)

    # ---- restoring -------------------------------------------------------------------------------------------

    def load_weights(self, directory: Path) -> Any:
        """Load a checkpoint's weights into the model and return the report."""
        return load_weights(self._run.model, str(directory), strict=True)

    def load(self, directory: Path, state: checkpoints.RunState) -> None:
        """Restore everything except the weights, including the position of the training.

        Args:
            directory: the checkpoint.
            state: its content, as ``checkpoints.read`` returns it.

        Raises:
            UserError: a part of the state does not fit this run.
        """
        self._load_moments(f"-resume={directory}", state.optimizer)
        self._run.precision.load_state_dict(state.extra["scaler"])
        self._run.nan_guard.load_state_dict(state.extra["skipped_updates"])
        file = directory / AVERAGED
        if self._run.ema is None and file.is_file():
            self._run.record.log_and_print(f"note: {file} is kept unchanged: TRAIN.MODEL_EMA is now off")
        else:
            self.continue_average(str(directory), read_state(file) if file.is_file() else None)
        self.begin_after(**{name: state.position[name] for name in ("epoch", "consumed")})
        self.best = state.extra["best"]
        if is_main() and self.best is not None:  # the run may have ended before it linked the best one
            best = self.folder / checkpoints.epoch_name(self.best["epoch"])
            if best.is_dir():
                checkpoints.link(self.folder, "best", best)

    def begin_after(self, epoch: int, consumed: int = 0) -> None:
        """Set the position to ``consumed`` samples after the end of ``epoch``, and the schedule to match."""
        self._run.sampler.load_state_dict({"epoch": epoch, "consumed": consumed})
        self._run.schedule.load_state_dict({"update": self._run.sampler.updates_made})

    def continue_foreign(self, file: str, epoch: int, moments: dict[str, np.ndarray], scaler: dict[str, Any]) -> None:
        """Restore moments, loss scale and epoch from a checkpoint that another program wrote.

        Args:
            file: the checkpoint's path, for messages.
            epoch: the last epoch it has trained.
            moments: the optimizer's state by "kind/parameter name".
            scaler: state of the loss scaler.

        Raises:
            UserError: the optimizer's state does not fit.
        """
        self._load_moments(f"-resume={file}", moments)
        self._run.precision.load_state_dict(scaler)
        self.begin_after(epoch)

    def continue_average(self, source: str, state: dict[str, np.ndarray] | None) -> None:
        """Restore the averaged weights if this run keeps an average.

        Args:
            source: the checkpoint's path, for messages.
            state: its averaged weights by name; None: it has none, and the average restarts from the weights.

        Raises:
            UserError: they do not fit the model.
        """
        ema, log = self._run.ema, self._run.record.log_and_print
        if ema is None:
            if state is not None:
                log(f"note: the average in {source} is not used: TRAIN.MODEL_EMA is off")
        elif state is None:
            log(f"note: {source} has no averaged weights; the average starts with the resumed ones")
            ema.restart()
        else:
            try:
                ema.load_state_dict(state)
            except ValueError as error:
                raise UserError(f"-resume={source}: {error}") from error

    def _load_moments(self, option: str, state: dict[str, np.ndarray]) -> None:
        try:
            self.optimizer.load_state_dict(state)
        except ValueError as error:
            raise UserError(f"{option}: {error}; use the TRAIN.OPTIMIZER it was saved with, or -pretrained") from error

    # ---- saving ----------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Return whether all ranks save now, within an epoch. Every rank must call this after each step."""
        update, minutes = self._run.schedule.update, self._config.SAVE_EVERY_MINUTES
        is_agreed = self.agreement.reached(update)
        if is_main() and minutes and time.monotonic() - self._saved_at > 60.0 * minutes:
            self.agreement.announce(update)
        every = self._config.SAVE_EVERY_UPDATES
        return is_agreed or bool(every and update % every == 0)

    def save_update(self, evaluation_due: bool) -> None:
        """Save a checkpoint named after the current step."""
        update = self._run.schedule.update
        self._save(checkpoints.update_name(update), f"update {update}", evaluation_due)

    def save_epoch(self, epoch: int, evaluation_due: bool) -> None:
        """Save a checkpoint at the end of ``epoch``.

        Args:
            epoch: the epoch, from 1.
            evaluation_due: whether an evaluation follows. The checkpoint notes it until ``note_evaluation`` is called,
                so that a resumed run evaluates first.
        """
        self._save(checkpoints.epoch_name(epoch), f"epoch {epoch}", evaluation_due)

    def is_own(self, epoch: int, directory: Path | None) -> bool:
        """Return whether ``directory`` is the checkpoint that this run wrote after that epoch."""
        checkpoint = self.folder / checkpoints.epoch_name(epoch)
        return directory is not None and checkpoint.resolve() == directory.resolve()

    def note_evaluation(self, epoch: int, name: str, value: float, more_is_better: bool, line: str) -> bool:
        """Record in the checkpoint of ``epoch`` that it is evaluated, and link it as the best one if it is.

        Args:
            epoch: the evaluated epoch.
            name: name of the value that chooses the best checkpoint.
            value: that value.
            more_is_better: whether larger values are better.
            line: log line of the evaluation.

        Returns:
            Whether the evaluation is the best so far.
        """
        best = self.best
        if best is not None and best["name"] != name:  # the earlier run compared another metric
            best = None
        if best is None or (value >= best["value"] if more_is_better else value <= best["value"]):
            best = {"name": name, "value": value, "epoch": epoch, "line": line}
        is_best, self.best = best is not self.best, best
        directory = self.folder / checkpoints.epoch_name(epoch)
        prune = self._pruning(directory)

        def write() -> None:
            checkpoints.write_evaluation(directory, best)
            if is_best:
                checkpoints.link(self.folder, "best", directory)
            prune()

        self._on_main(write)
        return is_best

    def discard_epoch(self, epoch: int) -> None:
        """Delete the checkpoint of ``epoch``."""
        self.finish()
        self._on_main(lambda: checkpoints.discard(self.folder / checkpoints.epoch_name(epoch)))
        self.finish()

    def finish(self) -> None:
        """Wait until all requested files are on disk. Every rank must call this.

        Raises:
            UserError: a file could not be written.
        """
        self.settle()
        self._raise_failure()

    def settle(self) -> None:
        """Wait until this process has written its files, and keep any error for ``finish``.

        A run that ends with another error calls this, so that its last checkpoint is complete.
        """
        self._background.wait()
        self.log_held_back()

    def log_held_back(self) -> None:
        """Log the held-back "saved" lines, which would otherwise separate an epoch's training and evaluation lines."""
        with printing:
            held, self._held = self._held or [], None
            for line in held:
                self._run.record.log_and_print(line)

    def _save(self, name: str, place: str, evaluation_due: bool) -> None:
        self.finish()
        self._held = [] if evaluation_due and time.monotonic() - self._saved_at < _SOON else None
        windows = [self._run.reports.window()]
        if world_size() > 1:
            local = weights_digest(host_values(self._run.model.state_dict())), windows[0]
            digests, windows = map(list, zip(*all_gather(local)))
            if len(set(digests)) > 1:
                raise RuntimeError(
                    f"weights differ between ranks after {place}: {digests}; nothing was saved. If ranks skip "
                    "different branches of the model, set TRAIN.FIND_UNUSED_PARAMETERS true"
                )
        if is_main():
            self._background.do(self._writing(name, place, evaluation_due, windows))
        if not self._config.SAVE_IN_BACKGROUND:
            self._raise_failure()
        self._saved_at = time.monotonic()

    def _writing(self, name: str, place: str, evaluation_due: bool, windows: list[Any]) -> Callable[[], None]:
        """Copy the current state and return the function that writes it, which may run while training continues.

        Args:
            name: the checkpoint's folder name.
            place: epoch or step, for messages.
            evaluation_due: see ``save_epoch``.
            windows: loss terms of each rank, see ``TrainingLogger.window``.
        """
        run = self._run
        weights: Tensors = run.model.state_dict()
        averages: Tensors | None = None if run.ema is None else run.ema.state_dict()
        if self._config.SAVE_IN_BACKGROUND:
            weights = self._copies.copy("weights", weights)
            averages = averages and self._copies.copy("averages", averages)
            copies = self._copies.copy("optimizer", self.optimizer.tensors())
            optimizer = {key: copy.array for key, copy in copies.items()}
        else:
            optimizer = self.optimizer.state_dict()
        position = {**run.sampler.state_dict(), **run.schedule.state_dict()}
        described = describe(self._config, run.task, run.datasets)
        extra = {
            "scaler": run.precision.state_dict(),
            "best": self.best,
            "skipped_updates": run.nan_guard.state_dict(),
            "evaluation_due": evaluation_due,
            "global_batch_size": run.sampler.global_batch_size,
            "seed": run.sampler.seed,
            "paddle": paddle.__version__,
            "undecayed": run.undecayed,
            "training_means": run.reports.state_dict(windows),
        }
        prune = self._pruning(self.folder / name)

        def write() -> None:
            values = _values(weights)
            broken = not_finite(values)
            if broken:
                raise UserError(
                    f"weight '{broken}' is not finite after {place}: training has diverged and nothing was saved; "
                    "lower TRAIN.BASE_LR or set TRAIN.GRAD_CLIP, and -resume=auto from the last checkpoint"
                )
            digest = weights_digest(values)
            state = checkpoints.RunState(position, optimizer, {**extra, "weights_digest": digest})
            about = {**described, "weights": digest}
            directory = checkpoints.save(self.folder, name, weights, state, averages, about, self._samples)
            checkpoints.link(self.folder, "last", directory)
            prune()
            with printing:
                (run.record.log_and_print if self._held is None else self._held.append)(f"saved {directory}")
            run.callbacks.note_saved(directory)

        return write

    def _pruning(self, good: Path) -> Callable[[], None]:
        """Return the function that deletes checkpoints no longer needed, once the checkpoint ``good`` exists."""
        config, update, epoch = self._config, self._run.schedule.update, self._run.sampler.state_dict()["epoch"]
        return lambda: checkpoints.prune(
            self.folder,
            self._run.should_save,
            update,
            config.KEEP_UPDATES,
            epoch=epoch,
            keep_epochs=config.KEEP_EPOCHS,
            good=good,
        )

    def _on_main(self, act: Callable[[], None]) -> None:
        """Run ``act`` in the main process after its pending writes."""
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


def _values(tensors: Tensors) -> dict[str, np.ndarray]:
    copied = {name: tensor.array for name, tensor in tensors.items() if isinstance(tensor, HostTensor)}
    return copied or host_values(tensors)


class BackgroundWorker:
    """Runs functions one after the other in a thread, or immediately.

    On Linux, the thread has a lower priority than the training threads of all ranks until a caller waits for it. A rank
    that shares its processor with a thread of equal priority would delay all ranks in every step.

    After a function has failed, later ones are skipped until ``take_failure`` is called. The thread is non-daemonic:
    the interpreter waits for it at exit.

    Args:
        in_thread: whether ``do`` returns before its function has run.
    """

    def __init__(self, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._threads: list[threading.Thread] = []  # each waits for the one before it
        self._failure: BaseException | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Run ``work`` after the functions passed earlier; it must not use Paddle."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        before = self._threads[-1:]

        def run() -> None:
            for thread in before:
                thread.join()
            self._attempt(work)

        if self._in_thread:
            thread = threading.Thread(target=run, name="saving")
            thread.start()
            _give_way(thread, _LOWER_BY)
            self._threads.append(thread)
        else:
            self._attempt(work)

    def wait(self) -> None:
        """Wait until all functions have run."""
        for thread in self._threads:
            _give_way(thread, 0)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def take_failure(self) -> BaseException | None:
        """Return the first failure since the last call, or None, and forget it."""
        failure, self._failure = self._failure, None
        return failure

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._failure is None:
            try:
                work()
            except BaseException as error:
                self._failure = error


def _give_way(thread: threading.Thread, lower_by: int) -> None:
    """Set a thread's nice value to the caller's plus ``lower_by``, on systems that have one per thread."""
    if sys.platform == "linux" and thread.is_alive() and thread.native_id is not None:
        priority = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        # The thread may have ended, and unprivileged users may lower a priority but not raise it again.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, thread.native_id, min(19, priority + lower_by))
