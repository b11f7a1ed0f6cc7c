"""Arrays that a loader process hands to the training process through shared memory, without Paddle's help.

Paddle's own transfer updates its memory statistics in the loader process, under a lock. A process that was forked
while a thread of an earlier loader held that lock never gets it: it hangs, about one start in ten on a busy machine.
Here the loader process touches no Paddle tensor. It writes an array to a file in shared memory; what is pickled is the
file's name; unpickling, in the training process, removes the name and gives a tensor in the file's memory: no copy.
"""

import contextlib
import itertools
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..launch import stale_resources
from ..runtime.errors import UserError

FOLDER = stale_resources.SHARED_MEMORY
_SMALLEST_BYTES = 64 * 1024  # smaller arrays are pickled as they are
_REMEDY = "lower DATA.NUM_WORKERS or the batch size, or enlarge it (docker run --shm-size=8g)"
_loaders = itertools.count()


class SharedArray(np.ndarray):
    """Shape and dtype of an array whose content is a file in shared memory; can be pickled, and unpickled once, to a
    tensor of Paddle's core."""

    path: str

    def __reduce__(self) -> Any:
        return _map, (self.path, self.shape, self.dtype.str)


def new_prefix() -> str:
    """The beginning of the file names of one loader of this process."""
    # Containers may share /dev/shm but not their process numbers: the namespace keeps them apart.
    return f"{_namespace()}{os.getpid()}_{next(_loaders)}_{stale_resources.token()}_"


def share(array: np.ndarray, prefix: str) -> np.ndarray:
    """A stand-in that crosses to the parent process by name and becomes a tensor there; the array itself if that is
    not worth it. The stand-in keeps no memory: ``array`` can go.

    Args:
        array: uint8, int64, float32 or any other plain dtype.
        prefix: the loader's, from ``new_prefix`` in the parent.
    Raises:
        UserError: shared memory is full.
    """
    if array.nbytes < _SMALLEST_BYTES or not FOLDER.is_dir():
        return array
    path = None
    try:
        descriptor, path = tempfile.mkstemp(prefix=prefix, dir=FOLDER)
        with os.fdopen(descriptor, "wb") as file:
            file.write(memoryview(np.ascontiguousarray(array)).cast("B"))
    except OSError as error:
        if path is not None:
            os.unlink(path)
        need = f"a batch of {array.nbytes / 2**20:.0f} MiB ({error.strerror})"
        raise UserError(f"{FOLDER} has no room for {need}: {_REMEDY}") from error
    shared = np.broadcast_to(np.empty((), array.dtype), array.shape).view(SharedArray)
    shared.path = path
    return shared


def require_room(arrays: Iterable[Any], batches: int, prefix: str) -> None:
    """Check that a loader's batches will fit, before a run gets to the point where they do not.

    Args:
        arrays: the tensors of one batch.
        batches: how many may be in flight at once.
        prefix: the loader's; what it has already written counts as room.
    Raises:
        UserError: shared memory is too small.
    """
    if not FOLDER.is_dir():
        return
    sizes = [math.prod(array.shape) * array.element_size() for array in arrays]
    needed = batches * sum(size for size in sizes if size >= _SMALLEST_BYTES)
    written = 0
    for path in FOLDER.glob(f"{prefix}*"):
        with contextlib.suppress(FileNotFoundError):
            written += path.stat().st_size
    room = shutil.disk_usage(FOLDER).free + written
    if needed > room:
        raise UserError(
            f"{FOLDER} has room for {room / 2**20:.0f} MiB, and the batches in flight from the loader processes "
            f"need {needed / 2**20:.0f} MiB: {_REMEDY}"
        )


def _map(path: str, shape: tuple[int, ...], dtype: str) -> Any:
    """A tensor of Paddle's core on the CPU in the file's memory: in Paddle's reader, which would copy arrays,
    and by steps in its threads' heaps, where a hundred MB a batch add up to several batches."""
    from paddle.base import core

    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # may be written to
    os.unlink(path)  # the memory lives as long as the mapping
    tensor = core.DenseTensor() if hasattr(core, "DenseTensor") else core.LoDTensor()  # the name until 2.6
    tensor.set(np.frombuffer(content, dtype=dtype).reshape(shape), core.CPUPlace(), True)  # keeps the array
    return tensor


def remove_leftovers(prefix: str) -> None:
    """Remove what loader processes wrote and nobody read: those of the loader ``prefix``, and of parents that died."""
    namespace = _namespace()
    if not FOLDER.is_dir():
        return
    for path in FOLDER.glob(f"{namespace}*"):
        parent = path.name[len(namespace) :].partition("_")[0]
        if path.name.startswith(prefix) or not Path("/proc", parent).exists():
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _namespace() -> str:
    return (
        f"{stale_resources.PREFIX}{os.stat('/proc/self/ns/pid').st_ino if os.path.exists('/proc/self/ns/pid') else 0}_"
    )
