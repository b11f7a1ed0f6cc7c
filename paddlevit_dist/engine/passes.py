"""How a model's passes are computed: as they are written, or compiled to a program (TO_STATIC), and a trial of both."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import paddle

from ..contracts.task import Step, Task
from ..errors import UserError
from ..parallel import all_gather, communicates_in_forward, meet
from .finite import Kept
from .precision import Precision, compile_passes
from .steps import COUNTS, loss_of, step_seed

TRIED = "auto"
_ROUNDS = 3  # passes that are timed, after one that is not
_WORTH = 1.03  # a smaller gain is as likely as not the noise of so few rounds


class Passes(NamedTuple):
    """What came of forward and backward passes over one batch.

    Attributes:
        bits: of the loss and of each gradient.
        first_seconds: of the first pass, which compiles.
        seconds: of the fastest of the others.
    """

    bits: List[Optional[bytes]]
    first_seconds: float
    seconds: float


class Trial(NamedTuple):
    """What one rank has seen.

    Attributes:
        problem: why the model cannot be compiled; None if it was.
    """

    as_written: float  # seconds of a pass
    compiled: float
    compiling: float  # seconds
    is_equal: bool
    problem: Optional[str]


def compile_model(config: Any, task: Task, model: paddle.nn.Layer) -> None:
    """Compile the model's passes where TO_STATIC is true.

    Raises:
        UserError: the task's models cannot be compiled.
    """
    if config.TO_STATIC is not True:
        return
    if not task.compiles:
        raise UserError(f"TO_STATIC: task {config.TASK} cannot be compiled; leave it out")
    compile_passes(model)


class PassesTrial:
    """Decides at a run's first batch, where TO_STATIC is auto, whether the model is compiled: if loss and gradients of
    that batch have the same bits on all ranks, and both passes together are faster. Weights, buffers, gradients and the
    state of the generators are afterwards what they were before.

    Args:
        model: the inner model.
        seed: of the run.
    """

    def __init__(self, config: Any, task: Task, model: paddle.nn.Layer, precision: Precision, seed: int) -> None:
        self._task, self._model, self._precision, self._seed = task, model, precision, seed
        self._is_due = config.TO_STATIC == TRIED
        self._obstacle = None
        if config.TRAIN.RECOMPUTE:
            self._obstacle = "TRAIN.RECOMPUTE needs it, for a compiled model keeps what its backward pass needs"
        elif not task.compiles:
            self._obstacle = f"task {config.TASK} cannot be compiled"

    def decide(self, batch: Dict[str, Any], step: Step) -> Optional[str]:
        """Try both ways on the first batch, once, and keep the better one. Every rank must call this.

        Returns:
            A line for the log that says what was chosen and why; None if there was nothing to choose.
        """
        if not self._is_due:
            return None
        self._is_due = False
        if self._obstacle is None and communicates_in_forward(self._model):
            self._obstacle = "its batch norms exchange statistics between ranks"
        if self._obstacle is not None:
            return f"passes as they are written (TO_STATIC auto): {self._obstacle}"
        started = time.perf_counter()
        trials, program = self._trials(batch, step)
        line, is_compiled = verdict(trials)
        if is_compiled:
            self._model.forward = program  # where Paddle puts it, too
        return f"{line}; the trial took {time.perf_counter() - started:.1f} s"

    def _trials(self, batch: Dict[str, Any], step: Step) -> Tuple[List[Trial], Any]:
        """What every rank has seen, and this rank's compiled forward pass."""
        # Paddle counts a batch norm's statistics among the parameters.
        still = [tensor for tensor in (*self._model.parameters(), *self._model.buffers()) if tensor.stop_gradient]
        buffers, generators = Kept(still), paddle.get_rng_state()
        inputs = {name: value for name, value in batch.items() if name != COUNTS}

        def make_pass() -> List[Optional[bytes]]:
            paddle.seed(step_seed(self._seed, step.update, 0, 0))
            with self._precision.autocast():
                loss = loss_of(self._task.train_step(self._model, dict(inputs), step), {}, 1, 1)
            loss.backward()
            gradients = [p.grad for p in self._model.parameters()]
            bits = [loss.numpy().tobytes()]  # waits for the device
            bits += [None if gradient is None else gradient.numpy().tobytes() for gradient in gradients]
            self._forget_gradients()
            buffers.put_back()
            return bits

        try:
            own, program = compare(self._model, make_pass)
        finally:
            self._forget_gradients()
            buffers.put_back()
            paddle.set_rng_state(generators)
        meet()  # gloo does not wait long for a rank that compiles slowly
        return all_gather(own), program

    def _forget_gradients(self) -> None:
        for parameter in self._model.parameters():
            parameter.clear_gradient(False)


def compare(model: paddle.nn.Layer, make_pass: Callable[[], List[Optional[bytes]]]) -> Tuple[Trial, Any]:
    """Time passes as they are written, then compiled; the model is left as it was.

    Returns:
        What was seen, and the compiled forward pass.
    """
    written = _time(make_pass)
    compile_passes(model)
    program = model.forward
    try:
        compiled = _time(make_pass)
    except Exception as error:  # whatever Paddle's translation of somebody's Python raises
        lines = [line for line in str(error).splitlines() if line.strip()]
        problem = f"{type(error).__name__}: {lines[-1].strip()}" if lines else type(error).__name__
        return Trial(written.seconds, 0.0, 0.0, False, problem), program
    finally:
        program.rollback()
    compiling = compiled.first_seconds - compiled.seconds
    return Trial(written.seconds, compiled.seconds, compiling, compiled.bits == written.bits, None), program


def _time(make_pass: Callable[[], List[Optional[bytes]]]) -> Passes:
    seconds = []
    for _ in range(1 + _ROUNDS):
        started = time.perf_counter()
        bits = make_pass()
        seconds.append(time.perf_counter() - started)
    return Passes(bits, seconds[0], min(seconds[1:]))


def verdict(trials: List[Trial]) -> Tuple[str, bool]:
    """A line that says which way is taken and why, and whether it is the compiled one.

    Args:
        trials: of all ranks, of which the slowest counts.
    """
    start = "passes as they are written (TO_STATIC auto): compiled"
    problem = next((trial.problem for trial in trials if trial.problem), None)
    if problem is not None:
        return f"{start}, the model fails with {problem}", False
    gain = max(trial.as_written for trial in trials) / max(trial.compiled for trial in trials)
    compiling = max(trial.compiling for trial in trials)
    facts = f"{gain:.2f} times as fast on the first batch, {compiling:.1f} s to compile"
    if not all(trial.is_equal for trial in trials):
        return f"{start}, they give other bits, as with dropout ({facts})", False
    if not np.isfinite(gain) or gain < _WORTH:
        return f"{start}, they are no faster ({facts})", False
    return f"compiled passes (TO_STATIC auto): the same bits, {facts}", True
