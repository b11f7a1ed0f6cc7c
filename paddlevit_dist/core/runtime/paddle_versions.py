"""All differences between the Paddle versions that this package supports (2.6 and 3.x)."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import paddle

from .lazy_names import keep_dynamic_mode

keep_dynamic_mode()
_FROM_SOURCE = "0.0.0"  # the version of a Paddle that its user built: as new as the newest
_IS_3 = not paddle.__version__.startswith("2.")
_VALUES_PER_BLOCK = 65536  # of the fused update on a GPU


_NEWEST = (3, 3)  # newest version that the tests have run on


def needs_older_numpy() -> bool:
    """Return whether this Paddle, 2.6, was built for NumPy 1 and NumPy 2 is installed."""
    return not _IS_3 and int(np.__version__.split(".")[0]) > 1


def supported_capabilities(version: str, cuda: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return the lowest and highest compute capability that Paddle's own build of a version for a CUDA has code for.

    Code for 8.6 also runs on 8.9. None for a Paddle built from source, and from CUDA 12.8 on: not known.
    """
    numbers = cuda.split(".")
    if version == _FROM_SOURCE or numbers[0] not in ("11", "12"):
        return None
    if numbers[0] == "11":
        return (6, 1) if version.startswith("2.") else (6, 0), (8, 9)
    return ((7, 0), (9, 0)) if int(numbers[1]) < 8 else None


def overrides_tf32() -> bool:
    """Return whether this Paddle forbids TF32 when it is imported, by a variable that users may also set (3.3.0)."""
    return paddle.__version__ == "3.3.0"


def notes() -> list[str]:
    """Return log lines about a Paddle that this package was not tested with."""
    if needs_older_numpy():
        return [
            f"Paddle {paddle.__version__} was built for NumPy 1, and this is {np.__version__}: python -m pip install "
            "'numpy<2'"
        ]
    numbers, is_own = paddle.__version__.split(".")[:2], paddle.__version__ == _FROM_SOURCE
    if not is_own and (not all(number.isdigit() for number in numbers) or tuple(map(int, numbers)) <= _NEWEST):
        return []
    kind = "was built from source" if is_own else "is untested"
    return [f"Paddle {paddle.__version__} {kind}; the last version tested with paddlevit_dist is 3.3"]


def has_lists_in_functions() -> bool:
    """Return whether a ``PyLayer`` takes a list of tensors and gives each its gradient; 2.6 gives one all gradients."""
    return _IS_3


def list_unrepeatable() -> set[str]:
    """List operations, by the names of Paddle's kernels, that no CUDA graph repeats.

    The host waits for the length of some results. In Paddle 3 others copy sizes from host memory without waiting, which
    a graph would copy again when that memory is free: the GPU then reads and writes anywhere.
    """
    copying = {"take_along_axis", "put_along_axis"} if _IS_3 else set[str]()
    return {"bincount", "masked_select", "unique", "unique_consecutive", "where_index"} | copying


def compiles_half(dtype: str, level: str) -> bool:
    """Return whether ``paddle.jit.to_static`` supports this precision and level.

    2.6 casts to float16 for bfloat16 too, which is then not scaled, and at O2 assumes float16 parameters.
    """
    return _IS_3 or (dtype, level) == ("float16", "O1")


@contextlib.contextmanager
def as_written() -> Iterator[None]:
    """Run compiled models without compilation inside the block, so that their layers can be inspected."""
    paddle.jit.enable_to_static(False)
    try:
        yield
    finally:
        paddle.jit.enable_to_static(True)


def fused_adamw(
    parameters: list[paddle.Tensor],
    gradients: list[paddle.Tensor],
    rate: paddle.Tensor,
    accumulators: Sequence[list[paddle.Tensor]],
    betas: tuple[float, float],
    epsilon: float,
    decay: float,
) -> None:
    """Update many parameters by AdamW, in place.

    Args:
        parameters: the parameters.
        gradients: their gradients.
        rate: learning rate, float32 (1,).
        accumulators: first and second moments, and the powers of both betas, (1,) each, on the host; a GPU uses the
            first parameter's powers for all.
        betas: decay rates of the moments.
        epsilon: added to the denominator.
        decay: decoupled weight decay.
    """
    largest, is_largest = ([None], [False]) if _IS_3 else ([], [])  # AMSGrad's moments, and their switch
    first, second, *powers = accumulators
    options = (*betas, epsilon, _VALUES_PER_BLOCK, decay, True, False, False, *is_largest)
    paddle._C_ops.fused_adam_(parameters, gradients, rate, first, second, *largest, *powers, None, None, *options)


def create_accumulators(optimizer: paddle.optimizer.Optimizer) -> None:
    """Create an optimizer's moments before its first step, so that saved ones can be loaded."""
    if hasattr(optimizer, "optimizers"):  # it has others in place of accumulators
        for each in optimizer.optimizers:
            create_accumulators(each)
        return
    block = paddle.static.default_main_program().global_block()
    if getattr(optimizer, "helper", None) is None:  # 2.6 only creates it in step()
        optimizer.helper = paddle.base.layer_helper.LayerHelper(type(optimizer).__name__)
    for group in optimizer._param_groups:
        optimizer._create_accumulators(block, group["params"])  # of what is frozen now, too: it may learn later


def values_in_place(tensor: paddle.Tensor) -> np.ndarray | None:
    """Return the tensor's own memory as an array, read-only by convention, while ``tensor.numpy()`` allocates a copy.

    None if the tensor is on a device, or if its type or this NumPy cannot share it.
    """
    # 2.6 would pass a transposed tensor as if it were not transposed.
    is_plain = tensor.place.is_cpu_place() and tensor.is_contiguous() and tensor.dtype != paddle.bfloat16
    if not is_plain or not hasattr(np, "from_dlpack"):  # numpy has it from 1.23 on
        return None
    try:
        values = np.from_dlpack(_DlpackView(tensor.detach()))
    except (RuntimeError, TypeError, ValueError, BufferError):
        return None
    is_same = values.shape == tuple(tensor.shape) and str(values.dtype) == str(tensor.dtype).rpartition(".")[2]
    return values if is_same else None  # 2.6 passes booleans as bytes


class _DlpackView:
    """A tensor of any version for ``numpy.from_dlpack``."""

    def __init__(self, tensor: paddle.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return paddle.utils.dlpack.to_dlpack(self._tensor)

    def __dlpack_device__(self) -> Any:
        return 1, 0  # the host's memory


@contextlib.contextmanager
def check_operations() -> Iterator[None]:
    """Raise a ``RuntimeError`` inside the block that names the first operation whose result is not finite.

    ``paddle.amp.debugging.enable_tensor_checker`` sets the same flags; its ``TensorCheckerConfig`` ends the process
    with a segmentation fault in 2.6, and draws a seed in 3.x.
    """
    names = ("FLAGS_check_nan_inf", "FLAGS_check_nan_inf_level")
    before = paddle.get_flags(list(names))
    paddle.set_flags(dict(zip(names, (True, 0))))
    try:
        yield
    finally:
        paddle.set_flags(before)
