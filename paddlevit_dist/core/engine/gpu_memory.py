"""Turns out-of-memory errors of a GPU into one line with the sizes and with advice."""

import contextlib
import re
from collections.abc import Iterator

import paddle

from ..distributed import rank
from ..runtime import device_kinds
from ..runtime.errors import DeviceFailure, UserError
from ..settings.every_run import RunSettings

# From Paddle's allocators, 2.6 and 3.x; one of them writes "GPU Virtual Memory".
_ALLOCATION = re.compile(
    r"Out of memory error on GPU.*? (?P<number>\d+)\.\s+Cannot allocate (?P<requested>\S+) memory on GPU.*?, "
    r"(?P<used>\S+) memory has\s+been allocated and\s+available memory is only (?P<free>[\d.]+\w+)",
    re.DOTALL,
)
# From CUDA and its libraries, which allocate memory of their own: handles, workspaces, communicators.
_LIBRARY_ERROR = re.compile(
    r"cudaErrorMemoryAllocation|(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
    r"|CUDA error\(2\)|Cuda failure (?:2 )?'out of memory'|Not enough available GPU memory"
)
# From an accelerator's plug-in: ``C_Status`` of Paddle's device_ext.h; 2 is "resource exhausted".
_PLUGIN_ERROR = re.compile(r"CustomDevice error, the error code is : (?P<code>\d+)")
_EXHAUSTED = "2"
_SIZE = re.compile(r"([\d.]+)([kMGT]?)B")
_POWERS = {"": 0, "k": 10, "M": 20, "G": 30, "T": 40}
_GIB = 1 << 30
_MIN_FOREIGN = 2 * _GIB  # smaller differences are the context and the libraries, which take up to 1 GiB


@contextlib.contextmanager
def explain_memory(advice: str) -> Iterator[None]:
    """Convert errors of a GPU inside the block to one line: UserError with ``advice`` if its memory was exhausted.

    DeviceFailure if an accelerator's plug-in reports another failure: of a kernel, or of the device itself.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError):
            raise
        text = f"{type(error).__name__}: {error}"
        message, plugin = out_of_memory(text), _PLUGIN_ERROR.search(text)
        if message is not None:
            raise UserError(f"{message}; {advice}") from error
        if plugin is None:
            raise
        raise DeviceFailure(
            f"device {paddle.get_device()} (rank {rank()}) has failed, in a kernel or as a whole: its plug-in reports "
            f"status {plugin['code']} to Paddle; see its driver's log, and continue from a checkpoint with -resume=auto"
        ) from error


def out_of_memory(text: str) -> str | None:
    """Format an out-of-memory error from an exception's text; return None if the text is about something else."""
    allocation = _ALLOCATION.search(text)
    reserved = device_kinds.reserved_bytes()
    if allocation is not None:
        requested, used, free = (_bytes(allocation[name]) for name in ("requested", "used", "free"))
        foreign = ""
        if reserved is not None and used - reserved > _MIN_FOREIGN:
            foreign = f", {_size(used - reserved)} of them not by this process (see nvidia-smi)"
        return (
            f"out of memory on GPU {allocation['number']} (rank {rank()}): {_size(requested)} requested, "
            f"{_size(used)} in use{foreign}, {_size(free)} free"
        )
    library, plugin = _LIBRARY_ERROR.search(text), _PLUGIN_ERROR.search(text)
    holds = "" if reserved is None else f"; this process holds {_size(reserved)}"
    if plugin is not None and plugin["code"] == _EXHAUSTED:
        return f"out of memory on {paddle.get_device()} (rank {rank()}), as its plug-in reports{holds}"
    if library is None:
        return None
    device = paddle.get_device().partition(":")[2] or "0"
    return f"out of memory on GPU {device} (rank {rank()}): a CUDA library got none ({library[0]}){holds}"


def advise_training(config: RunSettings) -> str:
    """Format the settings that would reduce the memory of a training step and are not in use yet."""
    train = config.TRAIN
    parts = []
    if config.DATA.BATCH_SIZE > 1:
        parts.append(
            f"lower DATA.BATCH_SIZE ({config.DATA.BATCH_SIZE}) and raise TRAIN.ACCUM_ITER ({train.ACCUM_ITER}) by the "
            "same factor, which keeps the effective batch (-batch_size=auto finds it)"
        )
    if not train.RECOMPUTE and not config.TO_STATIC:
        parts.append("set TRAIN.RECOMPUTE True")
    if not config.AMP and (paddle.get_device() == "cpu" or device_kinds.computes_in(config.AMP_DTYPE)):
        parts.append("use -amp")
    return ", or ".join(parts) or "use a smaller model or input, or a larger GPU"


def advise_evaluation(config: RunSettings) -> str:
    """Format the setting that reduces the memory of an evaluation."""
    return f"lower DATA.BATCH_SIZE_EVAL ({config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE})"


def _bytes(text: str) -> float:
    match = _SIZE.match(text)
    return float(match[1]) * 2 ** _POWERS[match[2]] if match is not None else 0.0


def _size(number: float) -> str:
    return f"{number / _GIB:.2f} GiB" if number >= _GIB / 10 else f"{number / (1 << 20):.1f} MiB"
