"""Half-precision training: autocast and gradient scaling, where the device has the kernels."""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import paddle

from ..runtime import autocast, device_kinds, paddle_versions
from ..runtime.errors import UserError
from ..runtime.transfers import is_on_gpu
from ..settings.every_run import RunSettings
from ..tasks.task import Task

_RATIOS = {"incr_ratio": 2.0, "decr_ratio": 0.5, "incr_every_n_steps": 2000, "decr_every_n_nan_or_inf": 1}
_LEAST_CAPABILITY = {"float16": 7, "bfloat16": 8}  # major number, below which Paddle's auto_cast does nothing


class LossScale:
    """Doubled after 2,000 finite updates in a row, halved after each that is not: the rule of ``paddle.amp.GradScaler``
    by its defaults, with its state in checkpoints.

    That class looks at all gradients itself, waits for what it finds, does nothing on a CPU, and with a new NumPy fails
    when it prints that the scale is lowered. This one is told what the update has found out anyway, and lives on the
    host.

    Attributes:
        value: what the loss is multiplied by; a power of two, so that dividing by it is exact.
    """

    def __init__(self) -> None:
        self.value = 65536.0
        self._finite_in_a_row = 0  # since the scale has changed

    def update(self, is_finite: bool) -> None:
        """Take note of an update, whether it was made or skipped."""
        self._finite_in_a_row = self._finite_in_a_row + 1 if is_finite else 0
        if not is_finite:
            self.value *= _RATIOS["decr_ratio"]
        elif self._finite_in_a_row == _RATIOS["incr_every_n_steps"]:
            self.value *= _RATIOS["incr_ratio"]
            self._finite_in_a_row = 0

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers for the checkpoint, as Paddle's class names them."""
        counts = {"incr_count": self._finite_in_a_row, "decr_count": 0}
        return {"scale": [self.value], **_RATIOS, **counts, "use_dynamic_loss_scaling": True}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        self.value, self._finite_in_a_row = float(state["scale"][0]), int(state["incr_count"])


class TrainingPrecision:
    """Forward in half precision and, with float16, scaled gradients on a device that has it; plain float32 otherwise.

    Weights, their gradients and averages and the optimizer's state stay float32 at either level, unlike with
    ``paddle.amp.decorate``, so checkpoints do not depend on it.
    Paddle's CPU build accepts autocast and scaler but computes in float32: ``notice`` says so.

    Args:
        requested: whether mixed precision was requested.
        dtype: "float16", or "bfloat16", whose range needs no scaler.
        level: "O1" or "O2", see ``autocast``.
        on_gpu: the device is one, or another that is able; None: ask Paddle.

    Raises:
        UserError: this GPU does not compute in ``dtype``. Paddle would continue in float32.
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
        self.options = autocast.options(dtype, level)
        self.scaler = LossScale() if self.enabled and dtype == "float16" else None

    def autocast(self) -> AbstractContextManager:
        """Context of the forward pass."""
        return paddle.amp.auto_cast(**self.options) if self.enabled else contextlib.nullcontext()

    @property
    def scale(self) -> float:
        """Return what the gradients of ``backward`` are multiplied by."""
        return 1.0 if self.scaler is None else self.scaler.value

    def backward(self, loss: paddle.Tensor) -> None:
        """Backward pass of the loss, times ``scale``. A loss that is not finite makes all gradients NaN."""
        if loss.dtype in (paddle.float16, paddle.bfloat16):
            loss = loss.astype("float32")  # float16 does not hold the scale
        # The scale, or NaN: with the gradients the other ranks learn of this rank's loss. Of the loss's own shape.
        loss.backward(paddle.scale(loss.detach(), 0.0, bias=self.scale))

    def update(self, is_finite: bool) -> None:
        """Adapt the scale to whether an update was finite."""
        if self.scaler is not None:
            self.scaler.update(is_finite)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and lists for the checkpoint."""
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state from ``state_dict``; a run without a scaler ignores one."""
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)


class EvaluationPrecision(TrainingPrecision):
    """The numbers that evaluations and predictions are computed in: float32, or with EVAL_AMP half precision on a GPU.

    Args:
        config: of the run.

    Attributes:
        facts: for the record of an evaluation; empty for float32.
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
        """Inside the block the model's forward passes are computed in this precision. What a task makes of their
        results is not: metrics, and boxes and masks at the size of their images."""
        if not self.enabled:
            yield
            return
        forward, is_own = model.forward, "forward" in vars(model)  # a compiled one is the model's own

        def in_half(*inputs: Any, **options: Any) -> Any:
            with self.autocast():
                return forward(*inputs, **options)

        model.forward = in_half
        try:
            yield
        finally:
            if is_own:
                model.forward = forward
            else:
                del model.forward


def _check_capability(dtype: str) -> None:
    """Paddle's own ``is_float16_supported`` is true of GPUs on which ``auto_cast`` warns and computes in float32."""
    found, least = paddle.device.cuda.get_device_capability(), _LEAST_CAPABILITY[dtype]
    if found[0] < least:
        others = [f"AMP_DTYPE {other}" for other, needed in _LEAST_CAPABILITY.items() if needed <= found[0]]
        raise UserError(
            f"AMP_DTYPE {dtype}: needs a GPU of compute capability {least}.0 or higher, this one has "
            f"{found[0]}.{found[1]}: {' or '.join(['leave out -amp and EVAL_AMP', *others])}"
        )


def compile_model(config: RunSettings, task: Task, model: paddle.nn.Layer) -> str:
    """Compile the model's passes, in place, where TO_STATIC is true.

    Returns:
        A line for the log; empty where they are not compiled.

    Raises:
        UserError: the task's models cannot be compiled, or not in the precision that is asked for.
    """
    if not config.TO_STATIC:
        return ""
    if not task.compiles:
        raise UserError(f"TO_STATIC: task {config.TASK} cannot be compiled; leave it out")
    in_half = is_on_gpu() and (config.EVAL_AMP or (config.AMP and not config.EVAL))
    if in_half and not paddle_versions.compiles_half(config.AMP_DTYPE, config.AMP_LEVEL):
        raise UserError(
            f"TO_STATIC: Paddle {paddle.__version__} compiles half precision only as float16 at level O1, this is "
            f"{config.AMP_DTYPE} at level {config.AMP_LEVEL}: leave TO_STATIC out"
        )
    compile_passes(model)
    return "passes: compiled (TO_STATIC), anew for each shape of a batch"


def compile_passes(model: paddle.nn.Layer) -> None:
    """Replace the model's forward pass by its program, in place; parameters, names and state stay as they are."""
    # In the order of the program: side by side, dropout and stochastic depth would draw from the generator in an order
    # that differs from step to step, and no step could be repeated.
    paddle.set_flags({"FLAGS_new_executor_serial_run": True})
    # Without CINN, which Paddle 3.x takes on GPUs otherwise: its kernels round and draw in other ways.
    paddle.jit.to_static(model, full_graph=True, backend=None)
