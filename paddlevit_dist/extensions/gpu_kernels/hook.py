"""The hook of GPU_KERNELS: before the first update, it replaces layers where the GPU agrees with Paddle."""

import importlib.util
import math
from typing import Any

import paddle

from ...core.distributed import all_gather
from ...core.engine.hooks import Hook
from ...core.engine.precision import TrainingPrecision
from ...core.engine.trainer import Trainer
from ...core.launch import gpu
from ...core.runtime import autocast, device_kinds
from ...images.models.layers import DropPath

_Case = tuple[str, int, str]  # kernel, width and dtype

# The largest difference, as a share of the largest value: sums of float32 in another order, or four roundings.
BOUNDS = {"float32": 2.0**-15, "float16": 2.0**-9, "bfloat16": 2.0**-6}
_TF32_BOUND = BOUNDS["float16"]  # the same digits
_NOT_USED = "fused kernels are not used (GPU_KERNELS)"


class FusedKernelsHook(Hook):
    """Train by fused kernels. Evaluations, exports and the names of weights do not change."""

    def __init__(self, run: Trainer) -> None:
        setting = run.config["GPU_KERNELS"]
        if setting == "auto" and (importlib.util.find_spec("triton") is None or _has_both_drops(run.model)):
            setting = False
        if run.state.choose("GPU_KERNELS", setting):
            for line in use_fused_kernels(run.model, run.precision):
                run.run_log.log_and_print(line)


def _has_both_drops(model: paddle.nn.Layer) -> bool:
    """Return whether a model has dropout and stochastic depth, which the kernels draw together.

    Such a run was compared with plain ones by training on an H200, and its loss after 132 updates was higher: 1.938
    (standard deviation 0.08) for 1.837 (0.05), of four seeds each. Until that is explained, "auto" is off there.
    """
    layers = model.sublayers()
    has_dropout = any(isinstance(layer, paddle.nn.Dropout) and layer.p for layer in layers)
    return has_dropout and any(isinstance(layer, DropPath) and layer.rate for layer in layers)


def use_fused_kernels(model: paddle.nn.Layer, precision: TrainingPrecision) -> list[str]:
    """Replace the layers of a model that this device computes by fused kernels as Paddle's operations do.

    Args:
        model: changed in place.
        precision: of the training passes.

    Returns:
        Log lines: what is used, and why something is not.
    """
    reason = _start_triton()
    differences: dict[_Case, float] = {}
    if not reason:
        try:
            differences = _ask_device(model, precision)
        except Exception as error:  # Triton and Paddle raise many types for what an installation or a device lacks
            reason = _one_line(error)
    of_ranks = all_gather((reason, differences))
    reason = next((one for one, _ in of_ranks if one), "")
    if reason:
        return [f"{_NOT_USED}: {reason}"]
    # A case of one rank alone, as in another precision, is not right on all of them.
    cases = {case: None for _, of_rank in of_ranks for case in of_rank}
    differences = {case: max(of_rank.get(case, math.inf) for _, of_rank in of_ranks) for case in cases}
    if not differences:
        return [f"{_NOT_USED}: this network has none of the layers that they compute"]
    import triton

    from . import weight_gradients
    from .layers import fuse, list_weights

    wrong: dict[Any, str] = {}
    for (kernel, width, dtype), difference in differences.items():
        bound = _TF32_BOUND if (kernel, dtype) == ("attention", "float32") else BOUNDS[dtype]
        if not difference <= bound:
            wrong[kernel, width] = (
                f"{_NOT_USED} for the {kernel} of width {width}: in {dtype} this device differs from Paddle's "
                f"operations by {difference:.1e} of the largest value"
            )
    products = precision.options["dtype"] if precision.enabled else "float32"
    numbers = fuse(model, {(kernel, width) for kernel, width, _ in differences} - set(wrong), products)
    if not numbers:
        return list(wrong.values())
    layers = ", ".join(f"{number} {name}" for name, number in numbers.items())
    lines = [f"fused kernels (GPU_KERNELS): {layers}, by Triton {triton.__version__}", *wrong.values()]
    if precision.enabled and "ViTBlock" in numbers:
        with autocast.off():
            lines += weight_gradients.ask_device(list_weights(model), precision.options["dtype"])
    return lines


def _ask_device(model: paddle.nn.Layer, precision: TrainingPrecision) -> dict[_Case, float]:
    """Measure the difference from Paddle's operations of each kernel for the model, in each dtype of its passes."""
    from .device_check import MEASURES
    from .layers import list_attention, list_kernels

    differences: dict[_Case, float] = {}
    for kernel, width in list_kernels(model):
        with autocast.off():
            differences[kernel, width, "float32"] = MEASURES[kernel](width, "float32")
        if precision.enabled:
            dtype = precision.options["dtype"]
            with precision.autocast():
                differences[kernel, width, dtype] = MEASURES[kernel](width, dtype)
    for kernel, channels in list_attention(model) if _may_attend(precision) else []:
        dtype = precision.options["dtype"] if precision.enabled else "float32"
        differences[kernel, channels, dtype] = MEASURES[kernel](channels, dtype)
    return differences


def _may_attend(precision: TrainingPrecision) -> bool:
    """Return whether attention was timed on this kind of GPU, and may round its products as the kernels do."""
    from .attention import CAPABILITY

    rounds = precision.enabled or gpu.rounds_to_tf32()
    return rounds and paddle.device.cuda.get_device_capability() == CAPABILITY


def _start_triton() -> str:
    """Make Triton launch by Paddle's streams; return why it cannot, or an empty text."""
    if device_kinds.current().name != device_kinds.GPU or not device_kinds.is_built_for_cuda():
        return "they need a CUDA GPU"
    try:
        from .driver import DeviceAnswers, use

        index = int(paddle.get_device().partition(":")[2])
        use(
            DeviceAnswers(
                current_device=lambda: index,  # a process has one device
                current_stream=_find_stream,
                capability=paddle.device.cuda.get_device_capability,
                set_device=lambda device: paddle.device.set_device(f"gpu:{device}"),
            )
        )
    except Exception as error:  # no compiler for its launcher, no driver, a version of Triton with another interface
        return _one_line(error)
    return ""


def _find_stream(device: int) -> int:
    """Return the address of the stream in which Paddle queues a device's operations; each launch asks."""
    return paddle.base.core._get_current_stream(device).cuda_stream  # Paddle's function checks its argument first


def _one_line(error: Exception) -> str:
    """Return what an error says, without the frames that Paddle draws around errors of a backward pass."""
    said = [line for line in str(error).splitlines() if line.strip() and "====" not in line]
    return f"{type(error).__name__}: {' '.join(' '.join(said).split())[:300]}"
