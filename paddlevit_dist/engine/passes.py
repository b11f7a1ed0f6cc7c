"""How a model's passes are computed: as they are written, or compiled to a program (TO_STATIC), and a trial of both."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import paddle

from ..contracts.task import Step, Task
from ..parallel import all_gather, communicates_in_forward, gpu, meet
from ..runtime.errors import UserError
from ..runtime.transfers import is_on_gpu
from .finite import TensorCopies
from .precision import compile_passes
from .steps import COUNTS, loss_of, step_seed
from .watchers import Watcher

TRIED = "auto"
# By how much two ways of computing the same gradients may differ on a GPU, as a share of their size, where fused
# operations and other algorithms round otherwise: ten times what was measured of ViT-Ti's between a GPU and a CPU, 1e-5
# in float32 and 1e-3 with TF32, whose mantissa is float16's; bfloat16's is three bits shorter. Other random numbers, as
# of dropout, change gradients by as much as they are.
_ALLOWED = {"float32": 1e-4, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 8e-2}
_ROUNDS = 3  # passes that are timed, after one that is not
_TINY = 1e-30
_WORTH = 1.03  # a smaller gain is as likely as not the noise of so few rounds


# Loss and gradients of one batch, on the device; None for a parameter that has no part in it.
Results = list[paddle.Tensor | None]


class Comparison(NamedTuple):
    """What one rank has seen.

    Attributes:
        is_equal: loss and gradients are the same, on a GPU within ``allowed_difference``.
        problem: why the model cannot be compiled; None if it was.
    """

    as_written: float  # seconds of a pass
    compiled: float
    compiling: float  # seconds
    is_equal: bool
    problem: str | None


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


class PassesTrial(Watcher):
    """Decides at a run's first batch, where TO_STATIC is auto, whether the model is compiled: if loss and gradients of
    that batch are the same on all ranks, and both passes together are faster. The same means all bits on a CPU, and up
    to rounding on a GPU, where sums are made in other orders. Weights, buffers, gradients and the state of the
    generators are afterwards what they were before.

    Args:
        training: the ``TrainingParts``.
    """

    def __init__(self, training: Any) -> None:
        config, task = training.config, training.task
        self._task, self._model, self._precision, self._seed = task, training.model, training.precision, config.SEED
        self._record = training.record
        self._is_due = config.TO_STATIC == TRIED
        self._allowed = allowed_difference(config, is_on_gpu())
        self._obstacle = None
        if config.TRAIN.RECOMPUTE:
            self._obstacle = "TRAIN.RECOMPUTE needs it, for a compiled model keeps what its backward pass needs"
        elif not task.compiles:
            self._obstacle = f"task {config.TASK} cannot be compiled"

    def update_started(self, step: Step, batches: list[dict[str, Any]]) -> None:
        chosen = self.decide(batches[0], step)
        if chosen is not None:
            self._record.say(chosen)

    def decide(self, batch: dict[str, Any], step: Step) -> str | None:
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

    def _trials(self, batch: dict[str, Any], step: Step) -> tuple[list[Comparison], Any]:
        """What every rank has seen, and this rank's compiled forward pass."""
        # Paddle counts a batch norm's statistics among the parameters.
        still = [tensor for tensor in (*self._model.parameters(), *self._model.buffers()) if tensor.stop_gradient]
        statistics, generators = TensorCopies(still), paddle.get_rng_state()
        inputs = {name: value for name, value in batch.items() if name != COUNTS}

        def make_pass() -> Results:
            self._forget_gradients()
            paddle.seed(step_seed(self._seed, step.update, 0, 0))
            with self._precision.autocast():
                loss = loss_of(self._task.train_step(self._model, dict(inputs), step), {}, 1, 1)
            loss.backward()
            return [loss.detach(), *(parameter.grad for parameter in self._model.parameters())]

        try:
            own, program = compare(self._model, make_pass, statistics.put_back, self._allowed)
        finally:
            self._forget_gradients()
            statistics.put_back()
            paddle.set_rng_state(generators)
        meet()  # gloo does not wait long for a rank that compiles slowly
        return all_gather(own), program

    def _forget_gradients(self) -> None:
        for parameter in self._model.parameters():
            parameter.clear_gradient(False)


def allowed_difference(config: Any, on_gpu: bool) -> float:
    """The largest ``difference`` of two ways of computing the same; 0 on a CPU."""
    if not on_gpu:
        return 0.0
    return _ALLOWED[config.AMP_DTYPE if config.AMP else "tf32" if gpu.rounds_to_tf32() else "float32"]


def compare(
    model: paddle.nn.Layer, make_pass: Callable[[], Results], put_back: Callable[[], None], allowed: float
) -> tuple[Comparison, Any]:
    """Time passes as they are written, then compiled; the model is left as it was.

    Args:
        make_pass: makes a pass and returns what came of it, until the next one.
        put_back: undoes what a pass changes besides gradients, and is not timed.
        allowed: see ``allowed_difference``.
    Returns:
        What was seen, and the compiled forward pass.
    """
    expected, _, as_written = _time(make_pass, put_back)
    compile_passes(model)
    program = model.forward
    try:
        results, first, compiled = _time(make_pass, put_back)
    except Exception as error:  # whatever Paddle's translation of somebody's Python raises
        lines = [line for line in str(error).splitlines() if line.strip()]
        problem = f"{type(error).__name__}: {lines[-1].strip()}" if lines else type(error).__name__
        return Comparison(as_written, 0.0, 0.0, False, problem), program
    finally:
        program.rollback()
    is_equal = difference(expected, results) <= allowed
    return Comparison(as_written, compiled, first - compiled, is_equal, None), program


def _time(make_pass: Callable[[], Results], put_back: Callable[[], None]) -> tuple[Results, float, float]:
    """A copy of the last pass's results, and seconds of the first pass, which compiles, and of the fastest other."""
    seconds: list[float] = []
    results: Results = []
    for _ in range(1 + _ROUNDS):
        put_back()
        del results  # its memory is the next pass's
        _wait()
        started = time.perf_counter()
        results = make_pass()
        _wait()
        seconds.append(time.perf_counter() - started)
    kept = [None if value is None else value.clone() for value in results]  # Paddle frees a gradient that is cleared
    return kept, seconds[0], min(seconds[1:])


def _wait() -> None:
    """Wait for what the device has been asked to compute."""
    if is_on_gpu():
        paddle.device.cuda.synchronize()


@paddle.no_grad()
def difference(one: Results, other: Results) -> float:
    """The sizes of all differences as a share of the sizes of all numbers, read from the device at once: 0 where all
    are equal, not a number where one is not finite, infinite where one side has no gradient.

    Args:
        one, other: of the same model.
    """
    if [value is None for value in one] != [value is None for value in other]:
        return float("inf")
    pairs = [(a.astype("float32"), b.astype("float32")) for a, b in zip(one, other) if a is not None and b is not None]
    apart = paddle.add_n([(a - b).abs().sum() for a, b in pairs])  # in 2.6 a maximum forgets what is not a number
    whole = paddle.add_n([a.abs().sum() for a, _ in pairs])
    return float((apart / paddle.clip(whole, min=_TINY)).item())


def verdict(trials: list[Comparison]) -> tuple[str, bool]:
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
        return f"{start}, they give other gradients, as with dropout ({facts})", False
    if not np.isfinite(gain) or gain < _WORTH:
        return f"{start}, they are no faster ({facts})", False
    return f"compiled passes (TO_STATIC auto): the same gradients, {facts}", True
