"""A GPU whose memory runs out: one line with the figures of the run, and what helps."""

import contextlib
import re
from collections.abc import Iterator

import paddle

from ..distributed import rank
from ..runtime import device_kinds
from ..runtime.errors import DeviceFailure, UserError
from ..runtime.transfers import is_on_gpu
from ..settings.every_run import RunSettings
from ..tasks.callback import Callback, UpdateRecord

# Of Paddle's allocators, 2.6 and 3.x; "GPU Virtual Memory" in one of them.
_ALLOCATION = re.compile(
    r"Out of memory error on GPU.*? (?P<number>\d+)\.\s+Cannot allocate (?P<asked>\S+) memory on GPU.*?, "
    r"(?P<used>\S+) memory has\s+been allocated and\s+available memory is only (?P<free>[\d.]+\w+)",
    re.DOTALL,
)
# Of CUDA and of its libraries, which take memory besides Paddle's: a handle, a workspace, a communicator.
_OF_LIBRARIES = re.compile(
    r"cudaErrorMemoryAllocation|(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
    r"|CUDA error\(2\)|Cuda failure (?:2 )?'out of memory'|Not enough available GPU memory"
)
# Of an accelerator's plug-in: ``C_Status`` of Paddle's device_ext.h, of which C_FAILED is "resource exhausted".
_OF_PLUGINS = re.compile(r"CustomDevice error, the error code is : (?P<code>\d+)")
_EXHAUSTED = "2"
_SIZE = re.compile(r"([\d.]+)([kMGT]?)B")
_POWERS = {"": 0, "k": 10, "M": 20, "G": 30, "T": 40}
_GIB = 1 << 30
_OF_OTHERS = 2 * _GIB  # a context and the libraries take up to one


@contextlib.contextmanager
def explain_memory(advice: str) -> Iterator[None]:
    """Context that computes; memory that runs out on a GPU is told in a line.

    Args:
        advice: what this run can do about it.
    Raises:
        UserError: it did.
        DeviceFailure: an accelerator's plug-in reports another failure: of a kernel, or of the device itself.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError):
            raise
        text = f"{type(error).__name__}: {error}"
        said, plugin = out_of_memory(text), _OF_PLUGINS.search(text)
        if said is not None:
            raise UserError(f"{said}; {advice}") from error
        if plugin is None:
            raise
        raise DeviceFailure(
            f"device {paddle.get_device()} (rank {rank()}) has failed, in a kernel or as a whole: its plug-in reports "
            f"status {plugin['code']} to Paddle; its driver's log says more, and -resume=auto goes on from a checkpoint"
        ) from error


def out_of_memory(text: str) -> str | None:
    """Find what an exception's text says of memory that has run out on a GPU; None if it is of something else."""
    found = _ALLOCATION.search(text)
    if found is not None:
        asked, used, free = (_bytes(found[name]) for name in ("asked", "used", "free"))
        own = device_kinds.reserved_bytes()
        of_others = ""
        if own is not None and used - own > _OF_OTHERS:
            of_others = f", {_size(used - own)} of them not by this process (see nvidia-smi)"
        return (
            f"out of memory on GPU {found['number']} (rank {rank()}): {_size(asked)} were asked for, {_size(used)} are "
            f"in use{of_others} and {_size(free)} free"
        )
    named, plugin = _OF_LIBRARIES.search(text), _OF_PLUGINS.search(text)
    own = device_kinds.reserved_bytes()
    if plugin is not None and plugin["code"] == _EXHAUSTED:
        holds = "" if own is None else f"; this process holds {_size(own)}"
        return f"out of memory on {paddle.get_device()} (rank {rank()}), by what its plug-in reports{holds}"
    if named is None:
        return None
    holds = "" if own is None else f", of which this process holds {_size(own)}"
    device = paddle.get_device().partition(":")[2] or "0"
    return f"out of memory on GPU {device} (rank {rank()}): a library of CUDA got none ({named[0]}){holds}"


def of_training(config: RunSettings) -> str:
    """List what makes an update need less memory, where it is not in use yet."""
    train = config.TRAIN
    parts = []
    if config.DATA.BATCH_SIZE > 1:
        parts.append(
            f"lower DATA.BATCH_SIZE ({config.DATA.BATCH_SIZE}) and raise TRAIN.ACCUM_ITER ({train.ACCUM_ITER}) by the "
            "same factor, which keeps the effective batch"
        )
    if not train.RECOMPUTE and not config.TO_STATIC:
        parts.append("set TRAIN.RECOMPUTE True")
    if not config.AMP and (paddle.get_device() == "cpu" or device_kinds.computes_in(config.AMP_DTYPE)):
        parts.append("use -amp")
    return ", or ".join(parts) or "a smaller model or input, or a larger GPU, is left"


def of_evaluation(config: RunSettings) -> str:
    """The same for an evaluation."""
    return f"lower DATA.BATCH_SIZE_EVAL ({config.DATA.BATCH_SIZE_EVAL or config.DATA.BATCH_SIZE})"


class EmptyingCache(Callback):
    """Batches of very different sizes fragment a GPU's memory cache until no later batch fits.

    Args:
        every: so many updates it is emptied; 0: never.
    """

    on_every_rank = True

    def __init__(self, every: int) -> None:
        self._every = every

    def update_done(self, update: UpdateRecord) -> None:
        if self._every and (update.step.update + 1) % self._every == 0 and is_on_gpu():
            paddle.device.cuda.empty_cache()


def _bytes(text: str) -> float:
    found = _SIZE.match(text)
    return float(found[1]) * 2 ** _POWERS[found[2]] if found is not None else 0.0


def _size(number: float) -> str:
    return f"{number / _GIB:.2f} GiB" if number >= _GIB / 10 else f"{number / (1 << 20):.1f} MiB"
