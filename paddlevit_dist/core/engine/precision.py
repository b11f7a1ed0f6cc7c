"""Half-precision training and evaluation: autocast and loss scaling, on devices with the kernels."""

import contextlib
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import paddle

from ..distributed import (
    DistributedBatchNorm,
    all_gather,
    communicates_in_forward,
    has_batch_norm,
    list_batch_norms,
    unbias_running_variance,
    world_size,
)
from ..runtime import autocast, device_graph, device_kinds, half_weights, paddle_versions, signals
from ..runtime.errors import UserError
from ..runtime.transfers import is_on_gpu
from ..settings.every_run import RunSettings
from ..tasks.task import Task

_RATIOS = {"incr_ratio": 2.0, "decr_ratio": 0.5, "incr_every_n_steps": 2000, "decr_every_n_nan_or_inf": 1}
_GROUPS_OF_RANKS = 4  # of weights cast together, so that ranks exchange gradients while the backward pass still runs
_LEAST_CAPABILITY = {"float16": 7, "bfloat16": 8}  # major version, below which Paddle's auto_cast has no effect


class LossScale:
    """Dynamic loss scale: doubled after 2,000 consecutive finite steps, halved after each one that is not finite.

    This is the rule of ``paddle.amp.GradScaler`` with its defaults. Paddle's class checks all gradients itself, waits
    for the result, has no effect on a CPU, and fails with a new NumPy. This class takes the result that the step has
    anyway, on the host. ``value`` is a power of two, so that dividing by it is exact.
    """

    def __init__(self) -> None:
        self.value = 65536.0
        self._finite_in_a_row = 0  # since the last change of the scale

    def update(self, is_finite: bool) -> None:
        """Adapt the scale to a step, whether it was made or skipped."""
        self._finite_in_a_row = self._finite_in_a_row + 1 if is_finite else 0
        if not is_finite:
            self.value *= _RATIOS["decr_ratio"]
        elif self._finite_in_a_row == _RATIOS["incr_every_n_steps"]:
            self.value *= _RATIOS["incr_ratio"]
            self._finite_in_a_row = 0

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers for the checkpoint, with the names of Paddle's class."""
        counts = {"incr_count": self._finite_in_a_row, "decr_count": 0}
        return {"scale": [self.value], **_RATIOS, **counts, "use_dynamic_loss_scaling": True}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        self.value, self._finite_in_a_row = float(state["scale"][0]), int(state["incr_count"])


