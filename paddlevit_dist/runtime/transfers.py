"""Between the host's memory and this process's device without waiting for the device.

``paddle.to_tensor(array)`` on a GPU copies from memory that the system may page out: the host waits until all that is
queued before it is done. Each ``tensor.numpy()`` waits as well. Here both ways lead through pinned memory, which the
GPU reads and writes by itself: what goes over is queued like a kernel, and whoever reads waits once for all tensors.

On a CPU there is nothing to wait for, and these are ``paddle.to_tensor`` and ``tensor.numpy()``.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from . import device_kinds


def to_device(array: np.ndarray) -> paddle.Tensor:
    """An array as a tensor on this process's device. On a GPU the host goes on at once.

    A transfer costs the host about as much as a few small kernels: an array for each of eight images is better
    joined first, and what does not change between steps is a ``constant``.

    Args:
        array: of any shape and plain dtype, which the tensor has too; may be changed afterwards.
    """
    if not array.size:  # Paddle copies no tensor without elements: the result would have neither place nor shape
        return paddle.zeros(list(array.shape), dtype=str(array.dtype))
    if not is_on_gpu():
        return paddle.to_tensor(array)
    # Paddle keeps the pinned memory until the stream has come to the end of the copy.
    return _begin_copy(_pin(array), paddle.framework._current_expected_place())


def to_device_together(*arrays: np.ndarray) -> list[paddle.Tensor]:
    """Arrays of one axis and dtype, none of them empty, as tensors on this process's device, in one transfer."""
    return list(paddle.split(to_device(np.concatenate(arrays)), [len(array) for array in arrays]))


def read_later(*tensors: paddle.Tensor) -> Callable[[], list[np.ndarray]]:
    """Begin to fetch tensors from the device; calling the result gives their values of now as arrays. It waits once for
    all of them, and not for what is queued on the device after this call."""
    if not is_on_gpu():
        arrays = [tensor.numpy() for tensor in tensors]
        return lambda: arrays
    copies = [_begin_copy(tensor, _pinned_place()) if tensor.size else tensor for tensor in tensors]
    wait = _after_this()

    def values() -> list[np.ndarray]:
        wait()
        return [copy.numpy() for copy in copies]

    return values


def read(*tensors: paddle.Tensor) -> list[np.ndarray]:
    """The values of tensors as arrays: the host waits for the device, once for all of them."""
    return read_later(*tensors)()


def constant(make: Callable[..., np.ndarray], *arguments: Any) -> paddle.Tensor:
    """The array ``make(*arguments)`` as a tensor on this process's device, made once and kept: nobody may change it.

    Args:
        make: the same array for the same arguments; a function of a module, so that it is the same the next time.
        arguments: hashable.
    """
    if not paddle.in_dynamic_mode():  # in a program that is being written down, a tensor belongs to that program
        return paddle.to_tensor(make(*arguments))
    return _keep(paddle.get_device(), make, *arguments)


@functools.lru_cache(maxsize=64)
def _keep(device: str, make: Callable[..., np.ndarray], *arguments: Any) -> paddle.Tensor:
    return to_device(np.asarray(make(*arguments)))


def is_on_gpu() -> bool:
    """Whether this process computes on a GPU of CUDA, or on a device that queues as those do."""
    return device_kinds.current().queues


# What needs a GPU, and nothing else does: a test on a CPU replaces these four and ``is_on_gpu``.


def _pinned_place() -> Any:
    return paddle.CUDAPinnedPlace()


def _pin(array: np.ndarray) -> paddle.Tensor:
    return paddle.to_tensor(array, place=_pinned_place())


def _begin_copy(tensor: paddle.Tensor, place: Any) -> paddle.Tensor:
    return tensor._copy_to(place, False)


def _after_this() -> Callable[[], None]:
    """A function that waits for all that is queued on the device by now."""
    arrived = paddle.device.Event()
    arrived.record()
    return arrived.synchronize
