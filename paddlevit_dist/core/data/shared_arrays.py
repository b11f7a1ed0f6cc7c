"""Transfer of arrays from a loader process to the training process through shared memory, without Paddle.

Paddle's transfer updates its memory statistics in the loader process, under a lock. A process that was forked while a
thread of an earlier loader held that lock hangs: about one start in ten on a busy machine. Here the loader process uses
no Paddle tensor. It writes an array to a file in shared memory and pickles the file's name. The training process
unlinks the file and creates a tensor in its memory, without a copy.
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
_SMALLEST_BYTES = 64 * 1024  # smaller arrays are pickled with their content
_REMEDY = "lower DATA.NUM_WORKERS or the batch size, or enlarge it (docker run --shm-size=8g)"
_loaders = itertools.count()


class SharedArray(np.ndarray):
    """Shape and dtype of an array in a shared memory file, unpickled, once, to a tensor of Paddle's core."""

    path: str

    def __reduce__(self) -> Any:
        return map_file, (self.path, self.shape, self.dtype.str)


def new_prefix() -> str:
    """Return the beginning of the file names of one loader of this process."""
    # Containers may share /dev/shm, with equal process ids: the namespace distinguishes them.
    return f"{_namespace()}{os.getpid()}_{next(_loaders)}_{stale_resources.token()}_"


def share(array: np.ndarray, prefix: str) -> np.ndarray:
    """Copy an array to shared memory and return a stand-in, which the parent process unpickles to a tensor.

    It does not keep ``array``, of a plain dtype, alive; a small ``array`` is returned itself. ``prefix``: the loader's,
    from ``new_prefix`` in the parent process. Raises UserError if shared memory is full.
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
    """Raise UserError unless ``batches``, as many as may be in flight at once, of ``arrays`` fit into shared memory.

    Files of the loader's ``prefix``, already written, count as free.
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


def map_file(path: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Create a tensor of Paddle's core on the CPU in the file's memory.

    Paddle's reader thread would copy arrays, in steps and in its threads' heaps: several batches of 100 MB add up.
    """
    from paddle.base import core

    with open(path, "rb") as file:
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # writable, without changing the file
    os.unlink(path)  # the memory is freed with the mapping
    tensor = core.DenseTensor() if hasattr(core, "DenseTensor") else core.LoDTensor()  # the name until 2.6
    tensor.set(np.frombuffer(content, dtype=dtype).reshape(shape), core.CPUPlace(), True)  # keeps the array
    return tensor


def remove_leftovers(prefix: str) -> None:
    """Remove unread files of the loader ``prefix``, and of loaders whose parent process has died."""
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