class TrainingPrecision:
    """Forward passes in half precision and, with float16, loss scaling on devices that support it; otherwise float32.

    Weights, gradients, averages and optimizer state are float32 at either level, unlike with ``paddle.amp.decorate``,
    so checkpoints do not depend on the precision. Paddle's CPU build accepts autocast and scaler but computes in
    float32; ``notice`` says so. Raises UserError if this GPU does not support ``dtype``; Paddle would use float32.

    Args:
        dtype: "float16", or "bfloat16", whose range needs no loss scaling.
        level: "O1" or "O2", see ``autocast``.
        on_gpu: whether the device is a GPU, or another one that supports ``dtype``; None: ask Paddle.

    Attributes:
        enabled: whether passes run in half precision.
        notice: a log line; empty if half precision was not requested.
        options: arguments of ``paddle.amp.auto_cast``.
        half_weights: casts weights together in each forward pass; None: Paddle casts each where it is used.
        scaler: the loss scale; None without loss scaling.
    """

    def __init__(self, requested: bool, dtype: str = "float16", level: str = "O1", on_gpu: bool | None = None) -> None:
        if on_gpu is None:
            on_gpu = is_on_gpu() or device_kinds.computes_in(dtype)
            if requested and is_on_gpu():
                _check_capability(dtype)
        self.enabled = requested and on_gpu
        self.notice = ""
        if requested:
            self.notice = (
                f"mixed precision: {dtype}, level {level}"
                if on_gpu
                else "-amp: this device has no half-precision kernels, training continues in float32"
            )
        self.half_weights: half_weights.HalfWeights | None = None
        self.options = autocast.options(dtype, level)
        self.scaler = LossScale() if self.enabled and dtype == "float16" else None

    def autocast(self) -> AbstractContextManager:
        """Return the context manager for forward passes."""
        if not self.enabled:
            return contextlib.nullcontext()
        amp = paddle.amp.auto_cast(**self.options)
        return amp if self.half_weights is None else self._with_half_weights(amp)

    @contextlib.contextmanager
    def _with_half_weights(self, amp: AbstractContextManager) -> Iterator[None]:
        assert self.half_weights is not None
        with self.half_weights.in_use(), amp:  # the casts themselves are not subject to autocast
            yield

    def choose_casts(self, model: paddle.nn.Layer) -> list[str]:
        """Cast the weights of linear layers together if that takes this GPU less time; return log lines."""
        if not self.enabled or not is_on_gpu() or device_kinds.current().is_other:
            return []
        dtype = getattr(paddle, self.options["dtype"])
        parameters = half_weights.list_parameters(model)
        if len(parameters) < 2:
            return []
        # One choice for all ranks, by the slowest, for which the others wait in each update.
        apart, together = map(max, zip(*all_gather(half_weights.time_casts(parameters, dtype))))
        if together < apart:
            groups = _GROUPS_OF_RANKS if world_size() > 1 else 1
            self.half_weights = half_weights.HalfWeights(parameters, dtype, groups)
        how = "together" if together < apart else "one by one"
        times = f"{1e3 * together:.2f} ms together, {1e3 * apart:.2f} ms one by one on this GPU"
        if math.isinf(together):
            times = "this GPU computes something else together"
        return [f"weights of {len(parameters)} tensors are cast to half precision {how}: {times}"]

    def ask_device(self, model: paddle.nn.Layer) -> list[str]:
        """Ask a GPU which products of the model can add their biases in half precision; return log lines."""
        if not self.enabled or not is_on_gpu() or device_kinds.current().is_other:
            return []
        return autocast.ask_device_for_biases(model, self.options["dtype"])

    @property
    def scale(self) -> float:
        """Factor of the loss, and so of the gradients of ``backward``."""
        return 1.0 if self.scaler is None else self.scaler.value

    def backward(self, loss: paddle.Tensor) -> None:
        """Run the backward pass of the loss times ``scale``. A loss that is not finite makes all gradients NaN."""
        # The initial gradient is the scale, or NaN for a loss that is not finite, so that all ranks get NaN gradients.
        if device_graph.is_entering() and self.scaler is not None:
            scale = device_graph.enter_value(lambda _: paddle.full([], self.scale, "float32"))
            loss.backward(paddle.scale(loss.detach(), 0.0) + scale.reshape(loss.shape))
        else:
            loss.backward(paddle.scale(loss.detach(), 0.0, bias=self.scale))

    def update(self, is_finite: bool) -> None:
        """Adapt the loss scale to whether a step was finite."""
        if self.scaler is not None:
            self.scaler.update(is_finite)

    def state_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for the checkpoint."""
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``; without loss scaling, ignore it."""
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)


class EvaluationPrecision(TrainingPrecision):
    """Precision of evaluations and predictions: float32, or with EVAL_AMP half precision on a GPU.

    ``facts`` are remarks for the record of an evaluation; empty for float32.
    """

    def __init__(self, config: RunSettings, on_gpu: bool | None = None) -> None:
        super().__init__(config.EVAL_AMP, config.AMP_DTYPE, config.AMP_LEVEL, on_gpu)
        self.facts = {"precision": f"{config.AMP_DTYPE}, level {config.AMP_LEVEL}"} if self.enabled else {}
        if self.enabled:
            self.notice = f"evaluation in {self.facts['precision']}"
        elif config.EVAL_AMP:
            self.notice = "EVAL_AMP: this device has no half-precision kernels, evaluation is in float32"

    @contextlib.contextmanager
    def patch_forward(self, model: paddle.nn.Layer) -> Iterator[None]:
        """Run the model's forward passes, but not the task's code for outputs, in this precision inside the block."""
        if not self.enabled:
            yield
            return
        self.ask_device(model)  # a run that only evaluates has not asked yet
        forward, is_instance_attribute = model.forward, "forward" in vars(model)  # true for a compiled model

        def in_half(*inputs: Any, **options: Any) -> Any:
            with self.autocast():
                return forward(*inputs, **options)

        model.forward = in_half
        try:
            yield
        finally:
            if is_instance_attribute:
                model.forward = forward
            else:
                del model.forward


