"""How a model's passes are computed: as they are written, or compiled to a program (TO_STATIC), and a trial of both."""

import math
import time
from collections.abc import Callable
from typing import Any

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
_AS_WRITTEN = "passes as they are written (TO_STATIC auto)"
# By how much two ways of computing the same gradients may differ on a GPU, as a share of their size, where fused
# operations and other algorithms round otherwise: ten times what was measured of ViT-Ti's between a GPU and a CPU, 1e-5
# in float32 and 1e-3 with TF32, whose mantissa is float16's; bfloat16's is three bits shorter. Other random numbers, as
# of dropout, make gradients that differ by as much as they are.
_ALLOWED = {"float32": 1e-4, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 8e-2}
_ROUNDS = 3  # passes that are timed, after one that is not
_TINY = 1e-30
_WORTH = 1.03  # a smaller gain is as likely as not the noise of so few rounds

# Loss and gradients of one batch, on the device; None for a parameter that has no part in it.
Results = list[paddle.Tensor | None]
# What one rank has seen: seconds of a pass as it is written, of a compiled one, and of compiling; and why the compiled
# one cannot be taken, None if it can.
Trial = tuple[float, float, float, str | None]


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
        self._training = training
        self._is_due = training.config.TO_STATIC == TRIED

    def update_started(self, step: Step, batches: list[dict[str, Any]]) -> None:
        if not self._is_due:
            return
        self._is_due = False
        obstacle = self._obstacle()
        line = f"{_AS_WRITTEN}: {obstacle}" if obstacle else self._choose(batches[0], step)
        self._training.record.say(line)

    def _obstacle(self) -> str | None:
        config, task = self._training.config, self._training.task
        if config.TRAIN.RECOMPUTE:
            return "TRAIN.RECOMPUTE needs it, for a compiled model keeps what its backward pass needs"
        if not task.compiles:
            return f"task {config.TASK} cannot be compiled"
        if communicates_in_forward(self._training.model):
            return "its batch norms exchange statistics between ranks"
        return None

    def _choose(self, batch: dict[str, Any], step: Step) -> str:
        """Try both ways on a batch and keep the better one; the line about it. Every rank must call this."""
        training, model, started = self._training, self._training.model, time.perf_counter()
        # Paddle counts a batch norm's statistics among the parameters.
        still = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.stop_gradient]
        statistics, generators = TensorCopies(still), paddle.get_rng_state()
        inputs = {name: value for name, value in batch.items() if name != COUNTS}

        def put_back() -> None:
            statistics.put_back()
            for parameter in model.parameters():
                parameter.clear_gradient(False)

        def make_pass() -> Results:
            paddle.seed(step_seed(training.config.SEED, step.update, 0, 0))
            with training.precision.autocast():
                loss = loss_of(training.task.train_step(model, dict(inputs), step), {}, 1, 1)
            loss.backward()
            return [loss.detach(), *(parameter.grad for parameter in model.parameters())]

        try:
            own, program = compare(model, make_pass, put_back, allowed_difference(training.config, is_on_gpu()))
        finally:
            put_back()
            paddle.set_rng_state(generators)
        meet()  # gloo does not wait long for a rank that compiles slowly
        line, is_compiled = verdict(all_gather(own))
        if is_compiled:
            model.forward = program  # where Paddle puts it, too
        return f"{line}; the trial took {time.perf_counter() - started:.1f} s"


def allowed_difference(config: Any, on_gpu: bool) -> float:
    """The largest ``difference`` of two ways of computing the same; 0 on a CPU."""
    if not on_gpu:
        return 0.0
    return _ALLOWED[config.AMP_DTYPE if config.AMP else "tf32" if gpu.rounds_to_tf32() else "float32"]


def compare(
    model: paddle.nn.Layer, make_pass: Callable[[], Results], put_back: Callable[[], None], allowed: float
) -> tuple[Trial, Any]:
    """Time passes as they are written, then compiled; returns what was seen, and the compiled forward pass. The model
    keeps the written one.

    Args:
        put_back: undoes what a pass changes, and is not timed.
        allowed: see ``allowed_difference``.
    """
    expected, _, as_written = _time(make_pass, put_back)
    compile_passes(model)
    program = model.forward
    try:
        results, first, compiled = _time(make_pass, put_back)
    except Exception as error:  # whatever Paddle's translation of somebody's Python raises
        last = [line.strip() for line in str(error).splitlines() if line.strip()][-1:]
        return (as_written, 0.0, 0.0, f"the model fails with {': '.join([type(error).__name__, *last])}"), program
    finally:
        program.rollback()
    problem = None if difference(expected, results) <= allowed else "they give other gradients, as with dropout"
    return (as_written, compiled, first - compiled, problem), program


def _time(make_pass: Callable[[], Results], put_back: Callable[[], None]) -> tuple[Results, float, float]:
    """A copy of the last pass's results, and seconds of the first pass, which compiles, and of the fastest other."""
    seconds: list[float] = []
    results: Results = []
    for _ in range(1 + _ROUNDS):
        del results  # its memory is the next pass's
        put_back()
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


def verdict(trials: list[Trial]) -> tuple[str, bool]:
    """A line that says which way is taken and why, and whether it is the compiled one.

    Args:
        trials: of all ranks, of which the slowest counts.
    """
    as_written, compiled, compiling = (max(seconds) for seconds in zip(*(trial[:3] for trial in trials)))
    gain = as_written / compiled if compiled else math.nan
    facts = f" ({gain:.2f} times as fast on the first batch, {compiling:.1f} s to compile)" if compiled else ""
    problem = next((trial[3] for trial in trials if trial[3]), None if gain >= _WORTH else "they are no faster")
    if problem is not None:
        return f"{_AS_WRITTEN}: compiled, {problem}{facts}", False
    return f"compiled passes (TO_STATIC auto): the same gradients{facts}", True
