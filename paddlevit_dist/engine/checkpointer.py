"""When a training run is saved, what is saved, and how it is restored; decided once for all ranks."""

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

_SOON = 10.0  # seconds from one checkpoint to the next: their lines stand after those of their epoch
_LOWER_BY = 10  # of nice: a tenth of the time of a processor that a training also wants, all of one that nothing wants


class Checkpointer:
    """Saves and restores a training. Every rank has one and calls the same methods.

    What is saved has ``state_dict`` and ``load_state_dict``; the sampler's and the schedule's hold the position.

    The main process writes in the background, one checkpoint at a time; the others wait for nothing. What goes wrong
    there is raised on every rank by the next of these calls: a save, ``note_evaluation``, ``discard_epoch``,
    ``finish``.

    Args:
        run: its training, of which all but checkpoints is built.

    Attributes:
        folder: the run's ``checkpoints`` folder.
        best: name, value, epoch and line of the best evaluation so far, of equal ones the last.
        agreement: on the next save that no setting foresees.
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
        self._held: list[str] | None = None  # lines of an epoch of seconds, until its evaluation is told

    @functools.cached_property
    def _samples(self) -> dict[str, np.ndarray]:
        """Make what ``checkpoints.read_samples`` returns, in the thread that writes."""
        return list_samples(self._run.datasets, self._run.start.samples)

    # ---- restoring -------------------------------------------------------------------------------------------

    def load_weights(self, directory: Path) -> Any:
        """Load a checkpoint's weights into the model; returns the report."""
        return load_weights(self._run.model, str(directory), strict=True)

    def load(self, directory: Path, state: checkpoints.RunState) -> None:
        """Restore everything but the weights, including the position of the training.

        Raises:
            UserError: a part does not fit.
        """
        self._load_moments(f"-resume={directory}", state.optimizer)
        self._run.precision.load_state_dict(state.extra["scaler"])
        self._run.skipped.load_state_dict(state.extra["skipped_updates"])
        file = directory / AVERAGED
        if self._run.ema is None and file.is_file():
            self._run.record.log_and_print(f"note: {file} is kept as it is: TRAIN.MODEL_EMA is now off")
        else:
            self.continue_average(str(directory), read_state(file) if file.is_file() else None)
        self.begin_after(**{name: state.position[name] for name in ("epoch", "consumed")})
        self.best = state.extra["best"]
        if is_main() and self.best is not None:  # the run may have ended between noting a best one and linking it
            best = self.folder / checkpoints.epoch_name(self.best["epoch"])
            if best.is_dir():
                checkpoints.link(self.folder, "best", best)

    def begin_after(self, epoch: int, consumed: int = 0) -> None:
        """Put the training after ``epoch`` and that many samples of the next, with this run's number of updates."""
        self._run.sampler.load_state_dict({"epoch": epoch, "consumed": consumed})
        self._run.schedule.load_state_dict({"update": self._run.sampler.updates_made})

    def continue_foreign(self, file: str, epoch: int, moments: dict[str, np.ndarray], scaler: dict[str, Any]) -> None:
        """Put a training run of another program after ``epoch``.

        Raises:
            UserError: its optimizer's state does not fit.
        """
        self._load_moments(f"-resume={file}", moments)
        self._run.precision.load_state_dict(scaler)
        self.begin_after(epoch)

    def continue_average(self, source: str, state: dict[str, np.ndarray] | None) -> None:
        """Restore the averaged weights of ``source``, where this run has an average; None: there are none.

        Raises:
            UserError: they do not fit.
        """
        ema, say = self._run.ema, self._run.record.log_and_print
        if ema is None:
            if state is not None:
                say(f"note: the average in {source} is not used: TRAIN.MODEL_EMA is off")
        elif state is None:
            say(f"note: {source} has no averaged weights; the average starts with the resumed ones")
            ema.restart()
        else:
            try:
                ema.load_state_dict(state)
            except ValueError as error:
                raise UserError(f"-resume={source}: {error}") from error

    def _load_moments(self, said: str, state: dict[str, np.ndarray]) -> None:
        try:
            self.optimizer.load_state_dict(state)
        except ValueError as error:
            raise UserError(f"{said}: {error}; use the TRAIN.OPTIMIZER it was saved with, or -pretrained") from error

    # ---- saving ----------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Whether all ranks save now, in the middle of an epoch. Every rank must call this after each update."""
        update, minutes = self._run.schedule.update, self._config.SAVE_EVERY_MINUTES
        is_agreed = self.agreement.reached(update)
        if is_main() and minutes and time.monotonic() - self._saved_at > 60.0 * minutes:
            self.agreement.announce(update)
        every = self._config.SAVE_EVERY_UPDATES
        return is_agreed or bool(every and update % every == 0)

    def save_update(self, evaluation_due: bool) -> None:
        """Save in the middle of an epoch, or at its end."""
        update = self._run.schedule.update
        self._save(checkpoints.update_name(update), f"update {update}", evaluation_due)

    def save_epoch(self, epoch: int, evaluation_due: bool) -> None:
        """Save at the end of ``epoch``; ``evaluation_due`` is noted in the checkpoint until ``note_evaluation``."""
        self._save(checkpoints.epoch_name(epoch), f"epoch {epoch}", evaluation_due)

    def is_own(self, epoch: int, directory: Path | None) -> bool:
        """Whether a checkpoint is this run's own of that epoch."""
        own = self.folder / checkpoints.epoch_name(epoch)
        return directory is not None and own.resolve() == directory.resolve()

    def note_evaluation(self, epoch: int, name: str, value: float, more_is_better: bool, line: str) -> bool:
        """Write into the checkpoint of ``epoch`` that it has been evaluated, with this ``line`` as its result; returns
        whether it is the best so far."""
        best = self.best
        if best is not None and best["name"] != name:  # with other settings it was another number
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
        """Take back the checkpoint of ``epoch``."""
        self.finish()
        self._on_main(lambda: checkpoints.discard(self.folder / checkpoints.epoch_name(epoch)))
        self.finish()

    def finish(self) -> None:
        """Wait until everything that was asked for is on disk. Every rank must call this.

        Raises:
            UserError: something could not be written.
        """
        self.settle()
        self._raise_failure()

    def settle(self) -> None:
        """Wait for what this process is writing, whatever becomes of it: before it ends for another reason."""
        self._background.wait()
        self.log_held_back()

    def log_held_back(self) -> None:
        """Say what was held back, as it would have stood between an epoch's lines of training and evaluation."""
        with printing:
            held, self._held = self._held or [], None
            for line in held:
                self._run.record.log_and_print(line)

    def _save(self, name: str, place: str, evaluation_due: bool) -> None:
        self.finish()
        self._held = [] if evaluation_due and time.monotonic() - self._saved_at < _SOON else None
        windows = [self._run.reports.window()]
        if world_size() > 1:
            own = weights_digest(host_values(self._run.model.state_dict())), windows[0]
            digests, windows = map(list, zip(*all_gather(own)))
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
        """Make what writes the present state, also after the training has gone on.

        Args:
            windows: of the terms of the loss, see ``TrainingLogger.window``, of each rank.
        """
        run = self._run
        weights: Tensors = run.model.state_dict()
        averages: Tensors | None = None if run.ema is None else run.ema.state_dict()
        if self._config.SAVE_IN_BACKGROUND:
            weights = self._copies.of("weights", weights)
            averages = averages and self._copies.of("averages", averages)
            copies = self._copies.of("optimizer", self.optimizer.tensors())
            optimizer = {key: copy.array for key, copy in copies.items()}
        else:
            optimizer = self.optimizer.state_dict()
        position = {**run.sampler.state_dict(), **run.schedule.state_dict()}
        described = describe(self._config, run.task, run.datasets)
        extra = {
            "scaler": run.precision.state_dict(),
            "best": self.best,
            "skipped_updates": run.skipped.state_dict(),
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
            told = {**described, "weights": digest}
            directory = checkpoints.save(self.folder, name, weights, state, averages, told, self._samples)
            checkpoints.link(self.folder, "last", directory)
            prune()
            with printing:
                (run.record.log_and_print if self._held is None else self._held.append)(f"saved {directory}")
            run.callbacks.note_saved(directory)

        return write

    def _pruning(self, good: Path) -> Callable[[], None]:
        """Make what removes the checkpoints that are not needed at this place of a training once ``good`` is there."""
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
        """Have the main process do something once what it writes is written."""
        self._raise_failure()
        if is_main():
            self._background.do(act)
        if not self._config.SAVE_IN_BACKGROUND:
            self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise on all ranks what the user must mend; anything else is a bug and raised where it happened."""
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
    """Does one piece of work after the other in a thread, or each at once where there is to be none.

    On Linux the thread gives way to the training's threads, those of other ranks too, until somebody waits for it: a
    rank that shares its processor with the thread would keep all other ranks waiting in every update.

    Once a piece has failed, those after it are left out until ``take_failure`` is called. The thread is no daemon: the
    interpreter does not end before the work is done.

    Args:
        in_thread: whether ``do`` returns before the work is done.
    """

    def __init__(self, in_thread: bool) -> None:
        self._in_thread = in_thread
        self._threads: list[threading.Thread] = []  # each waits for the one before it
        self._failure: BaseException | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Do this after what was given before; it may not use Paddle."""
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
        """Return when everything is done."""
        for thread in self._threads:
            _give_way(thread, 0)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def take_failure(self) -> BaseException | None:
        """Return what has gone wrong so far, once."""
        failure, self._failure = self._failure, None
        return failure

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._failure is None:
            try:
                work()
            except BaseException as error:
                self._failure = error


def _give_way(thread: threading.Thread, lower_by: int) -> None:
    """Have a thread run ``lower_by`` steps of nice behind the calling one, where the system has that for threads."""
    if sys.platform == "linux" and thread.is_alive() and thread.native_id is not None:
        own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        # The thread may have ended by now; and some users may lower a thread but not raise it again.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, thread.native_id, min(19, own + lower_by))
