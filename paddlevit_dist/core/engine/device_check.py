"""Compare what a device computes with NumPy before a run begins: a card or a library that is wrong ends it at once.

A device whose kernels compute something else, or nothing, trains without any error: only the losses differ. So each
process computes a few operations of all kinds on its own device, in the run's precision. Cross-entropies have their own
check (``core/losses/device_check.py``), as there are several ways to compute them.

All inputs are multiples of 1/32 between -4 and 4, which float32, TF32, float16 and bfloat16 represent exactly, so only
sums and results are rounded.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F

from ..launch import gpu
from ..runtime import device_kinds
from ..runtime.errors import DeviceFailure
from ..runtime.processor import processor
from ..runtime.transfers import is_on_gpu, read, to_device
from ..settings.every_run import RunSettings
from .fused_optimizers import PerParameterStep
from .precision import EvaluationPrecision, TrainingPrecision

Arrays = Sequence[np.ndarray]
Tensors = Sequence[paddle.Tensor]

# The largest difference, as a share of the operation's largest value. Eight roundings in half precision: a kernel that
# is wrong is off by more, and libraries may round partial sums, which must not end a run. Accelerators of other makers
# may compute float32 by float16 (Ascend does if CANN's ``allow_fp32_to_fp16`` says so).
_BOUNDS = {"float32": 1e-4, "float16": 2.0**-8, "bfloat16": 2.0**-5}
_BOUND_OF_OTHERS = 2.0**-8
_RATE, _DECAY, _MOMENTUM, _BETAS, _EPSILON = 0.1, 0.5, 0.9, (0.9, 0.999), 1e-8


class CheckedOperation(NamedTuple):
    """An operation whose result is known.

    Attributes:
        shapes: shapes of its inputs.
        compute: computes results, and gradients, from tensors in the run's precision.
        reference: computes the same from float64 arrays.
        is_float32: whether it is computed in float32 in every precision, as sums and optimizer steps are.
    """

    shapes: Sequence[Sequence[int]]
    compute: Callable[..., Tensors]
    reference: Callable[..., Arrays]
    is_float32: bool = False


def prepare_device(config: RunSettings, fixed_shapes: bool) -> list[str]:
    """Set up this process's GPU, if it has one, and compare operations on its device with NumPy; return log lines.

    The comparison is in the precisions of the run (see ``check_operations``), once for each device and precision.
    ``fixed_shapes``: see ``gpu.prepare``.
    """
    trains_in_half = config.AMP and not config.EVAL
    if is_on_gpu():
        gpu.prepare(config.TRAIN.TF32, config.DETERMINISTIC, fixed_shapes, config.EVAL_AMP or trains_in_half)
    precision = TrainingPrecision(trains_in_half, config.AMP_DTYPE, config.AMP_LEVEL)
    return check_precision(precision if precision.enabled else EvaluationPrecision(config))


def check_precision(precision: TrainingPrecision) -> list[str]:
    """Compare operations in float32 and, if it is enabled, in the half precision of ``precision``, once a process."""
    names = [paddle.get_device(), *(str(precision.options[name]) for name in ("dtype", "level"))]
    key = tuple(names if precision.enabled else names[:1])
    if key in _checked:
        return []
    lines = check_operations(precision)
    _checked.add(key)
    return lines


_checked: set[tuple[str, ...]] = set()  # names of a device, and of a half precision


def check_operations(
    precision: TrainingPrecision, operations: Mapping[str, CheckedOperation] | None = None, seed: int = 0
) -> list[str]:
    """Compute operations in float32 and the enabled half precision, and compare them with NumPy. Waits once for a GPU.

    Args:
        precision: of the run.
        operations: by name; None: all of ``list_operations``.
        seed: of the inputs.

    Returns:
        Log lines about operations that the device cannot compute at all. A run that needs one will say so itself.

    Raises:
        DeviceFailure: a result is wrong, or there is none.
    """
    generator, lines = np.random.default_rng(seed), []
    results: list[tuple[str, str, Arrays, Tensors]] = []
    for dtype in ["float32", *([precision.options["dtype"]] if precision.enabled else [])]:
        for name, operation in (operations or list_operations()).items():
            if operation.is_float32 and dtype != "float32":
                continue
            arrays = [generator.integers(-128, 129, shape) / 32 for shape in operation.shapes]
            try:
                computed = _compute(operation, arrays, dtype, precision)
            except Exception as error:  # Paddle raises several types for a missing kernel
                kind = paddle.get_device().partition(":")[0]  # without its number: the same line on all ranks
                text = f"note: {kind} computes no {name} in {dtype} ({type(error).__name__})"
                lines.append(f"{text}: it was not compared with NumPy")
                continue
            results.append((name, dtype, operation.reference(*arrays), computed))
    if not results:
        raise DeviceFailure(f"{paddle.get_device()} computes none of {len(lines)} operations; {lines[0]}")
    values = iter(read(*(tensor for *_, tensors in results for tensor in tensors)))
    for name, dtype, expected, tensors in results:
        for right, _ in zip(expected, tensors):
            _require_equal(name, dtype, right, next(values))
    return lines


def _compute(operation: CheckedOperation, arrays: Arrays, dtype: str, precision: TrainingPrecision) -> Tensors:
    """Return results as float32 tensors on the device."""
    inputs = [to_device(array.astype("float32")) for array in arrays]
    is_half = dtype != "float32"
    if is_half:
        inputs = [tensor.astype(dtype) for tensor in inputs]
    for tensor in inputs:
        tensor.stop_gradient = False
    with paddle.enable_grad(), precision.autocast() if is_half else paddle.amp.auto_cast(enable=False):
        results = operation.compute(*inputs)
    return [result.detach().astype("float32") for result in results]


def _require_equal(name: str, dtype: str, expected: np.ndarray, found: np.ndarray) -> None:
    """Raise DeviceFailure if values differ by more than rounding."""
    if found.shape != expected.shape:
        raise DeviceFailure(_describe(name, dtype, f"the shape {expected.shape}", str(found.shape), ""))
    with np.errstate(invalid="ignore"):
        differences = np.nan_to_num(np.abs(found - expected), nan=np.inf)
    bound = max(_BOUNDS[dtype], _BOUND_OF_OTHERS if device_kinds.current().is_other else 0.0)
    is_wrong = differences > bound * np.abs(expected).max()
    if is_wrong.any():
        place = tuple(map(int, np.unravel_index(differences.argmax(), differences.shape)))
        count = f" at {list(place)}, and {is_wrong.sum():,} of {is_wrong.size:,} values are wrong"
        raise DeviceFailure(_describe(name, dtype, f"{expected[place]:.6g}", f"{found[place]:.6g}", count))


def _describe(name: str, dtype: str, expected: str, found: str, count: str) -> str:
    kind = device_kinds.current()
    if kind.name == device_kinds.CPU:
        model, advice = processor()["model"], "run with CPU_TUNING False, or use another build of Paddle"
    else:
        is_cuda = kind.name == device_kinds.GPU and paddle.is_compiled_with_cuda()
        model = paddle.device.cuda.get_device_properties().name if is_cuda else None
        advice = "use a build of Paddle for this device (see `doctor`), another device, or -device=cpu"
    device = f"{paddle.get_device()} ({model})" if model else paddle.get_device()
    return f"{device} computes a wrong {name} in {dtype}: expected {expected}, got {found}{count}; {advice}"


def list_operations() -> dict[str, CheckedOperation]:
    """Return the operations that are compared, by name."""
    images, rows = (4, 6, 35, 33), (150, 96)
    operations = {
        "copy to the device and back": CheckedOperation([rows], lambda x: [x], lambda x: [x]),
        "transpose": CheckedOperation([images], lambda x: [x.transpose(axes) for axes in _ORDERS], _transpose),
        "slice": CheckedOperation([images], lambda x: [x[:, 1:, 3:-2], x[:, :, ::2, 5:]], _slice),
        "split and concat": CheckedOperation(
            [rows], _split, lambda x: [np.concatenate([x[:, 64:], x[:, :32]], axis=1)]
        ),
    }
    for axis in range(3):

        def add(x: Any, axis: int = axis) -> list[Any]:
            return [x.sum(axis=axis)]

        operations[f"sum over axis {axis} of 3"] = CheckedOperation([(40, 50, 60)], add, add, is_float32=True)
    wide, out = (96,), (150, 64)
    operations["product"] = CheckedOperation([rows, (96, 64), out], _with_gradients(paddle.matmul), _product)
    operations["LayerNorm"] = CheckedOperation(
        [rows, wide, wide, rows], _with_gradients(_layer_norm), _layer_norm_in_numpy
    )
    operations["softmax"] = CheckedOperation([rows, rows], _with_gradients(F.softmax), _softmax)
    operations["ReLU"] = CheckedOperation(
        [rows, rows], _with_gradients(F.relu), lambda x, g: [np.maximum(x, 0), g * (x > 0)]
    )
    operations.update(_list_selections(rows))
    steps = [(10,)] * 3
    operations["AdamW step"] = CheckedOperation(steps, _step_adamw, _adamw, is_float32=True)
    operations["momentum step"] = CheckedOperation(steps, _step_momentum, _momentum, is_float32=True)
    return operations


def _list_selections(rows: tuple[int, int]) -> dict[str, CheckedOperation]:
    """Return operations that move values to or from other places, as labels, matches and top-1 do."""
    number, width = rows
    generator = np.random.default_rng(5)
    some = generator.integers(0, number, 70)  # rows, several of them twice
    places = generator.integers(0, width, (number, 7))  # columns of each row, likewise
    other_places = np.argsort(generator.random(rows), axis=1)[:, :7]  # each column once
    few = (number, 7)

    def add_rows(gradient: np.ndarray) -> np.ndarray:
        total = np.zeros(rows)
        np.add.at(total, some, gradient)
        return total

    def add_places(gradient: np.ndarray) -> np.ndarray:
        total = np.zeros(rows)
        np.add.at(total, (np.arange(number)[:, None], places), gradient)
        return total

    def put(x: np.ndarray, values: np.ndarray) -> Arrays:
        changed = x.copy()
        np.put_along_axis(changed, other_places, values, axis=1)
        return [changed]

    def check(
        shapes: Sequence[Sequence[int]], compute: Callable[..., Tensors], reference: Callable[..., Arrays]
    ) -> CheckedOperation:
        return CheckedOperation(shapes, compute, reference, is_float32=True)

    return {
        "gather": check(
            [rows, (70, width)],
            _with_gradients(lambda x: paddle.gather(x, to_device(some))),
            lambda x, gradient: [x[some], add_rows(gradient)],
        ),
        "take_along_axis": check(
            [rows, few],
            _with_gradients(lambda x: paddle.take_along_axis(x, to_device(places), 1)),
            lambda x, gradient: [np.take_along_axis(x, places, 1), add_places(gradient)],
        ),
        "put_along_axis": check(
            [rows, few], lambda x, values: [paddle.put_along_axis(x, to_device(other_places), values, 1)], put
        ),
        "sum into other places": check(
            [(70, width)],
            lambda x: [paddle.scatter_nd_add(paddle.zeros(rows), to_device(some[:, None]), x)],
            lambda x: [add_rows(x)],
        ),
        "largest values and their places": check(
            [rows], _find_largest, lambda x: [np.sort(x, axis=1)[:, :-8:-1]] * 2 + [x.max(axis=1, keepdims=True)]
        ),
        "choice by comparison": check(
            [rows, rows], lambda x, y: [paddle.where(x > y, x, y)], lambda x, y: [np.maximum(x, y)]
        ),
        "labels as rows of ones": check(
            [few],
            lambda x: [x + F.one_hot(to_device(places[:, 0] % 7), 7)],
            lambda x: [x + np.eye(7)[places[:, 0] % 7]],
        ),
    }


def _find_largest(x: paddle.Tensor) -> Tensors:
    """Return the seven largest values of each row, those at their places, and those at the places of the largest."""
    largest, indices = paddle.topk(x, 7, axis=1)
    first = paddle.argmax(x, axis=1, keepdim=True)
    return [largest, *(paddle.take_along_axis(x, chosen, 1) for chosen in (indices, first))]


_ORDERS = [0, 2, 1, 3], [0, 2, 3, 1], [3, 1, 0, 2]


def _transpose(x: np.ndarray) -> Arrays:
    return [x.transpose(axes) for axes in _ORDERS]


def _slice(x: np.ndarray) -> Arrays:
    return [x[:, 1:, 3:-2], x[:, :, ::2, 5:]]


def _split(x: paddle.Tensor) -> Tensors:
    first, _, last = paddle.split(x, 3, axis=1)
    return [paddle.concat([last, first], axis=1)]


def _with_gradients(function: Callable[..., paddle.Tensor]) -> Callable[..., Tensors]:
    """Return a function of inputs and the result's gradient that returns the result and the inputs' gradients."""

    def compute(*tensors: paddle.Tensor) -> Tensors:
        *inputs, gradient = tensors
        result = function(*inputs)
        return [result, *paddle.grad(result, inputs, gradient.detach().astype(result.dtype))]

    return compute


def _product(x: np.ndarray, y: np.ndarray, gradient: np.ndarray) -> Arrays:
    return [x @ y, gradient @ y.T, x.T @ gradient]


def _layer_norm(x: paddle.Tensor, weight: paddle.Tensor, bias: paddle.Tensor) -> paddle.Tensor:
    return F.layer_norm(x, x.shape[-1:], weight.astype("float32"), bias.astype("float32"))


def _layer_norm_in_numpy(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, gradient: np.ndarray) -> Arrays:
    centered = x - x.mean(axis=1, keepdims=True)
    scale = 1 / np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + 1e-5)
    normal, inner = centered * scale, gradient * weight
    means = inner.mean(axis=1, keepdims=True), (inner * normal).mean(axis=1, keepdims=True)
    of_x = scale * (inner - means[0] - normal * means[1])
    return [normal * weight + bias, of_x, (gradient * normal).sum(axis=0), gradient.sum(axis=0)]


def _softmax(x: np.ndarray, gradient: np.ndarray) -> Arrays:
    powers = np.exp(x)
    shares = powers / powers.sum(axis=1, keepdims=True)
    return [shares, shares * (gradient - (shares * gradient).sum(axis=1, keepdims=True))]


class _AdamW(PerParameterStep, paddle.optimizer.AdamW):
    pass


class _Momentum(PerParameterStep, paddle.optimizer.Momentum):
    pass


def _step_adamw(start: paddle.Tensor, *gradients: paddle.Tensor) -> Tensors:
    beta1, beta2 = _BETAS
    return _step(_AdamW, start, gradients, weight_decay=_DECAY, beta1=beta1, beta2=beta2, epsilon=_EPSILON)


def _step_momentum(start: paddle.Tensor, *gradients: paddle.Tensor) -> Tensors:
    return _step(_Momentum, start, gradients, momentum=_MOMENTUM)


def _step(kind: Any, start: paddle.Tensor, gradients: Tensors, **options: Any) -> Tensors:
    """Return ten parameters after a step with each of the gradients, by Paddle's own update."""
    with paddle.utils.unique_name.guard():  # the names of later parameters must not change
        zeros = paddle.nn.initializer.Constant(0.0)  # uses no random numbers
        parameter = paddle.create_parameter(start.shape, "float32", default_initializer=zeros)
        optimizer = kind(learning_rate=_RATE, parameters=[parameter], **options)
        with paddle.no_grad():
            parameter.add_(start.detach())
        for gradient in gradients:
            parameter.grad = gradient.detach()
            optimizer.step()
    return [parameter]


def _adamw(values: np.ndarray, *gradients: np.ndarray) -> Arrays:
    """Make AdamW's steps (I. Loshchilov, F. Hutter, arXiv 1711.05101, algorithm 2), decay times the learning rate."""
    first, second = np.zeros_like(values), np.zeros_like(values)
    beta1, beta2 = _BETAS
    for number, gradient in enumerate(gradients, 1):
        first = beta1 * first + (1 - beta1) * gradient
        second = beta2 * second + (1 - beta2) * gradient**2
        direction = first / (1 - beta1**number) / (np.sqrt(second / (1 - beta2**number)) + _EPSILON)
        values = values * (1 - _RATE * _DECAY) - _RATE * direction
    return [values]


def _momentum(values: np.ndarray, *gradients: np.ndarray) -> Arrays:
    velocity = np.zeros_like(values)
    for gradient in gradients:
        velocity = _MOMENTUM * velocity + gradient
        values = values - _RATE * velocity
    return [values]