def _check_capability(dtype: str) -> None:
    """Raise UserError if the GPU's compute capability does not support ``dtype``, where ``auto_cast`` uses float32.

    Paddle's ``is_float16_supported`` is also true for such GPUs.
    """
    capability, least = paddle.device.cuda.get_device_capability(), _LEAST_CAPABILITY[dtype]
    if capability[0] < least:
        others = [f"AMP_DTYPE {other}" for other, needed in _LEAST_CAPABILITY.items() if needed <= capability[0]]
        raise UserError(
            f"AMP_DTYPE {dtype}: needs a GPU of compute capability {least}.0 or higher, this one has "
            f"{capability[0]}.{capability[1]}: {' or '.join(['remove -amp and EVAL_AMP', *others])}"
        )


def compile_model(config: RunSettings, task: Task, model: paddle.nn.Layer) -> str:
    """Compile the model's passes in place if TO_STATIC is true; return a log line, else an empty one.

    Raises UserError if the task's models cannot be compiled, not in this precision, or a GPU trains.
    """
    if not config.TO_STATIC:
        return ""
    if not task.traits.supports_to_static:
        raise UserError(f"TO_STATIC: task {config.TASK} cannot be compiled; remove TO_STATIC")
    if is_on_gpu() and not config.EVAL:
        raise UserError(
            "TO_STATIC: on GPUs compiled passes keep Paddle's slow gradients of biases: training had 0.8 of the speed "
            "without it (H100); remove TO_STATIC"
        )
    if is_on_gpu() and config.EVAL_AMP and not paddle_versions.compiles_half(config.AMP_DTYPE, config.AMP_LEVEL):
        raise UserError(
            f"TO_STATIC: Paddle {paddle.__version__} compiles half precision only as float16 at level O1, this is "
            f"{config.AMP_DTYPE} at level {config.AMP_LEVEL}: remove TO_STATIC"
        )
    if not config.EVAL and has_batch_norm(model) and not _updates_statistics():
        raise UserError(
            f"TO_STATIC: compiled by Paddle {paddle.__version__} on this device, batch norms keep other running "
            "statistics than without it; remove TO_STATIC"
        )
    compile_passes(model)
    return "passes: compiled (TO_STATIC), once for each batch shape"


def require_compilable_norms(config: RunSettings, model: paddle.nn.Layer) -> None:
    """Raise UserError if TO_STATIC compiles a batch norm that exchanges statistics by this package's code."""
    exchanging = (isinstance(layer, DistributedBatchNorm) for layer in list_batch_norms(model).values())
    if config.TO_STATIC and world_size() > 1 and communicates_in_forward(model) and any(exchanging):
        raise UserError(
            "TO_STATIC: the batch norms of this model exchange statistics (sync), which is not compiled here; set "
            "TRAIN.BATCH_NORM local, or remove TO_STATIC"
        )


def _updates_statistics() -> bool:
    """Try whether the running variance of a compiled batch norm is that of one that is not compiled."""
    variances = []
    for is_compiled in (False, True):
        norm: paddle.nn.Layer = paddle.nn.BatchNorm2D(1)
        model = unbias_running_variance(paddle.nn.Sequential(norm))
        if is_compiled:
            compile_passes(model)
        model(paddle.to_tensor([[[[0.0]]], [[[2.0]]]]))
        variances.append(norm._variance.item())
    return abs(variances[0] - variances[1]) < 1e-3


def compile_passes(model: paddle.nn.Layer) -> None:
    """Replace the model's forward pass by a static graph, in place; parameters, names and state are unchanged."""
    # Run operations serially: in parallel, dropout and stochastic depth would draw random numbers in an order that
    # differs from step to step, and no step could be repeated.
    paddle.set_flags({"FLAGS_new_executor_serial_run": True})
    # Disable CINN, the default on GPUs in Paddle 3.x: its kernels round and draw random numbers differently.
    paddle.jit.to_static(model, full_graph=True, backend=None)
    # Paddle crashes if a signal arrives while it asks for the stack of an operation that it traces.
    model.forward.get_concrete_program = signals.held()(model.forward.get_concrete_program)
